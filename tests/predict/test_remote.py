"""Sequences of a whole group through the model at once: what `Runtime.run` gives for each."""

from __future__ import annotations

import dataclasses
import threading
from multiprocessing import Pipe

import numpy as np
import pytest
from small_adapters import TASKS as ADAPTER_TASKS
from small_adapters import make_adapter_folder, make_base
from small_models import predictor_of, runtime_of
from small_vocabularies import english

from litebert.errors import InputError
from litebert.predict.exits import ExitRule
from litebert.predict.predictor import Predictor
from litebert.predict.remote import (
    Sequences,
    SharedModel,
    join_outputs,
    run_rows,
    run_sequences,
    serve_device,
    split_outputs,
)
from litebert.predict.runtime import Request
from litebert.tasks.task import Task

TEXTS = ["anna lives in oslo.", "rome", "it was may 2010, and the teacher walked to the café.", "a b c d e f g"] * 5


def requests_of(predictor, want):
    texts = [predictor.tokenizer.encode(text) for text in TEXTS]
    return [
        Request(np.array([2, *ids, 3], np.int32), np.array([0] * len(ids) + [1, 1], np.int8), frozenset(want))
        for ids in texts
    ]


@pytest.mark.parametrize("want", [["mean"], ["first"], ["mean", "first", "pooled"]])
@pytest.mark.parametrize("max_tokens", [16, 64, 8192])
def test_vectors_of_a_group_are_those_of_single_requests(want, max_tokens):
    runtime = predictor_of("pretraining", max_tokens=max_tokens).runtime
    requests = requests_of(predictor_of("pretraining"), want)
    found = split_outputs(run_rows(runtime, Sequences.of(requests)), len(requests))
    for one, other in zip(found, runtime.run(requests), strict=True):
        assert one.keys() == set(want)
        for name in want:
            assert one[name].dtype == np.float32
            np.testing.assert_array_equal(one[name], other[name])


def test_vectors_at_a_depth():
    runtime = predictor_of("pretraining").runtime
    requests = requests_of(predictor_of("pretraining"), ["mean"])
    shallow = [dataclasses.replace(request, depth=1) for request in requests]
    found = split_outputs(run_sequences(runtime, Sequences.of(shallow)), len(requests))
    for one, other, full in zip(found, runtime.run(shallow), runtime.run(requests), strict=True):
        np.testing.assert_array_equal(one["mean"], other["mean"])
        assert not np.allclose(one["mean"], full["mean"])


def test_other_outputs_go_through_the_runtime():
    """Different wants, positions to predict, outputs of different shapes."""
    predictor = predictor_of("pretraining")
    requests = requests_of(predictor, ["hidden"])[:3] + requests_of(predictor, ["sentence"])[:2]
    ids, segments = requests[0].ids, requests[0].segments
    requests.append(Request(ids, segments, frozenset({"masked_lm"}), positions=np.array([1, 2])))
    found = split_outputs(run_sequences(predictor.runtime, Sequences.of(requests)), len(requests))
    for one, other in zip(found, predictor.runtime.run(requests), strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            np.testing.assert_array_equal(one[name], value)


def test_outputs_are_joined_and_split_again():
    outputs = [{"a": np.ones((2, 3)), "b": np.array(1.0)}, {"a": np.zeros((1, 3))}, {"b": np.array(2.0)}]
    for one, other in zip(split_outputs(join_outputs(outputs), 3), outputs, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in other)


def test_what_the_model_cannot_take_is_refused():
    predictor = predictor_of("pretraining")
    (request, *_) = requests_of(predictor, ["mean"])
    bad = Request(request.ids + 10_000, request.segments, request.want)
    with pytest.raises(InputError, match="the model takes 0 to"):
        run_rows(predictor.runtime, Sequences.of([request, bad]))
    long = Request(np.full(60, 5, np.int32), np.zeros(60, np.int8), request.want)
    with pytest.raises(InputError, match="the model takes 1 to 48"):
        run_rows(predictor.runtime, Sequences.of([request, long]))


def test_logits_of_a_group_are_those_of_single_requests():
    labels = ("bad", "fine", "good")
    for pooling in ("first", "mean"):
        runtime = predictor_of("classification", labels=labels, pooling=pooling, max_tokens=64).runtime
        requests = requests_of(predictor_of("pretraining"), ["logits"])
        found = split_outputs(run_rows(runtime, Sequences.of(requests)), len(requests))
        for one, other in zip(found, runtime.run(requests), strict=True):
            np.testing.assert_array_equal(one["logits"], other["logits"])
            assert one["logits"].shape == (3,)


def test_a_predictor_whose_model_answers_elsewhere():
    """All that a request may hold crosses; a mistake comes back as one; the connection's end ends the service."""
    task = Task("mine", "classification", ("bad", "fine", "good"), max_length=32, pair=None)
    changes = {"labels": task.labels, "exits": (1, 2)}
    there = Predictor.of(runtime_of("classification", **changes), english(), task, rule=ExitRule("confidence", 0.5))
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve_device, args=(there, theirs))
    thread.start()
    here = SharedModel.of(there).open(ours)
    assert here.abilities == there.abilities
    jobs = [
        ("classify", {"text": TEXTS[0]}),
        ("classify", {"text": TEXTS[2], "depth": 1}),
        ("classify", {"text": TEXTS[1], "depth": "auto"}),
        ("embed", {"text": TEXTS[3], "pooling": "cls"}),
        ("attention", {"text": "rome", "max_tokens": 8}),
    ]
    mine, theirs_too = (one.run([one.job(name, **given) for name, given in jobs]) for one in (here, there))
    for one, other in zip(mine, theirs_too, strict=True):
        assert one.as_dict() == other.as_dict()
    with pytest.raises(InputError, match="the model takes 0 to"):
        here.runtime.run([Request(np.full(3, 10_000, np.int32), np.zeros(3, np.int8), frozenset({"mean"}))])
    ours.close()
    thread.join(10)
    assert not thread.is_alive()


def test_adapters_answer_elsewhere(tmp_path):
    base = make_base(tmp_path / "base")
    there = Predictor(base, device="cpu", threads=1)
    for name in ("sentiment", "names"):
        there.add_adapter(name, make_adapter_folder(tmp_path / name, base, ADAPTER_TASKS[name]))
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve_device, args=(there, theirs))
    thread.start()
    here = SharedModel.of(there).open(ours)
    assert list(here.adapters) == ["sentiment", "names"]

    def answers(predictor):
        sentiment, names = predictor.adapters.values()
        jobs = [sentiment.job("classify", text=TEXTS[0]), names.job("tag", text=TEXTS[0])]
        jobs += [predictor.job("embed", text=TEXTS[2]), sentiment.job("embed", text=TEXTS[2])]
        return [result.as_dict() for result in predictor.run(jobs)]

    assert answers(here) == answers(there)
    ours.close()
    thread.join(10)
