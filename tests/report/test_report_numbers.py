"""Numbers, ticks and axes: round, readable, and never wrong about a value."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.report.numbers import (
    UNITS,
    count,
    count_axis,
    duration,
    linear_axis,
    log_axis,
    log_ticks,
    nice_step,
    percent,
    show,
    tick_labels,
    ticks_between,
    time_axis,
)

SIZES = {unit: size for size, unit in UNITS}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (950, "950"),
        (999.6, "1.00k"),
        (1_000, "1.00k"),
        (38_123, "38.1k"),
        (999_700, "1.00M"),
        (1_234_567, "1.23M"),
        (262e9, "262B"),
    ],
)
def test_counts(number, text):
    assert count(number) == text


def test_durations_shares_and_values():
    assert [duration(s) for s in (0.42, 52, 200, 7384, 200_000)] == [
        "0.4 s",
        "52 s",
        "3 min 20 s",
        "2 h 3 min",
        "2 d 7 h",
    ]
    assert percent(0.6241) == "62.4%"
    assert [show(0.00176, "rate"), show(0, "rate"), show(1.5, "rate")] == ["1.76e-3", "0", "1.50"]
    assert [show(2.30412, "number"), show(12_345.6, "number")] == ["2.304", "1.235e+04"]


def test_labels_of_ticks():
    assert tick_labels([0, 500, 1000, 1500]) == ["0", "500", "1k", "1.5k"]
    assert tick_labels([0, 10_000, 20_000]) == ["0", "10k", "20k"]
    assert tick_labels([0, 0.5, 1], "number") == ["0", "0.5", "1.0"]
    assert tick_labels([0, 0.2, 0.4], "percent") == ["0%", "20%", "40%"]
    assert tick_labels([0, 0.0005, 0.001, 0.0015], "rate") == ["0", "5e-4", "1e-3", "1.5e-3"]


def value_of(label: str) -> float:
    unit = label[-1] if label[-1] in SIZES else ""
    return float(label.removesuffix(unit)) * SIZES[unit]


@given(st.floats(1e-6, 1e12), st.integers(3, 10))
def test_ticks_are_round_and_say_what_they_stand_at(high, most):
    ticks = ticks_between(0.0, high, most)
    assert 2 <= len(ticks) <= most + 1
    assert ticks[0] == 0
    assert ticks[-1] <= high * (1 + 1e-6)
    step = ticks[1] - ticks[0]
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in (1, 2, 5)
    if high >= 1000:
        assert [value_of(label) for label in tick_labels(ticks)] == pytest.approx(ticks)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_a_linear_axis_holds_its_values(low, span):
    axis = linear_axis(low, low + span, "number")
    for value in (low, low + span):
        assert -1e-6 <= axis.place(value) <= 1 + 1e-6
    assert all(-1e-6 <= axis.place(tick) <= 1 + 1e-6 for tick, _ in axis.ticks)
    assert len(axis.ticks) >= 2


@given(st.floats(1e-8, 1e8), st.floats(1, 1e10))
def test_a_log_axis_holds_its_values(low, factor):
    axis = log_axis(low, low * factor, "number")
    for value in (low, low * factor):
        assert -1e-6 <= axis.place(value) <= 1 + 1e-6
    assert 2 <= len(axis.ticks) <= 8
    assert axis.place(0) < 0
    assert axis.place(axis.low) == pytest.approx(0)
    assert axis.place(math.sqrt(axis.low * axis.high)) == pytest.approx(0.5)


def test_examples_of_axes():
    assert nice_step(900, 5) == 200
    assert ticks_between(0, 900, 5) == [0, 200, 400, 600, 800]
    assert log_ticks(0.8, 12, 5) == [1, 2, 3, 5, 10]
    assert log_ticks(1.9, 8.9, 6) == [2, 3, 4, 6, 8]
    assert linear_axis(0.45, 0.97, "percent", bounds=(0, 1)).low == 0.4
    assert linear_axis(0.0, 1.0, "percent", bounds=(0, 1)).high == 1.0
    assert linear_axis(1.0, 9.0, "number").low == 0  # not far from 0: begin there
    assert count_axis("steps", 0).high == 1  # a run that has not begun


def test_time_has_the_unit_that_suits_it():
    assert [time_axis(s).name for s in (0, 90, 119, 120, 7199, 7200, 200_000)] == [
        "seconds",
        "seconds",
        "seconds",
        "minutes",
        "minutes",
        "hours",
        "days",
    ]
    assert time_axis(600).ticks[:3] == ((0, "0"), (120, "2"), (240, "4"))
