"""What saying always the same scores on dev: the level that every model has to beat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from litebert.errors import DataError
from litebert.finetuning.results import goodness, show_value
from litebert.tasks.constant import constant_values
from litebert.tasks.examples import Example
from litebert.tasks.metrics import score
from litebert.tasks.task import Task

Baselines = dict[str, dict[str, float]]
BASELINES_FILE = "baselines.json"


def constant_scores(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> Baselines:
    """{"accuracy": {"always 'pos'": 0.51}, ...}: each metric of the best constant that training suggests."""
    name, values = constant_values(task, train, dev)
    return {metric: {name: found.value} for metric, found in score(task, dev, values, resamples=0).items()}


def read_baselines(run: Path) -> Baselines:
    """What a run's folder says about constants; nothing where it had no dev split."""
    path = run / BASELINES_FILE
    try:
        found: Baselines = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    return found


def print_constants(baselines: Baselines, metric: str, pessimistic: float | None, console: Console) -> None:
    """What the constants score, and a warning where the model, seen pessimistically, does no better."""
    for what, value in baselines.get(metric, {}).items():
        console.print(f"{what}: {metric} {show_value(value, metric)}")
        if pessimistic is not None and goodness(metric, pessimistic) <= goodness(metric, value):
            console.print(
                "The model is not clearly better than that: try more data, epochs or another lr.", style="yellow"
            )
