"""A model and a split -> what it predicts, and how right that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litebert.errors import DataError
from litebert.finetune.outputs import run_sequences
from litebert.finetune.setup import Split
from litebert.model.heads import Model
from litebert.tasks.decode import Prediction, decode
from litebert.tasks.metrics import RESAMPLES, Metric, score
from litebert.tasks.task import Task
from litebert.tasks.threshold import best_threshold, with_threshold
from litebert.train.device import Device


@dataclass(frozen=True)
class Evaluation:
    """One split as a model (or several together) sees it; no scores where it has no labels."""

    task: Task
    split: Split
    predictions: list[Prediction]
    scores: Mapping[str, Metric]


def predict_split(model: Model, task: Task, split: Split, device: Device, fixed: bool = False) -> list[Prediction]:
    """What a model says about each example of a split."""
    outputs = run_sequences(model, task, split.features, device, fixed)
    return decode(task, split.examples, split.features, outputs)


def score_split(task: Task, split: Split, predictions: list[Prediction], resamples: int = RESAMPLES) -> Evaluation:
    """How right predictions are; 0 `resamples` leave the intervals out.

    Where "no answer" is possible, the task's own threshold counts, and beside it stands what the best threshold would
    give: an upper bound, since it is chosen on the very split.
    """
    if not split.examples:
        raise DataError(f"{split.name}: no examples to score")
    scores: dict[str, Metric] = {}
    if split.is_labelled:
        scores = score(task, split.examples, predictions, resamples)
        if task.answerable_head:
            threshold, _ = best_threshold(split.examples, predictions)
            best = score(task, split.examples, with_threshold(predictions, threshold), resamples)
            scores |= {f"best_{name}": best[name] for name in task.metrics}
    return Evaluation(task, split, predictions, scores)
