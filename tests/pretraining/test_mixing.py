"""Sharing rows among stores."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.errors import ConfigError
from litebert.pretraining.mixing import share_row, whole_weights


@given(weights=st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_each_store_gets_its_rows_in_order_and_its_share_at_any_moment(weights):
    rows = 300
    counts = Counter()
    for row in range(rows):
        store, own_row = share_row(row, weights)
        assert own_row == counts[store]  # none skipped, none twice
        counts[store] += 1
        for number, weight in enumerate(weights):
            assert abs(counts[number] - (row + 1) * weight / sum(weights)) < len(weights)


def test_far_rows_are_reached_at_once():
    assert share_row(4 * 10**12, [3, 1]) == (1, 10**12)
    assert share_row(4 * 10**12 + 1, [3, 1]) == (0, 3 * 10**12)


def test_whole_weights():
    assert whole_weights([0.75, 0.25], [1, 1]) == [3, 1]
    assert whole_weights([2, 1, 1], [1, 1, 1]) == [2, 1, 1]
    assert whole_weights(None, [17, 4]) == [17, 4]


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -2.0], [1.0, float("nan")], [1.0, 1e-9]])
def test_impossible_weights(weights):
    with pytest.raises(ConfigError, match="weights"):
        whole_weights(weights, [5, 5])
