"""Files -> documents, in two steps, so that many processes can share the work on one file.

    read_blocks(path)   one process: decompressed bytes, cut between documents, about a megabyte each
    parse_block(block)  any process: Document or Problem, a pure function of the block

Memory use is constant. A text document longer than MAX_DOCUMENT bytes becomes several documents (cut at a line end,
else at a space), a line longer than MAX_LINE characters several lines; a JSON or wikiextractor row longer than MAX_ROW
bytes is an error. Where blocks begin depends on the text alone.
"""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from litebert.errors import DataError, did_you_mean
from litebert.parse import parse_json
from litebert.text.encodings import encoding_advice
from litebert.text.sentences import split_sentences
from litebert.text.sources import STDIN, ByteReader, describe_source, is_url, open_file

# ---------------------------------------------------------------------------------------------------------------------
# Files -> blocks of whole documents

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
    start = head.lstrip()
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
                yield data, self.line
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
    return head.lstrip().startswith(b"{")


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


# ---------------------------------------------------------------------------------------------------------------------
# Blocks -> documents

_DOC_START = re.compile(r'<doc id="[^"]*"(?: url="[^"]*")?(?: title="(?P<title>.*)")?\s*>$')


@dataclass(frozen=True)
class Document:
    """The non-empty lines of one document: sentences, or paragraphs still to be split."""

    lines: list[str]
    are_sentences: bool
    where: str


@dataclass(frozen=True)
class Problem:
    """An unusable document, and why."""

    kind: str
    message: str


def open_text(path: Path | str) -> Iterator[str]:
    """The lines of a text file (.gz .xz .zst .bz2 too; '-' is stdin), without line ends, in constant memory."""
    with contextlib.closing(Feed(str(path))) as feed:
        for data, line in feed.cut(LINE_END, MAX_DOCUMENT):
            text = _decoded(data, str(path), line)
            if isinstance(text, Problem):
                raise DataError(text.message)
            # A block ends with a line end; no further line follows it.
            for paragraph in text.removesuffix("\n").split("\n"):
                yield from split_long(paragraph.removesuffix("\r"))
        feed.check()


def read_documents(
    path: Path | str, format: Format | Literal["auto"] = "auto", text_field: str = "text"
) -> Iterator[Document]:
    """The documents of one file; the first bad one raises DataError."""
    for block in read_blocks(str(path), format, text_field):
        for document in parse_block(block, text_field):
            if isinstance(document, Problem):
                raise DataError(document.message)
            yield document


def parse_block(block: Block, text_field: str = "text") -> Iterator[Document | Problem]:
    """The documents of a block, in order; each bad one is a Problem and does not affect the others."""
    if isinstance(block.data, list):
        for row, data in enumerate(block.data, block.line):
            where = f"{block.source}: row {row}"
            yield Problem("no text", f"{where}: the text is null") if data is None else _document(data, where)
    elif block.format in ("lines", "paragraphs"):
        yield from _parse_text(block.data, block)
    elif block.format == "wikiextractor":
        yield from _parse_markup(block.data, block)
    else:
        yield from _parse_json_lines(block.data, block, text_field)


def split_long(line: str) -> list[str]:
    """A line as it is, or, beyond MAX_LINE characters, in pieces cut at spaces where possible."""
    pieces = []
    while len(line) > MAX_LINE:
        end = line.rfind(" ", 0, MAX_LINE) + 1 or MAX_LINE
        pieces.append(line[:end])
        line = line[end:]
    return [*pieces, line]


def _decoded(data: bytes, source: str, line: int | None) -> str | Problem:
    """The text, or its error and place."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = error.start - data.rfind(b"\n", 0, error.start) - 1
        what = f"not valid UTF-8: byte {byte} of the line is 0x{data[error.start]:02x}, {error.reason}"
        where = _place(data, error.start, source, line)
        return Problem("invalid UTF-8", f"{where}: {what}{encoding_advice(data)}")
    if "\0" in text:
        where = _place(data, data.index(b"\0"), source, line)
        return Problem("NUL byte", f"{where}: a NUL byte; is this a text file?")
    return text


def _place(data: bytes, position: int, source: str, line: int | None) -> str:
    return source if line is None else f"{source}:{line + data[:position].count(10)}"


def _decoded_lines(data: bytes, block: Block) -> Iterator[tuple[int, str | Problem]]:
    """Numbered lines; a bad one is a Problem."""
    whole = _decoded(data, block.source, block.line)
    if isinstance(whole, str):
        yield from enumerate(whole.split("\n"), block.line)
    else:
        for number, line in enumerate(data.split(b"\n"), block.line):
            yield number, _decoded(line, block.source, number)


def _parse_text(data: bytes, block: Block) -> Iterator[Document | Problem]:
    text = _decoded(data, block.source, block.line)
    if isinstance(text, str):
        yield from _group_lines(text, block, block.line)
        return
    # Document by document, so that only the bad ones are lost.
    begin, line = 0, block.line
    for end in [*(match.end() for match in BLANK_LINE.finditer(data)), len(data)]:
        text = _decoded(data[begin:end], block.source, line)
        if isinstance(text, Problem):
            yield text
        else:
            yield from _group_lines(text, block, line)
        line += data.count(b"\n", begin, end)
        begin = end


def _group_lines(text: str, block: Block, first: int) -> Iterator[Document]:
    lines: list[str] = []
    start = first
    for number, line in enumerate(text.split("\n"), first):
        stripped = line.strip()
        if stripped:
            if not lines:
                start = number
            lines.extend(split_long(stripped) if len(stripped) > MAX_LINE else (stripped,))
        elif lines:
            yield Document(lines, block.format == "lines", f"{block.source}:{start}")
            lines = []
    if lines:
        yield Document(lines, block.format == "lines", f"{block.source}:{start}")


def _parse_json_lines(data: bytes, block: Block, text_field: str) -> Iterator[Document | Problem]:
    for number, row in _decoded_lines(data, block):
        if isinstance(row, Problem):
            yield row
        elif row.strip():
            yield _parse_row(row, number, block, text_field)


def _parse_row(row: str, number: int, block: Block, text_field: str) -> Document | Problem:
    where = f"{block.source}:{number}"
    try:
        fields = parse_json(row, block.source, line=number)
    except DataError as error:
        return Problem("bad JSON", str(error))
    if not isinstance(fields, dict):
        hint = " (an array? one object per line: jq -c '.[]')" if row.lstrip().startswith("[") else ""
        return Problem("bad JSON", f"{where}: each line must be a JSON object{hint}")
    text = fields.get(text_field)
    if not isinstance(text, str):
        return Problem("no text", f"{where}: {_no_text(fields, text_field)}")
    if "\\" in row:
        # An escape may encode what a text file cannot contain: NUL, half a surrogate pair.
        checked = _decoded(text.encode("utf-8", "surrogatepass"), where, None)
        if isinstance(checked, Problem):
            return checked
    if block.format == "wikiextractor-json":
        return Document(_without_title(text.split("\n"), str(fields.get("title", ""))), False, where)
    return Document(_lines(text), False, where)


def _no_text(fields: dict[str, Any], text_field: str) -> str:
    if text_field in fields:
        return f"field {text_field!r} is {type(fields[text_field]).__name__}, not text"
    known = ", ".join(map(repr, fields)) or "none"
    return f"no field {text_field!r} (fields: {known}); choose one with text_field{did_you_mean(text_field, fields)}"


def _document(data: bytes, where: str) -> Document | Problem:
    """A document from one row of a table."""
    text = _decoded(data, where, None)
    if isinstance(text, Problem):
        return text
    return Document(_lines(text), False, where)


def _lines(text: str) -> list[str]:
    return [piece for line in text.split("\n") if line.strip() for piece in split_long(line.strip())]


def _parse_markup(data: bytes, block: Block) -> Iterator[Document | Problem]:
    """`<doc id= url= title=>`, the title, the paragraphs, `</doc>`."""
    body: list[str] = []
    start, title = 0, ""  # start 0: outside a document
    problem: Problem | None = None
    for number, line in _decoded_lines(data, block):
        if isinstance(line, Problem):
            problem = problem or line
            continue
        opening = _DOC_START.match(line.rstrip()) if line.startswith("<doc ") else None
        if opening:
            if start:
                yield problem or Problem("bad markup", f"{block.source}:{start}: <doc> without </doc>")
            body, start, title, problem = [], number, opening["title"] or "", None
        elif line.startswith("</doc>") and start:
            yield problem or Document(_without_title(body, title), False, f"{block.source}:{start}")
            body, start, problem = [], 0, None
        elif start:
            body.append(line)
        elif line.strip():
            yield Problem("bad markup", f"{block.source}:{number}: text outside <doc> ... </doc>")
    if start:
        yield problem or Problem("bad markup", f"{block.source}:{start}: <doc> without </doc>")


def _without_title(body: list[str], title: str) -> list[str]:
    """The paragraphs of an article without its title, which some versions repeat as the first line."""
    # wikiextractor escapes < > & by default.
    lines = [html.unescape(line).strip() for line in body]
    lines = [line for line in lines if line]
    if lines and title and lines[0] in (title, html.unescape(title)):
        del lines[0]
    return [piece for line in lines for piece in split_long(line)]
