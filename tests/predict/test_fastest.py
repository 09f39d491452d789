"""Torch or ONNX Runtime: measured with a clock of our own, remembered, and never at the price of an ability."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_models import small_config, small_model
from small_vocabularies import english

from litebert.export.onnx_file import export_onnx
from litebert.model.hub import save_model
from litebert.predict import fastest, load
from litebert.predict.fastest import WithTorch, cache_folder, describe_setting, find_export, measure, pick_fastest
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.predictor import Predictor
from litebert.predict.torch_runtime import TorchRuntime


class Clock:
    """Time passes only when somebody works."""

    now = 0.0

    def __call__(self):
        return self.now


class Worker:
    """A runtime that takes a fixed time for each token and for each pass."""

    config = small_config(max_position_embeddings=512)

    def __init__(self, clock, per_pass, per_token):
        self.clock, self.per_pass, self.per_token = clock, per_pass, per_token
        self.lengths = []

    def run(self, requests):
        assert all(request.ids.max() < self.config.vocab_size for request in requests)
        self.lengths += map(len, requests)
        self.clock.now += self.per_pass + self.per_token * sum(map(len, requests))
        return [{} for _ in requests]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LITEBERT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model folder, and its export with int8 beside it."""
    folder = tmp_path_factory.mktemp("made")
    save_model(small_model("pretraining"), folder / "model")
    english().save(folder / "model")
    export_onnx(folder / "model", folder / "model-onnx", int8=True)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy" / "model"


def test_measured_in_turns_and_at_most_so_long():
    clock = Clock()
    workers = {"a": Worker(clock, 0.002, 0.0001), "b": Worker(clock, 0.001, 0.0002)}
    seconds = measure(workers, clock)
    assert seconds["a"] == pytest.approx([0.0036, 0.0148])
    assert seconds["b"] == pytest.approx([0.0042, 0.0266])
    assert workers["a"].lengths == [16] * 10 + [128] * 10
    clock, begin = Clock(), 0.0
    slow = {"a": Worker(clock, 0, 0.1), "b": Worker(clock, 0, 0.05)}
    assert measure(slow, clock)["a"] == pytest.approx([1.6])  # a pass over 128 would take half a minute
    assert clock.now - begin == pytest.approx(2 * 1.6 + 2 * 0.8)


def test_the_choice_is_remembered_for_the_shape_the_machine_and_the_versions(cache, monkeypatch):
    clock, config = Clock(), small_config()

    def pick(threads, a, b):
        return pick_fastest(config, threads, {"a": lambda: Worker(clock, *a), "b": lambda: Worker(clock, *b)}, clock)

    assert pick(2, (0.02, 0), (0.01, 0)) == "b"
    assert pick(2, (0.01, 0), (0.02, 0)) == "b"  # remembered
    assert pick(4, (0.01, 0), (0.02, 0)) == "a"
    assert json.loads((cache / "fastest.json").read_text()) == {
        describe_setting(config, 2): "b",
        describe_setting(config, 4): "a",
    }
    monkeypatch.setattr("torch.__version__", "99")
    assert pick(2, (0.01, 0), (0.02, 0)) == "a"
    # Twice as fast for short texts against a third slower for long ones.
    assert pick(8, (0.1, 0.001), (0.01, 0.002)) == "b"


@pytest.mark.parametrize("content", ["", "[]", '{"cut": ', b"\xff"])
def test_a_damaged_memory_is_written_anew(cache, content):
    cache.mkdir()
    (cache / "fastest.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    clock = Clock()
    candidates = {"a": lambda: Worker(clock, 2, 0), "b": lambda: Worker(clock, 1, 0)}
    assert pick_fastest(small_config(), 1, candidates, clock) == "b"
    assert list(json.loads((cache / "fastest.json").read_text()).values()) == ["b"]


def test_nowhere_to_write_is_no_mistake(cache):
    cache.write_text("a file where the folder should be")
    clock = Clock()
    candidates = {"a": lambda: Worker(clock, 2, 0), "b": lambda: Worker(clock, 1, 0)}
    assert pick_fastest(small_config(), 1, candidates, clock) == "b"


def test_where_it_is_remembered(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LITEBERT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine" / "litebert"


def test_only_an_export_of_these_very_weights_counts(folder, monkeypatch):
    beside = folder.with_name("model-onnx")
    assert find_export(folder) == beside
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert find_export(folder) is None
    save_model(small_model("pretraining", seed=1), folder)  # trained further
    assert find_export(folder) is None
    shutil.rmtree(beside)
    assert find_export(folder) is None


@pytest.mark.parametrize(("here", "name"), [(".", "."), (".", "./"), ("inner", ".."), ("..", "model/")])
def test_a_model_by_any_name_of_its_folder(folder, monkeypatch, here, name):
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / here)
    found = find_export(Path(name))
    assert found is not None
    assert found.samefile(folder.with_name("model-onnx"))
    assert Predictor(name, device="cpu", threads=1).embed("anna").shape == (24,)


@pytest.mark.parametrize("choice", ["torch", "onnx-fp32"])
def test_the_predictor_takes_the_faster_and_keeps_every_ability(folder, monkeypatch, choice):
    asked = []
    monkeypatch.setattr(load, "pick_fastest", lambda config, threads, candidates: asked.append(threads) or choice)
    predictor = Predictor(folder, device="cpu", threads=1)
    assert asked == [1]
    kind = {"torch": TorchRuntime, "onnx-fp32": WithTorch}[choice]
    assert isinstance(predictor.runtime, kind)
    assert predictor.runtime.name == f"{choice.split('-')[0]} fp32, CPU, 1 thread"
    in_torch = Predictor(folder, runtime="torch", device="cpu", threads=1)
    assert predictor.abilities == in_torch.abilities
    assert "attention" in predictor.abilities
    # A map, which the export has not, beside what it has, in one pass.
    jobs = [[each.job(ability, text="Anna slept.") for ability in ("embed", "attention", "embed")]
            for each in (predictor, in_torch)]  # fmt: skip
    ours, theirs = predictor.run(jobs[0]), in_torch.run(jobs[1])
    for mine, expected in zip(ours[::2], theirs[::2], strict=True):
        np.testing.assert_allclose(mine.vector, expected.vector, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours[1].weights, theirs[1].weights, rtol=1e-4, atol=1e-5)


def test_the_choice_is_really_measured(folder, cache):
    first = Predictor(folder, device="cpu", threads=1)
    (choice,) = json.loads((cache / "fastest.json").read_text()).values()
    assert first.runtime.name.startswith(choice.split("-")[0])
    other = {"torch": "onnx-fp32", "onnx-fp32": "torch"}[choice]
    (cache / "fastest.json").write_text(json.dumps({describe_setting(first.runtime.config, 1): other}))
    assert Predictor(folder, device="cpu", threads=1).runtime.name.startswith(other.split("-")[0])
    assert isinstance(Predictor(folder, runtime="torch", device="cpu", threads=1).runtime, TorchRuntime)


def test_a_damaged_export_is_no_reason_to_fail(folder):
    (folder.with_name("model-onnx") / "model.onnx").write_bytes(b"half of it")
    assert isinstance(Predictor(folder, device="cpu", threads=1).runtime, TorchRuntime)


def test_int8_is_never_taken_unasked(folder):
    exported = folder.with_name("model-onnx")
    assert Predictor(exported, threads=1).runtime.precision == "fp32"
    assert Predictor(exported, runtime="onnx", threads=1).runtime.precision == "int8"
    manifest = json.loads((exported / "export.json").read_text())
    del manifest["files"]["model.onnx"]
    (exported / "export.json").write_text(json.dumps(manifest))
    assert isinstance(alone := Predictor(exported, threads=1).runtime, OnnxRuntime)  # nothing else is there
    assert alone.precision == "int8"
    assert fastest.find_export(folder) is None
