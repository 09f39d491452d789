"""Verdicts against results of known truth: how often they are wrong, and how often they see what is there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from litebert.reproduce.measure import Examples
from litebert.reproduce.paper import Claim, load_table
from litebert.reproduce.results import Gain, Place, Results
from litebert.reproduce.statistics import compare_examples, compare_seeds
from litebert.reproduce.verdicts import answer_of, contrast_error, judge, judge_table

ABOVE = Claim("a is better", ("mlm",), {"a": 1, "b": -1}, above=0.0, margin=3.0)
NOT_ABOVE = Claim("a is no better", ("mlm",), {"a": 1, "b": -1}, not_above=0.0, margin=3.0)
NEAR = Claim("a is 10", ("mlm",), {"a": 1}, near=10.0, margin=3.0)


def shares(claim: Claim, truth: float, seeds: int = 3, repeats: int = 2000) -> dict[str, float]:
    """How often each answer is given where the truth is known and seeds scatter by 1."""
    draws = np.random.default_rng(0).normal(truth, 1.0, (repeats, seeds))
    answers = [answer_of(claim, compare_seeds(row)) for row in draws]
    return {answer: answers.count(answer) / repeats for answer in ("holds", "does not hold", "inconclusive")}


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


TABLE5, TABLE10 = load_table("table5"), load_table("table10")


def results_of(values, examples=None, **others) -> Results:
    return Results(TABLE5, "cpu", 1, values, examples=examples or {}, **others)


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


@pytest.mark.parametrize("contrast", [0.0, 0.36, -20.0])
@pytest.mark.parametrize("seeds", [2, 3])
def test_seeds_that_agree_are_no_certainty(contrast, seeds):
    # 0.1 + 0.2 is not 0.3: the same contrast from other numbers must count as the same.
    values = {
        "a": {"l2_roughness": {seed: 0.1 * (seed + 1) + contrast for seed in range(seeds)}},
        "b": {"l2_roughness": {seed: 0.1 * (seed + 1) for seed in range(seeds)}},
    }
    for claim in (ABOVE, NOT_ABOVE):
        verdict = judge(claim, "l2_roughness", results_of(values))
        assert verdict.answer == "inconclusive"
        assert f"{seeds} seeds agree exactly" in verdict.evidence


def test_seeds_that_agree_are_judged_by_their_examples():
    count = np.ones(400)
    right = {"a": np.arange(400) % 4 != 0, "b": np.arange(400) % 2 == 0}  # 75 % and 50 %, in every seed
    examples = {
        Place(row, seed): {"mlm": Examples(hits.astype(float), count)} for row, hits in right.items() for seed in (0, 1)
    }
    values = {row: {"mlm": {seed: 100 * float(hits.mean()) for seed in (0, 1)}} for row, hits in right.items()}
    verdict = judge(ABOVE, "mlm", results_of(values, examples))
    assert verdict.answer == "holds"
    assert "2 seeds agree, z over examples" in verdict.evidence
    difference = 100 * (right["a"].astype(float) - right["b"])
    error = stats.sem(difference) / math.sqrt(2)  # other sequences in each seed
    assert verdict.test.low == pytest.approx(25 - 1.6449 * error, abs=1e-3)
    # Models that answer alike have no spread over examples either.
    same = {place: examples[Place("a", place.seed)] for place in examples}
    equal = dict.fromkeys("ab", values["a"])
    assert judge(NOT_ABOVE, "mlm", results_of(equal, same)).answer == "inconclusive"
    lonely = {row: {"mlm": {0: 75.0}} for row in "ab"}
    assert judge(NOT_ABOVE, "mlm", results_of(lonely, same)).answer == "inconclusive"


def test_more_seeds_are_not_more_questions_of_a_task():
    values = {"a": {"sst2": {0: 90.0, 1: 90.0, 2: 90.0}}, "b": {"sst2": {0: 88.0, 1: 88.0, 2: 88.0}}}
    spreads = {Place(row, seed): {"sst2": 1.96} for row in "ab" for seed in range(3)}  # an error of 1 point each
    test = judge(ABOVE, "sst2", results_of(values, spreads=spreads)).test
    assert test.low == pytest.approx(2 - 1.6449 * math.sqrt(2), abs=1e-3)


def test_the_smallest_detectable_difference_is_never_zero():
    values = {"a": {"mlm": {0: 50.0, 1: 50.001}}, "b": {"mlm": {0: 40.0, 1: 40.0}}}
    verdict = judge(ABOVE, "mlm", results_of(values))
    assert 0 < verdict.test.least_seen < 0.05
    assert f"smallest detectable difference {verdict.test.least_seen:.1g}" in verdict.evidence


def test_there_is_one_ensemble_and_it_is_held_against_its_members_by_examples():
    values = {
        "albert-1M": {"race": {0: 80.0, 1: 80.1, 2: 80.2}, "squad1_f1": {0: 80.0, 1: 80.1, 2: 80.2}},
        "albert-ensemble": {"race": {0: 82.0}, "squad1_f1": {0: 82.0}},
        "bert-large": {"race": {0: 70.0, 1: 71.0, 2: 72.0}},
    }
    results = Results(TABLE10, "cpu", 3, values, gains={"albert-ensemble": {"race": Gain(1.9, 0.5)}})
    against_members = next(claim for claim in TABLE10.claims if "albert-ensemble" in claim.of)
    verdict = judge(against_members, "race", results)
    assert verdict.answer == "holds"
    assert verdict.test.method.startswith("one ensemble, z over paired examples")
    assert verdict.test.low == pytest.approx(1.9 - 1.6449 * 0.5, abs=1e-3)
    assert judge(against_members, "squad1_f1", results).answer == "inconclusive"  # never compared
    against_bert = Claim("", ("race",), {"albert-ensemble": 1, "bert-large": -1}, above=0.0)
    assert "there is only one albert-ensemble" in judge(against_bert, "race", results).evidence
    same = Results(TABLE10, "cpu", 3, values, gains={"albert-ensemble": {"race": Gain(0.0, 0.0)}})
    assert judge(against_members, "race", same).answer == "inconclusive"


def test_what_was_not_measured_is_inconclusive():
    empty = results_of({})
    assert judge(ABOVE, "mlm", empty).answer == "inconclusive"
    assert "was not measured" in judge(ABOVE, "mlm", empty).evidence
    apart = results_of({"a": {"mlm": {0: 1.0}}, "b": {"mlm": {1: 1.0}}})
    assert "no seed has results for all" in judge(ABOVE, "mlm", apart).evidence
    lonely = results_of({"a": {"l2_roughness": {0: 1.0}}, "b": {"l2_roughness": {0: 2.0}}})
    assert "run more seeds" in judge(ABOVE, "l2_roughness", lonely).evidence


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
    assert answers["Trained on SOP, a model solves SOP (over 55 %)"] == "holds"
    assert answers["Trained on SOP, a model also solves NSP (over 55 %)"] == "does not hold"
    assert answers["Trained on NSP, a model stays near chance on SOP (at most 55 %)"] == "does not hold"
    assert answers["A sentence objective costs little MLM accuracy (at most 1.5 points)"] == "does not hold"
    assert answers["SOP is better for downstream tasks than NSP"] == "inconclusive"
    assert len(answers) == len(TABLE5.claims)
