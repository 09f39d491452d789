"""Adapters that share passes answer as each of them does alone, merged into its base."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_adapters import TASKS, make_adapter_folder, make_base

from litebert.errors import CheckpointError, ConfigError, InputError
from litebert.export.onnx_file import export_onnx
from litebert.model.adapter import AdapterConfig, add_adapter, save_adapter
from litebert.model.hub import load_model
from litebert.predict.predictor import Predictor
from litebert.tasks.task import Task, save_task

CONTEXT = "anna lives in oslo. her brother ben lives in rome and goes to the market every day with his old dog."
ARGUMENTS = {
    "fill_mask": [{"text": "anna lives in [MASK] and [MASK]"}, {"text": "good [MASK]", "top": 2}],
    "sentence_order": [{"a": "anna lives in oslo.", "b": "she moved there in may."}],
    "coherence": [{"text": "Anna lives in Oslo. She moved there in May. Then she left."}],
    "embed": [{"text": "good morning"}, {"text": "the old dog " * 30, "pooling": "cls"}],
    "similarity": [{"a": "good morning", "b": "anna lives in oslo."}],
    "search": [{"query": "oslo", "texts": ["anna lives in oslo.", "good morning"]}],
    "classify": [{"text": "a warm and funny day"}, {"text": "the old dog " * 30}],
    "tag": [{"text": "anna berg lives in oslo."}, {"text": "ben and anna " * 20}],
    "answer": [{"question": "who lives in oslo?", "context": CONTEXT}],
    "choose": [{"passage": CONTEXT, "question": "where does anna live?", "options": ["oslo", "rome", "at the market"]}],
}
SHAPES = {
    "shared": {},
    "groups": {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    "mean": {"pooling": "mean"},
    "bert": {"model_type": "bert", "embedding_size": 24, "sharing": "none", "hidden_act": "gelu"},
}


def jobs_of(predictor, pair=False):
    """Work of every ability that a predictor has, twice."""
    made = []
    for ability in predictor.abilities:
        for arguments in ARGUMENTS.get(ability, []):
            more = {"pair": "another text"} if pair and ability == "classify" else {}
            made += [predictor.job(ability, **arguments, **more) for _ in range(2)]
    return made


def check_close(found, expected, where):
    """Equal up to rounding, whatever is in there."""
    if isinstance(expected, np.ndarray):
        np.testing.assert_allclose(found, expected, atol=2e-5, rtol=1e-4, err_msg=where)
    elif dataclasses.is_dataclass(expected):
        assert type(found) is type(expected), (where, found)
        for each in dataclasses.fields(expected):
            check_close(getattr(found, each.name), getattr(expected, each.name), f"{where}.{each.name}")
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            check_close(found[key], expected[key], f"{where}[{key}]")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for number, pair in enumerate(zip(found, expected, strict=True)):
            check_close(*pair, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=2e-5), where
    else:
        assert found == expected, where


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shared_pass_gives_what_each_gives_alone(tmp_path, shape):
    base = make_base(tmp_path / "base", **SHAPES[shape])
    predictor = Predictor(base, device="cpu", threads=1, max_tokens=100_000)
    alone = {"": Predictor(base, device="cpu", threads=1)}
    together = {"": predictor}
    for number, (name, task) in enumerate(TASKS.items()):
        folder = make_adapter_folder(tmp_path / name, base, task, rank=1 + number, seed=number)
        alone[name] = Predictor(folder, device="cpu", threads=1)
        together[name] = predictor.add_adapter(name, folder)
        assert set(alone[name].abilities) - {"attention"} == set(together[name].abilities)
    jobs = {name: jobs_of(each, pair=name == "score") for name, each in together.items()}
    mixed = [job for turn in zip(*jobs.values(), strict=False) for job in turn]
    mixed += [job for each in jobs.values() for job in each if job not in mixed]
    passes = []
    run = predictor.runtime._start_packed
    predictor.runtime._start_packed = lambda requests: passes.append({r.adapter for r in requests}) or run(requests)
    predictor.run(mixed)
    assert len(passes[0]) == 1 + len(TASKS), "all of them in one pass"
    changed = 0
    for name, each in alone.items():
        expected = each.run(jobs_of(each, pair=name == "score"))
        found = [job.result for job in jobs[name]]
        check_close(found, expected, f"{shape} {name}")
        vectors = [result.vector for result in found if hasattr(result, "vector")]
        changed += not np.allclose(vectors[0], alone[""].embed("good morning"), atol=1e-2)
    assert changed == len(TASKS), "no adapter is without effect"


def test_where_few_states_are_looked_at_the_last_layer_computes_no_others(tmp_path):
    base = make_base(tmp_path / "base")
    predictor = Predictor(base, device="cpu", threads=1)
    folders = {name: make_adapter_folder(tmp_path / name, base, TASKS[name]) for name in ("sentiment", "topics")}
    adapted = {name: predictor.add_adapter(name, folder) for name, folder in folders.items()}

    def work(base, sentiment, topics):
        return [
            sentiment.job("classify", text="a warm day"),
            base.job("fill_mask", text="good [MASK] anna [MASK]"),
            topics.job("classify", text="the old dog " * 30),
            base.job("sentence_order", a="anna lives in oslo.", b="she moved there in may."),
            sentiment.job("classify", text="good morning"),
            topics.job("embed", text="good morning", pooling="cls"),
        ]

    asked = []
    forward = predictor.runtime.encoder.forward
    predictor.runtime.encoder.forward = lambda **inputs: asked.append(inputs["only_asked"]) or forward(**inputs)
    found = predictor.run(work(predictor, **adapted))
    assert asked == [True]
    alone = {name: Predictor(folder, device="cpu", threads=1) for name, folder in folders.items()}
    jobs = work(Predictor(base, device="cpu", threads=1), **alone)
    expected = [(alone["sentiment"], alone["topics"])[number % 4 == 2 or number == 5] for number in range(6)]
    expected = [
        Predictor(base, threads=1) if job.ability in ("fill_mask", "sentence_order") else each
        for job, each in zip(jobs, expected, strict=True)
    ]
    check_close(found, [each.run([job])[0] for each, job in zip(expected, jobs, strict=True)], "few")


@pytest.mark.parametrize("targets", [("value",), ("query", "ffn_output"), ("pooler",), ("attention_output",)])
def test_some_matrices_only(tmp_path, targets):
    base = make_base(tmp_path / "base")
    folder = make_adapter_folder(tmp_path / "one", base, TASKS["sentiment"], targets=targets)
    predictor = Predictor(base, device="cpu", threads=1)
    text = ["a warm day", "the old dog", "good morning anna"]
    expected = Predictor(folder, device="cpu", threads=1).classify(text)
    check_close(predictor.add_adapter("one", folder).classify(text), expected, str(targets))


def test_work_that_is_under_way_outlives_its_adapter(tmp_path):
    base = make_base(tmp_path / "base")
    folder = make_adapter_folder(tmp_path / "one", base, TASKS["sentiment"])
    predictor = Predictor(base, device="cpu", threads=1)
    adapted = predictor.add_adapter("one", folder)
    assert predictor.adapters == {"one": adapted}
    assert repr(adapted).startswith(f"Predictor('{base}:one', classification: ")
    job = adapted.job("classify", text="a warm day")
    expected = adapted.classify("a warm day")
    predictor.remove_adapter("one")
    assert predictor.adapters == {}
    assert predictor.run([job]) == [expected]
    again = predictor.add_adapter("one", folder)  # the name is free
    check_close(again.classify("a warm day"), expected, "again")


def test_threads_share_it(tmp_path):
    base = make_base(tmp_path / "base")
    predictor = Predictor(base, device="cpu", threads=1)
    adapted = [
        predictor.add_adapter(str(i), make_adapter_folder(tmp_path / str(i), base, TASKS["sentiment"], seed=i))
        for i in range(3)
    ]
    expected = [each.classify("a warm day").probabilities["good"] for each in adapted]
    found = [[] for _ in adapted]

    def work(number):
        for _ in range(20):
            found[number].append(adapted[number].classify("a warm day").probabilities["good"])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, single in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, single, rtol=1e-5)


def test_mistakes_are_told(tmp_path):
    base, other = make_base(tmp_path / "base"), make_base(tmp_path / "other", seed=1)
    folder = make_adapter_folder(tmp_path / "one", base, TASKS["sentiment"])
    predictor = Predictor(base, device="cpu", threads=1)
    predictor.add_adapter("one", folder)
    for name in ("one", "", "a:b", 3):
        with pytest.raises(ConfigError, match="must be a new name without ':'; loaded: one"):
            predictor.add_adapter(name, folder)
    with pytest.raises(ConfigError, match=r"no adapter 'on'; did you mean 'one'\?; loaded: one"):
        predictor.remove_adapter("on")
    with pytest.raises(InputError, match=r"base:one: this model \(classification\) has no fill_mask"):
        predictor.adapters["one"].fill_mask("a [MASK]")
    stranger = Predictor(other, device="cpu", threads=1)
    with pytest.raises(CheckpointError, match="an adapter of another base model: it was trained on other weights"):
        stranger.add_adapter("one", folder)
    weights = load_file(folder / "adapter_model.safetensors")
    save_file(weights, folder / "adapter_model.safetensors")  # without the fingerprint of its base
    with pytest.raises(CheckpointError, match=r"an adapter of another base model: .*base, not .*other"):
        stranger.add_adapter("one", folder)
    with pytest.raises(CheckpointError, match=r"not an adapter folder .*; it is a whole model"):
        predictor.add_adapter("two", base)
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("task.json"))
    with pytest.raises(CheckpointError, match=r"has no task\.json"):
        predictor.add_adapter("two", bare)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": str(tmp_path / "x")}))
    with pytest.raises(
        CheckpointError, match=r"its base model is not found: .*x: no such folder.* correct base_model_name"
    ):
        predictor.add_adapter("two", folder)
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    pooler = torch.ones_like(load_file(base / "model.safetensors")["albert.pooler.weight"])
    save_file({**weights, "base_model.model.albert.pooler.weight": pooler}, folder / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"two: replaces encoder.pooler.* of its base, so it cannot share a pass"):
        predictor.add_adapter("two", folder)
    (folder / "adapter_model.safetensors").unlink()
    save_file({n: t for n, t in weights.items() if "classifier" not in n}, folder / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"has no classifier\.weight, so its answers would be random"):
        predictor.add_adapter("two", folder)
    with pytest.raises(ConfigError, match=r"base:one: an adapter itself; add adapters to the Predictor of its base"):
        predictor.adapters["one"].add_adapter("two", folder)
    assert list(predictor.adapters) == ["one"]
    export_onnx(base, tmp_path / "onnx")
    with pytest.raises(ConfigError, match="adapters run in torch, and this model in onnx"):
        Predictor(tmp_path / "onnx", threads=1).add_adapter("one", folder)


def test_a_copy_of_the_base_will_do(tmp_path):
    base, copy = make_base(tmp_path / "base"), make_base(tmp_path / "copy")
    folder = make_adapter_folder(tmp_path / "one", base, TASKS["sentiment"])
    found = Predictor(copy, device="cpu", threads=1).add_adapter("one", folder).classify("a warm day")
    check_close(found, Predictor(folder, device="cpu", threads=1).classify("a warm day"), "copy")


def test_a_check_comes_before_it_is_found(tmp_path):
    base = make_base(tmp_path / "base")
    folder = make_adapter_folder(tmp_path / "one", base, TASKS["sentiment"])
    predictor = Predictor(base, device="cpu", threads=1)

    def check(adapted):
        assert adapted.classify("a warm day").label in ("bad", "good")
        assert not predictor.adapters
        raise ConfigError("not this one")

    with pytest.raises(ConfigError, match="not this one"):
        predictor.add_adapter("one", folder, check)
    assert not predictor.adapters

    def meanwhile(adapted):
        predictor.add_adapter("one", folder)

    with pytest.raises(ConfigError, match="must be a new name"):
        predictor.add_adapter("one", folder, meanwhile)
    assert list(predictor.adapters) == ["one"]


def test_adapters_by_application_cannot_share_a_pass(tmp_path):
    base = make_base(tmp_path / "base")
    model = load_model(base, "encoder")
    add_adapter(model, AdapterConfig(rank=8, per_application=True))
    save_adapter(model, tmp_path / "own", str(base))
    save_task(Task("near", "similarity"), tmp_path / "own")
    with pytest.raises(CheckpointError, match=r"own: differs by application of the layer, .* merge it"):
        Predictor(base, device="cpu", threads=1).add_adapter("own", tmp_path / "own")
    with pytest.raises(ConfigError, match=r"own: an adapter itself; add adapters to its base, .*base"):
        Predictor(tmp_path / "own", device="cpu", threads=1).add_adapter("two", tmp_path / "own")
