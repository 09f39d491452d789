"""Scores of predictions as fractions, each with a 95 % bootstrap interval.

    score(task, examples, predictions)  -> {"accuracy": Metric(0.91, 0.89, 0.93), ...}

A metric is written once, as a function of how often each example counts: [R, N] -> [R]. Its value counts each example
once; its interval comes from a thousand resamples, evaluated together as a few matrix products. Tests compare values
with scikit-learn and scipy.

Shapes: N examples, R resamples, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.tasks.decode import Prediction
from litebert.tasks.task import Example, Task, kind_of

RESAMPLES = 1000
ERRORS = ("rmse",)  # lower is better, and not a fraction of 1
Floats = NDArray[np.float64]
Measure = Callable[[Floats], Floats]  # how often each example counts [R, N] -> the metric [R]

_BLOCK = 1 << 22  # counts held at a time


@dataclass(frozen=True)
class Metric:
    """A score with its 95 % interval (None if no interval was requested)."""

    value: float
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        """Plain data for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


def goodness(metric: str, value: float) -> float:
    """A metric's value such that higher is better: errors are negated, NaN is the worst."""
    if math.isnan(value):
        return -math.inf
    return -value if metric in ERRORS else value


def show_value(value: float | None, metric: str = "") -> str:
    """A score as people write it: 0.9234 -> "92.3"; an error (rmse) as it is."""
    if value is None:
        return "–"
    return f"{value:.3f}" if metric in ERRORS else f"{100 * value:.1f}"


def show_spread(spread: float, metric: str = "") -> str:
    """A standard deviation in the unit of the score, with one more digit: 0.0123 -> "1.23"."""
    return f"{spread:.3f}" if metric in ERRORS else f"{100 * spread:.2f}"


def show_interval(metric: Metric | None, name: str = "") -> str:
    """The bootstrap interval of a score: "90.1 – 93.4"."""
    if metric is None or metric.low is None or metric.high is None:
        return ""
    return f"{show_value(metric.low, name)} – {show_value(metric.high, name)}"


def score(
    task: Task,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Metric]:
    """The metrics of a task in order, with those of its parts (RACE's levels, SQuAD's unanswerable questions).

    `predictions` come from `decode`, or are the values alone; `resamples=0` skips the intervals.
    """
    if not examples or len(examples) != len(predictions):
        raise InputError(f"expected one prediction per example, got {len(predictions)} for {len(examples)} examples")
    for example in examples:
        if not example.is_labelled:
            raise InputError(f"{example.where}: no label; only labelled examples can be scored")
    values = [each.value if isinstance(each, Prediction) else each for each in predictions]
    measures = kind_of(task).measures(task, examples, values)
    once = np.ones((1, len(examples)))
    ends = intervals(list(measures.values()), len(examples), resamples, seed)
    return {
        name: Metric(float(measure(once)[0]), *pair)
        for (name, measure), pair in zip(measures.items(), ends, strict=True)
    }


def score_difference(
    task: Task,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    others: Sequence[Any],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Metric]:
    """How much higher `predictions` score than `others`, by each metric, with a paired interval.

    Both are scored on the same resamples, so examples that are hard for both do not blur the difference.
    """
    first, second = (
        kind_of(task).measures(task, examples, [each.value if isinstance(each, Prediction) else each for each in side])
        for side in (predictions, others)
    )
    gaps: dict[str, Measure] = {name: _less(first[name], second[name]) for name in first}
    once = np.ones((1, len(examples)))
    ends = intervals(list(gaps.values()), len(examples), resamples, seed)
    return {name: Metric(float(gap(once)[0]), *pair) for (name, gap), pair in zip(gaps.items(), ends, strict=True)}


def _less(first: Measure, second: Measure) -> Measure:
    return lambda weights: first(weights) - second(weights)


def intervals(
    measures: Sequence[Measure], num_examples: int, resamples: int, seed: int
) -> list[tuple[float | None, float | None]]:
    """The 2.5th and 97.5th percentile of each measure over bootstrap resamples; None without resamples."""
    size = max(1, _BLOCK // num_examples)
    random = np.random.default_rng(seed)
    blocks = [np.empty((len(measures), 0))]
    for start in range(0, resamples, size):
        counts = _draw(random, min(size, resamples - start), num_examples)
        blocks.append(np.stack([measure(counts) for measure in measures]))
    ends: list[tuple[float | None, float | None]] = []
    for values in np.concatenate(blocks, axis=1):
        # Skip resamples where a metric is undefined because a part has no examples.
        known = values[np.isfinite(values)]
        ends.append(
            (float(np.percentile(known, 2.5)), float(np.percentile(known, 97.5))) if known.size else (None, None)
        )
    return ends


def _draw(random: np.random.Generator, rows: int, num_examples: int) -> Floats:
    """How often each resample draws each example: [R, N]; each row sums to N."""
    drawn = random.integers(num_examples, size=(rows, num_examples))
    drawn += np.arange(rows)[:, None] * num_examples
    counts = np.bincount(drawn.ravel(), minlength=rows * num_examples)
    return counts.reshape(rows, num_examples).astype(np.float64)


# ---------------------------------------------------------------------------------------------------------------------
# Shares


def share(hits: NDArray[Any], part: NDArray[np.bool_] | None = None) -> Measure:
    """The mean over all examples, or over a part of them."""
    counted = np.ones(len(hits)) if part is None else part.astype(float)
    return ratio(hits * counted, counted)


def ratio(top: Floats, bottom: Floats) -> Measure:
    """The sum of one number per example divided by the sum of another; nan if that is 0."""
    rows = np.stack([top, bottom]).astype(float)
    columns = np.ascontiguousarray(rows.T)

    def measure(weights: Floats) -> Floats:
        # A single row is summed pairwise, so that a score does not depend on the BLAS.
        above, below = (weights @ columns).T if len(weights) > 1 else (rows * weights).sum(1, keepdims=True)
        return np.asarray(np.divide(above, below, out=np.full(len(weights), np.nan), where=below > 0))

    return measure


def _safe_divide(above: Floats, below: Floats) -> Floats:
    """0 where the divisor is 0, as in scikit-learn."""
    result: Floats = np.divide(above, below, out=np.zeros(above.shape), where=below > 0)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Classes: gold and found are class ids [N]


def accuracy(gold: NDArray[Any], found: NDArray[Any]) -> Measure:
    """The share of correct examples."""
    return share(gold == found)


def binary_f1(gold: NDArray[Any], found: NDArray[Any]) -> Measure:
    """F1 of the class 1, as for MRPC and QQP."""
    columns = np.stack([(gold == 1) & (found == 1), gold == 1, found == 1], axis=1).astype(float)

    def measure(weights: Floats) -> Floats:
        hits, real, claimed = (weights @ columns).T
        return _safe_divide(2 * hits, real + claimed)

    return measure


def macro_f1(gold: NDArray[Any], found: NDArray[Any]) -> Measure:
    """The mean F1 of the classes that occur."""
    classes = np.union1d(gold, found)
    real, claimed = gold[:, None] == classes, found[:, None] == classes  # [N, C]

    def measure(weights: Floats) -> Floats:
        hits, total = weights @ (real & claimed), weights @ (real.astype(float) + claimed)  # [R, C]
        # Classes missing from a resample do not count, as in scikit-learn.
        return _safe_divide(_safe_divide(2 * hits, total).sum(1), (total > 0).sum(1).astype(float))

    return measure


def matthews(gold: NDArray[Any], found: NDArray[Any]) -> Measure:
    """Gorodkin's coefficient, for any number of classes."""
    classes = np.union1d(gold, found)
    real, claimed = (gold[:, None] == classes).astype(float), (found[:, None] == classes).astype(float)  # [N, C]

    def measure(weights: Floats) -> Floats:
        total = weights.sum(1)
        per_real, per_claimed = weights @ real, weights @ claimed  # [R, C]
        covariance = (weights @ (gold == found)) * total - (per_real * per_claimed).sum(1)
        spread = (total**2 - (per_claimed**2).sum(1)) * (total**2 - (per_real**2).sum(1))
        return _safe_divide(covariance, np.sqrt(spread))

    return measure


# ---------------------------------------------------------------------------------------------------------------------
# Numbers: gold and found are [N]


def pearson(gold: Floats, found: Floats) -> Measure:
    """Pearson correlation; 0 if either side is constant."""
    if _is_constant(gold) or _is_constant(found):
        return lambda weights: np.zeros(len(weights))
    x, y = gold - gold.mean(), found - found.mean()  # centred: the sums of squares stay accurate
    return lambda weights: _correlation(weights, x, y)


def spearman(gold: Floats, found: Floats) -> Measure:
    """Rank correlation."""
    return lambda weights: _correlation(weights, _ranks(weights, gold), _ranks(weights, found))


def rmse(gold: Floats, found: Floats) -> Measure:
    """Root mean squared error."""
    errors = ratio((gold - found) ** 2, np.ones(len(gold)))
    return lambda weights: np.sqrt(errors(weights))


def _is_constant(values: Floats) -> bool:
    return bool((values == values[0]).all())


def _correlation(weights: Floats, x: Floats, y: Floats) -> Floats:
    """Pearson of weighted points; x and y are [N], or [R, N] where they change with the weights."""
    total = weights.sum(1)
    mean_x, mean_y = (weights * x).sum(1) / total, (weights * y).sum(1) / total
    x, y = x - mean_x[:, None], y - mean_y[:, None]
    spread = (weights * x * x).sum(1) * (weights * y * y).sum(1)
    return _safe_divide((weights * x * y).sum(1), np.sqrt(spread))


def _ranks(weights: Floats, values: Floats) -> Floats:
    """The rank of each value in each resample, with ties averaged: [R, N]."""
    distinct, place = np.unique(values, return_inverse=True)
    per_value = (
        weights @ (place[:, None] == np.arange(len(distinct))) if len(distinct) < 64 else _sum_by(weights, place)
    )
    upto = np.cumsum(per_value, axis=1)
    return (upto - (per_value - 1) / 2)[:, place]


def _sum_by(weights: Floats, place: NDArray[np.intp]) -> Floats:
    order = np.argsort(place, kind="stable")
    begins = np.concatenate([[0], np.flatnonzero(np.diff(place[order])) + 1])
    summed: Floats = np.add.reduceat(weights[:, order], begins, axis=1)
    return summed


# ---------------------------------------------------------------------------------------------------------------------
# Several labels: gold and found are indicators, [N, C]


def label_micro_f1(gold: NDArray[Any], found: NDArray[Any]) -> Measure:
    """F1 over all labels of all examples."""
    hits, total = (gold & found).astype(float).sum(1), (gold.astype(float) + found).sum(1)
    return lambda weights: _safe_divide(2 * (weights @ hits), weights @ total)


def label_macro_f1(gold: NDArray[Any], found: NDArray[Any]) -> Measure:
    """The mean F1 of the labels."""
    hits, total = (gold & found).astype(float), gold.astype(float) + found
    return lambda weights: np.asarray(_safe_divide(2 * (weights @ hits), weights @ total).mean(1))


def all_right(gold: NDArray[Any], found: NDArray[Any]) -> Measure:
    """The share of examples with every label correct."""
    return share((gold == found).all(1))
