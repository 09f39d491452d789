"""What saying always the same scores on dev: the level that every model has to beat."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litebert.errors import DataError
from litebert.tasks.examples import Example, QuestionExample, TagExample
from litebert.tasks.metrics import score
from litebert.tasks.task import Task

Baselines = dict[str, dict[str, float]]
BASELINES_FILE = "baselines.json"


def constant_scores(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> Baselines:
    """{"accuracy": {"majority class": 0.51}, ...}: each metric of the best constant that training suggests."""
    name, values = _constant(task, train, dev)
    return {metric: {name: found.value} for metric, found in score(task, dev, values, resamples=0).items()}


def read_baselines(run: Path) -> Baselines:
    """What a run's folder says about constants; nothing where it had no dev split."""
    path = run / BASELINES_FILE
    try:
        found: Baselines = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    return found


def _constant(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> tuple[str, list[Any]]:
    if task.kind == "token-classification":
        tags = Counter(tag for example in train if isinstance(example, TagExample) for tag in example.tags or ())
        common = tags.most_common(1)[0][0]
        return "most common tag", [(common,) * len(e.words) for e in dev if isinstance(e, TagExample)]
    if task.kind == "question-answering":
        # As for words of a text, there is no answer that suits all: silence, or the first words of the context.
        questions = [example for example in dev if isinstance(example, QuestionExample)]
        if task.answerable_head:
            return "never an answer", [""] * len(questions)
        return "first words", [" ".join(question.context.split()[:3]) for question in questions]
    labels = [example.label for example in train if not isinstance(example, (TagExample, QuestionExample))]
    if task.kind == "regression":
        return "the mean", [float(np.mean([float(label) for label in labels]))] * len(dev)  # type: ignore[arg-type]
    usual = Counter(labels).most_common(1)[0][0]
    if task.kind == "multiple-choice":
        return "always the same option", [usual] * len(dev)
    return "majority class", [usual] * len(dev)
