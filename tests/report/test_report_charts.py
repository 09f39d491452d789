"""Fewer points and smooth lines: what they keep, and what they must not invent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.report.charts import Series, downsample, smooth


def make_series(values) -> Series:
    values = np.asarray(values, dtype=float)
    return Series(np.arange(len(values), dtype=float) * 10, values)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(4, 60))
def test_downsampling_keeps_ends_and_extremes(values, most):
    series = make_series(values)
    few = downsample(series, most)
    assert len(few.steps) <= max(most, 1)
    assert len(few.steps) == min(len(values), most) or len(values) > most
    pairs = set(zip(*series, strict=True))
    assert set(zip(*few, strict=True)) <= pairs  # no point is invented
    assert (np.diff(few.steps) > 0).all()
    assert (few.steps[0], few.steps[-1]) == (series.steps[0], series.steps[-1])
    assert (few.values.min(), few.values.max()) == (series.values.min(), series.values.max())


def test_a_single_spike_in_a_million_survives():
    values = np.zeros(1_000_000)
    values[123_457], values[765_432] = 7, -7
    few = downsample(make_series(values), 1000)
    assert len(few.steps) <= 1000
    assert few.values.max() == 7
    assert few.values.min() == -7
    assert few.steps[few.values.argmax()] == 1_234_570


def test_short_series_are_left_alone():
    series = make_series([3, 1, 2])
    assert downsample(series, 1000) is series
    assert smooth(series, 0.1) is series
    assert not smooth(make_series([]), 0.1)


def test_smoothing_is_the_mean_of_the_neighbours_twice():
    random = np.random.default_rng(0)
    values = random.standard_normal(50)

    def average(numbers):
        return [np.mean(numbers[max(0, i - 2) : i + 3]) for i in range(len(numbers))]

    assert smooth(make_series(values), 0.08).values == pytest.approx(np.array(average(average(values))))


def test_smoothing_leaves_straight_lines_and_lowers_noise():
    line = make_series(np.linspace(5, 1, 200))
    middle = slice(20, -20)
    assert smooth(line, 0.05).values[middle] == pytest.approx(line.values[middle])
    noise = make_series(np.random.default_rng(1).standard_normal(2000))
    assert smooth(noise, 0.05).values.std() < 0.2


def test_a_jump_at_a_break_stays_a_jump():
    values = np.concatenate([np.full(100, 4.0), np.full(100, 2.0)])
    series = make_series(values)
    kept = smooth(series, 0.1, breaks=[series.steps[99]])  # the last report before the change
    assert (kept.values == values).all()
    blurred = smooth(series, 0.1)
    assert 2 < blurred.values[99] < 4
