"""Other people's text on a terminal: it commands nothing there, and what an encoding lacks is written as an escape."""

from __future__ import annotations

import codecs
import dataclasses
import io
import json
import sys
from typing import Any, TypeVar, cast

T = TypeVar("T")

ESCAPE = "litebert-escape"
_PICTURES = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"}  # rich drops a bare \r
_VISIBLE = {**_PICTURES, 0x7F: "␡", **dict.fromkeys(range(0x80, 0xA0), "\ufffd")}
_JSON_LEAVES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def visible(value: T) -> T:
    """Text, or data with texts inside, with a sign for each control character: "\\x1b[31m" -> "␛[31m"."""
    seen: Any = value
    if isinstance(value, str):
        seen = value.translate(_VISIBLE)
    elif isinstance(value, dict):
        seen = {visible(key): visible(item) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        seen = type(value)(map(visible, value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        seen = dataclasses.replace(value, **{field.name: visible(getattr(value, field.name)) for field in fields})
    return cast(T, seen)


def one_line_json(data: object) -> str:
    """JSON in one line, as readable as can be; Python's own leaves the control characters from 127 on as they are."""
    return json.dumps(data, ensure_ascii=False).translate(_JSON_LEAVES)


def escape_what_stdout_lacks() -> None:
    """Write "é" as "\\u00e9" where the output is ASCII, instead of failing; inside of JSON that is the same text."""
    codecs.register_error(ESCAPE, _escape)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=ESCAPE)


def stdout_shows(text: str) -> bool:
    """Whether the encoding of the output has all characters of a text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return json.dumps(lacking)[1:-1], error.end
