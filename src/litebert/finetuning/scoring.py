"""A model and a split -> what it predicts, and how right that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from litebert.errors import DataError
from litebert.finetuning.data import Split
from litebert.finetuning.outputs import run_sequences
from litebert.model.heads import Model
from litebert.tasks.decode import Prediction, decode
from litebert.tasks.metrics import RESAMPLES, Metric, score
from litebert.tasks.task import Task, kind_of
from litebert.train.device import Device
from litebert.train.processes import World, gather


@dataclass(frozen=True)
class Evaluation:
    """One split as a model (or several together) sees it; no scores where it has no labels."""

    task: Task
    split: Split
    predictions: list[Prediction]
    scores: Mapping[str, Metric]
    thresholds: Mapping[str, float] = field(default_factory=dict)  # "fixed", "tuned", "best": where "no answer" begins


def predict_split(
    model: Model, task: Task, split: Split, device: Device, fixed: bool = False, world: World | None = None
) -> list[Prediction]:
    """What a model says about each example of a split; the processes of a run share the work."""
    world = world or World()
    outputs = run_sequences(model, task, split.features[world.rank :: world.size], device, fixed)
    outputs = gather(outputs, world)
    return decode(task, split.examples, split.features, outputs)


def score_split(task: Task, split: Split, predictions: list[Prediction], resamples: int = RESAMPLES) -> Evaluation:
    """How right predictions are; 0 `resamples` leave the intervals out.

    Where "no answer" is possible, scores are at the threshold 0; beside them stand those at the threshold that the
    model was saved with (`tuned_f1`) and those at the best one for this very split (`best_f1`: an upper bound).
    """
    if not split.examples:
        raise DataError(f"{split.name}: no examples to score")
    scores: dict[str, Metric] = {}
    thresholds: dict[str, float] = {}
    if split.is_labelled:
        kind = kind_of(task)
        thresholds = kind.thresholds(task, split.examples, predictions)
        if not thresholds:
            scores = score(task, split.examples, predictions, resamples)
        for name, threshold in thresholds.items():
            found = score(task, split.examples, kind.at_threshold(predictions, threshold), resamples)
            scores |= found if name == "fixed" else {f"{name}_{metric}": found[metric] for metric in task.metrics}
    return Evaluation(task, split, predictions, scores, thresholds)
