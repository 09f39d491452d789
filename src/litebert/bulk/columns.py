"""Columns of a table as an ability's arguments, and its results as columns: every field of the result, typed."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pyarrow as pa

from litebert.bulk.reading import missing_column
from litebert.errors import DataError, InputError, did_you_mean
from litebert.predict.ability import Ability, Array, Parameter, Result, split_annotated, without_none
from litebert.text.sources import Source

ERROR = "error"
TAKEN = "predicted_"  # before a result's column whose name the input has already


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def named_columns(ability: Ability, columns: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The named columns, checked against the ability's inputs: {"text": "review"} -> {"text": ("review",)}."""
    names = [each.name for each in ability.inputs]
    found = {}
    for name, value in columns.items():
        if name not in names:
            raise InputError(
                f"columns: {ability.name} reads {', '.join(names)}, not {name!r}{did_you_mean(name, names)}"
            )
        found[name] = (value,) if isinstance(value, str) else tuple(value)
        if len(found[name]) != 1 and ability.parameters[name].kind != "texts":
            raise InputError(f"columns: {name} is one column, not {len(found[name])}")
    return found


def find_columns(
    ability: Ability, named: Mapping[str, tuple[str, ...]], schema: pa.Schema, source: Source
) -> dict[str, tuple[str, ...]]:
    """The columns of each input in one file: as named, of the same name, or the only one that there is."""
    found: dict[str, tuple[str, ...]] = {}
    for each in ability.inputs:
        names = named.get(each.name, ())
        if len(names) == 1 and names[0] not in schema.names and each.kind == "texts":
            names = tuple(names[0].split(","))
        if not names and each.name in schema.names:
            names = (each.name,)
        if not names and each is ability.inputs[0] and len(schema.names) == 1:
            names = (schema.names[0],)
        if not names and each.required:
            advice = f"; name the column that holds the {each.name} (columns: {each.name}=COLUMN)"
            raise missing_column(source, each.name, schema.names, advice)
        for name in names:
            if name not in schema.names:
                raise missing_column(source, name, schema.names)
            if not _holds_text(schema.field(name).type, each):
                raise DataError(f"{source.path}: column {name!r} holds {schema.field(name).type}, not text")
        if names:
            found[each.name] = names
    return found


def _holds_text(kind: pa.DataType, parameter: Parameter) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if parameter.kind == "texts" and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        kind = kind.value_type
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(holds(kind) for holds in texts)


def arguments_of(ability: Ability, found: Mapping[str, tuple[str, ...]], table: pa.Table) -> list[dict[str, Any]]:
    """The arguments of each row; an empty optional input is left out."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(table))]
    for name, columns in found.items():
        parameter = ability.parameters[name]
        for row, *cells in zip(rows, *(table.column(column).to_pylist() for column in columns), strict=True):
            value = cells[0] if parameter.kind == "text" else _texts(cells)
            if value is not None or parameter.required:
                row[name] = value
    return rows


def _texts(cells: Sequence[Any]) -> Any:
    """Several texts: one per column (the last may be empty), in a list, or as "a|b"."""
    if len(cells) > 1:
        return [cell for cell in cells if cell not in ("", None)]
    return cells[0].split("|") if isinstance(cells[0], str) else cells[0]


# ---------------------------------------------------------------------------------------------------------------------
# Results


def result_columns(ability: Ability, results: Sequence[Result | None], width: int) -> dict[str, pa.Array]:
    """Results as columns, null if missing; a field that repeats an input is left out."""
    inputs = {each.name for each in ability.inputs}
    columns = {}
    for name, (kind, axes) in _field_types(ability.result).items():
        if name not in inputs:
            values = [None if result is None else getattr(result, name) for result in results]
            if axes == 1:
                columns[name] = _vectors(values, width)
            else:
                plain = values if pa.types.is_primitive(kind) or pa.types.is_string(kind) else map(_plain, values)
                columns[name] = pa.array(plain, kind)
    return columns


def place_columns(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """A table with columns appended; if a name is taken, the new one gets the prefix "predicted_"."""
    for name, values in columns.items():
        while name in table.column_names:
            name = TAKEN + name
        table = table.append_column(name, values)
    return table


def _field_types(result: type[Result]) -> dict[str, tuple[pa.DataType, int]]:
    """The Arrow type of each field, and for arrays the number of axes."""
    hints = typing.get_type_hints(result, include_extras=True)
    return {each.name: (_arrow_type(hints[each.name]), _axes(hints[each.name])) for each in dataclasses.fields(result)}


def _axes(hint: Any) -> int:
    _, _, marks = split_annotated(hint)
    return next((mark.axes for mark in marks if isinstance(mark, Array)), 0)


def _arrow_type(hint: Any) -> pa.DataType:
    """str -> string, float | None -> double, tuple[str, ...] -> list<string>, a dataclass -> struct, ..."""
    if axes := _axes(hint):
        kind = pa.float32()
        for _ in range(axes):
            kind = pa.list_(kind)
        return kind
    hint, _ = without_none(split_annotated(hint)[0])
    hint, _, _ = split_annotated(hint)
    origin, inner = get_origin(hint), get_args(hint)
    plain = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    if hint in plain:
        return plain[hint]
    if origin is Literal:
        return pa.string()
    if origin in (tuple, list) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        return pa.list_(_arrow_type(inner[0]))
    if origin is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return pa.map_(_arrow_type(inner[0]), _arrow_type(inner[1]))
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        return pa.struct([(each.name, _arrow_type(hints[each.name])) for each in dataclasses.fields(hint)])
    assert origin in (Union, types.UnionType) or hint is Any, f"a field of a result is {hint}"
    return pa.string()  # several kinds of values: as JSON


def _plain(value: Any) -> Any:
    """As pyarrow takes it: a map as pairs, a dataclass as a dictionary."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return [(key, _plain(item)) for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _vectors(values: Sequence[Any], width: int) -> pa.Array:
    """Vectors of one length as a column, float32."""
    size = next((len(value) for value in values if value is not None), width)
    numbers = np.zeros((len(values), size), np.float32)
    for row, value in zip(numbers, values, strict=True):
        if value is not None:
            row[:] = value
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), size, mask=missing)
