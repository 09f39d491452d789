"""Is an exported file the model it was made of? The same requests through torch and through the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from litebert.model.config import ModelConfig
from litebert.model.convert import Difference
from litebert.predict.runtime import Outputs, Request, Runtime

# Outputs whose largest entry along the last axis is the model's decision; of the rest there is none.
_DECISIONS = ("logits", "masked_lm", "sentence", "start", "end")
_EXCLUDED = -1e29  # log-probabilities below are of tokens that cannot be an answer


@dataclass(frozen=True)
class Check:
    """How one file compares with torch."""

    sequences: int
    differences: list[Difference]
    agreement: float | None  # share of equal decisions: labels, words, spans; None where a model makes none
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # metric -> torch's, the file's

    def within(self, tolerance: float) -> bool:
        """Whether every output agrees, relative to its size where that is above 1, and decisions but for ties."""
        close = all(row.within(tolerance * max(1.0, row.magnitude)) for row in self.differences)
        return close and (self.agreement is None or self.agreement > 0.95)

    @property
    def worst(self) -> Difference:
        """The output that is furthest off for its size."""
        return max(
            self.differences, key=lambda row: np.nan_to_num(row.difference / max(1.0, row.magnitude), nan=np.inf)
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "sequences": self.sequences,
            "agreement": self.agreement,
            "scores": {name: {"torch": both[0], "file": both[1]} for name, both in self.scores.items()},
            "differences": [row.as_dict() for row in self.differences],
        }


def compare(
    expected: Sequence[Outputs], exported: Runtime, requests: Sequence[Request]
) -> tuple[Check, Sequence[Outputs]]:
    """Run the requests and compare what comes out with what is expected, output by output."""
    actual = exported.run(requests)
    names = sorted(name for name in expected[0] if not name.endswith("_index"))
    votes = [vote for a, b in zip(expected, actual, strict=True) for vote in _same_decisions(a, b)]
    differences = [_difference(name, expected, actual) for name in names]
    return Check(len(requests), differences, float(np.mean(votes)) if votes else None), actual


def random_requests(config: ModelConfig, want: frozenset[str], seed: int = 0) -> list[Request]:
    """Random ids of many lengths, from one token to what the model takes (512 at most), with both segments."""
    generator = np.random.default_rng(seed)
    longest = min(512, config.max_position_embeddings)
    lengths = sorted({min(length, longest) for length in (1, 2, 3, 7, 8, 16, 31, 64, 100, longest)})
    requests = []
    for length in (*lengths, *lengths[1:-1]):
        ids = generator.integers(0, config.vocab_size, length, dtype=np.int32)
        segments = (np.arange(length) >= length // 2).astype(np.int8) * min(1, config.type_vocab_size - 1)
        positions = np.unique(generator.integers(0, length, max(1, length // 7)))
        outside = generator.random(length) < 0.3
        outside[0] = False  # [CLS] always may be the answer: that there is none
        requests.append(Request(ids, segments.astype(np.int8), want, positions, outside))
    return requests


def _difference(name: str, expected: Sequence[Outputs], actual: Sequence[Outputs]) -> Difference:
    worst = largest = 0.0
    for a, b in zip(expected, actual, strict=True):
        left, right = a[name].astype(np.float64), b[name].astype(np.float64)
        if left.shape != right.shape:
            return Difference(name, float("nan"), largest)
        if name.endswith("log_prob"):
            # Where nothing can be an answer, which of the equals comes first means nothing, nor what follows from it.
            possible = (left > _EXCLUDED) & (a["start_log_prob"] > _EXCLUDED)
            left, right = left[possible], right[possible]
        if left.size:
            # np.max hands a NaN on, max() would lose it.
            worst = float(np.max([worst, np.abs(left - right).max()]))
            largest = max(largest, float(np.abs(left).max()))
    return Difference(name, worst, largest)


def _same_decisions(expected: Outputs, actual: Outputs) -> list[Any]:
    votes: list[Any] = []
    for name in _DECISIONS:
        if name in expected and expected[name].ndim and expected[name].shape[-1] > 1:
            same = expected[name].argmax(-1) == actual[name].argmax(-1)
            votes.extend(np.atleast_1d(same))
    if "start_index" in expected:
        # The best start and its best end.
        votes.append(expected["start_index"][0] == actual["start_index"][0])
        votes.append(expected["end_index"][0, 0] == actual["end_index"][0, 0])
    return votes
