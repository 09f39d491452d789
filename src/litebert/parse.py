"""Safe readers for untrusted files: JSON and YAML as plain data, and the fields of protocol buffers.

    read_object("config.json", CheckpointError)  -> {"hidden_size": 768, ...}
    parse_json("[1, ", "a.json", DataError)      -> DataError: a.json:1: not valid JSON: Expecting value (column 5)

Files come from strangers, from crashes and from half-finished downloads. Everything that can be wrong with one
(missing, too large, not UTF-8, bad syntax, bad dates and tags, numbers of 5,000 digits, excessive nesting, aliases
that refer to themselves) raises one error of the caller's type that names the file and, if known, the line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from litebert.errors import ConfigError, DataError, LitebertError, quote_value

MAX_DEPTH = 64  # far beyond any config or data file, far below Python's recursion limit
MAX_JSON_BYTES = 1 << 30
MAX_YAML_BYTES = 1 << 18  # PyYAML takes seconds for this much
MAX_YAML_VALUES = 100_000  # on one level, with aliases expanded

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_TOO_MANY = f"more than {MAX_YAML_VALUES:,} values once its aliases are expanded"
_MERGE = "tag:yaml.org,2002:merge"

ErrorType = type[LitebertError]


def read_text(path: Path | str, error: ErrorType, max_bytes: int) -> str:
    """The text of a file (UTF-8, with or without a byte-order mark) of at most `max_bytes`."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > max_bytes:
                raise error(f"{path}: larger than {max_bytes >> 10:,} KiB, the limit for this kind of file")
            data = file.read(max_bytes)
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except OSError as problem:
        raise error(f"{path}: cannot read: {problem.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise error(f"{path}:{line}: not valid UTF-8: {problem.reason}") from None


def read_json(path: Path | str, error: ErrorType = DataError, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """The value in a JSON file."""
    return parse_json(read_text(path, error, max_bytes), str(path), error)


def read_object(path: Path | str, error: ErrorType = DataError, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The object in a JSON file; any other value is an error."""
    data = read_json(path, error, max_bytes)
    if not isinstance(data, dict):
        raise error(f"{path}: expected a JSON object {{...}}, got {quote_value(data)}")
    return data


def parse_json(text: str, where: str, error: ErrorType = DataError, line: int | None = None) -> Any:
    """The value of a JSON text; messages name its file (`where`) and its line there (`line`, for JSON Lines)."""
    place = where if line is None else f"{where}:{line}"
    try:
        data = json.loads(text)
    except json.JSONDecodeError as problem:
        place = f"{where}:{line or problem.lineno}"
        raise error(f"{place}: not valid JSON: {problem.msg} (column {problem.colno})") from None
    except RecursionError:
        raise error(f"{place}: {_TOO_DEEP}") from None
    except ValueError as problem:  # an integer with more digits than Python converts
        raise error(f"{place}: not usable JSON: {problem}") from None
    # Counting brackets is nearly free, and almost no line of a data file has this many.
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_shape(data, place, error)
    return data


def parse_yaml(text: str, where: str, error: ErrorType = ConfigError) -> Any:
    """The value of a YAML text: plain data only, no objects."""
    try:
        data = yaml.load(text, _Loader)  # a SafeLoader
    except yaml.YAMLError as problem:
        mark, reason = getattr(problem, "problem_mark", None), getattr(problem, "problem", None) or str(problem)
        line = f":{mark.line + 1}" if mark and "\n" in text else ""
        raise error(f"{where}{line}: not valid YAML: {reason.splitlines()[0]}") from None
    except RecursionError:
        raise error(f"{where}: {_TOO_DEEP}, or an alias refers to itself") from None
    _check_shape(data, where, error, MAX_YAML_VALUES)
    return data


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, except that invalid scalars and deep nesting become YAML errors with a line, too."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=self.get_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def flatten_mapping(self, node: Any) -> None:
        total = len(node.value)
        for key, value in node.value:
            if key.tag == _MERGE:
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(merged, yaml.MappingNode):
                        self.flatten_mapping(merged)
                        total += len(merged.value)
                    if total > MAX_YAML_VALUES:
                        raise yaml.MarkedYAMLError(problem=_TOO_MANY, problem_mark=key.start_mark)
        super().flatten_mapping(node)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError, TypeError, OverflowError):
            # 2001-13-45, !!int abc, !!bool maybe, !!timestamp soon
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            shown = quote_value(node.value) if isinstance(node.value, str) else f"a {node.id}"
            raise yaml.MarkedYAMLError(
                problem=f"{shown} is not a valid {kind}; quote it if it is meant as text", problem_mark=node.start_mark
            ) from None


def _check_shape(data: Any, where: str, error: ErrorType, max_values: int | None = None) -> None:
    """Reject data too deep or too large to walk recursively; checks level by level, without recursion."""
    level = [data]
    for _ in range(MAX_DEPTH):
        children = (
            child
            for parent in level
            if isinstance(parent, (dict, list, tuple))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        )
        level = []
        for child in children:
            level.append(child)
            if max_values is not None and len(level) > max_values:
                raise error(f"{where}: {_TOO_MANY}")
        if not level:
            return
    raise error(f"{where}: {_TOO_DEEP}{', or an alias refers to itself' if max_values else ''}")


# ---------------------------------------------------------------------------------------------------------------------
# Protocol buffers, as far as SentencePiece's models and TensorFlow's checkpoints need them

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types

Field = tuple[int, int, int | bytes]  # number, wire type, value


class DamagedBytes(ValueError):
    """Bytes that do not follow their format; the caller knows which file it is."""


def read_fields(message: bytes) -> Iterator[Field]:
    """The fields of a message: varints as unsigned ints, everything else as bytes."""
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, position = read_varint(message, position)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, position = read_varint(message, position)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise DamagedBytes(f"the field before byte {position} is of unknown kind {wire}")
        content = message[position : position + size]
        if len(content) != size or number == 0:
            raise DamagedBytes(f"the field at byte {position} runs past the end")
        position += size
        yield number, wire, content


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, seven bits a byte, lowest first, and what follows: [0x96, 0x01] -> 150, 2."""
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise DamagedBytes("a number runs past the end")
