"""Files -> documents, in two steps, so that many processes can share the work on one file.

    read_blocks(path)   one process (blocks.py): bytes, cut between documents
    parse_block(block)  any process: Document or Problem, a pure function of the block

A line longer than MAX_LINE characters becomes several lines.
"""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from litebert.errors import DataError, did_you_mean
from litebert.parse import parse_json
from litebert.text.blocks import BLANK_LINE, LINE_END, MAX_DOCUMENT, MAX_LINE, Block, Feed, Format, read_blocks
from litebert.text.encodings import encoding_advice

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
    """The text, or what is wrong with it and where."""
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
        # An escape may stand for what a text file cannot contain: NUL, half a surrogate pair.
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
