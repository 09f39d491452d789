"""Where `litebert predict` takes its texts from: arguments, a file, or a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from litebert.errors import DataError, InputError

Row = tuple[str, dict[str, Any]]  # where it stands ("" for arguments), and its fields


def read_rows(
    given: Sequence[tuple[Any, ...]],
    file: Path | None,
    fields: tuple[str, ...],
    whole: bool = False,
    required: int | None = None,
) -> Iterator[Row]:
    """The fields of each input, with its place for messages.

    `given` are the arguments; without any, the lines of `file` or of a pipe are read: plain text where one field
    suffices (`required`), else, and in files that end in .jsonl, JSON objects. `whole` makes one text of all lines.
    """
    required = len(fields) if required is None else required
    if given:
        if file is not None:
            raise InputError("--file: texts were given as arguments too; choose one")
        for values in given:
            if len(values) < required:
                raise InputError(f"{' and '.join(fields[len(values) : required])}: missing; the order is {fields}")
            yield "", dict(zip(fields, values, strict=False))
        return
    if file is not None:
        try:
            with open(file, encoding="utf-8-sig") as lines:
                yield from _read_lines(lines, str(file), fields, whole, required)
        except FileNotFoundError:
            raise DataError(f"{file}: no such file") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{file}: not UTF-8 (byte {error.start}: {error.reason})") from None
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("no text: give it as an argument, with --file, or through a pipe")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    try:
        yield from _read_lines(sys.stdin, "stdin", fields, whole, required)
    except UnicodeDecodeError as error:
        raise DataError(f"stdin: not UTF-8 (byte {error.start}: {error.reason})") from None


def _read_lines(lines: TextIO, name: str, fields: tuple[str, ...], whole: bool, required: int) -> Iterator[Row]:
    as_json = name.endswith(".jsonl") or required > 1
    if whole:
        yield f"{name}: ", {fields[0]: lines.read()}
        return
    found = False
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        if not line.strip():
            continue
        found = True
        where = f"{name}, line {number}: "
        yield where, _parse(line, where, fields, required) if as_json else {fields[0]: line}
    if not found:
        raise InputError(f"{name}: holds no text")


def _parse(line: str, where: str, fields: tuple[str, ...], required: int) -> dict[str, Any]:
    example = json.dumps(dict.fromkeys(fields, "..."))
    try:
        data = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{where}not JSON ({error}); expected {example}") from None
    if not isinstance(data, dict):
        raise InputError(f"{where}expected {example}")
    missing = [field for field in fields[:required] if field not in data]
    if missing:
        raise InputError(f"{where}no {' and no '.join(map(repr, missing))}; expected {example}")
    return {field: data[field] for field in fields if field in data}
