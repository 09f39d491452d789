"""What a person is told before a run begins."""

from __future__ import annotations

import pytest
from toy_tasks import make_model

from litebert.finetuning import start
from litebert.finetuning.config import finetune_config
from litebert.finetuning.run import FinetuneResult
from litebert.tasks.glue import TASKS
from litebert.tasks.task import save_task

HINT = "from a model fine-tuned on MNLI: --model RUN/best"


@pytest.mark.parametrize("preset", ["v1", "v2", "base"])
@pytest.mark.parametrize("task", ["rte", "sts-b", "mrpc", "cola", "qqp", "mnli"])
def test_the_tasks_that_the_paper_starts_from_mnli(task, preset, toy_model, tmp_path, monkeypatch, capsys):
    """Footnote 4: RTE, STS-B and MRPC; who follows the paper's preset is told so, unless the model is MNLI's."""
    monkeypatch.setattr(start, "train_model", lambda *_: FinetuneResult(tmp_path, 0, completed=False, signal=15))
    settings = {"task": task, "preset": preset, "data": {"folder": str(tmp_path)}}
    start.run(finetune_config({**settings, "model": str(toy_model)}), tmp_path / "run")
    wanted = task in ("rte", "sts-b", "mrpc") and preset != "base"
    assert (HINT in " ".join(capsys.readouterr().out.split())) == wanted
    mnli = make_model(tmp_path / "mnli")
    save_task(TASKS["mnli"], mnli)
    start.run(finetune_config({**settings, "model": str(mnli)}), tmp_path / "run")
    assert HINT not in " ".join(capsys.readouterr().out.split())
