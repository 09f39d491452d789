"""Where `litebert predict` takes its texts from: arguments, a file, or a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from litebert.errors import DataError, InputError
from litebert.parse import parse_json
from litebert.text.encodings import encoding_advice

Row = tuple[str, dict[str, Any]]  # where it stands ("" for arguments), and its fields


def read_rows(
    given: Sequence[tuple[Any, ...]],
    file: Path | None,
    fields: tuple[str, ...],
    whole: bool = False,
    required: int | None = None,
) -> Iterator[Row]:
    """The fields of each input, with its place for messages.

    `given` are the arguments; without any, the lines of `file` or of a pipe are read: JSON objects where several fields
    are needed (`required`), where the file is called .jsonl or .ndjson, or where the first line is such an object; else
    plain text, one per line. `whole` makes one text of all lines.
    """
    required = len(fields) if required is None else required
    if given:
        if file is not None:
            raise InputError("--file: texts were given as arguments too; choose one")
        for values in given:
            if len(values) < required:
                missing = " and ".join(fields[len(values) : required])
                raise InputError(f"{missing}: missing; give {', '.join(fields)}, in this order")
            yield "", dict(zip(fields, values, strict=False))
        return
    if file is not None:
        try:
            with open(file, encoding="utf-8-sig") as lines:
                yield from _read_lines(lines, str(file), fields, whole, required)
        except FileNotFoundError:
            raise DataError(f"{file}: no such file") from None
        except UnicodeDecodeError as error:
            raise _not_utf8(str(file), error) from None
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("no text: give it as an argument, with --file, or through a pipe")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    try:
        yield from _read_lines(sys.stdin, "stdin", fields, whole, required)
    except UnicodeDecodeError as error:
        raise _not_utf8("stdin", error) from None


def _read_lines(lines: TextIO, name: str, fields: tuple[str, ...], whole: bool, required: int) -> Iterator[Row]:
    if name.endswith((".csv", ".tsv", ".parquet")):
        raise InputError(
            f"{name}: a table; predict reads lines of text or JSON. For tables, with labels or without: "
            f"litebert evaluate MODEL --data {name} --predictions FOLDER"
        )
    if whole:
        yield f"{name}: ", {fields[0]: lines.read()}
        return
    as_json: bool | None = True if name.endswith((".jsonl", ".ndjson")) or required > 1 else None
    found, empty = False, 0
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        if not line.strip():
            empty = empty or number
            continue
        if as_json is None:
            as_json = _holds(line, fields[0])
        if empty and not as_json:  # left out, the answers would no longer stand beside their lines
            raise InputError(f"{name}, line {empty}: empty; every line is a text")
        found = True
        where = f"{name}, line {number}: "
        yield where, _parse(line, where, fields, required) if as_json else {fields[0]: line}
    if not found:
        raise InputError(f"{name}: holds no text")


def _not_utf8(name: str, error: UnicodeDecodeError) -> DataError:
    return DataError(f"{name}: not UTF-8 (byte {error.start}: {error.reason}){encoding_advice(error.object)}")


def _holds(line: str, field: str) -> bool:
    """Whether a line is a JSON object with this field, which no text looks like by chance."""
    try:
        data = parse_json(line, "")
    except DataError:
        return False
    return isinstance(data, dict) and field in data


def _parse(line: str, where: str, fields: tuple[str, ...], required: int) -> dict[str, Any]:
    example = json.dumps(dict.fromkeys(fields, "..."))
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}not JSON ({error}); expected {example}") from None
    if not isinstance(data, dict):
        raise InputError(f"{where}expected {example}")
    missing = [field for field in fields[:required] if field not in data]
    if missing:
        raise InputError(f"{where}no {' and no '.join(map(repr, missing))}; expected {example}")
    return {field: data[field] for field in fields if field in data}
