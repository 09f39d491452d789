"""Labels by name and by id: the training file decides which there are, and in which order."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from litebert.errors import DataError, did_you_mean


def label_name(value: Any) -> str | None:
    """A label as text, however the file stores it: 1 -> "1", 1.0 -> "1", True -> "true"; None where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() or None


def order_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct labels, numbers by value and words by the alphabet: {"10", "9", "2"} -> ("2", "9", "10")."""
    distinct = set(names)
    if all(re.fullmatch(r"[+-]?\d+(\.\d+)?", name) for name in distinct):
        return tuple(sorted(distinct, key=float))
    return tuple(sorted(distinct))


def order_tags(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct tags, "O" first and B- before I- of each type: ("O", "B-LOC", "I-LOC", "B-PER", ...)."""
    return tuple(sorted(set(names), key=lambda tag: (tag != "O", tag[2:] if tag[1:2] == "-" else tag, tag)))


def label_id(name: str, ids: Mapping[str, int], where: str, source: str) -> int:
    """The id of a label; one that training never saw is an error that names the row and the known labels."""
    number = ids.get(name)
    if number is None:
        known = ", ".join(list(ids)[:20]) + (f" and {len(ids) - 20} more" if len(ids) > 20 else "")
        raise DataError(
            f"{where}: label {name!r} is not among those of {source}{did_you_mean(name, ids) or '.'} Known: {known}"
        )
    return number
