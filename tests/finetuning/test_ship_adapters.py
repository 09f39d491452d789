"""tools/ship_adapters.py: a run's adapter as a folder of the package, equal to it up to fp16, with its own scores."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from toy_tasks import make_files, make_model, tiny_config

import litebert.remote
from litebert.errors import CheckpointError
from litebert.finetuning.run import finetune
from litebert.predict.predictor import Predictor

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("ship_adapters", ROOT / "tools" / "ship_adapters.py")
ship_adapters = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ship_adapters)


@pytest.fixture(scope="module")
def run(toy_model, tmp_path_factory):
    """A run in two stages, on a model that stands for the package's."""
    folder = tmp_path_factory.mktemp("runs")
    files = make_files(folder / "files", "classification", train=30, dev=20)
    common = {"adapter": {"rank": 2}, "log": {"evaluate_every": 0}, "optim": {"lr": 0.02}}
    finetune(tiny_config(toy_model, files, **common), folder / "before", quiet=True)
    common["adapter"]["start"] = str(folder / "before" / "adapter")
    finetune(tiny_config(toy_model, files, **common), folder / "sentiment", quiet=True)
    return folder / "sentiment"


def test_it_is_the_adapter_of_the_run(run, toy_model, tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    for path in toy_model.iterdir():
        (package / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(litebert.remote, "DEFAULT_FOLDER", package)
    folder = ship_adapters.ship(run, package / "adapters")
    assert folder == package / "adapters" / "sentiment"
    trained, shipped = (load_file(each / "adapter_model.safetensors") for each in (run / "adapter", folder))
    assert trained.keys() == shipped.keys()
    assert all((trained[name].half() == shipped[name]).all() for name in trained)
    expected = Predictor(run / "adapter", device="cpu").classify("the film was great")
    for predictor in (Predictor("default:sentiment", device="cpu"), Predictor(device="cpu")):
        found = predictor.classify("the film was great")
        assert (found.label, found.probabilities) == (expected.label, pytest.approx(expected.probabilities, abs=1e-3))
    card = (folder / "README.md").read_text(encoding="utf-8")
    scores = json.loads((run / "scores.json").read_text())["splits"]["dev"]["accuracy"]
    assert f"| dev | accuracy | {100 * scores['value']:.1f} |" in card
    assert "| before | 30 | 6 | 8 | 0.02 |\n| sentiment | 30 | 6 | 8 | 0.02 |" in card
    assert "the weights of the last step; dev was scored once" in card
    for part in ("Labels: `neg`, `pos`", "SST-2", "no licence is named", "rank 2", "Simple methods on dev: "):
        assert part in card, part
    again = ship_adapters.ship(run, package / "adapters")  # in place of the first
    assert {path.name for path in again.iterdir()} == {path.name for path in folder.iterdir()}


def test_what_does_not_belong_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(litebert.remote, "DEFAULT_FOLDER", make_model(tmp_path / "other", seed=7))
    with pytest.raises(CheckpointError, match="an adapter of another base model: it was trained on other weights"):
        ship_adapters.ship(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit, match="must be one of sentiment, questions, entailment, similarity"):
        ship_adapters.ship(run.parent / "before", tmp_path / "out")
    (tmp_path / "sentiment").mkdir()
    with pytest.raises(SystemExit, match="not a complete run with an adapter"):
        ship_adapters.ship(tmp_path / "sentiment", tmp_path / "out")
