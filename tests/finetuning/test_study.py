"""Seeds and sweeps: medians, the best, a rate that diverges, and what is printed before a run."""

from __future__ import annotations

import io
import json
import math
import statistics
from dataclasses import replace

import pytest
from rich.console import Console
from toy_tasks import make_files, make_model, tiny_config

from litebert.baselines.table import Comparison
from litebert.errors import ConfigError
from litebert.finetuning import study as study_module
from litebert.finetuning.config import finetune_config
from litebert.finetuning.results import Scores
from litebert.finetuning.run import FinetuneResult, Finetuning
from litebert.finetuning.study import Member, Study, print_study, run_study, write_summary
from litebert.report.finetuning_page import write_study_page
from litebert.tasks.glue import TASKS
from litebert.tasks.metrics import Metric
from litebert.tasks.task import save_task
from litebert.train.trainer import TrainingStoppedError


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
    assert study.best.value == 0.9  # the best run, and the rate with the best median, are not the same
    assert study.best_setting.lr == 2e-5


def test_of_errors_the_least_is_best(tmp_path):
    study = Study(tmp_path, tuple(member(lr, 0, value, "rmse") for lr, value in ((1e-5, 0.9), (2e-5, 0.4))))
    assert study.best.lr == study.best_setting.lr == 2e-5


def test_a_rate_that_diverges_does_not_end_the_search(toy_model, tmp_path, monkeypatch):
    files = make_files(tmp_path / "files", "classification")
    real = Finetuning.loss

    def broken(self, inputs, counts):
        loss, sums = real(self, inputs, counts)
        return loss, sums * math.nan if self.config.optim.lr == 0.5 else sums

    monkeypatch.setattr(Finetuning, "loss", broken)
    config = tiny_config(toy_model, files, guard={"max_skips": 0})
    study = run_study(config, tmp_path / "study", lrs=[0.5, 0.01], quiet=True)
    assert [m.value is None for m in study.members] == [True, False]
    assert study.best.lr == 0.01
    summary = json.loads((tmp_path / "study" / "summary.json").read_text())
    assert summary["best_lr"] == 0.01
    assert summary["settings"][0]["median"] is None
    page = write_study_page(tmp_path / "study").read_text(encoding="utf-8")
    assert "lr-0.5-seed-0" in page
    with pytest.raises(TrainingStoppedError, match="all 1 runs diverged"):
        run_study(config, tmp_path / "none", lrs=[0.5], quiet=True)


def test_no_seeds(toy_model, tmp_path):
    with pytest.raises(ConfigError, match="seeds: must be >= 1"):
        run_study(tiny_config(toy_model, {"train": "a.csv"}), tmp_path / "study", seeds=0)


def shown(study):
    out = io.StringIO()
    print_study(study, Console(file=out, width=200))
    return out.getvalue()


def test_beside_a_median_stand_the_seeds_and_no_interval_of_one_run(tmp_path):
    study = Study(tmp_path, (member(1e-5, 0, 0.4), member(1e-5, 1, 0.6)))
    (row,) = [line for line in shown(study).splitlines() if "median" in line and "±" in line and "1e-05" in line]
    assert row.split() == ["1e-05", "median", "50.0", "seeds", "40.0", "–", "60.0", "±", "14.14"]
    write_summary(study)
    (setting,) = json.loads((tmp_path / "summary.json").read_text())["settings"]
    assert (setting["median"], setting["min"], setting["max"]) == (0.5, 0.4, 0.6)
    assert "interval" not in setting


@pytest.mark.parametrize(
    ("values", "lead", "verdict"),
    [
        ((0.9, 0.85), (0.3, 0.5), "ahead of"),
        ((0.55, 0.5), (-0.05, 0.15), "level with"),  # 0 lies within the interval of the best run's lead
        ((0.9, 0.3, 0.3), (0.3, 0.5), "level with"),  # one lucky seed
        ((0.3, 0.2), (-0.3, -0.1), "behind"),
    ],
)
def test_a_study_is_compared_with_baselines(tmp_path, values, lead, verdict):
    members = [member(1e-5, seed, value) for seed, value in enumerate(values)]
    compared = Comparison("TF-IDF", "", "accuracy", Metric(0.5, 0.4, 0.6), Metric(values[0] - 0.5, *lead))
    scores = replace(members[0].result.scores, baselines=(compared,))
    members[0] = replace(members[0], result=replace(members[0].result, scores=scores))
    out = shown(Study(tmp_path, tuple(members)))
    assert f"The model is {verdict} TF-IDF: accuracy {100 * values[0]:.1f} against 50.0" in out
    assert ("What may help" in out) == (verdict != "ahead of")


HINT = "from a model fine-tuned on MNLI: model RUN/best"


@pytest.mark.parametrize("preset", ["v1", "v2", "base"])
@pytest.mark.parametrize("task", ["rte", "sts-b", "mrpc", "cola", "qqp", "mnli"])
def test_the_tasks_that_the_paper_starts_from_mnli(task, preset, toy_model, tmp_path, monkeypatch, capsys):
    """Footnote 4: RTE, STS-B and MRPC; who follows the paper's preset is told so, unless the model is MNLI's."""
    monkeypatch.setattr(study_module, "train_model", lambda *_: FinetuneResult(tmp_path, 0, completed=False, signal=15))
    settings = {"task": task, "preset": preset, "data": {"folder": str(tmp_path)}}
    study_module.run_and_print(finetune_config({**settings, "model": str(toy_model)}), tmp_path / "run")
    wanted = task in ("rte", "sts-b", "mrpc") and preset != "base"
    assert (HINT in " ".join(capsys.readouterr().out.split())) == wanted
    mnli = make_model(tmp_path / "mnli")
    save_task(TASKS["mnli"], mnli)
    study_module.run_and_print(finetune_config({**settings, "model": str(mnli)}), tmp_path / "run")
    assert HINT not in " ".join(capsys.readouterr().out.split())
