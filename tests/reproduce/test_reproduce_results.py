"""Runs that learned nothing decide no claim: on results of known truth."""

from __future__ import annotations

import pytest

from litebert.reproduce.paper import Claim, load_table
from litebert.reproduce.results import Gain, Place, Results, Unlearned, describe_unlearned, find_unlearned
from litebert.reproduce.verdicts import judge, judge_table

TABLE10, TABLE12 = load_table("table10"), load_table("table12")
FLOORS = {0: 5.34, 1: 5.41, 2: 5.28}
LEARNED = {0: 12.5, 1: 12.9, 2: 12.2}  # healthy seeds scatter
METRICS = ("mlm", "sop", "sop_probe", "last_l2", "sst2")


def results_of(mlm, table=TABLE12, floors=FLOORS, **others) -> Results:
    """MLM by row and seed; every other number follows from it, so that a claim on it would be judged the same."""
    values = {
        row: {
            **{metric: dict(by_seed) for metric in METRICS},
            "params": {0: 100.0 + place},
            "speed_up": {seed: 1 + place * (1 + 0.1 * seed) for seed in by_seed},
        }
        for place, (row, by_seed) in enumerate(mlm.items())
    }
    facts = {
        Place(row, seed): {"steps": 9, "tokens": 9, "device": "GPU", "mlm_floor": floors[seed]}
        for row, by_seed in mlm.items()
        for seed in by_seed
        if seed in floors
    }
    return Results(table, "gpu-minutes", 3, values, facts=facts, **others)


def more(by_seed, points):
    return {seed: value + points * (1 + 0.05 * seed) for seed, value in by_seed.items()}


def is_better(row, than, metric="mlm"):
    return Claim("", (metric,), {row: 1, than: -1}, above=0.0, margin=0.5)


@pytest.mark.parametrize("metric", METRICS)
def test_a_row_that_learned_nothing_decides_no_claim(metric):
    results = results_of({"healthy": LEARNED, "better": more(LEARNED, 3), "collapsed": FLOORS})
    for claim in (is_better("collapsed", "healthy", metric), is_better("healthy", "collapsed", metric)):
        verdict = judge(claim, metric, results)
        assert (verdict.answer, verdict.test) == ("inconclusive", None)
        assert verdict.evidence == (
            "collapsed (seeds 0, 1, 2) learned no more than token frequencies: "
            "MLM 5.3 to 5.4, where the most frequent token alone gives 5.3 to 5.4"
        )
    alone = Claim("", (metric,), {"collapsed": 1}, not_above=55.0)
    assert judge(alone, metric, results).answer == "inconclusive"
    # What does not ask the collapsed row is judged as ever.
    assert judge(is_better("better", "healthy", metric), metric, results).answer == "holds"
    assert judge(is_better("healthy", "better", metric), metric, results).answer == "does not hold"


def test_without_a_floor_it_is_a_model_like_any_other():
    results = results_of({"healthy": LEARNED, "collapsed": FLOORS}, floors={})
    assert find_unlearned(results) == {}
    assert judge(is_better("healthy", "collapsed"), "mlm", results).answer == "holds"


def test_what_asks_no_trained_model_is_judged():
    results = results_of({"healthy": LEARNED, "collapsed": FLOORS})
    assert judge(is_better("collapsed", "healthy"), "params", results).evidence == "+1.0 M, exact"
    assert judge(is_better("collapsed", "healthy"), "params", results).answer == "holds"
    assert judge(is_better("collapsed", "healthy"), "speed_up", results).answer == "holds"


def test_one_seed_that_learned_nothing_is_enough():
    part = {**more(LEARNED, 3), 2: FLOORS[2]}
    results = results_of({"healthy": LEARNED, "part": part})
    assert set(find_unlearned(results)) == {("part", 2)}
    verdict = judge(is_better("healthy", "part"), "sop", results)
    assert verdict.answer == "inconclusive"
    assert verdict.evidence.startswith("part (seed 2) learned no more than token frequencies: MLM 5.3, where")
    # A seed that the other row lacks is in no contrast.
    shorter = results_of({"healthy": {0: 12.5, 1: 12.9}, "part": part})
    assert judge(is_better("part", "healthy"), "mlm", shorter).answer == "holds"


@pytest.mark.parametrize(("above", "learned"), [(-4.0, False), (0.9, False), (1.1, True), (25.0, True)])
def test_what_counts_as_learned(above, learned):
    assert (not find_unlearned(results_of({"row": {0: FLOORS[0] + above}}))) == learned


def test_an_ensemble_stands_on_all_its_members():
    mlm = {"albert-1M": {**LEARNED, 1: FLOORS[1]}, "albert-ensemble": {0: 60.0}}
    gains = {"albert-ensemble": {"sst2": Gain(1.9, 0.5)}}
    claim = is_better("albert-ensemble", "albert-1M", "sst2")
    assert judge(claim, "sst2", results_of(mlm, TABLE10, floors={}, gains=gains)).answer == "holds"
    verdict = judge(claim, "sst2", results_of(mlm, TABLE10, gains=gains))
    assert verdict.answer == "inconclusive"
    assert verdict.evidence.startswith("albert-1M (seed 1) learned")


def test_a_table_says_why_instead_of_naming_a_task_that_was_not_measured():
    mlm = {"hidden-1024": LEARNED, "hidden-2048": more(LEARNED, 3), "hidden-4096": FLOORS, "hidden-6144": FLOORS}
    results = results_of(mlm)
    verdicts = judge_table(results)
    assert [verdict.metric for verdict in verdicts] == ["mlm"] * 3  # the claims name an average of tasks first
    assert [verdict.answer for verdict in verdicts] == ["holds", "inconclusive", "inconclusive"]
    assert "hidden-4096 (seeds 0, 1, 2), hidden-6144 (seeds 0, 1, 2) learned" in verdicts[2].evidence


def test_numbers_that_print_alike_are_named_once():
    same = {Place("a", 1): Unlearned(5.31, 5.34), Place("a", 0): Unlearned(5.29, 5.41)}
    assert describe_unlearned(same).endswith("MLM 5.3, where the most frequent token alone gives 5.3 to 5.4")
    assert describe_unlearned(same).startswith("a (seeds 0, 1) ")
