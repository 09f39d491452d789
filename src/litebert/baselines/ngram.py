"""What simple counting can guess, to be printed beside a trained model: n-gram masks, order from connectives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from litebert.errors import InputError

Ids = npt.NDArray[np.integer]
Pair = tuple[str, str]

# Words that tell order without telling what happened.
CONNECTIVES = (
    "after afterwards again already also and as at because before but by during early eventually finally first for "
    "from however in instead last late later meanwhile next now on once second since so soon still suddenly than then "
    "therefore third though thus today together tomorrow tonight too until when whenever where which while yet"
).split()
TIMES = "afternoon day evening hour hours midnight minutes morning night noon week weeks year years".split()


@dataclass(frozen=True)
class NgramModel:
    """Guesses a token from the tokens on its left: the longest known context, its most frequent continuation."""

    vocab_size: int
    best: tuple[dict[int, int], ...]  # best[k]: context of k tokens as one number -> the token that follows most often

    @classmethod
    def fit(cls, sequences: Iterable[Ids], vocab_size: int, order: int = 3) -> NgramModel:
        """Count n-grams up to `order` (1 is the unigram guess); ties go to the smaller id."""
        rows = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
        if not any(len(row) for row in rows):
            raise InputError("sequences: there is no token to count")
        best = []
        for n in range(1, order + 1):
            grams = [_as_numbers(row, n, vocab_size) for row in rows if len(row) >= n]
            unique, counts = np.unique(np.concatenate(grams or [rows[0][:0]]), return_counts=True)
            ascending = np.argsort(counts[::-1], kind="stable")  # reversed, so that of equals the smallest id is last
            contexts, tokens = np.divmod(unique[::-1][ascending], vocab_size)
            best.append(dict(zip(contexts.tolist(), tokens.tolist(), strict=True)))
        return cls(vocab_size, tuple(best))

    def guess(self, left: Sequence[int] | Ids) -> int:
        """The likeliest next token, backing off to shorter contexts: [.., 7, 5] -> 9."""
        for n in range(min(len(self.best) - 1, len(left)), -1, -1):
            context = 0
            for token in left[len(left) - n :]:
                context = context * self.vocab_size + int(token)
            if context in self.best[n]:
                return self.best[n][context]
        raise AssertionError("the empty context is always known")


@dataclass(frozen=True)
class ConnectiveOrder:
    """Tells the order of two segments from connectives and words for time alone, by logistic regression."""

    weights: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, pairs: Sequence[Pair], labels: Sequence[int], steps: int = 8) -> ConnectiveOrder:
        """Learn from segment pairs; labels are 0 = right order, 1 = swapped."""
        features, targets = _order_features(pairs), np.asarray(labels, dtype=np.float64)
        weights = np.zeros(features.shape[1])
        for _ in range(steps):  # Newton's method, with a small ridge
            chance = 1 / (1 + np.exp(-features @ weights))
            gradient = features.T @ (chance - targets) + weights
            curvature = (features.T * (chance * (1 - chance))) @ features + np.eye(len(weights))
            weights = weights - np.linalg.solve(curvature, gradient)
        return cls(weights)

    def predict(self, pairs: Sequence[Pair]) -> npt.NDArray[np.int64]:
        """0 or 1 for each pair."""
        return (_order_features(pairs) @ self.weights > 0).astype(np.int64)

    def accuracy(self, pairs: Sequence[Pair], labels: Sequence[int]) -> float:
        """The share of pairs told right."""
        return float(np.mean(self.predict(pairs) == np.asarray(labels)))


def _as_numbers(row: npt.NDArray[np.int64], n: int, vocab_size: int) -> npt.NDArray[np.int64]:
    """Each n-gram as one number, the last token least significant."""
    windows = np.lib.stride_tricks.sliding_window_view(row, n)
    return windows @ (vocab_size ** np.arange(n - 1, -1, -1, dtype=np.int64))


def _order_features(pairs: Sequence[Pair]) -> npt.NDArray[np.float64]:
    """For each word, its count in A less its count in B; also whether it opens A or B."""
    column = {word: index for index, word in enumerate([*CONNECTIVES, *TIMES])}
    features = np.zeros((len(pairs), 2 * len(column)))
    for row, pair in enumerate(pairs):
        for text, sign in zip(pair, (1, -1), strict=True):
            words = re.findall(r"[a-z]+", text.lower())
            for place, word in enumerate(words):
                if word in column:
                    features[row, column[word]] += sign
                    if place == 0:
                        features[row, len(column) + column[word]] += sign
    return features
