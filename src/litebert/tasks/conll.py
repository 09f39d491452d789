"""Tagged words, one per line with the tag in the last column and a blank line between sentences (CoNLL, BIO)."""

from __future__ import annotations

from pathlib import Path

from litebert.errors import DataError
from litebert.tasks.tables import Table, read_text

SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".txt")


def is_conll(path: Path | str) -> bool:
    """Whether the name says so; a .txt of tagged words is one too."""
    return any(suffix.lower() in SUFFIXES for suffix in Path(path).suffixes)


def read_conll(path: Path | str, encoding: str = "utf-8", words: int = 1, tags: int = -1) -> Table:
    """A table with the columns "words" and "tags", one row per sentence; columns count from 1, -1 is the last."""
    rows: list[tuple[tuple[str, ...], tuple[str, ...] | None]] = []
    lines: list[int] = []
    sentence: list[list[str]] = []
    begin = width = 0
    delimiter: str | None = None
    # A blank line at the end closes the last sentence.
    for number, line in enumerate([*read_text(path, encoding).split("\n"), ""], start=1):
        if not line.strip():
            if sentence:
                found = tuple(row[-1 if tags < 0 else tags - 1] for row in sentence)
                rows.append((tuple(row[words - 1] for row in sentence), found if width > 1 else None))
                lines.append(begin)
            sentence = []
            continue
        if not width:
            delimiter = "\t" if "\t" in line else None  # None: any run of spaces
        fields = line.rstrip("\r\n").split(delimiter)
        if fields[0] == "-DOCSTART-" or (line.startswith("#") and len(fields) != width):
            continue
        width = width or len(fields)
        if len(fields) != width:
            raise DataError(f"{path}:{number}: {len(fields)} columns where the lines before have {width}: {line!r:.80}")
        if max(words, tags) > width:
            raise DataError(f"{path}:{number}: no column {max(words, tags)}; the line has {width}")
        if not sentence:
            begin = number
        sentence.append(fields)
    if not rows:
        raise DataError(f"{path}: the file holds no words")
    return Table(
        str(path), ("words", "tags") if width > 1 else ("words",), [row[: min(width, 2)] for row in rows], lines
    )
