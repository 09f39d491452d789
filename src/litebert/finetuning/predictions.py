"""Predictions on disk: one JSON object per example, with its text, what is right, what was said, and how wrong it is.

{"id": "17", "text": "a dull film", "gold": "negative", "prediction": "positive", "probability": 0.93, "badness": 2.66}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litebert.errors import DataError
from litebert.files import write_atomic
from litebert.parse import parse_json
from litebert.tasks.decode import Prediction
from litebert.tasks.examples import ChoiceExample, Example, QuestionExample, TagExample, TextExample, is_labelled
from litebert.tasks.squad_metric import score_answer
from litebert.tasks.task import Task

if TYPE_CHECKING:
    from litebert.finetuning.scoring import Evaluation


def write_predictions(path: Path, evaluation: Evaluation) -> None:
    """Write every prediction of a split, in the order of its file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = zip(evaluation.split.examples, evaluation.predictions, strict=True)
    lines = (json.dumps(describe(evaluation.task, *pair), ensure_ascii=False) for pair in pairs)
    write_atomic(path, "".join(line + "\n" for line in lines))


def read_predictions(path: Path) -> list[dict[str, Any]]:
    """What `write_predictions` wrote."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read the predictions: {error}") from None
    return [parse_json(line, str(path), line=number) for number, line in enumerate(lines, start=1) if line]


def describe(task: Task, example: Example, prediction: Prediction) -> dict[str, Any]:
    """One example and what was said about it, in plain words."""
    line: dict[str, Any] = {"id": example.id}
    gold: Any = None
    if isinstance(example, TextExample):
        line["text"] = example.a
        if example.b is not None:
            line["pair"] = example.b
        gold = example.label
    elif isinstance(example, TagExample):
        line["words"] = list(example.words)
        gold = example.tags
    elif isinstance(example, ChoiceExample):
        line |= {"passage": example.passage, "question": example.question, "options": list(example.options)}
        gold = example.label
    else:
        line |= {"question": example.question, "context": example.context}
        gold = list(example.answers)
    if is_labelled(example):
        line["gold"] = _named(task, example, gold)
    line["prediction"] = _named(task, example, prediction.value)
    probability = _probability(task, prediction)
    if probability is not None:
        line["probability"] = round(probability, 6)
    if task.answerable_head and prediction.answers is not None:
        line["no_answer_score"] = round(prediction.answers.no_answer, 6)
    if is_labelled(example):
        line["badness"] = round(_badness(task, example, gold, prediction), 6)
    return line


def _named(task: Task, example: Example, value: Any) -> Any:
    if task.kind == "classification":
        return task.labels[value]
    if task.kind in ("multi-label", "token-classification"):
        return [task.labels[i] for i in value]
    if isinstance(example, ChoiceExample):
        return example.options[value]
    return value


def _probability(task: Task, prediction: Prediction) -> float | None:
    """How sure the model is of what it says; None where it does not say."""
    if prediction.answers is not None:
        return next(iter(prediction.answers.probabilities()), None)
    if prediction.probabilities is None:
        return None
    if task.kind == "token-classification":
        return float(prediction.probabilities.max(-1).min(initial=1.0))
    if task.kind == "multi-label":
        return float(np.maximum(prediction.probabilities, 1 - prediction.probabilities).min())
    return float(prediction.probabilities.max())


def _badness(task: Task, example: Example, gold: Any, prediction: Prediction) -> float:
    """By which the worst errors are found: minus the log of what the right answer was given, or the error itself."""
    if isinstance(example, QuestionExample):
        wrong = 1 - score_answer(str(prediction.value), example.answers)[1]
        return wrong * (1 + (_probability(task, prediction) or 0.0))
    probabilities = prediction.probabilities
    if probabilities is None:
        return abs(float(prediction.value) - float(gold))  # type: ignore[arg-type]
    if task.kind == "multi-label":
        right = np.zeros(len(task.labels))
        right[list(gold)] = 1
        given = np.where(right == 1, probabilities, 1 - probabilities)
        return float(-np.log(np.maximum(given, 1e-12)).mean())
    if task.kind == "token-classification":
        given = probabilities[np.arange(len(gold)), list(gold)]
        return float(-np.log(np.maximum(given, 1e-12)).sum())
    return -math.log(max(float(probabilities[gold]), 1e-12))


def is_wrong(task: Task, line: dict[str, Any]) -> bool:
    """Whether a line of predictions is an error (of a number: whatever is not exact)."""
    if task.kind == "question-answering":
        return score_answer(line["prediction"], line["gold"])[0] < 1
    return bool(line["prediction"] != line["gold"])


def worst(task: Task, lines: Iterable[dict[str, Any]], most: int = 20) -> list[dict[str, Any]]:
    """The errors that hurt most, worst first."""
    wrong = [line for line in lines if "gold" in line and is_wrong(task, line)]
    return sorted(wrong, key=lambda line: -line["badness"])[:most]
