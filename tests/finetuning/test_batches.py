"""Which examples each step takes, and their arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.finetuning.batches import (
    Order,
    Shape,
    cut_micro_batches,
    fitting_shape,
    group_units,
    make_batch,
    pad_shapes,
    plan_shapes,
)
from litebert.tasks.features import Feature
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
    features = [Feature(ids, segments, example, option=option) for example, option in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert group_units(task, [*features, Feature(ids, segments, 1, option=2)]) == [[0, 1], [2, 3, 4]]


TEXT = Task("toy", "classification", labels=("a", "b"), metrics=("accuracy",), max_length=16)


def sequence(length: int, example: int = 0, target=0, option: int = 0) -> Feature:
    ids = np.arange(10 * (example + 1), 10 * (example + 1) + length, dtype=np.int32)
    return Feature(ids, (np.arange(length) >= length // 2).astype(np.int8), example, target, option=option)


def test_a_packed_batch_is_its_sequences_one_after_the_other():
    batch = make_batch(TEXT, [sequence(5), sequence(3, 1, 1)], "packed")
    assert batch.inputs["input_ids"].tolist() == [10, 11, 12, 13, 14, 20, 21, 22]
    assert batch.inputs["position_ids"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert batch.inputs["starts"].tolist() == [0, 5, 8]
    assert batch.targets["labels"].tolist() == [0, 1]
    assert (batch.max_length, batch.num_tokens, batch.count) == (5, 8, 2)


@given(st.lists(st.integers(2, 16), min_size=1, max_size=8), st.integers(0, 70))
@settings(max_examples=60)
def test_filler_is_cut_into_sequences_that_the_model_takes(lengths, filler):
    tokens = sum(lengths) + filler
    shape = Shape(tokens, len(lengths) + tokens // TEXT.max_length + 1)
    batch = make_batch(TEXT, [sequence(length, i) for i, length in enumerate(lengths)], "packed", 0, shape)
    starts = batch.inputs["starts"]
    assert len(starts) == shape.rows + 1
    assert starts[-1] == tokens
    sizes = np.diff(starts)
    assert sizes[: len(lengths)].tolist() == lengths
    assert sizes.min() >= 0
    assert sizes.max() <= TEXT.max_length
    assert batch.inputs["position_ids"].max() < TEXT.max_length
    assert (batch.targets["rows"][sum(lengths) :] == shape.rows).all()
    assert (batch.targets["labels"][len(lengths) :] == -100).all()


def test_options_of_a_question_are_a_group():
    task = Task("toy", "multiple-choice", metrics=("accuracy",), max_length=16)
    first = [sequence(4, 0, 1, option) for option in range(2)]
    second = [sequence(3, 1, 2, option) for option in range(3)]
    batch = make_batch(task, first + second, "packed")
    assert batch.targets["group"].tolist() == [0, 0, 1, 1, 1]
    assert batch.targets["gold"].tolist() == [0, 1, 0, 0, 1]
    assert batch.count == 2


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.sampled_from(["packed", "padded"]))
@settings(max_examples=60)
def test_every_question_has_its_options_and_its_gold_one_in_any_order(drawn, layout):
    """Also where the same question stands twice in a row: the last of an epoch and the first of the next."""
    task = Task("toy", "multiple-choice", metrics=("accuracy",), max_length=16)
    sizes, right = [2, 3, 4, 2, 3, 4], [1, 0, 3, 0, 2, 1]
    chosen = [sequence(4, unit, right[unit], option) for unit in drawn for option in range(sizes[unit])]
    batch = make_batch(task, chosen, layout)
    assert batch.targets["group"].tolist() == [place for place, unit in enumerate(drawn) for _ in range(sizes[unit])]
    gold = [float(option == right[unit]) for unit in drawn for option in range(sizes[unit])]
    assert batch.targets["gold"].tolist() == gold
    assert batch.count == len(drawn)


def test_unlabelled_sequences_make_batches_for_prediction():
    batch = make_batch(TEXT, [Feature(np.arange(3, dtype=np.int32), np.zeros(3, np.int8))], "padded")
    assert set(batch.targets) == {"rows"}
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_shape_tells_batches_apart(layout):
    a, b = ([sequence(5), sequence(3, 1)], [sequence(4), sequence(4, 1)])
    same = make_batch(TEXT, a, layout, 0, Shape(16, 4)).shape == make_batch(TEXT, b, layout, 0, Shape(16, 4)).shape
    assert same
    assert make_batch(TEXT, a, layout).shape != make_batch(TEXT, a[:1], layout).shape
