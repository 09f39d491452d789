"""Calibration: the promise is kept on the examples, as cheaply as the candidates allow, and saved with the model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toy_tasks import make_files, make_model, tiny_config

from litebert.errors import ConfigError
from litebert.finetuning.calibrate import calibrate
from litebert.finetuning.run import finetune
from litebert.predict.exits import load_rule
from litebert.predict.predictor import Predictor
from litebert.tasks.read import read_task


@pytest.fixture(scope="module", params=["classification", "regression"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    deep = make_model(folder / "model", num_hidden_layers=3)
    files = make_files(folder / "files", request.param, train=40, dev=30)
    config = tiny_config(deep, files, request.param, exits=[1, 2, 3], steps=30, log={"evaluate_every": 30})
    return finetune(config, folder / "run", quiet=True).model, files["dev"]


@pytest.mark.parametrize("promise", [{"max_loss": 0.0}, {"max_loss": 5.0}, {"speed_up": 1.2}])
def test_the_promise_holds_for_what_the_predictor_says(trained, promise):
    model, dev = trained
    found = calibrate(model, dev, device="cpu", threads=1, **promise)
    if "max_loss" in promise:
        assert found.chosen.score >= found.full_score - promise["max_loss"] / 100
        allowed = [t for t in found.trials if t.score >= found.full_score - promise["max_loss"] / 100]
        assert found.chosen.mean_depth == min(trial.mean_depth for trial in allowed)
    else:
        assert found.speed_up >= 1.2
        assert found.chosen.score == max(t.score for t in found.trials if t.mean_depth <= 3 / 1.2)
    assert load_rule(model) == found.chosen.rule
    predictor = Predictor(model, depth="auto", device="cpu", threads=1)
    task = predictor.task
    examples = read_task(task.kind, train=dev).train
    said = predictor.classify([example.a for example in examples])
    assert np.mean([each.depth for each in said]) == pytest.approx(found.chosen.mean_depth)
    if task.kind == "classification":
        right = [each.label == task.labels[e.label] for each, e in zip(said, examples, strict=True)]
        assert np.mean(right) == pytest.approx(found.chosen.score)
    else:
        gold = [example.label for example in examples]
        correlation = np.corrcoef([each.value for each in said], gold)[0, 1]
        assert correlation == pytest.approx(found.chosen.score, abs=1e-5)


def test_the_command(trained, cli):
    model, dev = trained
    arguments = ("calibrate", model, "--data", dev, "--device", "cpu", "--threads", 1)
    said = cli(*arguments, "--max-loss", 1)
    assert said.code == 0, said
    assert "of 3 layers on average" in said.out
    numbers = json.loads(cli(*arguments, "--speed-up", 1.2, "--json").out)
    assert numbers["mean_depth"] <= 2.5
    for more, message in (
        ((), "give one of max_loss"),
        (("--max-loss", 1, "--speed-up", 2), "give one of max_loss"),
        (("--speed-up", 9), "at most"),
        (("--speed-up", 0.5), "must be >= 1"),
        (("--max-loss", -1), "must be >= 0"),
    ):
        refused = cli(*arguments, *more)
        assert refused.code == 2, (more, refused)
        assert message in refused.err


def test_a_model_without_exits(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification")
    model = finetune(tiny_config(toy_model, files, steps=1), tmp_path / "run", quiet=True).model
    with pytest.raises(ConfigError, match="has no exits; fine-tune it with some"):
        calibrate(model, files["dev"], max_loss=1, device="cpu", threads=1)
