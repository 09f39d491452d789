"""From numbers to a verdict per claim: it holds, it does not hold, or the result is inconclusive.

Let d be the contrast minus its reference, with one-sided 95 % bounds low < d < high, and m the claim's margin, the
smallest difference that matters.

    above        holds: low > 0                    does not hold: high < m                  else inconclusive
    not above    holds: high < m                   does not hold: low > 0                   else inconclusive
    near         holds: -m < low and high < m      does not hold: low > m or high < -m      else inconclusive

So without an effect, "above" holds in at most one case of twenty; with an effect of m or more, it is rejected in at
most one of twenty.

A claim about a run that learned nothing (results.find_unlearned) is inconclusive even if other seeds of the same row
did learn: leaving some out would hide that the recipe is unstable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from litebert.reproduce.cell import MODEL_SOURCES
from litebert.reproduce.paper import METRICS, Claim
from litebert.reproduce.results import Place, Results, Unlearned, describe_unlearned, find_unlearned
from litebert.reproduce.statistics import (
    Test,
    compare_examples,
    compare_seeds,
    error_of_interval,
    exact,
    influence,
    standard_error,
)

Answer = Literal["holds", "does not hold", "inconclusive"]


@dataclass(frozen=True)
class Verdict:
    """The answer to one claim on one metric, with its test; without a test, `reason` says why."""

    claim: Claim
    metric: str
    answer: Answer
    test: Test | None = None
    reason: str = ""

    @property
    def evidence(self) -> str:
        """The test in words: "+2.5 points, 90 % interval +1.8 to +3.2, t over 3 seeds; smallest ..."."""
        if self.test is None:
            return self.reason
        metric, test = METRICS[self.metric], self.test
        digits, unit, reference = max(metric.digits, 1), f" {metric.unit}" if metric.unit else "", self.claim.reference
        sign = "" if reference else "+"  # a difference, or a value beside its reference
        low, value, high = (f"{number + reference:{sign}.{digits}f}" for number in (test.low, test.estimate, test.high))
        estimate = f"{value} against {reference:g}{unit}" if reference else f"{value}{unit}"
        if test.method == "exact":
            return f"{estimate}, exact"
        seen = f"smallest detectable difference {_least(test.least_seen, digits)}"
        return f"{estimate}, 90 % interval {low} to {high}, {test.method}; {seen}"


def _least(value: float, digits: int) -> str:
    """Rounded, but never down to zero: (1.23, 1) -> "1.2", (0.0123, 1) -> "0.01"."""
    return f"{value:.{digits}f}" if value >= 10**-digits else f"{value:.1g}"


def judge_table(results: Results) -> list[Verdict]:
    """The verdicts on every claim of a table, one per metric that the claim names and that was measured."""
    verdicts = []
    for claim in results.table.claims:
        judged = [judge(claim, metric, results) for metric in claim.metrics]
        tested = [verdict for verdict in judged if verdict.test is not None]
        measured = [verdict for verdict in judged if all(results.of(row, verdict.metric) for row in claim.of)]
        verdicts += tested or measured[:1] or judged[:1]
    return verdicts


def judge(claim: Claim, metric: str, results: Results) -> Verdict:
    """One claim on one metric."""
    test = _test(claim, metric, results)
    if isinstance(test, str):
        return Verdict(claim, metric, "inconclusive", reason=test)
    return Verdict(claim, metric, answer_of(claim, test), test)


def answer_of(claim: Claim, test: Test) -> Answer:
    """The answer by the rule at the top of this file."""
    margin = claim.margin
    if claim.near is not None:
        if -margin < test.low and test.high < margin:
            return "holds"
        return "does not hold" if test.low > margin or test.high < -margin else "inconclusive"
    is_above, is_small = test.low > 0, test.high < margin or (test.method == "exact" and test.high <= 0)
    if claim.above is not None:
        return "holds" if is_above else "does not hold" if is_small else "inconclusive"
    return "holds" if is_small else "does not hold" if is_above else "inconclusive"


def _test(claim: Claim, metric: str, results: Results) -> Test | str:
    by_row = {row: results.of(row, metric) for row in claim.of}
    empty = [row for row, values in by_row.items() if not values]
    if empty:
        what = METRICS[metric]
        if what.source == "task":
            return f"{what.title} was not measured: no data set for it"
        return f"{what.title} of {', '.join(empty)} was not measured"
    seeds = sorted(set.intersection(*(set(values) for values in by_row.values())))
    if not seeds:
        return f"{METRICS[metric].title}: no seed has results for all of {', '.join(claim.of)}"
    contrasts = [
        sum(weight * by_row[row][seed] for row, weight in claim.of.items()) - claim.reference for seed in seeds
    ]
    if METRICS[metric].source == "count":
        return exact(contrasts[0])
    if METRICS[metric].source in MODEL_SOURCES and (unlearned := _unlearned_of(claim, seeds, results)):
        return describe_unlearned(unlearned)
    ensemble = next((row for row in claim.of if _members_of(row, results)), None)
    if ensemble is not None:
        return _test_ensemble(claim, ensemble, metric, results)
    test = compare_seeds(contrasts) if len(seeds) > 1 else None
    if test is None:
        test = _test_examples(claim, metric, seeds, contrasts, results)
    if test is None and len(seeds) > 1:
        return f"{METRICS[metric].title}: {len(seeds)} seeds agree exactly; run more of them"
    return test or f"{METRICS[metric].title}: one run has no spread; run more seeds"


def _test_examples(
    claim: Claim, metric: str, seeds: Sequence[int], contrasts: Sequence[float], results: Results
) -> Test | None:
    """Over examples alone, for one seed or several that agree; None if the error is unknown."""
    errors = [contrast_error(claim, metric, seed, results) for seed in seeds]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    if len(seeds) == 1:
        return compare_examples(contrasts[0], known[0])
    # Each seed has other held-out sequences, but the same task examples: more seeds do not add examples there.
    error = float(np.mean(known)) if METRICS[metric].source == "task" else math.hypot(*known) / len(known)
    method = f"{len(seeds)} seeds agree, z over examples (randomness of training ignored)"
    return compare_examples(float(np.mean(contrasts)), error, method)


def _unlearned_of(claim: Claim, seeds: Sequence[int], results: Results) -> dict[Place, Unlearned]:
    """The runs behind a claim that learned nothing; an ensemble depends on all of its members."""
    members = {_members_of(row, results) for row in claim.of}
    return {
        place: found
        for place, found in find_unlearned(results).items()
        if place.row in members or (place.row in claim.of and place.seed in seeds)
    }


def _members_of(row: str, results: Results) -> str | None:
    return results.table.rows[row].ensemble_of if row in results.table.rows else None


def _test_ensemble(claim: Claim, row: str, metric: str, results: Results) -> Test | str:
    """There is one ensemble for all seeds: it is compared with its members example by example."""
    gain = results.gains.get(row, {}).get(metric)
    if gain is None or dict(claim.of) != {row: 1, _members_of(row, results): -1}:
        return f"{METRICS[metric].title}: there is only one {row}, so it has no spread"
    method = "one ensemble, z over paired examples (randomness of training ignored)"
    test = compare_examples(gain.value - claim.reference, gain.error, method)
    return test or f"{METRICS[metric].title}: {row} and its members have no spread over examples"


def contrast_error(claim: Claim, metric: str, seed: int, results: Results) -> float | None:
    """The standard error over examples, in percent, of a contrast within one seed; None if unknown."""
    places = {row: Place(row, seed) for row in claim.of}
    if METRICS[metric].source == "task":
        spreads = [results.spreads.get(place, {}).get(metric) for place in places.values()]
        if any(spread is None for spread in spreads):
            return None
        return math.hypot(
            *(w * error_of_interval(s) for w, s in zip(claim.of.values(), spreads, strict=True) if s is not None)
        )
    found = [results.examples.get(place, {}).get(metric) for place in places.values()]
    examples = [one for one in found if one is not None]
    if len(examples) < len(places):
        return None
    influences = [weight * influence(one) for weight, one in zip(claim.of.values(), examples, strict=True)]
    same = all(np.array_equal(one.count, examples[0].count) for one in examples)
    if same:  # the same sequences: pairwise differences
        return standard_error(np.sum(influences, axis=0))
    return math.hypot(*(standard_error(one) for one in influences))
