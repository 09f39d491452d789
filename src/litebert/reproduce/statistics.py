"""The tests behind the verdicts: a mean with its one-sided bounds, and the least effect that would have been seen.

compare_seeds([2.1, 2.9, 2.4])   -> Test(estimate=2.47, low=1.79, high=3.15, least_seen=0.93, method="t over 3 seeds")

Over seeds: Student's t on the contrasts of each seed. The rows of one seed are scored on the same held-out examples,
and each seed on others, so that their spread holds the luck of training and of the examples. With one seed, or where
the seeds happen to agree to the last digit: the normal approximation over held-out examples, which knows nothing of the
luck of training. No test is certain: without any spread there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALPHA = 0.05  # of each one-sided bound
POWER = 0.8
ROUNDING = 1e-9  # differences below this share come from the computer
ONE_SEED = "one seed, z over examples (not the luck of training)"


@dataclass(frozen=True)
class Test:
    """An estimate, its one-sided 95 % bounds, and the least true effect that 80 % of such experiments would notice."""

    __test__ = False  # not a test class of pytest's

    estimate: float
    low: float
    high: float
    least_seen: float
    method: str


def compare_seeds(contrasts: Sequence[float]) -> Test | None:
    """Student's t over two or more seeds, each with its own contrast; None where they do not differ: [0, 0, 0] -> None.

    Scores are counts of right answers, so a few seeds may agree by chance; that is no proof of an error of zero.
    """
    from scipy.special import nctdtrinc, stdtrit

    values = np.asarray(contrasts, float)
    assert len(values) >= 2
    if np.ptp(values) <= ROUNDING * max(1.0, float(np.abs(values).max())):
        return None
    degrees = len(values) - 1
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    critical = float(stdtrit(degrees, 1 - ALPHA))
    # The noncentrality at which the test is passed with the wanted probability.
    needed = float(nctdtrinc(degrees, 1 - POWER, critical))
    mean = float(values.mean())
    method = f"t over {len(values)} seeds"
    return Test(mean, mean - critical * error, mean + critical * error, needed * error, method)


def compare_examples(estimate: float, error: float, method: str = ONE_SEED) -> Test | None:
    """A normal approximation whose standard error comes from held-out examples; None where that is zero."""
    from scipy.special import ndtri

    if not error > ROUNDING:
        return None
    critical, needed = float(ndtri(1 - ALPHA)), float(ndtri(1 - ALPHA) + ndtri(POWER))
    return Test(estimate, estimate - critical * error, estimate + critical * error, needed * error, method)


def exact(estimate: float) -> Test:
    """A number that nothing random entered."""
    return Test(estimate, estimate, estimate, 0.0, "exact")
