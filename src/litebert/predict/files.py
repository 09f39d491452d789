"""Inputs of an ability from arguments, a file or a pipe, and files of their answers.

read_rows(ABILITIES["classify"], [], Source(Path("reviews.csv"), ("review",)))  -> Row({"text": ...}, ...), ...
writer_of(Path("answers.csv"))(((row, result) for ...), task)
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from litebert.errors import DataError, InputError, did_you_mean
from litebert.files import naming
from litebert.parse import parse_json
from litebert.text.encodings import encoding_advice
from litebert.text.sources import ending_of, open_text_file

if TYPE_CHECKING:
    from litebert.predict.ability import Ability, Parameter, Result
    from litebert.tasks.tables import Table
    from litebert.tasks.task import Task

TABLES = (".csv", ".tsv", ".parquet", ".json")
LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class Source:
    """A file, or standard input ("-", or without a file); `columns` are NAME, or INPUT=NAME for several inputs."""

    file: Path | None = None
    columns: tuple[str, ...] = ()
    whole: bool = False
    encoding: str = "utf-8"


@dataclass(frozen=True)
class Row:
    """One input: the fields that the ability takes, where it comes from, and all columns of its line."""

    fields: dict[str, Any]
    where: str = ""
    columns: dict[str, Any] = field(default_factory=dict)


def read_rows(ability: Ability, given: Sequence[dict[str, Any]], source: Source) -> Iterator[Row]:
    """The inputs of each answer.

    `given` are the arguments. Without any, a file or a pipe is read: a table by its ending; JSON objects if it is a
    .jsonl or .ndjson file, if several inputs are needed, or if the first line is such an object; else a text per line.
    If the last input is missing from the arguments, the file or pipe provides it: as one text, `answer "Who?" --file
    page.txt`, or as several, one per line, `search "a warm day" --file lines.txt`.
    """
    try:
        codecs.lookup(source.encoding)
    except LookupError:
        raise InputError(f"encoding: {source.encoding!r} is unknown to Python") from None
    piped = source.file == Path("-")
    if piped:
        source = replace(source, file=None)
    required = [each.name for each in ability.inputs if each.required]
    missing = [name for name in required if given and name not in given[0]]
    if missing and (len(missing) > 1 or missing != required[-1:]):
        raise InputError(f"{' and '.join(missing)}: missing; give {', '.join(required)}, in this order")
    if missing:
        text = _read_whole(source)
        if not text.strip() and source.file is not None:
            raise InputError(f"{source.file}: no text in it")
        if not text.strip():
            raise InputError(f"{missing[0]}: missing; give {', '.join(required)}, in this order")
        several = ability.parameters[missing[0]].kind == "texts"
        fields = {**given[0], missing[0]: [line for line in text.splitlines() if line.strip()] if several else text}
        return iter([Row(fields, f"{source.file or 'stdin'}: ", fields)])
    if given:
        if piped or source.file is not None:
            raise InputError("file: texts are also given as arguments; choose one")
        if source.columns:
            raise InputError(f"column {source.columns[0]}: goes with a file or a pipe")
        if source.whole:
            raise InputError("whole: goes with a file or a pipe")
        return iter([Row(fields, "", fields) for fields in given])
    if source.whole:
        if len(required) > 1:
            raise InputError(f"whole: for abilities with one text; {ability.title} takes {', '.join(required)}")
        fields = {required[0]: _read_whole(source)}
        return iter([Row(fields, f"{source.file or 'stdin'}: ", fields)])
    named = _named_columns(ability, source.columns)
    ending = ending_of(source.file or "")
    if ending in TABLES:
        return _table_rows(ability, source, named)
    if named and ending not in LINES and source.file is not None:
        raise InputError(f"column: {source.file} has one text per line and no columns; tables are {', '.join(TABLES)}")
    return _line_rows(ability, source, named)


def writer_of(out: Path) -> Callable[[Iterable[tuple[Row, Result]], Task | None], None]:
    """A function that writes rows with their answers to a file, by its ending; the file appears when complete."""
    ending = ending_of(out)
    if ending not in (".csv", ".tsv", *LINES):
        raise InputError(f"out: {out.name!r} must end in .csv, .tsv or .jsonl")

    def write(results: Iterable[tuple[Row, Result]], task: Task | None) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(f".{out.name}.{os.getpid()}.part")
        count = 0
        try:
            with naming(out, partial), open(partial, "w", encoding="utf-8", newline="") as file:
                for line in _json_lines(results) if ending in LINES else _table_lines(results, task, ending):
                    file.write(line)
                    count += 1
            os.replace(partial, out)
        finally:
            partial.unlink(missing_ok=True)
        rows = count if ending in LINES else count - 1  # the header
        print(f"{out}: {rows:,} {'row' if rows == 1 else 'rows'}")

    return write


def _table_lines(results: Iterable[tuple[Row, Result]], task: Task | None, ending: str) -> Iterator[str]:
    """A header, then the columns of each input and its answer; a name that is taken gets the prefix "predicted_"."""
    names: list[str] = []
    for row, result in results:
        answer = {f"predicted_{name}" if name in row.columns else name: v for name, v in result.as_row(task).items()}
        values = {**row.columns, **answer}
        if not names:
            names = list(values)
            yield _csv_line(names, ending)
        # Lines of JSON may have other keys than the first.
        if unknown := [name for name in values if name not in names]:
            raise DataError(
                f"{row.where}{unknown[0]!r} is not among the columns of the first row; write .jsonl instead"
            )
        yield _csv_line([_cell(values.get(name)) for name in names], ending)


def _json_lines(results: Iterable[tuple[Row, Result]]) -> Iterator[str]:
    for row, result in results:
        yield json.dumps({**row.columns, "prediction": result.as_dict()}, ensure_ascii=False) + "\n"


class _Line:
    """A file for csv.writer that keeps one line."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def _csv_line(values: Sequence[Any], ending: str) -> str:
    line = _Line()
    csv.writer(line, delimiter="\t" if ending == ".tsv" else ",", lineterminator="\n").writerow(values)
    return line.text


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | dict) else value


def _named_columns(ability: Ability, settings: Sequence[str]) -> dict[str, str]:
    """["review"] -> {"text": "review"}, ["text=a", "pair=b"] -> {"text": "a", "pair": "b"}."""
    names = [each.name for each in ability.inputs]
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, column = setting.partition("=")
        if not equals or name not in names:  # a column's own name may hold a "="
            if equals and setting.count("=") == 1 and did_you_mean(name, names):
                raise InputError(
                    f"column {setting}: {ability.title} takes {', '.join(names)}{did_you_mean(name, names)}"
                )
            name, column = names[0], setting
        if name in found:
            raise InputError(f"column: {name} is named twice, {found[name]!r} and {column!r}")
        found[name] = column
    return found


def _table_rows(ability: Ability, source: Source, named: dict[str, str]) -> Iterator[Row]:
    from litebert.tasks.tables import read_table

    table = read_table(str(source.file), source.encoding)
    found = {each.name: _find_columns(each, table, named, ability) for each in ability.inputs}
    rows = []
    for number, values in enumerate(table.rows):
        columns = dict(zip(table.columns, values, strict=True))
        fields = {}
        for each in ability.inputs:
            if names := found[each.name]:
                fields[each.name] = _value(each, [columns[name] for name in names])
                if fields[each.name] in ("", None) and each.required and each.limits.least != 0:
                    raise DataError(
                        f"{table.where(number)}: column {names[0]!r} is empty; fill it in or delete the row"
                    )
        rows.append(Row(fields, f"{table.where(number)}: ", columns))
    return iter(rows)


def _find_columns(parameter: Parameter, table: Table, named: dict[str, str], ability: Ability) -> tuple[str, ...]:
    """The columns of an input: as named, of the same name, or the only one that the table has."""
    if parameter.name in named:
        column = named[parameter.name]
        names = (column,) if column in table.columns or parameter.kind == "text" else tuple(column.split(","))
        for name in names:
            table.values(name)  # a wrong name shows those that exist
        return names
    if parameter.name in table.columns:
        return (parameter.name,)
    if not parameter.required:
        return ()
    if len(table.columns) == 1 and parameter is ability.inputs[0]:
        return table.columns
    shown = ", ".join(map(repr, table.columns))
    raise DataError(
        f"{table.path}: no column {parameter.name!r}; it has {shown}. Name it: column {parameter.name}=NAME"
    )


def _value(parameter: Parameter, cells: list[Any]) -> Any:
    """A text, or several in one cell ("a|b") or one per column (the last may be empty)."""
    if parameter.kind == "text":
        return cells[0]
    if len(cells) > 1:
        return [cell for cell in cells if cell not in ("", None)]
    return cells[0].split("|") if isinstance(cells[0], str) else cells[0]


def _line_rows(ability: Ability, source: Source, named: dict[str, str]) -> Iterator[Row]:
    names = [each.name for each in ability.inputs]
    required = [each.name for each in ability.inputs if each.required]
    name = str(source.file or "stdin")
    as_json: bool | None = True if ending_of(source.file or "") in LINES or len(required) > 1 or named else None
    found, empty = False, 0
    for number, line in enumerate(_lines(source), 1):
        line = line.rstrip("\n")
        if not line.strip():
            empty = empty or number
            continue
        if as_json is None:
            as_json = _holds(line, required[0])
        if empty and not as_json:  # skipping it would shift the answers against the lines
            raise InputError(f"{name}, line {empty}: empty; every line is a text")
        found = True
        where = f"{name}, line {number}: "
        columns = _parse(line, where, names, required, named) if as_json else {required[0]: line}
        fields = {each: columns[named.get(each, each)] for each in names if named.get(each, each) in columns}
        yield Row(fields, where, columns)
    if not found:
        raise InputError(f"{name}: no text; give it as an argument, in a file or through a pipe")


def _lines(source: Source) -> Iterator[str]:
    name = str(source.file or "stdin")
    try:
        with _open(source) as lines:
            yield from lines
    except UnicodeDecodeError as error:
        raise _not_decoded(name, error, source.encoding) from None


def _read_whole(source: Source) -> str:
    return "".join(_lines(source))


def _open(source: Source) -> contextlib.AbstractContextManager[TextIO]:
    if source.file is not None:
        return open_text_file(str(source.file), source.encoding)
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("no text: give it as an argument, in a file or through a pipe")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding=source.encoding, errors="strict")
    return contextlib.nullcontext(sys.stdin)


def _not_decoded(name: str, error: UnicodeDecodeError, encoding: str) -> DataError:
    return DataError(
        f"{name}: not {encoding.upper()} (byte {error.start}: {error.reason}){encoding_advice(error.object)}"
    )


def _holds(line: str, name: str) -> bool:
    """Whether a line is a JSON object with this key; no plain text looks like that."""
    try:
        data = parse_json(line, "")
    except DataError:
        return False
    return isinstance(data, dict) and name in data


def _parse(
    line: str, where: str, names: Sequence[str], required: Sequence[str], named: dict[str, str]
) -> dict[str, Any]:
    example = json.dumps(dict.fromkeys((named.get(name, name) for name in names), "..."))
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}not JSON ({error}); expected {example}") from None
    if not isinstance(data, dict):
        raise InputError(f"{where}expected {example}")
    missing = [named.get(name, name) for name in required if named.get(name, name) not in data]
    if missing:
        raise InputError(f"{where}no {' and no '.join(map(repr, missing))}; expected {example}")
    return data
