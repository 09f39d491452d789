"""Steps: every example once per epoch, whatever is asked for first; nothing lost between micro-batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.finetuning.order import Order, cut_micro_batches, fitting_shape, group_units, pad_shapes, plan_shapes
from litebert.tasks.features import Sequence
from litebert.tasks.task import Task


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 5))
@settings(max_examples=40)
def test_every_epoch_holds_every_unit_once(num_units, batch, seed):
    order = Order(num_units, batch, seed)
    steps = -(-3 * num_units // batch)
    stream = np.concatenate([order.step(step) for step in range(steps)])
    for epoch in range(3):
        assert sorted(stream[epoch * num_units : (epoch + 1) * num_units]) == list(range(num_units))
    # A step is the same whatever was asked for before, so a resumed run sees what it would have seen.
    np.testing.assert_array_equal(Order(num_units, batch, seed).step(steps - 1), stream[(steps - 1) * batch :])


def test_seeds_and_epochs_differ():
    one, two = Order(50, 50, 1), Order(50, 50, 2)
    assert list(one.step(0)) != list(two.step(0))
    assert list(one.step(0)) != list(one.step(1))


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=20), st.integers(5, 30))
@settings(max_examples=60)
def test_micro_batches_keep_order_and_budget(lengths, budget):
    for layout in ("packed", "padded"):
        cuts = list(cut_micro_batches(lengths, budget, layout))
        assert [unit for cut in cuts for unit in lengths[cut]] == lengths
        for cut in cuts:
            units = [length for unit in lengths[cut] for length in unit]
            cells = sum(units) if layout == "packed" else len(units) * max(units)
            assert cells <= budget or cut.stop - cut.start == 1


def test_planned_shapes_hold_every_batch():
    totals = np.random.default_rng(0).integers(50, 900, 300)
    shapes = plan_shapes(totals, num_rows=32, max_length=128)
    assert len(shapes) <= 4
    assert all(shape.tokens % 64 == 0 for shape in shapes)
    for total in totals:
        assert fitting_shape(shapes, total).tokens >= total
    waste = sum(fitting_shape(shapes, total).tokens for total in totals) / totals.sum()
    assert waste < 1.6


@given(st.lists(st.lists(st.integers(2, 100), min_size=3, max_size=3), min_size=1, max_size=12), st.integers(100, 900))
@settings(max_examples=60)
def test_padded_sizes_hold_what_is_cut_for_them(lengths, budget):
    shapes = pad_shapes(num_rows=36, unit=3, max_tokens=budget, max_length=100)
    for cut in cut_micro_batches(lengths, budget, "padded", 64):
        rows = [length for unit in lengths[cut] for length in unit]
        shape = fitting_shape(shapes, max(rows))
        assert len(rows) <= shape.rows
        assert shape.rows * shape.tokens <= max(budget, 3 * 100)


def test_options_of_a_question_stay_together():
    task = Task("toy", "multiple-choice", metrics=("accuracy",), max_length=16)
    ids, segments = np.arange(4, dtype=np.int32), np.zeros(4, np.int8)
    features = [Sequence(ids, segments, example, option=option) for example, option in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert group_units(task, [*features, Sequence(ids, segments, 1, option=2)]) == [[0, 1], [2, 3, 4]]
