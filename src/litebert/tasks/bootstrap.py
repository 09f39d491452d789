"""How sure a score is: the same score on examples drawn anew with replacement, a thousand times.

Shapes: N examples, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Weighted = Callable[[Floats], Floats]  # how often each example was drawn [R, N] -> the metric [R]

_BLOCK = 1 << 22  # counts held at a time


def intervals(
    metrics: Sequence[Weighted], num_examples: int, resamples: int, seed: int
) -> list[tuple[float | None, float | None]]:
    """The 2.5th and 97.5th percentile of each metric; (None, None) without resamples."""
    size = max(1, _BLOCK // num_examples)
    random = np.random.default_rng(seed)
    blocks = [np.empty((len(metrics), 0))]
    for start in range(0, resamples, size):
        counts = _draw(random, min(size, resamples - start), num_examples)
        blocks.append(np.stack([metric(counts) for metric in metrics]))
    ends: list[tuple[float | None, float | None]] = []
    for values in np.concatenate(blocks, axis=1):
        # A resample in which a metric means nothing (it drew no example of a part) is left out.
        known = values[np.isfinite(values)]
        ends.append(
            (float(np.percentile(known, 2.5)), float(np.percentile(known, 97.5))) if known.size else (None, None)
        )
    return ends


def _draw(random: np.random.Generator, rows: int, num_examples: int) -> Floats:
    """How often each example is drawn in each of some resamples: [R, N], every row sums to N."""
    drawn = random.integers(num_examples, size=(rows, num_examples))
    drawn += np.arange(rows)[:, None] * num_examples
    counts = np.bincount(drawn.ravel(), minlength=rows * num_examples)
    return counts.reshape(rows, num_examples).astype(np.float64)
