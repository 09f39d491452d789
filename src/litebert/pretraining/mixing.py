"""Which store a row comes from: weights kept as evenly as whole rows allow, for any row at once.

[share_row(row, [3, 1]) for row in range(4)]  -> (1, 0) (0, 0) (0, 1) (0, 2)      store, row of that store
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from litebert.errors import ConfigError


def share_row(row: int, weights: Sequence[int]) -> tuple[int, int]:
    """The store of a row, and its number among that store's rows.

    Of the first n rows, floor(n * w / total) belong to the first store; the others are shared out among the other
    stores in the same way. Both counts are closed formulas, so nothing needs to be replayed.
    """
    total = sum(weights)
    for number, weight in enumerate(weights[:-1]):
        before, after = row * weight // total, (row + 1) * weight // total
        if after > before:
            return number, before
        row -= before
        total -= weight
    return len(weights) - 1, row


def whole_weights(weights: Sequence[float] | None, sizes: Sequence[int]) -> list[int]:
    """Weights as whole numbers: [0.75, 0.25] -> [3, 1]; None -> the sizes."""
    if weights is None:
        return list(sizes)
    if len(weights) != len(sizes):
        raise ConfigError(f"weights: {len(weights)} given for {len(sizes)} stores")
    if not all(0 < weight < math.inf for weight in weights):
        raise ConfigError(f"weights: {list(weights)} must all be above 0; leave a store out instead")
    shares = [Fraction(weight).limit_denominator(10_000) for weight in weights]
    if not all(shares):
        raise ConfigError(f"weights: {list(weights)}: one is too small to count")
    scale = math.lcm(*(share.denominator for share in shares))
    return [int(share * scale) for share in shares]
