"""One cell of a table as what it should be, however its file stores it; else an error with its place."""

from __future__ import annotations

import math
import re
from typing import Any

from litebert.errors import DataError


def text_cell(value: Any, where: str) -> str:
    """Text: "a" -> "a", 7 -> "7", None -> ""; a list or an object is a mistake."""
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, list | tuple | dict):
        raise DataError(f"{where}: expected text, got {value!r:.80}")
    return str(value)


def words_cell(value: Any, where: str) -> tuple[str, ...]:
    """Words: a list of them, or a text with spaces between."""
    if isinstance(value, list | tuple):
        return tuple(text_cell(word, where) for word in value)
    return tuple(text_cell(value, where).split())


def number_cell(value: Any, where: str, column: str) -> float:
    """A finite number: "4.5" -> 4.5."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        comma = isinstance(value, str) and re.fullmatch(r"\s*-?\d+,\d+\s*", value)
        hint = f"; with a point: {value.strip().replace(',', '.')}" if comma else ""
        raise DataError(f"{where}: column {column!r}: expected a number, got {value!r:.80}{hint}")
    return number


def truth_cell(value: Any, where: str, column: str) -> bool:
    """A yes or no: 1, "0", "True", false; nothing is a no."""
    text = str(value).strip().casefold()
    if text in ("1", "1.0", "true", "yes"):
        return True
    if text in ("0", "0.0", "false", "no", "", "none", "nan"):
        return False
    raise DataError(f"{where}: column {column!r}: expected 0 or 1, got {value!r:.80}")
