"""Numbers as people read them: 1.23M tokens, 62.4%, 3 min 20 s, 5e-4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

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
