"""Prediction files: one JSON object per example with its text, gold value, prediction and how bad the error is.

{"id": "17", "text": "a dull film", "gold": "negative", "prediction": "positive", "probability": 0.93, "badness": 2.66}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert.errors import DataError
from litebert.files import write_atomic
from litebert.parse import parse_json
from litebert.tasks.decode import Prediction
from litebert.tasks.examples import Example
from litebert.tasks.task import Task, kind_of

if TYPE_CHECKING:
    from litebert.finetuning.scoring import Evaluation


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
