"""Classification, regression and multi-label: a linear model (scikit-learn) on features of one text or of a pair."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.baselines.features import Encoder, Matrix, cosine, split_words
from litebert.tasks.examples import TextExample
from litebert.tasks.task import Task, kind_of

STEPS = 1000


class LinearModel:
    """Learns a task's labels (or numbers, or sets of labels) from rows of features."""

    def __init__(self, task: Task, seed: int = 0):
        self.task, self.seed, self.says = task, seed, kind_of(task).says
        self.what = "ridge regression" if self.says == "number" else "logistic regression"

    def fit(self, features: Matrix, labels: Sequence[Any]) -> None:
        """Fit on [N, D] features; dense ones are standardised first."""
        targets = self._targets(labels)
        self.model = self._make(sparse=hasattr(features, "tocsr"), constant=len(np.unique(targets)) == 1)
        with warnings.catch_warnings():
            # A label that every row or no row has, and a fit that stops at STEPS, still make a baseline.
            warnings.simplefilter("ignore")
            self.model.fit(features, targets)

    def predict(self, features: Matrix) -> list[Any]:
        """One value per row, in the form of the task's labels."""
        found = self.model.predict(features)
        if self.says == "labels":
            return [tuple(np.flatnonzero(row).tolist()) for row in found]
        if self.says == "number":
            return [float(value) for value in np.clip(found, self.low, self.high)]
        return [int(value) for value in found]

    def _targets(self, labels: Sequence[Any]) -> Any:
        if self.says == "labels":
            targets = np.zeros((len(labels), len(self.task.labels)), dtype=int)
            for row, ids in zip(targets, labels, strict=True):
                row[list(ids)] = 1
            return targets
        if self.says == "number":
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

        if self.says == "number":
            model: Any = Ridge(random_state=self.seed)
        elif constant and self.says == "label":
            model = DummyClassifier()  # only one label: nothing to learn
        else:
            model = LogisticRegression(max_iter=STEPS, random_state=self.seed)
            if self.says == "labels":
                model = OneVsRestClassifier(model)
        return model if sparse else make_pipeline(StandardScaler(), model)


def guess_labels(
    task: Task,
    train: Sequence[TextExample],
    splits: Mapping[str, Sequence[TextExample]],
    encoder: Encoder,
    seed: int = 0,
) -> tuple[str, dict[str, list[Any]]]:
    """A description of the method, and its prediction for each example of each split."""
    encoder.fit([text for example in train for text in (example.a, example.b) if text is not None])
    model = LinearModel(task, seed)
    model.fit(make_features(train, encoder), [example.label for example in train])
    values = {name: model.predict(make_features(examples, encoder)) for name, examples in splits.items()}
    both = "; both texts, their difference, product and overlap" if train[0].b is not None else ""
    return f"{model.what} on {encoder.what}{both}", values


def make_features(examples: Sequence[TextExample], encoder: Encoder) -> Matrix:
    """[N, D]; of a pair: both texts, their difference, their product, and how much they share."""
    a = encoder.transform([example.a for example in examples])
    if examples[0].b is None:
        return a
    b = encoder.transform([example.b or "" for example in examples])
    shared = overlaps(examples, cosine(a, b))
    if not hasattr(a, "tocsr"):
        return np.hstack([a, b, abs(a - b), a * b, shared])
    from scipy.sparse import csr_matrix, hstack

    return hstack([a, b, abs(a - b), a.multiply(b), csr_matrix(shared)], format="csr")


def overlaps(pairs: Sequence[TextExample], similarity: NDArray[Any]) -> NDArray[Any]:
    """[N, 5]: similarity; words shared of all, of a, of b; how much longer one text is."""
    rows = np.zeros((len(pairs), 5))
    rows[:, 0] = similarity
    for row, pair in zip(rows, pairs, strict=True):
        a, b = set(split_words(pair.a)), set(split_words(pair.b or ""))
        both = len(a & b)
        row[1:] = (
            both / max(1, len(a | b)),
            both / max(1, len(a)),
            both / max(1, len(b)),
            np.log((1 + len(a)) / (1 + len(b))),
        )
    return rows
