"""One file as blocks of whole documents: decompressed bytes, cut between documents, about a megabyte each.

Memory use is constant. A text document longer than MAX_DOCUMENT bytes becomes several documents (cut at a line end,
else at a space); a JSON or wikiextractor row longer than MAX_ROW bytes is an error. Where blocks begin depends on the
text alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from litebert.errors import DataError, did_you_mean
from litebert.text.sentences import split_sentences
from litebert.text.sources import STDIN, ByteReader, describe_source, is_url, open_file

BLOCK = 1 << 20
MAX_DOCUMENT = 8 << 20
MAX_ROW = 128 << 20
MAX_LINE = 1 << 16
HEAD = 1 << 18  # bytes that decide the format

Format = Literal["lines", "paragraphs", "jsonl", "parquet", "wikiextractor", "wikiextractor-json"]
FORMATS: tuple[Format, ...] = get_args(Format)

BLANK_LINE = re.compile(rb"\n[ \t\r\v\f]*\n")
LINE_END = re.compile(rb"\n")
_DOC_END = re.compile(rb"\n</doc>\r?\n")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """A stretch of one file with whole documents: raw bytes, or the text column of some Parquet rows."""

    source: str
    format: Format
    data: bytes | list[bytes | None]
    line: int  # number of its first line (Parquet: row) in the file
    position: int  # bytes of the file read so far, for progress


def read_blocks(
    path: str, format: Format | Literal["auto"] = "auto", text_field: str = "text", language: str = "auto"
) -> Iterator[Block]:
    """Cut one file into blocks of whole documents.

    Damage (a truncated archive, say) raises DataError after the last whole document before it.
    """
    with contextlib.closing(Feed(path)) as feed:
        head = bytes(feed.fill(HEAD)[:HEAD])
        if not head:
            feed.check()
            return
        if format == "auto":
            format = detect_format(path, head, language)
        elif format == "wikiextractor" and _is_json(head):
            format = "wikiextractor-json"
        if format == "parquet":
            yield from _parquet_blocks(path, text_field)
            return
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(f"{path}: UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW")
        if format in ("lines", "paragraphs"):
            pieces = feed.cut(BLANK_LINE, MAX_DOCUMENT)
        elif format == "wikiextractor":
            pieces = feed.cut(_DOC_END, MAX_ROW, divisible=False)
        else:
            pieces = feed.cut(LINE_END, MAX_ROW, divisible=False)
        for data, line in pieces:
            yield Block(path, format, data, line, feed.reader.position)
        feed.check()


def detect_format(path: str, head: bytes, language: str = "auto") -> Format:
    """The format of a file, by its name and its first bytes."""
    suffixes = Path(path).suffixes
    start = head.removeprefix(_BOM).lstrip()
    if start.startswith(b"PAR1") or ".parquet" in suffixes:
        return "parquet"
    if start.startswith(b"<doc id="):
        return "wikiextractor"
    if _is_json(head) and re.match(r"wiki_\d+", Path(path).name):
        return "wikiextractor-json"
    if {".jsonl", ".ndjson", ".json"} & set(suffixes) or re.match(rb'\{\s*("|\})', start):
        return "jsonl"
    # The last line of the head may be truncated, and so may its last character.
    lines = head.decode("utf-8", "ignore").split("\n")[: -1 if len(head) == HEAD else None]
    lines = [line for line in lines if line.strip() and len(line) <= MAX_LINE]
    several = sum(len(split_sentences(line, language)) > 1 for line in lines)
    # Splitting a sentence again leaves it whole, so paragraphs are the safer guess.
    return "lines" if lines and several <= 0.1 * len(lines) else "paragraphs"


class Feed:
    """The decompressed bytes of a file in a buffer, and how they are cut; `check` raises the damage found."""

    def __init__(self, path: str):
        self.path = path
        self.reader = ByteReader(path)
        self.buffer = bytearray()
        self.ended = False
        self.failure: DataError | None = None
        self.line = 1

    def fill(self, size: int) -> bytearray:
        """Read until the buffer holds `size` bytes or the file ends."""
        while len(self.buffer) < size and not self.ended:
            try:
                piece = self.reader.read()
            except DataError as error:
                lines = self.line + self.buffer.count(b"\n")
                self.failure = DataError(f"{self.path}:{lines}: {error}")
                piece = b""
            self.buffer += piece
            self.ended = not piece
        return self.buffer

    def cut(self, boundary: re.Pattern[bytes], limit: int, divisible: bool = True) -> Iterator[tuple[bytes, int]]:
        """Stretches that end at the first boundary after BLOCK bytes, with the number of their first line.

        Without a boundary before `limit`, text is cut at a line end, a space or at least between characters; a row
        that is not divisible is an error. Nothing here depends on the sizes of the pieces that were read.
        """
        while self.fill(BLOCK + 1):
            end = self._boundary(boundary, limit)
            last = end is None and len(self.buffer) <= limit
            if last:
                # After its last boundary a damaged file has half a document.
                end = _last_boundary(boundary, self.buffer) if self.failure else len(self.buffer)
            elif end is None and divisible:
                end = _cut_anywhere(self.buffer, limit)
            elif end is None:
                raise DataError(f"{self.path}:{self.line}: a row of more than {limit >> 20} MiB; is the format right?")
            data = bytes(self.buffer[:end])
            if data:
                yield data.removeprefix(_BOM) if self.line == 1 else data, self.line
            if last:
                return
            self.line += data.count(b"\n")
            del self.buffer[:end]

    def check(self) -> None:
        """Raise the error met while reading, once everything before it has been used."""
        if self.failure:
            raise self.failure

    def close(self) -> None:
        """Close the file."""
        self.reader.close()

    def _boundary(self, boundary: re.Pattern[bytes], limit: int) -> int | None:
        begin = BLOCK
        while True:
            if match := boundary.search(self.buffer, begin, limit):
                return match.end()
            if self.ended or len(self.buffer) > limit:
                return None
            # Blank lines may have any length; the other boundaries are a few bytes long.
            begin = BLOCK if boundary is BLANK_LINE else max(BLOCK, len(self.buffer) - 16)
            self.fill(len(self.buffer) + BLOCK)


def _last_boundary(boundary: re.Pattern[bytes], buffer: bytearray) -> int:
    return max((match.end() for match in boundary.finditer(buffer)), default=0)


def _cut_anywhere(buffer: bytearray, limit: int) -> int:
    for separator in (b"\n", b" "):
        if end := buffer.rfind(separator, 0, limit) + 1:
            return end
    end = limit
    while end > limit - 4 and buffer[end] & 0xC0 == 0x80:  # not inside a UTF-8 character
        end -= 1
    return end


def _is_json(head: bytes) -> bool:
    return head.removeprefix(_BOM).lstrip().startswith(b"{")


def _parquet_blocks(path: str, text_field: str) -> Iterator[Block]:
    if path == STDIN:
        raise DataError("-: Parquet needs a file; standard input is not seekable")
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[bytes | None] = []
    first = done = held = 0
    size = describe_source(path).size
    failure: DataError | None = None
    try:
        # Page by page without read-ahead: a large row group need not fit into memory.
        remote = open_file(path) if is_url(path) else contextlib.nullcontext(path)
        with remote as opened, pq.ParquetFile(opened, pre_buffer=False, buffer_size=BLOCK) as file:
            _check_column(path, file.schema_arrow, text_field)
            total = max(1, file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=64, columns=[text_field], use_threads=False):
                for value in batch.column(0).cast(pa.large_binary()).to_pylist():
                    rows.append(value)
                    held += len(value or b"")
                    done += 1
                    if held >= BLOCK:
                        yield Block(path, "parquet", rows, first + 1, size * done // total)
                        rows, first, held = [], done, 0
    except (pa.ArrowException, OSError) as error:
        failure = DataError(f"{path}: row {done + 1}: damaged, or not Parquet: {str(error).rstrip('.')}")
    if rows:
        yield Block(path, "parquet", rows, first + 1, size)
    if failure:
        raise failure


def _check_column(path: str, schema: Any, name: str) -> None:
    import pyarrow.types as types

    if name not in schema.names:
        known = ", ".join(map(repr, schema.names))
        hint = did_you_mean(name, schema.names)
        raise DataError(f"{path}: no column {name!r} (columns: {known}); choose one with text_field{hint}")
    kind = schema.field(name).type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise DataError(f"{path}: column {name!r} holds {kind}, not text")
