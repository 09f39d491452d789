"""What is drawn of a long series: a smooth line, and few enough points that nothing visible is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
FEW = 12  # with fewer points, there is nothing to smooth


class Series(NamedTuple):
    """Values at steps, in the order of the steps, all finite."""

    steps: Floats
    values: Floats

    def __bool__(self) -> bool:
        return len(self.steps) > 0


def downsample(series: Series, most: int) -> Series:
    """At most so many of the points: the first, the last, and the least and greatest of each stretch.

    Peaks and dips survive, so the picture at `most` / 2 pixels of width stays the same.
    """
    steps, values = series
    if len(steps) <= most:
        return series
    last = len(steps) - 1
    bounds = np.linspace(1, last, (most - 2) // 2 + 1).astype(int)
    keep = {0, last}
    for start, end in pairwise(bounds):
        stretch = values[start:end]
        keep |= {int(start + stretch.argmin()), int(start + stretch.argmax())}
    chosen = np.array(sorted(keep))
    return Series(steps[chosen], values[chosen])


def smooth(series: Series, share: float, breaks: Sequence[float] = ()) -> Series:
    """A centred moving average, applied twice, over a share of the series; never across a step of `breaks`.

    Centred, so that a drop is drawn where it happened; cut at breaks, so that a jump there stays a jump.
    """
    steps, values = series
    half = max(int(len(steps) * share / 2), 1)
    if not share or len(steps) < FEW:
        return series
    cuts = np.searchsorted(steps, np.asarray(breaks, dtype=float), side="right")
    parts = [_average(_average(part, half), half) for part in np.split(values, cuts) if len(part)]
    return Series(steps, np.concatenate(parts))


def _average(values: Floats, half: int) -> Floats:
    """The mean over `half` neighbours on each side, as far as there are any."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    start, end = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    means: Floats = (sums[end] - sums[start]) / (end - start)
    return means
