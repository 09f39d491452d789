"""Training for several depths: shares by hand, draws that follow them, and runs whose losses add up."""

from __future__ import annotations

from collections import Counter

import pytest

from litebert.errors import ConfigError
from litebert.train.exits import check_weights, draw_depth, loss_shares


def test_an_exit_counts_as_much_as_it_is_deep():
    assert loss_shares((3, 6, 12)) == {3: 3 / 21, 6: 6 / 21, 12: 12 / 21}
    assert loss_shares((3, 6, 12), (1, 1, 2)) == {3: 0.25, 6: 0.25, 12: 0.5}


def test_a_stage_of_fewer_layers_has_fewer_exits_and_ends_with_its_own_depth():
    assert loss_shares((3, 6, 12), deepest=6) == {3: 3 / 9, 6: 6 / 9}
    assert loss_shares((3, 6, 12), deepest=4) == {3: 3 / 7, 4: 4 / 7}
    assert loss_shares((3, 6, 12), (1, 1, 2), deepest=4) == {3: 1 / 3, 4: 2 / 3}


def test_depths_are_drawn_by_their_shares_and_by_the_step_alone():
    shares = {1: 0.2, 2: 0.3, 4: 0.5}
    drawn = [draw_depth(shares, 7, step) for step in range(4000)]
    assert drawn == [draw_depth(shares, 7, step) for step in range(4000)]
    assert drawn != [draw_depth(shares, 8, step) for step in range(4000)]
    for depth, share in shares.items():
        assert Counter(drawn)[depth] / 4000 == pytest.approx(share, abs=0.03)  # four standard errors


def test_weights_that_do_not_fit():
    check_weights((1, 2), (0.5, 2.0))
    with pytest.raises(ConfigError, match="1 for 2 exits"):
        check_weights((1, 2), (1.0,))
    with pytest.raises(ConfigError, match="must be > 0"):
        check_weights((1, 2), (0.0, 1.0))
