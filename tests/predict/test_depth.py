"""Depth by request: the plain model of that depth is the reference; neighbours of other depths change nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from small_models import predictor_of, runtime_of, small_model
from small_vocabularies import english

from litebert.errors import InputError
from litebert.model.hub import save_model
from litebert.predict.predictor import Predictor
from litebert.predict.runtime import Request
from litebert.tasks.task import Task, save_task

DEEP = {"num_hidden_layers": 4, "exits": (1, 3, 4), "labels": ("good", "bad", "so so")}
TASK = Task("t", "classification", DEEP["labels"], max_length=40)
TEXTS = ["the quick fox", "dogs", "a man sleeps and the others run in the park", "the fox and the dog"]


def plain(text: str, depth: int, head: str = "classification") -> torch.Tensor:
    """The logits (or the mean of the last states) of the unfused model at a depth."""
    model = small_model(head, **DEEP)
    model.set_depth(depth) if head == "classification" else model.encoder.stop_after(depth)
    tokenizer = english()
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]])
    with torch.no_grad():
        return model(ids)[0] if head == "classification" else model(ids).hidden[0].mean(0)


def test_each_text_is_answered_at_the_depth_of_its_request():
    predictor = predictor_of("classification", TASK, **DEEP)
    depths = [1, None, 3, 4]
    jobs = [predictor.job("classify", text=text, depth=depth) for text, depth in zip(TEXTS, depths, strict=True)]
    for text, depth, result in zip(TEXTS, depths, predictor.run(jobs), strict=True):
        expected = plain(text, depth or 4).softmax(-1).numpy()
        found = [result.probabilities[label] for label in DEEP["labels"]]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert result.depth == depth
        alone = predictor.classify(text, depth=depth)
        np.testing.assert_allclose(found, [alone.probabilities[label] for label in DEEP["labels"]], atol=1e-5)
    assert predictor.runtime.model.depth is None  # as before


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_vectors_can_be_had_at_any_depth(depth):
    predictor = predictor_of("encoder", **{**DEEP, "exits": ()})
    vectors = predictor.embed(TEXTS, depth=depth)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, plain(text, depth, "encoder").numpy(), atol=1e-5)
    other = predictor_of("classification", TASK, **DEEP)
    assert other.embed("the fox", depth=2).shape == vectors[0].shape  # no head is asked


def test_a_predictor_with_a_depth(tmp_path, cli):
    save_model(small_model("classification", **DEEP), tmp_path)
    english().save(tmp_path)
    save_task(TASK, tmp_path)
    predictor = Predictor(tmp_path, depth=3, device="cpu", threads=1)
    full = Predictor(tmp_path, device="cpu", threads=1)
    here = predictor.classify(TEXTS[0])
    assert here.depth == 3
    assert here == full.classify(TEXTS[0], depth=3)
    assert predictor.classify(TEXTS[0], depth=1) == full.classify(TEXTS[0], depth=1)
    assert full.classify(TEXTS[0]).depth is None
    assert full.classify(TEXTS[0]).probabilities != here.probabilities
    assert predictor.attention("the fox").weights.shape[0] == 3
    with pytest.raises(InputError, match="exits at 1, 3, 4"):
        Predictor(tmp_path, depth=2, device="cpu", threads=1)

    said = cli("predict", "classify", TEXTS[0], "--depth", 3, "--model", tmp_path, "--device", "cpu", "--json")
    printed = json.loads(said.out)
    assert printed.pop("probabilities") == pytest.approx(here.probabilities)
    assert printed == {name: value for name, value in here.as_dict().items() if name != "probabilities"}
    wrong = cli("predict", "classify", TEXTS[0], "--depth", 2, "--model", tmp_path, "--device", "cpu")
    assert wrong.code == 2
    assert "exits at 1, 3, 4" in wrong.err


def test_what_a_model_cannot_answer_at():
    predictor = predictor_of("classification", TASK, **DEEP)
    for depth, message in ((2, "exits at 1, 3, 4"), (5, "between 1 and 4"), (0, "between 1 and 4"), (True, "whole")):
        with pytest.raises(InputError, match=message):
            predictor.classify("the fox", depth=depth)
    with pytest.raises(InputError, match="it has no exits"):
        predictor_of("classification", TASK, **{**DEEP, "exits": ()}).classify("the fox", depth=2)
    ids, segments = np.array([2, 7, 3], np.int32), np.zeros(3, np.int8)
    with pytest.raises(InputError, match="exits at 1, 3, 4"):
        runtime_of("classification", **DEEP).run([Request(ids, segments, frozenset({"logits"}), depth=2)])


def test_a_graph_has_one_depth(monkeypatch):
    predictor = predictor_of("classification", TASK, **DEEP)
    predictor.runtime.any_depth = False
    predictor.runtime.name = "onnx"
    with pytest.raises(InputError, match="onnx answers only at full depth"):
        predictor.classify("the fox", depth=3)
    assert predictor.classify("the fox", depth=4).depth == 4
