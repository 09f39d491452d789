"""A model and a split -> predictions, scores, and prediction files with one JSON object per example.

{"id": "17", "text": "a dull film", "gold": "negative", "prediction": "positive", "probability": 0.93, "badness": 2.66}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert.errors import DataError
from litebert.files import write_atomic
from litebert.parse import parse_json
from litebert.tasks.decode import Prediction, decode
from litebert.tasks.examples import Example
from litebert.tasks.metrics import RESAMPLES, Metric, score
from litebert.tasks.task import Task, kind_of

if TYPE_CHECKING:  # torch takes seconds, and a report only reads what is written here
    from litebert.finetuning.data import Split
    from litebert.model.heads import Model
    from litebert.train.device import Device
    from litebert.train.processes import World


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
    from litebert.finetuning.model import run_sequences
    from litebert.train.processes import World, gather

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


def write_predictions(path: Path, evaluation: Evaluation) -> None:
    """Write all predictions of a split, in the order of its examples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = zip(evaluation.split.examples, evaluation.predictions, strict=True)
    lines = (json.dumps(describe(evaluation.task, *pair), ensure_ascii=False) for pair in pairs)
    write_atomic(path, "".join(line + "\n" for line in lines))


def read_predictions(path: Path) -> list[dict[str, Any]]:
    """Read a file written by `write_predictions`."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read the predictions: {error}") from None
    return [parse_json(line, str(path), line=number) for number, line in enumerate(lines, start=1) if line]


def describe(task: Task, example: Example, prediction: Prediction) -> dict[str, Any]:
    """One example and its prediction in readable form."""
    kind = kind_of(task)
    said, gold = kind.describe(example)
    line: dict[str, Any] = {"id": example.id, **said}
    if example.is_labelled:
        line["gold"] = kind.say(task, example, gold)
    line["prediction"] = kind.say(task, example, prediction.value)
    probability = kind.sureness(prediction)
    if probability is not None:
        line["probability"] = round(probability, 6)
    if task.answerable_head and prediction.answers is not None:
        line["no_answer_score"] = round(prediction.answers.no_answer, 6)
    if example.is_labelled:
        line["badness"] = round(kind.badness(task, example, gold, prediction), 6)
    return line


def worst(task: Task, lines: Iterable[dict[str, Any]], most: int = 20) -> list[dict[str, Any]]:
    """The worst errors, worst first."""
    wrong = [line for line in lines if "gold" in line and kind_of(task).is_wrong(line)]
    return sorted(wrong, key=lambda line: -line["badness"])[:most]
