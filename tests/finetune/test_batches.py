"""Batches: what stands where in the arrays, in both layouts, with filler and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.finetuning.batches import Shape, make_batch
from litebert.tasks.features import Sequence
from litebert.tasks.task import Task

TEXT = Task("toy", "classification", labels=("a", "b"), metrics=("accuracy",), max_length=16)


def sequence(length: int, example: int = 0, target=0, option: int = 0) -> Sequence:
    ids = np.arange(10 * (example + 1), 10 * (example + 1) + length, dtype=np.int32)
    return Sequence(ids, (np.arange(length) >= length // 2).astype(np.int8), example, target, option=option)


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
    batch = make_batch(TEXT, [Sequence(np.arange(3, dtype=np.int32), np.zeros(3, np.int8))], "padded")
    assert set(batch.targets) == {"rows"}
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_shape_tells_batches_apart(layout):
    a, b = ([sequence(5), sequence(3, 1)], [sequence(4), sequence(4, 1)])
    same = make_batch(TEXT, a, layout, 0, Shape(16, 4)).shape == make_batch(TEXT, b, layout, 0, Shape(16, 4)).shape
    assert same
    assert make_batch(TEXT, a, layout).shape != make_batch(TEXT, a[:1], layout).shape
