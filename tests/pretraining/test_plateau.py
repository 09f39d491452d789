"""The watch over runs that learn nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from litebert.pretraining.plateau import PATIENCE, PlateauWatch, commonest_share

BEGIN = 100 + PATIENCE  # after a warm-up of 100


@pytest.mark.parametrize(
    ("evaluations", "told"),
    [
        ([(BEGIN, 0.05), (BEGIN + 50, 0.052), (BEGIN + 100, 0.05)], [(BEGIN + 50, BEGIN)]),  # once
        ([(BEGIN - 1, 0.05), (BEGIN, 0.05)], []),  # too early to tell
        ([(BEGIN, 0.05), (BEGIN + 50, 0.08), (BEGIN + 100, 0.05)], []),  # not two in a row
        ([(BEGIN, 0.08), (BEGIN + 50, 0.05), (BEGIN + 100, 0.05)], [(BEGIN + 100, BEGIN + 50)]),  # collapsed later
        ([(BEGIN, 0.3), (BEGIN + 50, 0.4)], []),
    ],
)
def test_it_tells_once_after_two_in_a_row(evaluations, told):
    watch = PlateauWatch(warmup_steps=100)
    found = [(step, watch.look(step, accuracy, floor=0.05)) for step, accuracy in evaluations]
    assert [pair for pair in found if pair[1] is not None] == told


def test_the_share_of_the_commonest_token():
    batches = [SimpleNamespace(labels=np.array(labels)) for labels in ([5, 7, -100, 5], [5, 9, -100])]
    assert commonest_share(batches) == 3 / 5
    assert commonest_share([SimpleNamespace(labels=np.array([-100]))]) == 0.0
