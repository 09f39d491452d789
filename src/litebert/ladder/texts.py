"""Classification, regression and several labels: a linear model on the features of one text or of a pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.ladder.encoders import Encoder, Matrix, cosine
from litebert.ladder.linear import LinearModel
from litebert.ladder.words import split_words
from litebert.tasks.examples import TextExample
from litebert.tasks.task import Task


def guess_labels(
    task: Task,
    train: Sequence[TextExample],
    splits: Mapping[str, Sequence[TextExample]],
    encoder: Encoder,
    seed: int = 0,
) -> tuple[str, dict[str, list[Any]]]:
    """What it is in words, and a value for each example of each split."""
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
