"""Tables from CSV, TSV, JSONL, JSON and Parquet files, compressed or not; every row knows its line.

    read_table("train.csv")  -> Table("train.csv", columns=("text", "label"), rows=[("good", "1"), ...], lines=[2, ...])

Text is UTF-8 with or without a byte-order mark, or UTF-16 or UTF-32 with one; other encodings must be named. A TSV is
read line by line because quotes are usually literal there; they are removed only if the whole file is quoted
consistently.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from litebert.errors import DataError, did_you_mean
from litebert.parse import parse_json
from litebert.text.encodings import describe, guess_encoding
from litebert.text.sources import ByteReader, ending_of

Format = Literal["csv", "tsv", "jsonl", "json", "parquet"]
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
_DELIMITERS = ",\t;|"


@dataclass(frozen=True)
class Table:
    """Named columns and rows; `lines` holds the line where each row starts (in Parquet, the row number)."""

    path: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    lines: Sequence[int]

    def where(self, row: int) -> str:
        """The location of a row for messages: "train.csv:17"."""
        return f"{self.path}:{self.lines[row]}"

    def values(self, column: str) -> list[Any]:
        """The values of one column; an unknown name is an error that lists the columns."""
        if column not in self.columns:
            shown = ", ".join(map(repr, self.columns))
            raise DataError(
                f"{self.path}: no column {column!r}{did_you_mean(column, self.columns) or '.'} It has: {shown}"
            )
        place = self.columns.index(column)
        return [row[place] for row in self.rows]


def read_table(path: Path | str, encoding: str = "utf-8", header: bool = True) -> Table:
    """Read a file as a table; without a header, the columns are named "1", "2" and so on."""
    path = str(path)
    form = format_of(path)
    if form == "parquet":
        return _read_parquet(path)
    text = read_text(path, encoding)
    if form == "jsonl" or (form == "json" and _holds_lines(text)):
        return _from_objects(path, _json_lines(path, text))
    if form == "json":
        return _from_objects(path, _json_items(path, text))
    delimiter = "\t" if form == "tsv" else _delimiter_of(text)
    rows, lines = split_tabs(text) if delimiter == "\t" else _split_csv(path, text, delimiter)
    if delimiter == "\t":
        rows, lines = _undo_quotes(rows, lines, text)
    return _from_rows(path, rows, lines, header)


def table_of(name: str, rows: Any) -> Table:
    """Rows in memory as a table, called `name` in messages.

    A list of dictionaries, of tuples or of texts, a dictionary of columns, a pair of them (texts, labels), a pandas or
    polars DataFrame, an Arrow table, a split of `datasets`. Without names, as in a list of tuples, columns are called
    "1", "2" and so on.
    """
    if hasattr(rows, "to_arrow"):  # polars
        rows = rows.to_arrow()
    if hasattr(rows, "features") and hasattr(rows, "with_format"):  # datasets
        features, plain = rows.features.to_dict(), rows.with_format(None)[:]
        columns = {str(key): name_classes(list(plain[key]), features.get(key)) for key in rows.column_names}
    elif hasattr(rows, "to_pydict"):  # Arrow
        features = _hub_features(rows.schema.metadata or {})
        columns = {key: name_classes(values, features.get(key)) for key, values in rows.to_pydict().items()}
    elif hasattr(rows, "itertuples"):  # pandas
        if not rows.columns.is_unique:
            raise DataError(f"{name}: two columns have the same name; rename one")
        columns = {str(key): rows[key].astype(object).where(rows[key].notna(), None).tolist() for key in rows.columns}
    elif isinstance(rows, Mapping):
        columns = {str(key): _listed(name, key, values) for key, values in rows.items()}
    elif isinstance(rows, tuple) and len(rows) == 2 and not isinstance(rows[0], tuple | Mapping | str):
        columns = {str(number): _listed(name, str(number), values) for number, values in enumerate(rows, start=1)}
    elif isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        if not rows:
            raise DataError(f"{name}: no rows")
        if all(isinstance(row, str) for row in rows):
            rows = [(row,) for row in rows]
        if isinstance(rows[0], list | tuple):
            return _from_rows(name, [list(row) for row in rows], list(range(1, len(rows) + 1)), header=False)
        return _from_objects(name, enumerate(rows, start=1))
    else:
        raise DataError(
            f"{name}: expected a file's path, a list of dictionaries or tuples, a dictionary of columns, a DataFrame, "
            f"an Arrow table or a data set, got {type(rows).__name__}"
        )
    sizes = {key: len(values) for key, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"{name}: columns of different lengths: {', '.join(f'{k} {n:,}' for k, n in sizes.items())}")
    content = list(zip(*columns.values(), strict=True))
    if not content:
        raise DataError(f"{name}: no rows")
    return _checked(Table(name, tuple(columns), content, range(1, len(content) + 1)))


def _listed(name: str, key: Any, values: Any) -> list[Any]:
    if hasattr(values, "tolist"):  # numpy, pandas
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise DataError(f"{name}: column {key!r}: expected a list, got {values!r:.80}")
    return list(values)


def format_of(path: str) -> Format:
    """The format by file name ("a.csv.gz" -> "csv"); a .txt is read as a TSV or CSV with a header."""
    suffix = ending_of(path)
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if suffix in (".txt", ""):
        return "csv"
    known = ", ".join(_SUFFIXES)
    raise DataError(f"{path}: unknown file type {suffix}; supported: {known} (also compressed: .gz .xz .zst)")


def read_text(path: Path | str, encoding: str = "utf-8") -> str:
    """The text of a file, decompressed and without a byte-order mark; a decoding error names the line."""
    path = str(path)
    with contextlib.closing(ByteReader(path, encoding)) as reader:
        try:
            data = b"".join(iter(reader.read, b""))
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        encoding = reader.encoding
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        guess = guess_encoding(data)
        looks = "" if guess is None else f"; it looks like {describe(guess)}"
        name = guess or "NAME"
        raise DataError(
            f"{path}:{line}: not {encoding.upper()}: {error.reason}{looks}. Save the file as UTF-8, or "
            f"set its encoding: encoding={name} (for litebert finetune: --set data.encoding={name})"
        ) from None


def split_tabs(text: str) -> tuple[list[list[str]], list[int]]:
    """The fields of each non-blank line, and its number; quotes are literal."""
    rows, lines = [], []
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: texts hold \x85 and \u2028
        line = line.removesuffix("\r")
        if line.strip():
            rows.append(line.split("\t"))
            lines.append(number)
    return rows, lines


def _undo_quotes(rows: list[list[str]], lines: list[int], text: str) -> tuple[list[list[str]], list[int]]:
    """Unquote a TSV written with CSV quotes (doubled inside a field); stray quotes stay."""
    width = len(rows[0]) if rows else 0
    quoted = [field for row in rows for field in row if field.startswith('"')]
    if not quoted:
        return rows, lines
    if all(len(row) == width for row in rows):
        whole = all(_is_quoted(field) for field in quoted)
        meant = any('""' in field[1:-1] for field in quoted) or all(map(_is_quoted, rows[0]))
        if whole and meant:
            rows = [[f[1:-1].replace('""', '"') if f.startswith('"') else f for f in row] for row in rows]
        return rows, lines
    # Lines of unequal width: maybe quoted fields with line breaks or tabs. Used only if every row then fits.
    try:
        broken, starts = _split_csv("", text, "\t", strict=True)
    except (DataError, csv.Error):
        return rows, lines
    return (broken, starts) if all(len(row) == width for row in broken) else (rows, lines)


def _is_quoted(field: str) -> bool:
    return len(field) > 1 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', "")


def _delimiter_of(text: str) -> str:
    """The most frequent of , tab ; | in the first line, outside quotes."""
    first = re.sub(r'"[^"]*"', "", next((line for line in text.split("\n") if line.strip()), ""))
    return max(_DELIMITERS, key=first.count)


def _split_csv(path: str, text: str, delimiter: str, strict: bool = False) -> tuple[list[list[str]], list[int]]:
    csv.field_size_limit(1 << 30)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)
    rows, lines = [], []
    begins = 1
    try:
        for row in reader:
            if row and any(row):
                rows.append(row)
                lines.append(begins)
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{begins}: not a CSV row: {error}") from None
    return rows, lines


def _from_rows(path: str, rows: list[list[Any]], lines: list[int], header: bool) -> Table:
    if not rows:
        raise DataError(f"{path}: the file is empty")
    width = len(rows[0])
    if header:
        columns = tuple(name.strip() or f"column {i}" for i, name in enumerate(rows[0], start=1))
        rows, lines = rows[1:], lines[1:]
    else:
        columns = tuple(str(i) for i in range(1, width + 1))
    for row, line in zip(rows, lines, strict=True):
        if len(row) != width:
            what = "the header has" if header else "the first row has"
            hint = '; a quote (") may be open' if any("\n" in str(field) for field in row) else ""
            hint = hint or ("; is it a table?" if width == 1 else "")
            raise DataError(f"{path}:{line}: {counted(len(row), 'column')}, but {what} {width}{hint}")
    return _checked(Table(path, columns, [tuple(row) for row in rows], lines))


def counted(number: int, noun: str) -> str:
    """A number of things: "1 column", "2 columns"."""
    return f"{number} {noun}" + "s" * (number != 1)


def _from_objects(path: str, objects: Iterable[tuple[int, Any]]) -> Table:
    found: list[tuple[int, Mapping[str, Any]]] = []
    columns: dict[str, None] = {}
    for line, item in objects:
        if not isinstance(item, dict):
            raise DataError(f"{path}:{line}: expected an object {{...}} with one value per column, got {item!r:.80}")
        columns.update(dict.fromkeys(item))
        found.append((line, item))
    if not found:
        raise DataError(f"{path}: the file is empty")
    rows = [tuple(map(item.get, columns)) for _, item in found]
    return _checked(Table(path, tuple(columns), rows, [line for line, _ in found]))


def _json_lines(path: str, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, parse_json(line, path, line=number)


def _holds_lines(text: str) -> bool:
    """Whether a .json holds one object per line, as Chinese data sets and the Hub's often do."""
    first, _, rest = text.strip().partition("\n")
    if not (first.startswith("{") and rest):
        return False
    try:
        return isinstance(parse_json(first, ""), dict)
    except DataError:
        return False


def _json_items(path: str, text: str) -> Iterator[tuple[int, Any]]:
    data = parse_json(text, path)
    items = data.get("data") if isinstance(data, dict) else data
    if not isinstance(items, list):
        raise DataError(
            f'{path}: expected a list of objects (or {{"data": [...]}}); for one object per line use .jsonl'
        )
    return enumerate(items, start=1)


def _read_parquet(path: str) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: not a readable Parquet file: {error}") from None
    if not table.num_rows:
        raise DataError(f"{path}: the file is empty")
    features = _hub_features(table.schema.metadata or {})
    columns = [name_classes(table[name].to_pylist(), features.get(name)) for name in table.column_names]
    return _checked(Table(path, tuple(table.column_names), list(zip(*columns, strict=True)), range(1, len(table) + 1)))


def _hub_features(metadata: Mapping[bytes, bytes]) -> Mapping[str, Any]:
    """What `datasets` says about the columns of a Parquet file it wrote; empty if unreadable."""
    try:
        features = parse_json(metadata[b"huggingface"].decode("utf-8"), "")["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return features if isinstance(features, dict) else {}


def name_classes(values: list[Any], feature: Any) -> list[Any]:
    """Label ids as the names in a `datasets` feature: [1, 0, -1] -> ["pos", "neg", None]."""
    if isinstance(feature, Mapping) and isinstance(feature.get("feature"), Mapping):  # a list of them
        return [None if value is None else name_classes(value, feature["feature"]) for value in values]
    names = feature.get("names") if isinstance(feature, Mapping) else None
    if not names:
        return values
    if isinstance(names, Mapping):  # older files: {"0": "neg", ...}
        names = [names[key] for key in sorted(names, key=int)]
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in values]


def _checked(table: Table) -> Table:
    for name in table.columns:
        if table.columns.count(name) > 1:
            raise DataError(f"{table.path}: two columns are named {name!r}; rename one")
    if not table.rows:
        raise DataError(f"{table.path}: a header but no rows")
    return table


# ---------------------------------------------------------------------------------------------------------------------
# Cells, converted however the file stores them; an error names the location


def text_cell(value: Any, where: str) -> str:
    """Text: "a" -> "a", 7 -> "7", None -> ""; a list or object is an error."""
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, list | tuple | dict):
        raise DataError(f"{where}: expected text, got {value!r:.80}")
    return str(value)


def words_cell(value: Any, where: str) -> tuple[str, ...]:
    """Words: a list, or a text separated by spaces."""
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
        hint = f"; write {value.strip().replace(',', '.')}" if comma else ""
        raise DataError(f"{where}: column {column!r}: expected a number, got {value!r:.80}{hint}")
    return number


def truth_cell(value: Any, where: str, column: str) -> bool:
    """True or false: 1, "0", "True", false; an empty cell is false."""
    text = str(value).strip().casefold()
    if text in ("1", "1.0", "true", "yes"):
        return True
    if text in ("0", "0.0", "false", "no", "", "none", "nan"):
        return False
    raise DataError(f"{where}: column {column!r}: expected 0 or 1, got {value!r:.80}")


# ---------------------------------------------------------------------------------------------------------------------
# Labels by name and by id


def label_name(value: Any) -> str | None:
    """A label as text, however the file stores it: 1 -> "1", 1.0 -> "1", True -> "true"; None if empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() or None


def order_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct labels, sorted by value or alphabetically: {"10", "9", "2"} -> ("2", "9", "10")."""
    distinct = set(names)
    if all(re.fullmatch(r"[+-]?\d+(\.\d+)?", name) for name in distinct):
        return tuple(sorted(distinct, key=float))
    return tuple(sorted(distinct))


def order_tags(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct tags, "O" first, then B- before I- for each type: ("O", "B-LOC", "I-LOC", "B-PER", ...)."""
    return tuple(sorted(set(names), key=lambda tag: (tag != "O", tag[2:] if tag[1:2] == "-" else tag, tag)))


def label_id(name: str, ids: Mapping[str, int], where: str, source: str) -> int:
    """The id of a label; an unknown one is an error that names the row and the known labels."""
    number = ids.get(name)
    if number is None:
        known = ", ".join(list(ids)[:20]) + (f" and {len(ids) - 20} more" if len(ids) > 20 else "")
        raise DataError(
            f"{where}: unknown label {name!r}{did_you_mean(name, ids) or '.'} The labels of {source}: {known}"
        )
    return number
