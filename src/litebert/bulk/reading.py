"""Input files as parts: tables of a fixed number of rows, read one after another.

    for part in read_parts(source, 8192): part.number, part.table, part.problems

Parquet, CSV, TSV, JSON lines and plain lines; compressed or not; local or at any address that fsspec opens. Where a
part begins depends only on the file and `part_rows`, so a run can stop and resume anywhere. Memory holds two parts.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import io
import itertools
import json
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from litebert.errors import DataError, did_you_mean, quote_value
from litebert.text.sources import (
    STDIN,
    ByteReader,
    Source,
    StoreError,
    as_file,
    ending_of,
    find_sources,
    is_url,
    open_file,
)

Format = Literal["parquet", "csv", "tsv", "jsonl", "lines"]
ENDINGS: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
MAX_ROW = 16 << 20  # bytes of a line, characters of a field
HEAD_ROWS = 1000  # rows of a JSON-lines file that decide its columns
SHOWN_COLUMNS = 30  # in a message
SHOWN = 200  # characters kept of a line that is not read
LONG = "\0litebert: a long line\0"  # stands for a line of a CSV file that has more than MAX_ROW characters
END = "\0litebert: the end\0"  # follows the last line of a CSV file
# First bytes of files that are not text, and what to do about them.
NOT_TEXT = {
    b"PAR1": "a Parquet file; its name must end in .parquet",
    b"PK\x03\x04": "a zip archive or a spreadsheet; save it as CSV",
    b"%PDF": "a PDF; extract its text first",
    b"ARROW1": "an Arrow file; save it as Parquet",
}
TEXT = "text"  # the column of a file of plain lines


@dataclass(frozen=True)
class Part:
    """Some rows of one file: columns as they came, and the rows that could not be read."""

    source: int  # number of the file among the inputs
    number: int  # of this part in its file
    begin: int  # number of its first row in the file, from 0
    table: pa.Table
    problems: dict[int, str] = field(default_factory=dict)  # row of this part -> what is wrong with it
    last: bool = False  # no part of the file follows
    position: int = 0  # about how many bytes of the file end here

    def without_rows(self) -> Part:
        """The same part without its rows, only to identify it."""
        return replace(self, table=self.table.slice(0, 0), problems={})


def find_inputs(paths: Iterable[str | os.PathLike[str]], out: str = "") -> list[Source]:
    """Files, folders, globs and URLs -> the files; of folders and globs without `out` and what is named "_..."."""
    given = [os.fspath(path) for path in paths]
    if STDIN in given:
        raise DataError("-: standard input cannot be read again by a run that resumes; write it to a file first")
    found = [each for each in find_sources(given) if each.path in given or not _is_beside(each.path, given)]
    if out:
        within = _whole(out).rstrip("/") + "/"
        found = [each for each in found if each.path in given or not _whole(each.path).startswith(within)]
    if not found:
        raise DataError("no input files")
    return found


def format_of(path: str) -> Format:
    """By the ending: "a.csv.gz" -> "csv"; any other file is plain lines."""
    return ENDINGS.get(ending_of(path), "lines")


def _whole(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)


def _is_beside(path: str, given: Sequence[str]) -> bool:
    """Whether a file is a mark or a log of what wrote the others: table/_SUCCESS, table/_delta_log/0.json."""
    roots = [re.split(r"[*?\[]", each)[0].rpartition("/")[0] if glob.has_magic(each) else each for each in given]
    starts = [f"{root.rstrip('/')}/" if root else "" for root in roots]
    inside = [path.removeprefix(start) for start in starts if path.startswith(start)]
    return "/_" in "/" + min(inside, key=len, default=path.rpartition("/")[2])


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def read_parts(
    source: Source,
    part_rows: int,
    *,
    index: int = 0,
    encoding: str = "utf-8",
    done: Container[int] = (),
    first: int = 0,
    stop: int | None = None,
) -> Iterator[Part]:
    """The parts of a file from number `first` to before `stop`, without finished ones.

    A file without rows has one empty part, which shows its columns; without even a header it has none.
    """
    if format_of(source.path) == "parquet":
        yield from _parquet_parts(source, part_rows, index, done, first, stop)
        return
    with contextlib.closing(ByteReader(source.path, encoding)) as reader:
        rows = _rows(source, reader)
        number, here = 0, rows.take(part_rows)
        while stop is None or number < stop:
            ahead = rows.take(part_rows) if len(here) == part_rows else []  # whether any follow
            if number >= first and number not in done:
                table, problems = rows.table(here)
                yield Part(index, number, number * part_rows, table, problems, not ahead, rows.reader.position)
            if not ahead:
                return
            number, here = number + 1, ahead


def num_parts(source: Source, part_rows: int) -> int | None:
    """How many parts a Parquet file has; None where only reading all of it would tell."""
    if format_of(source.path) != "parquet":
        return None
    with open_file(source.path) as file:
        return max(1, -(-_parquet(source, file).metadata.num_rows // part_rows))


def _check_header(path: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path}: two columns are called {twice!r}; rename one")


def _parquet(source: Source, file: BinaryIO) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    except StoreError as error:
        raise DataError(f"{source.path}: cannot read ({error})") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{source.path}: not a complete Parquet file ({_first_line(error)})") from None


def _parquet_parts(
    source: Source, part_rows: int, index: int, done: Container[int], first: int, stop: int | None
) -> Iterator[Part]:
    with open_file(source.path) as file:
        parquet = _parquet(source, file)
        rows = parquet.metadata.num_rows
        end = max(1, -(-rows // part_rows))
        wanted = [number for number in range(first, min(end, end if stop is None else stop)) if number not in done]
        if not wanted:
            return
        _check_header(source.path, parquet.schema_arrow.names)
        for number in wanted if rows else ():
            # A run of neighbours is read in one go; a gap is jumped over by row groups.
            if number - 1 not in wanted:
                stretch = _stretch(source, parquet, number * part_rows, part_rows)
            table = next(stretch)
            position = source.size * min(rows, (number + 1) * part_rows) // rows
            yield Part(index, number, number * part_rows, table, last=number == end - 1, position=position)
        if not rows:
            yield Part(index, 0, 0, parquet.schema_arrow.empty_table(), last=True, position=source.size)


def _stretch(source: Source, parquet: pq.ParquetFile, begin: int, part_rows: int) -> Iterator[pa.Table]:
    """Tables of `part_rows` rows from row `begin` on; the last may be shorter."""
    metadata, skip = parquet.metadata, begin
    groups: list[int] = []
    for number in range(metadata.num_row_groups):
        size = metadata.row_group(number).num_rows
        if not groups and skip >= size:
            skip -= size
        else:
            groups.append(number)
    held: list[pa.RecordBatch] = []
    count, read = 0, begin - skip  # rows held; rows up to here, skipped ones included
    try:
        for batch in parquet.iter_batches(min(part_rows, 8192), row_groups=groups, use_threads=False):
            read += len(batch)
            if skip:
                dropped = min(skip, len(batch))
                batch, skip = batch.slice(dropped), skip - dropped
            while len(batch):
                piece = batch.slice(0, part_rows - count)
                held.append(piece)
                count += len(piece)
                batch = batch.slice(len(piece))
                if count == part_rows:
                    yield pa.Table.from_batches(held).combine_chunks()
                    held, count = [], 0
    except StoreError as error:
        raise DataError(f"{source.path}, after row {read:,}: cannot read ({error})") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{source.path}: damaged after row {read:,} ({_first_line(error)})") from None
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


# ---------------------------------------------------------------------------------------------------------------------
# Rows of text files


def _rows(source: Source, reader: ByteReader) -> _Rows:
    kinds: dict[str, type[_Rows]] = {"csv": _CsvRows, "tsv": _CsvRows, "jsonl": _JsonRows, "lines": _Rows}
    return kinds[format_of(source.path)](source, reader)


class _Rows:
    """A file of plain lines: one column, one row per line, an empty one too."""

    def __init__(self, source: Source, reader: ByteReader):
        self.path = source.path
        self.reader = reader
        try:
            self.encoding = reader.encoding
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None
        self.line = 0  # the last that was read
        self._lines = self._cut()

    def take(self, count: int) -> list[Any]:
        """The next rows, as they are in the file."""
        return list(itertools.islice(self._lines, count))

    def table(self, rows: Sequence[Any]) -> tuple[pa.Table, dict[int, str]]:
        """Rows as columns, with the errors of bad rows."""
        problems: dict[int, str] = {}
        texts = [self._decode(number, line, problems) for number, (_, line) in enumerate(rows)]
        return pa.table({TEXT: pa.array(texts, pa.string())}), problems

    def _decode(self, number: int, line: bytes, problems: dict[int, str]) -> str:
        if len(line) > MAX_ROW:
            problems[number] = f"{TEXT}: the line has more than {MAX_ROW >> 20} MiB; only its beginning is kept"
            return line[:SHOWN].decode(self.encoding, "replace")
        try:
            return line.decode(self.encoding)
        except UnicodeDecodeError as error:
            problems[number] = f"not {self.encoding.upper()}: byte {error.start} ({error.reason})"
            return line.decode(self.encoding, "replace")

    def _pieces(self) -> Iterator[bytes]:
        number = 0
        try:
            while piece := self.reader.read():
                if number < 2:  # the first has only a few bytes
                    _check_text(piece, number)
                number += 1
                yield piece
        except DataError as error:
            where = f", after line {self.line:,}" if self.line else ""
            raise DataError(f"{self.path}{where}: {error}") from None

    def _cut(self) -> Iterator[tuple[int, bytes]]:
        """(line number, line) without line ends; of one that is too long, a little more than is allowed."""
        rest = b""
        for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n") if b"\n" in piece or len(rest) <= MAX_ROW else (rest,)
            for line in whole:
                self.line += 1
                yield self.line, line.removesuffix(b"\r")
        if rest:
            self.line += 1
            yield self.line, rest.removesuffix(b"\r")


def _check_text(piece: bytes, number: int) -> None:
    """Refuse what would become one bad row after another."""
    for magic, what in NOT_TEXT.items():
        if number == 0 and piece.startswith(magic):
            raise DataError(f"not text: {what}")
    zeros = piece[:4096].count(b"\0")
    if zeros > 2 and zeros * 8 > len(piece[:4096]):
        raise DataError("not text: many zero bytes; if it is UTF-16 without a mark, name it (encoding: utf-16-le)")


class _CsvRows(_Rows):
    """A CSV or TSV file with a header; every column is text."""

    def __init__(self, source: Source, reader: ByteReader):
        super().__init__(source, reader)
        csv.field_size_limit(MAX_ROW)
        text = io.TextIOWrapper(as_file(self._pieces()), encoding=self.encoding, errors="surrogateescape", newline="")
        start, self.line = text.readline(MAX_ROW), 0
        while start and not start.strip():
            start, self.line = text.readline(MAX_ROW), self.line + 1
        delimiter = "\t" if format_of(source.path) == "tsv" else max(",;\t|", key=start.count)  # a tie: the comma
        quoting: Any = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        self._replaced = False  # whether the row that is read has a long line
        lines = itertools.chain([start], self._short_lines(text)) if start else ()
        self._csv = csv.reader(lines, delimiter=delimiter, quoting=quoting)
        self._skipped = self.line
        header: Any = next(self._read(), [])
        if isinstance(header, tuple):
            raise DataError(f"{self.path}: the header: {header[1]}")
        self.header = [_repair(name) or name for name in header]
        _check_header(self.path, self.header)
        self._lines = self._read()

    def _read(self) -> Iterator[Any]:
        """Rows as lists; of a bad one also what is wrong with it."""
        while True:
            try:
                row = next(self._csv, None)
            except csv.Error as error:
                raise DataError(
                    f"{self.path}, near line {self._skipped + self._csv.line_num:,}: {error}; is a quote left open?"
                ) from None
            begin, self.line = self.line + 1, self._skipped + self._csv.line_num
            if row is None or row == [END]:
                return
            if self._replaced:
                self._replaced = False
                yield list(itertools.takewhile(lambda value: LONG not in value, row)), f"more than {MAX_ROW >> 20} MiB"
            elif row and row[-1].endswith(END):
                row[-1] = row[-1].removesuffix(END)
                yield row, f"a quote is not closed: line {begin:,} to the end of the file is one row"
            elif row:
                yield row

    def _short_lines(self, text: TextIO) -> Iterator[str]:
        """The lines; in place of a long one LONG, which leaves a quote as open as the line did."""
        while line := text.readline(MAX_ROW):
            if len(line) < MAX_ROW or line.endswith(("\n", "\r")):
                yield line
                continue
            quotes = line.count('"')
            while (line := text.readline(MAX_ROW)) and not line.endswith(("\n", "\r")):
                quotes += line.count('"')
            self._replaced = True
            yield '"' * ((quotes + line.count('"')) % 2) + LONG + "\n"
        yield END

    def table(self, rows: Sequence[Any]) -> tuple[pa.Table, dict[int, str]]:
        """Rows as columns; too many or too few fields, and bytes that are not text, are problems of their rows."""
        problems: dict[int, str] = {}
        width, clean = len(self.header), []
        for number, row in enumerate(rows):
            if isinstance(row, tuple):
                row, problems[number] = row
            if len(row) != width:
                problems.setdefault(number, f"{len(row)} fields, but the header has {width}")
                row = [*row[:width], *[None] * (width - len(row))]
            clean.append(row)
        columns = [list(values) for values in zip(*clean, strict=True)] or [[] for _ in self.header]
        arrays = []
        for values in columns:
            try:
                arrays.append(pa.array(values, pa.string()))
            except UnicodeEncodeError:
                for number, value in enumerate(values):
                    if value is not None and (repaired := _repair(value)) is not None:
                        problems.setdefault(number, f"not {self.encoding.upper()}")
                        values[number] = repaired
                arrays.append(pa.array(values, pa.string()))
        return pa.Table.from_arrays(arrays, self.header), problems


class _JsonRows(_Rows):
    """JSON objects, one per line; the first rows decide which columns there are and of which type."""

    def __init__(self, source: Source, reader: ByteReader):
        super().__init__(source, reader)
        self._lines = ((number, line) for number, line in self._cut() if line.strip())
        head = super().take(HEAD_ROWS)
        parsed = [self._parse(line) for _, line in head]
        objects = [row for row, _ in parsed if row is not None]
        names = dict.fromkeys(name for row in objects for name in row)
        if head and not names:
            (number, line), (_, problem) = head[0], parsed[0]
            raise DataError(f"{self.path}: {self._nothing(number, line, problem)}")
        self.types = {name: _type_of([row.get(name) for row in objects]) for name in names}
        self._lines = itertools.chain(head, self._lines)

    def table(self, rows: Sequence[Any]) -> tuple[pa.Table, dict[int, str]]:
        """Rows as columns; what does not fit its column is a problem of its row."""
        problems: dict[int, str] = {}
        columns: dict[str, list[Any]] = {name: [] for name in self.types}
        for number, (line, data) in enumerate(rows):
            row, problem = self._parse(data)
            if problem:
                problems[number] = f"line {line}: {problem}"
            for name, values in columns.items():
                value, fits = _fit((row or {}).get(name), self.types[name])
                if not fits:
                    problems.setdefault(number, f"{name}: {json.dumps(value)[:60]} is not {self.types[name]}")
                    value = None
                values.append(value)
            if row and (unknown := [name for name in row if name not in columns]):
                # The row is scored all the same.
                problems.setdefault(
                    number, f"{unknown[0]}: not a column of the first {HEAD_ROWS:,} rows; its value is not kept"
                )
        arrays = [pa.array(values, self.types[name]) for name, values in columns.items()]
        return pa.Table.from_arrays(arrays, list(columns)), problems

    def _nothing(self, number: int, line: bytes, problem: str) -> str:
        """Why there are no columns, from the first line."""
        if line.lstrip()[:1] == b"[" or line.strip() == b"{":
            return "one JSON value for the whole file; write one object per line (for an array: jq -c '.[]')"
        problem = problem or "it has none"
        return f"none of the first {HEAD_ROWS:,} lines is an object with fields (line {number}: {problem})"

    def _parse(self, line: bytes) -> tuple[dict[str, Any] | None, str]:
        if len(line) > MAX_ROW:
            return None, f"more than {MAX_ROW >> 20} MiB"
        try:
            data = json.loads(line.decode(self.encoding))
        except UnicodeDecodeError as error:
            return None, f"not {self.encoding.upper()}: byte {error.start} ({error.reason})"
        except (ValueError, RecursionError) as error:
            return None, f"not JSON ({error})"
        return (data, "") if isinstance(data, dict) else (None, "not a JSON object")


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """The column type of JSON values: text, whole number, number, flag, list of texts; else JSON as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int} and all(abs(value) < 1 << 63 for value in values if value is not None):
        return pa.int64()
    if kinds and kinds <= {int, float}:
        return pa.float64()
    if kinds == {list} and all(isinstance(each, str) for value in values if value for each in value):
        return pa.list_(pa.string())
    return pa.string()


def _fit(value: Any, kind: pa.DataType) -> tuple[Any, bool]:
    """A JSON value as its column has it, and whether it could be."""
    if value is None:
        return None, True
    if pa.types.is_string(kind):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return _repair(text) or text, True
    if pa.types.is_boolean(kind):
        return value, isinstance(value, bool)
    if pa.types.is_list(kind):
        return value, isinstance(value, list) and all(isinstance(each, str) and _repair(each) is None for each in value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_int64(kind):
        return value, number and isinstance(value, int) and abs(value) < 1 << 63
    fits = number and (isinstance(value, float) or abs(value) < 1 << 1023)
    return float(value) if fits else value, fits


def _repair(text: str) -> str | None:
    """A text with a sign for each half character; None where nothing is wrong with it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return None


def missing_column(source: Source, name: str, columns: Sequence[str], advice: str = "") -> DataError:
    """The error for a column that a file lacks."""
    shown = ", ".join(map(quote_value, columns[:SHOWN_COLUMNS])) or "none"
    if len(columns) > SHOWN_COLUMNS:
        shown += f", ... ({len(columns):,} in all)"
    return DataError(f"{source.path}: no column {name!r}{did_you_mean(name, columns) or '.'} It has {shown}{advice}")
