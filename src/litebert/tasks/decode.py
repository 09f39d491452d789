"""Decode the raw outputs of a model: logits to probabilities, predictions, means of several models, submission files.

    decode(task, examples, make_features(task, examples, tokenizer), outputs)  -> one Prediction per example

`outputs` holds the arrays of the head for each sequence: "logits", "start" and "end", or the answer head's search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.files import write_atomic
from litebert.tasks import glue
from litebert.tasks.features import Feature
from litebert.tasks.task import Example, Task, kind_of

if TYPE_CHECKING:
    from litebert.tasks.spans import Answers


Outputs = Mapping[str, NDArray[Any]]
_MNLI = {"test-matched": "MNLI-m", "test-mismatched": "MNLI-mm"}


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction for one example.

    The value is a label id, a number, label ids (multi-label), one tag id per word, the index of an option, or the text
    of an answer ("" for none). Probabilities are [labels], [options], or [words, labels] for tags.
    """

    value: Any
    probabilities: NDArray[np.float64] | None = None
    answers: Answers | None = None


def decode(
    task: Task, examples: Sequence[Example], features: Sequence[Feature], outputs: Sequence[Outputs]
) -> list[Prediction]:
    """One prediction per example, in order; the sequences of an example are consecutive."""
    kind = kind_of(task)
    predictions = []
    place = 0
    for number, example in enumerate(examples):
        begin = place
        while place < len(features) and features[place].example == number:
            place += 1
        assert place > begin, example.where
        predictions.append(kind.predict(task, example, features[begin:place], outputs[begin:place]))
    assert place == len(features) == len(outputs)
    return kind.settle(task, examples, predictions)


def average(task: Task, models: Sequence[Sequence[Prediction]]) -> list[Prediction]:
    """An ensemble as in the paper: mean probabilities or numbers; for answers, mean span and no-answer scores."""
    return [kind_of(task).average(task, votes) for votes in zip(*models, strict=True)]


def write_submission(
    task: Task, split: str, examples: Sequence[Example], predictions: Sequence[Prediction], folder: Path | str
) -> list[Path]:
    """Write one split in the format of its scorer or leaderboard and return the paths.

    GLUE: CoLA.tsv, MNLI-m.tsv, ... with "index" and "prediction"; SQuAD: JSON with answers by question id, plus
    no-answer scores and n-best lists; RACE: option letters by question id. Names include the split, but for GLUE test.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, text in kind_of(task).submission(task, examples, predictions).items():
        paths.append(folder / f"{_file_name(task, split)}{suffix}")
        write_atomic(paths[-1], text)
    return paths


def _file_name(task: Task, split: str) -> str:
    if task.name == "mnli" and split in _MNLI:
        return _MNLI[split]
    name = glue.SOURCES[task.name].folder if task.name in glue.SOURCES else task.name
    return name if split == "test" and task.name in glue.SOURCES else f"{name}-{split}"


# ---------------------------------------------------------------------------------------------------------------------
# Logits to probabilities


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Probabilities over the last axis."""
    weights = np.exp(_shifted(logits))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def log_softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Log-probabilities, accurate for tiny probabilities too."""
    shifted = _shifted(logits)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _shifted(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    exact = logits.astype(np.float64)
    return np.asarray(exact - exact.max(-1, keepdims=True))  # exp cannot overflow


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def best_of(scores: NDArray[np.float64], count: int) -> list[int]:
    """Indices of the highest scores, best first, ties by index: ([.1, .7, .2], 2) -> [1, 2]."""
    chosen = np.argpartition(-scores, count - 1)[:count]
    return [int(place) for place in sorted(chosen, key=lambda place: (-scores[place], place))]
