"""Seeds and sweeps: medians, the best, and a rate that diverges."""

from __future__ import annotations

import json
import math
import statistics

import pytest
from toy_tasks import make_files, tiny_config

from litebert.errors import ConfigError
from litebert.finetune import run as run_module
from litebert.finetune.page import write_study_page
from litebert.finetune.results import Scores
from litebert.finetune.run import FinetuneResult, FinetuningStoppedError
from litebert.finetune.study import Member, Study, run_study
from litebert.tasks.metrics import Metric


def member(lr, seed, value, metric="accuracy", folder="x"):
    scores = Scores(metric, 1, {"dev": {metric: Metric(value, value - 0.1, value + 0.1)}})
    return Member(f"{lr}-{seed}", lr, seed, FinetuneResult(folder, 1, True, scores))


def test_median_spread_and_best(tmp_path):
    values = {1e-5: [0.6, 0.9, 0.7], 2e-5: [0.8, 0.75, 0.85]}
    members = [member(lr, seed, value) for lr, found in values.items() for seed, value in enumerate(found)]
    study = Study(tmp_path, tuple(members))
    first, second = study.settings
    assert (first.median, second.median) == (0.7, 0.8)
    assert first.spread == pytest.approx(statistics.stdev(values[1e-5]))
    assert first.middle.value == 0.7
    assert study.best.value == 0.9  # the best run, and the rate with the best median, are not the same
    assert study.best_setting.lr == 2e-5


def test_of_errors_the_least_is_best(tmp_path):
    study = Study(tmp_path, tuple(member(lr, 0, value, "rmse") for lr, value in ((1e-5, 0.9), (2e-5, 0.4))))
    assert study.best.lr == study.best_setting.lr == 2e-5


def test_a_rate_that_diverges_does_not_end_the_search(toy_model, tmp_path, monkeypatch):
    files = make_files(tmp_path / "files", "classification")
    real = run_module.PlainStep.__call__

    def broken(self, batch, divisor):
        totals = real(self, batch, divisor)
        return totals * math.nan if self.fails else totals

    init = run_module.Run.__init__

    def noted(self, config, *rest, **more):
        init(self, config, *rest, **more)
        self.take_step.fails = config.optim.lr == 0.5

    monkeypatch.setattr(run_module.PlainStep, "__call__", broken)
    monkeypatch.setattr(run_module.Run, "__init__", noted)
    config = tiny_config(toy_model, files, guard={"max_skips": 0})
    study = run_study(config, tmp_path / "study", lrs=[0.5, 0.01], quiet=True)
    assert [m.value is None for m in study.members] == [True, False]
    assert study.best.lr == 0.01
    summary = json.loads((tmp_path / "study" / "summary.json").read_text())
    assert summary["best_lr"] == 0.01
    assert summary["settings"][0]["median"] is None
    page = write_study_page(tmp_path / "study").read_text(encoding="utf-8")
    assert "lr-0.5-seed-0" in page
    with pytest.raises(FinetuningStoppedError, match="all 1 runs diverged"):
        run_study(config, tmp_path / "none", lrs=[0.5], quiet=True)


def test_no_seeds(toy_model, tmp_path):
    with pytest.raises(ConfigError, match="--seeds: must be at least 1"):
        run_study(tiny_config(toy_model, {"train": "a.csv"}), tmp_path / "study", seeds=0)
