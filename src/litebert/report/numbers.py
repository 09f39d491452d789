"""Numbers as people read them (1.23M tokens, 62.4%, 3 min 20 s, 5e-4), and axes with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

TIME_UNITS = (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))

Format = Literal["number", "percent", "count", "rate"]

UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def count(number: float) -> str:
    """Three digits and a unit: 1_234_567 -> "1.23M", 950 -> "950"."""
    for size, unit in UNITS:
        if abs(number) >= size * (0.9995 if size > 1 else 1):
            return f"{number / size:#.3g}".rstrip(".") + unit if unit else f"{number:.0f}"
    return f"{number:.3g}"


def percent(share: float) -> str:
    """0.6241 -> "62.4%"."""
    return f"{100 * share:.1f}%"


def duration(seconds: float) -> str:
    """0.42 -> "0.4 s", 52 -> "52 s", 200 -> "3 min 20 s", 7384 -> "2 h 3 min", 200_000 -> "2 d 7 h"."""
    total = round(max(seconds, 0.0))
    if total < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    if total < 86_400:
        return f"{total // 3600} h {total % 3600 // 60} min"
    return f"{total // 86_400} d {total % 86_400 // 3600} h"


def show(value: float, form: Format) -> str:
    """One value in the form of its chart: show(0.5, "percent") -> "50.0%"."""
    if form == "percent":
        return percent(value)
    if form == "count":
        return count(value)
    if form == "rate":
        return f"{value:.2e}".replace("e-0", "e-").replace("e+00", "") if value else "0"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def tick_labels(ticks: Sequence[float], form: Format = "count") -> list[str]:
    """Labels with just enough digits: [0, 500, 1000, 1500] -> ["0", "500", "1k", "1.5k"]."""
    if form == "percent":
        return [f"{label}%" for label in _equal_digits([100 * tick for tick in ticks])]
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if form == "rate" and 0 < largest < 0.01:
        return ["0" if not tick else _scientific(tick) for tick in ticks]
    if largest < 1000:
        return _equal_digits(ticks)
    return [_with_unit(tick) for tick in ticks]


def _equal_digits(values: Sequence[float]) -> list[str]:
    for digits in range(8):
        if all(math.isclose(value, round(value, digits), rel_tol=1e-9, abs_tol=1e-12) for value in values):
            break
    return [f"{value:.{digits}f}" if value else "0" for value in values]


def _with_unit(tick: float) -> str:
    size, unit = next(((size, unit) for size, unit in UNITS if abs(tick) >= size * (1 - 1e-9)), (1.0, ""))
    return f"{tick / size:.6g}{unit}"


def _scientific(value: float) -> str:
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    return f"{value / 10**exponent:.3g}e{exponent}"


# -- axes --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """A range of values with its ticks, each a value and its label."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    scale: Literal["linear", "log"] = "linear"
    name: str = ""

    def place(self, value: float) -> float:
        """The position of a value between the ends, from 0 to 1; less or more beyond them."""
        if self.scale == "log":
            if value <= 0:
                return -1.0
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def nice_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 5 x 10^k that divides a span into at most `most` parts: nice_step(900, 5) -> 200."""
    raw = span / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))


def ticks_between(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high: ticks_between(0, 900, 5) -> [0, 200, 400, 600, 800]."""
    step = nice_step(high - low, most)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [number * step for number in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers for a logarithmic axis: log_ticks(0.8, 12, 5) -> [1, 2, 3, 5, 10]."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 4, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        found = [factor * 10.0**decade for decade in decades for factor in factors]
        found = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(found) <= most:
            break
    if len(found) > most:  # more decades than ticks
        found = found[:: math.ceil(len(found) / most)]
    return found if len(found) >= 2 else ticks_between(low, high, most)


def linear_axis(
    low: float, high: float, form: Format, most: int = 5, bounds: tuple[float, float] | None = None
) -> Axis:
    """An axis over a range of values, from a round number and with a little room above.

    It starts at 0 if that costs little, and never extends beyond `bounds`.
    """
    low, high = _apart(low, high)
    if 0 <= low < 0.3 * high:
        low = 0.0
    step = nice_step(high - low, most)
    low, high = math.floor(low / step + 1e-6) * step, high + 0.04 * (high - low)
    if bounds:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    ticks = ticks_between(low, high, most)
    return Axis(low, high, tuple(zip(ticks, tick_labels(ticks, form), strict=True)))


def log_axis(low: float, high: float, form: Format, most: int = 6) -> Axis:
    """A logarithmic axis over a range of positive values."""
    low, high = _apart(low, high)
    air = (high / low) ** 0.04
    low, high = low / air, high * air
    ticks = log_ticks(low, high, most)
    labels = [tick_labels([tick], form)[0] for tick in ticks]
    return Axis(low, high, tuple(zip(ticks, labels, strict=True)), "log")


def count_axis(name: str, high: float, most: int = 8) -> Axis:
    """From 0 to a number of steps or tokens."""
    high = high if high > 0 else 1.0
    ticks = ticks_between(0.0, high, most)
    return Axis(0.0, high, tuple(zip(ticks, tick_labels(ticks), strict=True)), name=name)


def time_axis(seconds: float, most: int = 8) -> Axis:
    """From 0 to a duration in seconds; the ticks are in a fitting unit, the name of the axis."""
    seconds = seconds if seconds > 0 else 1.0
    unit, size = next(((unit, size) for unit, size in TIME_UNITS if seconds >= 2 * size), TIME_UNITS[-1])
    ticks = ticks_between(0.0, seconds / size, most)
    labels = tick_labels(ticks)
    return Axis(0.0, seconds, tuple((tick * size, label) for tick, label in zip(ticks, labels, strict=True)), name=unit)


def _apart(low: float, high: float) -> tuple[float, float]:
    """A range wide enough to show, so that a nearly flat curve is not blown up."""
    size = max(abs(low), abs(high))
    size = size if size > 1e-12 else 1.0
    if high - low >= 0.02 * size:
        return low, high
    return low - 0.05 * size, high + 0.05 * size
