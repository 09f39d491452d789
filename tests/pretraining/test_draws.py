"""Random numbers by counter."""

from __future__ import annotations

import numpy as np
from slow_masking import splitmix64

from litebert.pretraining.draws import below, draw, happens, make_key, shuffled


def test_draws_are_splitmix64_as_published():
    # The sequence of seed 1234567 that implementations of SplitMix64 are checked with.
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert draw(1234567, np.arange(5)).tolist() == published
    assert [splitmix64(1234567, n) for n in range(5)] == published


def test_keys_and_counters_broadcast():
    keys = np.array([3, 2**64 - 1], np.uint64)
    table = draw(keys[:, None], np.arange(4) + (1 << 33))
    assert table.tolist() == [[splitmix64(int(key), n + (1 << 33)) for n in range(4)] for key in keys]
    assert draw(keys, 7).tolist() == [splitmix64(int(key), 7) for key in keys]


def test_keys_depend_on_every_part_and_its_place():
    keys = [make_key(*parts) for parts in ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (12, 34), (34, 12))]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 2**64 for key in keys)


def test_below_and_happens_are_fair():
    bits = draw(make_key(5), np.arange(60_000))
    counts = np.bincount(below(bits, 6), minlength=6)
    assert counts.sum() == 60_000
    # Chi-squared with 5 degrees of freedom stays under 25.7 with probability 0.9999.
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 25.7
    share = happens(bits, 0.1).mean()
    assert abs(share - 0.1) < 4 * (0.1 * 0.9 / 60_000) ** 0.5
    assert not happens(bits, 0.0).any()
    assert happens(bits, 1.0).all()
    assert (below(bits, np.arange(60_000) + 1) <= np.arange(60_000)).all()


def test_shuffled_is_a_permutation_that_its_key_decides():
    order = shuffled(1000, 1)
    assert sorted(order) == list(range(1000))
    assert order.tolist() == shuffled(1000, 1).tolist()
    assert order.tolist() != shuffled(1000, 2).tolist()
