"""Verdicts against results of known truth: how often they are wrong, and how often they see what is there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from litebert.reproduce.measure import Examples
from litebert.reproduce.results import Place, Results
from litebert.reproduce.statistics import compare_examples, compare_seeds
from litebert.reproduce.table import Claim, load_table
from litebert.reproduce.verdicts import answer_of, contrast_error, judge, judge_table

ABOVE = Claim("a is better", ("mlm",), {"a": 1, "b": -1}, above=0.0, margin=3.0)
NOT_ABOVE = Claim("a is no better", ("mlm",), {"a": 1, "b": -1}, not_above=0.0, margin=3.0)
NEAR = Claim("a is 10", ("mlm",), {"a": 1}, near=10.0, margin=3.0)


def shares(claim: Claim, truth: float, seeds: int = 3, repeats: int = 2000) -> dict[str, float]:
    """How often each answer is given where the truth is known and seeds scatter by 1."""
    draws = np.random.default_rng(0).normal(truth, 1.0, (repeats, seeds))
    answers = [answer_of(claim, compare_seeds(row)) for row in draws]
    return {answer: answers.count(answer) / repeats for answer in ("holds", "does not hold", "cannot be told")}


def test_wrong_answers_are_rare():
    assert shares(ABOVE, 0.0)["holds"] < 0.065  # 5 %, and what 2,000 repeats scatter
    assert shares(ABOVE, -1.0)["holds"] < 0.01
    assert shares(ABOVE, 3.0)["does not hold"] < 0.065
    assert shares(NOT_ABOVE, 3.0)["holds"] < 0.065
    assert shares(NOT_ABOVE, 0.0)["does not hold"] < 0.065
    assert shares(NEAR, 3.0)["holds"] < 0.065
    assert shares(NEAR, 3.0)["does not hold"] < 0.065


def test_large_effects_are_seen():
    assert shares(ABOVE, 8.0)["holds"] > 0.95
    assert shares(ABOVE, -5.0)["does not hold"] > 0.95
    assert shares(NOT_ABOVE, -5.0)["holds"] > 0.95
    assert shares(NOT_ABOVE, 8.0)["does not hold"] > 0.95
    assert shares(NEAR, 0.0, seeds=8)["holds"] > 0.95
    assert shares(NEAR, 12.0)["does not hold"] > 0.95


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_least_effect_is_seen_in_four_of_five_experiments(seeds):
    # With the true scatter of 1 in place of the estimated one.
    sample = np.array([-1.0, 1.0] + [0.0] * (seeds - 2))
    sample = sample / sample.std(ddof=1)
    least = compare_seeds(sample).least_seen
    assert shares(ABOVE, least, seeds, 3000)["holds"] == pytest.approx(0.8, abs=0.03)


def test_bounds_are_students():
    values = [2.1, 2.9, 2.4]
    test = compare_seeds(values)
    low, high = stats.t.interval(0.9, 2, np.mean(values), stats.sem(values))
    assert (test.low, test.high) == (pytest.approx(low), pytest.approx(high))
    assert stats.nct.sf(stats.t.ppf(0.95, 2), 2, test.least_seen / stats.sem(values)) == pytest.approx(0.8, abs=1e-4)
    assert compare_examples(1.0, 0.5).low == pytest.approx(1 - 1.6449 * 0.5, abs=1e-4)


TABLE5 = load_table("table5")


def results_of(values, examples=None) -> Results:
    return Results(TABLE5, "cpu", 1, values, examples=examples or {})


def test_one_seed_is_judged_by_examples_taken_in_pairs():
    """The standard error is that of many experiments with other examples, and pairs make it smaller."""
    rng = np.random.default_rng(1)
    estimates, errors = [], []
    for _ in range(300):
        count = rng.integers(5, 15, 200).astype(float)
        hardness = rng.normal(0, 0.2, 200)  # the same for both models: why pairs help
        right = [rng.binomial(count.astype(int), np.clip(p + hardness, 0, 1)).astype(float) for p in (0.55, 0.5)]
        examples = {Place(row, 0): {"mlm": Examples(r, count)} for row, r in zip("ab", right, strict=True)}
        values = {row: {"mlm": {0: examples[Place(row, 0)]["mlm"].accuracy}} for row in "ab"}
        results = results_of(values, examples)
        estimates.append(values["a"]["mlm"][0] - values["b"]["mlm"][0])
        errors.append(contrast_error(ABOVE, "mlm", 0, results))
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.12)
    alone = [contrast_error(Claim("", ("mlm",), {row: 1}, above=0.0), "mlm", 0, results) for row in "ab"]
    assert errors[-1] < 0.8 * math.hypot(*alone)
    verdict = judge(ABOVE, "mlm", results)
    assert verdict.test is not None
    assert "one seed" in verdict.test.method


def test_what_was_not_measured_cannot_be_told():
    empty = results_of({})
    assert judge(ABOVE, "mlm", empty).answer == "cannot be told"
    assert "was not measured" in judge(ABOVE, "mlm", empty).evidence
    apart = results_of({"a": {"mlm": {0: 1.0}}, "b": {"mlm": {1: 1.0}}})
    assert "no seed has all" in judge(ABOVE, "mlm", apart).evidence
    lonely = results_of({"a": {"l2_roughness": {0: 1.0}}, "b": {"l2_roughness": {0: 2.0}}})
    assert "run several seeds" in judge(ABOVE, "l2_roughness", lonely).evidence


def test_a_verdict_against_the_paper_is_given_like_any_other():
    values = {
        "none": {"mlm": {0: 30.0, 1: 30.1, 2: 29.9}},
        "nsp": {"sop": {0: 80.0, 1: 81.0, 2: 79.0}, "nsp": {0: 50.0, 1: 50.1, 2: 49.9}},
        "sop": {
            "mlm": {0: 20.0, 1: 20.2, 2: 20.1},
            "sop": {0: 90.0, 1: 91.0, 2: 92.0},
            "nsp": {0: 49.0, 1: 50.5, 2: 50.0},
        },
    }
    answers = {v.claim.text: v.answer for v in judge_table(results_of(values))}
    assert answers["Trained on SOP, a model solves SOP"] == "holds"
    assert answers["Trained on SOP, a model also solves NSP"] == "does not hold"
    assert answers["Trained on NSP, a model stays near chance on SOP (at most 55 %)"] == "does not hold"
    assert answers["A sentence objective costs little MLM accuracy (at most 1.5 points)"] == "does not hold"
    assert answers["SOP is better for downstream tasks than NSP"] == "cannot be told"
    assert len(answers) == len(TABLE5.claims)
