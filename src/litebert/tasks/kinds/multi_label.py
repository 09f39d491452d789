"""Multi-label: any number of labels for a text or a pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.decode import Prediction, sigmoid
from litebert.tasks.features import Arrays, Feature, Places, Target
from litebert.tasks.kinds.classification import at_least, mean_probabilities
from litebert.tasks.kinds.kind import (
    LABELS,
    Constant,
    Forward,
    Line,
    Losses,
    Targets,
    TextKind,
    TextReader,
    minus_log,
    most_common,
    text_columns,
)
from litebert.tasks.kinds.regression import value_targets
from litebert.tasks.metrics import Measure, all_right, label_macro_f1, label_micro_f1
from litebert.tasks.own import Columns
from litebert.tasks.tables import Table, label_id, label_name, order_labels, text_cell, truth_cell
from litebert.tasks.task import Task, TextExample

MEASURES = {"micro_f1": label_micro_f1, "macro_f1": label_macro_f1, "exact_match": all_right}
_SEPARATORS = "|;,"
_TRUTH = {"0", "1", "0.0", "1.0", "true", "false"}


class LabelsReader(TextReader):
    """Reads all labels from one column ("red;big" or a list), or one 0/1 column per label."""

    def look_at(self, first: Table) -> None:
        """Find the separator: | ; or ,"""
        self.separator = "|"
        columns = self.roles.get("label", ())
        if len(columns) == 1 and columns[0] in first.columns:
            text = "".join(value for value in first.values(columns[0]) if isinstance(value, str))
            self.separator = next((separator for separator in _SEPARATORS if separator in text), "|")

    def find_labels(self, train: Table) -> tuple[str, ...]:
        """The names of the 0/1 columns, or all labels in the one column."""
        if len(self.roles["label"]) > 1:
            return self.roles["label"]
        values = train.values(self.roles["label"][0])
        return at_least(1, order_labels(name for value in values for name in self._names(value, train.path)), train)

    def label(self, cells: list[Any], where: str) -> tuple[int, ...]:
        if len(self.roles["label"]) > 1:
            flags = zip(self.roles["label"], cells, strict=True)
            names = [column for column, value in flags if truth_cell(value, where, column)]
        else:
            names = self._names(cells[0], where)
        return tuple(sorted({label_id(name, self.ids, where, self.source) for name in names}))

    def _names(self, value: Any, where: str) -> list[str]:
        """The labels in one cell: ["a", "b"], "a|b" or ""."""
        parts = value if isinstance(value, list | tuple) else text_cell(value, where).split(self.separator)
        return [name for part in parts if (name := label_name(part)) is not None]


class MultiLabel(TextKind):
    """An independent probability per label, trained with binary cross-entropy."""

    name = "multi-label"
    aliases = ("multilabelclassification",)
    says = "labels"
    columns = text_columns(f"{LABELS} tags categories classes 태그")
    reader = LabelsReader
    metrics = ("micro_f1", "macro_f1", "exact_match")
    problem_type = "multi_label_classification"
    confused = ("(made up)", "(missed)")

    def guess_label(self, table: Table, rest: list[str], found: Columns) -> None:
        """All columns with only 0 and 1."""
        truths = tuple(c for c in rest if all(str(v).strip().casefold() in _TRUTH for v in table.values(c)))
        if truths:
            found["label"] = truths

    def fits(self, head: str, problem_type: str | None, num_outputs: int) -> bool:
        return head == "classification" and problem_type == self.problem_type

    def target(self, task: Task, label: Any) -> Target:
        """A 0/1 vector."""
        target = np.zeros(len(task.labels), dtype=np.float32)
        target[list(label)] = 1
        return target

    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        """0/1 vectors [N, L] and which rows have one."""
        return value_targets(max(len(task.labels), 1), sequences, places)

    def loss(self, head: str, forward: Forward, targets: Targets, num_rows: int) -> Losses:
        """Binary cross-entropy: mean over labels, sum over examples."""
        import torch.nn.functional as F

        logits = forward().float()
        loss = F.binary_cross_entropy_with_logits(logits, targets["values"], reduction="none").mean(-1)
        right = ((logits >= 0) == (targets["values"] > 0.5)).float().mean(-1)  # a probability of 0.5 counts as present
        return (loss * targets["used"]).sum(), (right * targets["used"]).sum()

    def decide(self, task: Task, logits: NDArray[Any]) -> Prediction:
        return _reached(np.array([sigmoid(float(logit)) for logit in logits]))

    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        return _reached(mean_probabilities(votes))

    def measures(self, task: Task, examples: Sequence[TextExample], values: Sequence[Any]) -> dict[str, Measure]:
        gold = _indicators([example.label for example in examples], len(task.labels))
        found = _indicators(values, len(task.labels))
        return {name: MEASURES[name](gold, found) for name in task.metrics}

    def constant(self, task: Task, train: Sequence[TextExample], examples: Sequence[TextExample]) -> Constant:
        common = most_common(Counter(example.label for example in train))
        names = ", ".join(repr(task.labels[label]) for label in common)
        return f"always {names or 'no label'}", [common] * len(examples)

    def cell(self, task: Task, value: Any) -> str:
        return "|".join(task.labels[number] for number in value)

    def say(self, task: Task, example: TextExample, value: Any) -> Any:
        return [task.labels[number] for number in value]

    def sureness(self, prediction: Prediction) -> float | None:
        """The least certain of all labels."""
        if prediction.probabilities is None:
            return None
        return float(np.maximum(prediction.probabilities, 1 - prediction.probabilities).min())

    def badness(self, task: Task, example: TextExample, gold: Any, prediction: Prediction) -> float:
        """Mean negative log-likelihood of the gold labels."""
        assert prediction.probabilities is not None
        right = np.zeros(len(task.labels))
        right[list(gold)] = 1
        given = np.where(right == 1, prediction.probabilities, 1 - prediction.probabilities)
        return float(minus_log(given).mean())

    def confusions(self, line: Line) -> Iterable[tuple[str, str]]:
        """Which label was mistaken for which is unknown; only hits, missed and made-up labels are."""
        gold, said = set(line["gold"]), set(line["prediction"])
        made_up, missed = self.confused
        yield from ((label, label) for label in gold & said)
        yield from ((label, missed) for label in gold - said)
        yield from ((made_up, label) for label in said - gold)

    def show_value(self, line: Line, key: Any) -> str:
        return ", ".join(line[key]) or "(none)"


def _reached(probabilities: NDArray[np.float64]) -> Prediction:
    """All labels with a probability of at least 0.5; there may be none."""
    return Prediction(tuple(np.flatnonzero(probabilities >= 0.5).tolist()), probabilities)


def _indicators(rows: Sequence[Any], num_labels: int) -> NDArray[np.bool_]:
    table = np.zeros((len(rows), num_labels), dtype=bool)
    for number, ids in enumerate(rows):
        table[number, list(ids)] = True
    return table
