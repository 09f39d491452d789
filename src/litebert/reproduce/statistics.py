"""The tests behind the verdicts: an estimate with one-sided bounds, and the smallest effect that would be detected.

compare_seeds([2.1, 2.9, 2.4])   -> Test(estimate=2.47, low=1.79, high=3.15, least_seen=0.93, method="t over 3 seeds")

Over seeds: Student's t on the contrast of each seed. The rows of one seed are scored on the same held-out examples, and
each seed on others, so their spread covers the randomness of training and of examples. With one seed, or seeds that
agree to the last digit: the normal approximation over held-out examples, which ignores the randomness of training.
Without any spread there is no test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from litebert.reproduce.measure import Examples, Floats

ALPHA = 0.05  # per one-sided bound
POWER = 0.8
ROUNDING = 1e-9  # relative differences below this are rounding
ONE_SEED = "one seed, z over examples (randomness of training ignored)"


@dataclass(frozen=True)
class Test:
    """An estimate, its one-sided 95 % bounds, and the smallest true effect that 80 % of experiments would detect."""

    __test__ = False  # not a pytest class

    estimate: float
    low: float
    high: float
    least_seen: float
    method: str


def compare_seeds(contrasts: Sequence[float]) -> Test | None:
    """Student's t over two or more seeds, each with its own contrast; None if they are all equal: [0, 0, 0] -> None.

    Scores are counts of correct answers, so a few seeds may agree by chance; that does not make the error zero.
    """
    from scipy.special import nctdtrinc, stdtrit

    values = np.asarray(contrasts, float)
    assert len(values) >= 2
    if np.ptp(values) <= ROUNDING * max(1.0, float(np.abs(values).max())):
        return None
    degrees = len(values) - 1
    error = standard_error(values)
    critical = float(stdtrit(degrees, 1 - ALPHA))
    # The noncentrality at which the test has the wanted power.
    needed = float(nctdtrinc(degrees, 1 - POWER, critical))
    mean = float(values.mean())
    method = f"t over {len(values)} seeds"
    return Test(mean, mean - critical * error, mean + critical * error, needed * error, method)


def compare_examples(estimate: float, error: float, method: str = ONE_SEED) -> Test | None:
    """A normal approximation whose standard error comes from held-out examples; None if that is zero."""
    from scipy.special import ndtri

    if not error > ROUNDING:
        return None
    critical, needed = float(ndtri(1 - ALPHA)), float(ndtri(1 - ALPHA) + ndtri(POWER))
    return Test(estimate, estimate - critical * error, estimate + critical * error, needed * error, method)


def exact(estimate: float) -> Test:
    """A number without randomness."""
    return Test(estimate, estimate, estimate, 0.0, "exact")


# -- standard errors over examples -------------------------------------------------------------------------------------


def standard_error(values: Floats) -> float:
    """Of the mean of independent values; infinite for a single one."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.inf


def influence(examples: Examples) -> Floats:
    """Each sequence's contribution to the accuracy, in percent, beyond its mean: a ratio of sums, linearised."""
    share = examples.right.sum() / examples.count.sum()
    values: Floats = 100 * (examples.right - share * examples.count) / examples.count.mean()
    return values


def error_of_interval(half_width: float) -> float:
    """The standard error behind a 95 % interval."""
    return half_width / 1.96


def jackknife_error(parts: Sequence[float]) -> float:
    """The standard error of an estimate, from its values without each of several groups of equal size."""
    return math.sqrt((len(parts) - 1) * statistics.pvariance(parts)) if parts else 0.0
