"""Linear models on features, by scikit-learn: logistic regression, one per label, or ridge regression."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from litebert.ladder.encoders import Matrix
from litebert.tasks.task import Task

STEPS = 1000


class LinearModel:
    """Learns a task's labels (or numbers, or sets of labels) from rows of features."""

    def __init__(self, task: Task, seed: int = 0):
        self.task, self.seed = task, seed
        self.what = "ridge regression" if task.kind == "regression" else "logistic regression"

    def fit(self, features: Matrix, labels: Sequence[Any]) -> None:
        """Fit on [N, D] features; dense ones are brought to one scale first."""
        targets = self._targets(labels)
        self.model = self._make(sparse=hasattr(features, "tocsr"), constant=len(np.unique(targets)) == 1)
        with warnings.catch_warnings():
            # A label that every row has, or none, and a fit that ends at STEPS: both still give a baseline.
            warnings.simplefilter("ignore")
            self.model.fit(features, targets)

    def predict(self, features: Matrix) -> list[Any]:
        """One value per row, in the form of the task's labels."""
        found = self.model.predict(features)
        if self.task.kind == "multi-label":
            return [tuple(np.flatnonzero(row).tolist()) for row in found]
        if self.task.kind == "regression":
            return [float(value) for value in np.clip(found, self.low, self.high)]
        return [int(value) for value in found]

    def _targets(self, labels: Sequence[Any]) -> Any:
        if self.task.kind == "multi-label":
            targets = np.zeros((len(labels), len(self.task.labels)), dtype=int)
            for row, ids in zip(targets, labels, strict=True):
                row[list(ids)] = 1
            return targets
        if self.task.kind == "regression":
            targets = np.array(labels, dtype=float)
            self.low, self.high = targets.min(), targets.max()
            return targets
        return np.array(labels)

    def _make(self, sparse: bool, constant: bool) -> Any:
        from sklearn.dummy import DummyClassifier
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if self.task.kind == "regression":
            model: Any = Ridge(random_state=self.seed)
        elif constant and self.task.kind == "classification":
            model = DummyClassifier()  # there is nothing to tell apart
        else:
            model = LogisticRegression(max_iter=STEPS, random_state=self.seed)
            if self.task.kind == "multi-label":
                model = OneVsRestClassifier(model)
        return model if sparse else make_pipeline(StandardScaler(), model)
