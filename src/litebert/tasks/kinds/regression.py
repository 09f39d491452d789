"""Regression: a number for a text or a pair (STS-B, star ratings, your own scores)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.decode import Prediction
from litebert.tasks.features import Arrays, Feature, Places
from litebert.tasks.kinds.kind import (
    LABELS,
    Constant,
    Forward,
    Line,
    Losses,
    Targets,
    TextKind,
    TextReader,
    text_columns,
)
from litebert.tasks.metrics import Measure, pearson, rmse, spearman
from litebert.tasks.tables import number_cell
from litebert.tasks.task import Task, TextExample

MEASURES = {"pearson": pearson, "spearman": spearman, "rmse": rmse}
_SCORES = "score value rating similarity stars 점수 평점 별점 유사도 分数 分數 得分 评分 相似度"


class NumberReader(TextReader):
    """Reads numbers; the scale is that of the training file."""

    def label(self, cells: list[Any], where: str) -> float:
        return number_cell(cells[0], where, self.roles["label"][0])

    def settings(self, train: Sequence[TextExample]) -> dict[str, Any]:
        scores: list[Any] = [example.label for example in train if example.label is not None]
        return {**super().settings(train), "scale": (min(scores), max(scores)) if scores else None}


class Regression(TextKind):
    """One output, trained with squared error."""

    name = "regression"
    aliases = ("regress", "regressor", "score", "scoring", "rating")
    says = "number"
    columns = text_columns(f"{_SCORES} {LABELS}")
    reader = NumberReader
    metrics = ("pearson", "spearman", "rmse")
    counts_right = False
    problem_type = "regression"
    how_wrong = "are not exact"

    def num_outputs(self, task: Task) -> int | None:
        return 1

    def fits(self, head: str, problem_type: str | None, num_outputs: int) -> bool:
        several = problem_type == "multi_label_classification"
        return head == "classification" and not several and (problem_type == self.problem_type or num_outputs == 1)

    def infer(self, head: str, labels: tuple[str, ...], max_length: int) -> Task:
        return super().infer(head, (), max_length)

    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        """Numbers [N, 1] and which rows have one."""
        return value_targets(1, sequences, places)

    def loss(self, head: str, forward: Forward, targets: Targets, num_rows: int) -> Losses:
        """Squared error; there is no count of correct predictions."""
        error = (forward().float() - targets["values"]).square() * targets["used"][:, None]
        return error.sum(), error.new_zeros(())

    def decide(self, task: Task, logits: NDArray[Any]) -> Prediction:
        return Prediction(float(np.ravel(logits)[0]))

    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        return Prediction(float(np.mean([float(vote.value) for vote in votes])))

    def measures(self, task: Task, examples: Sequence[TextExample], values: Sequence[Any]) -> dict[str, Measure]:
        gold = np.array([example.label for example in examples], dtype=float)
        found = np.array(values, dtype=float)
        return {name: MEASURES[name](gold, found) for name in task.metrics}

    def constant(self, task: Task, train: Sequence[TextExample], examples: Sequence[TextExample]) -> Constant:
        mean = float(np.mean(np.array([example.label for example in train], dtype=float)))
        return f"always the mean, {mean:.2f}", [mean] * len(examples)

    def cell(self, task: Task, value: Any) -> str:
        """For GLUE's server, within its scale."""
        return f"{min(5.0, max(0.0, value)):.3f}" if task.name == "sts-b" else f"{value:.6g}"

    def badness(self, task: Task, example: TextExample, gold: Any, prediction: Prediction) -> float:
        return abs(float(prediction.value) - float(gold))

    def show_value(self, line: Line, key: Any) -> str:
        return f"{line[key]:.2f}"

    def show_sureness(self, line: Line) -> str | None:
        return f"off by {line['badness']:.2f}"


def value_targets(width: int, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
    """Numbers [N, width], and 1 for rows that are not filler."""
    used = len(sequences)
    values = np.zeros((places.num_rows, width), np.float32)
    values[:used] = np.array([sequence.target for sequence in sequences], np.float32).reshape(used, -1)
    return {"values": values, "used": places.per_row(np.ones(used), 0.0, np.float32)}, used
