from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.predict.batching import plan_packed, plan_padded

lengths = st.lists(st.integers(1, 60), max_size=40)


@settings(deadline=None)
@given(lengths, st.integers(1, 200))
def test_packed_batches_keep_the_budget_and_lose_nothing(lengths, max_tokens):
    batches = plan_packed(lengths, max_tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= max_tokens
    # Nothing was cut too early: each batch is full, or the next sequence would not have fitted.
    for batch, after in itertools.pairwise(batches):
        assert sum(lengths[i] for i in batch) + lengths[after[0]] > max_tokens


def cost(lengths, passes, pass_cost):
    return sum(len(each) * max(lengths[i] for i in each) + pass_cost for each in passes)


@settings(deadline=None)
@given(lengths, st.integers(1, 200), st.integers(0, 50))
def test_every_sequence_is_in_one_pass_within_the_budget(lengths, max_tokens, pass_cost):
    passes = plan_padded(lengths, max_tokens, pass_cost)
    assert sorted(int(i) for each in passes for i in each) == list(range(len(lengths)))
    for each in passes:
        assert len(each) == 1 or len(each) * max(lengths[i] for i in each) <= max_tokens
    longest = [max(lengths[i] for i in each) for each in passes]
    assert longest == sorted(longest, reverse=True)


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=7), st.integers(0, 20))
def test_no_other_cut_is_cheaper(lengths, pass_cost):
    passes = plan_padded(lengths, 10**6, pass_cost)
    ordered = sorted(lengths, reverse=True)
    cheapest = min(
        sum((b - a) * ordered[a] + pass_cost for a, b in itertools.pairwise((0, *cuts, len(ordered))))
        for number in range(len(ordered))
        for cuts in itertools.combinations(range(1, len(ordered)), number)
    )
    assert cost(lengths, passes, pass_cost) == cheapest


def test_like_lengths_run_together_and_a_long_one_apart():
    passes = plan_padded([10, 100, 12, 11, 9], max_tokens=512, pass_cost=16)
    assert [list(np.sort(each)) for each in passes] == [[1], [0, 2, 3, 4]]
    assert plan_padded([], 10, 1) == []
