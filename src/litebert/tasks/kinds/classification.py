"""Classification: one of several labels for a text or a pair (SST-2, MNLI, your own)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError
from litebert.tasks.decode import Prediction, softmax
from litebert.tasks.features import IGNORE, Arrays, Feature, Places
from litebert.tasks.kinds.kind import Constant, Forward, Losses, Targets, TextKind, TextReader, minus_log, most_common
from litebert.tasks.metrics import Measure, accuracy, binary_f1, macro_f1, matthews
from litebert.tasks.tables import Table, label_id, label_name, order_labels
from litebert.tasks.task import Task, TextExample

if TYPE_CHECKING:
    from torch import Tensor

MEASURES = {"accuracy": accuracy, "f1": binary_f1, "macro_f1": macro_f1, "matthews": matthews}
MOST_LABELS = 50  # or half of the rows; more are probably numbers or texts


class ClassReader(TextReader):
    """Takes the labels from the training file."""

    def find_labels(self, train: Table) -> tuple[str, ...]:
        """The distinct labels, sorted; rejects a single label, or too many to be labels."""
        column = self.roles["label"][0]
        labels = order_labels(name for value in train.values(column) if (name := label_name(value)) is not None)
        if len(labels) > max(MOST_LABELS, len(train.rows) // 2):
            raise DataError(
                f"{train.path}: column {column!r} holds {len(labels)} different labels in {len(train.rows)} rows; "
                "for numbers use regression; otherwise set columns to name the right one: label=NAME"
            )
        return at_least(2, labels, train)

    def label(self, cells: list[Any], where: str) -> int:
        name = label_name(cells[0])
        if name is None:
            raise DataError(f"{where}: no label in column {self.roles['label'][0]!r}; fill it in or delete the row")
        return label_id(name, self.ids, where, self.source)


class Classification(TextKind):
    """Softmax over the labels, trained with cross-entropy."""

    name = "classification"
    aliases = tuple(
        """class classify classifier cls textclassification sequenceclassification sentiment topic intent nli entailment
        paraphrase binary multiclass""".split()  # nli: the user's own pairs; MNLI has its own name
    )
    says = "label"
    reader = ClassReader
    metrics = ("accuracy", "macro_f1")
    problem_type = "single_label_classification"

    def fits(self, head: str, problem_type: str | None, num_outputs: int) -> bool:
        return head == "classification" and problem_type in (None, self.problem_type) and num_outputs > 1

    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        return {"labels": places.per_row([sequence.target for sequence in sequences])}, len(sequences)

    def loss(self, head: str, forward: Forward, targets: Targets, num_rows: int) -> Losses:
        return cross_entropy(forward().float(), targets["labels"])

    def decide(self, task: Task, logits: NDArray[Any]) -> Prediction:
        return likeliest(softmax(logits))

    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        return likeliest(mean_probabilities(votes))

    def measures(self, task: Task, examples: Sequence[TextExample], values: Sequence[Any]) -> dict[str, Measure]:
        gold, found = np.array([example.label for example in examples]), np.array(values, dtype=int)
        return {name: MEASURES[name](gold, found) for name in task.metrics}

    def constant(self, task: Task, train: Sequence[TextExample], examples: Sequence[TextExample]) -> Constant:
        common = most_common(Counter(example.label for example in train))
        return f"always {task.labels[common]!r}", [common] * len(examples)

    def cell(self, task: Task, value: Any) -> str:
        return str(task.labels[value])

    def say(self, task: Task, example: TextExample, value: Any) -> Any:
        return task.labels[value]

    def badness(self, task: Task, example: TextExample, gold: Any, prediction: Prediction) -> float:
        assert prediction.probabilities is not None
        return float(minus_log(prediction.probabilities[gold]))


def at_least(least: int, labels: tuple[str, ...], train: Table) -> tuple[str, ...]:
    """Refuse a training file with too few labels."""
    if len(labels) < least:
        raise DataError(f"{train.path}: needs at least {least} different labels, found {', '.join(labels) or 'none'}")
    return labels


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The summed loss and the number correct, per row ([N, L], [N]) or per token; IGNORE is skipped."""
    import torch.nn.functional as F

    logits = logits.flatten(0, -2)
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return loss, (logits.argmax(-1) == labels).sum()


def likeliest(probabilities: Any) -> Prediction:
    """The index of the highest probability."""
    return Prediction(int(probabilities.argmax()), probabilities)


def mean_probabilities(votes: Sequence[Prediction]) -> Any:
    """The mean over several models."""
    return np.mean([vote.probabilities for vote in votes if vote.probabilities is not None], axis=0)
