"""Packing: rows keep their limits, every sequence has one place, hardly any room is wasted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.pretraining.chapters import Capacity, pack


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(3, 40), min_size=1, max_size=200),
    tokens=st.integers(40, 200),
    sequences=st.integers(1, 12),
    predictions=st.integers(6, 30),
)
def test_rows_keep_every_limit_and_place_each_sequence_once(lengths, tokens, sequences, predictions):
    lengths = np.array(lengths)
    budgets = np.maximum(1, lengths * 15 // 100)
    packing = pack(lengths, budgets, Capacity(tokens, sequences, predictions))
    assert sorted(packing.members.tolist()) == list(range(len(lengths)))
    for first, last in pairwise(packing.starts):
        row = packing.members[first:last]
        assert 1 <= len(row) <= sequences
        assert lengths[row].sum() <= tokens
        assert budgets[row].sum() <= predictions


def test_a_fixed_number_of_rows_drops_or_repeats():
    lengths = np.full(10, 30)
    few = pack(lengths, np.ones(10, int), Capacity(100, 9, 99), num_rows=2)
    assert few.members.tolist() == [0, 1, 2, 3, 4, 5]
    many = pack(lengths, np.ones(10, int), Capacity(100, 9, 99), num_rows=5)
    assert len(many.starts) == 6
    assert np.bincount(many.members, minlength=10).tolist() == [2] * 5 + [1] * 5


def test_gaps_are_filled_from_ahead():
    lengths = np.array([9, 7, 8, 3, 4])
    packing = pack(lengths, np.ones(5, int), Capacity(12, 5, 9))
    rows = [lengths[packing.members[a:b]].tolist() for a, b in pairwise(packing.starts)]
    assert rows == [[9, 3], [7, 4], [8]]


def test_real_lengths_leave_almost_nothing_empty():
    rng = np.random.default_rng(0)
    long = rng.integers(480, 513, 6000)
    short = rng.integers(10, 500, 3000)
    lengths = rng.permutation(np.concatenate([long, short]))
    packing = pack(lengths, lengths * 15 // 100, Capacity(4096, 30, 700))
    rows = np.add.reduceat(lengths[packing.members], packing.starts[:-1])
    assert rows[:-1].mean() > 0.995 * 4096
    # Rows are mixed: neighbours in a row are not neighbours in length.
    assert np.corrcoef(np.arange(len(lengths)), packing.members)[0, 1] > 0.99
