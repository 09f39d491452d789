"""The terminal: text without control characters, plain tables, and long work as a bar or as lines."""

from __future__ import annotations

import codecs
import dataclasses
import io
import json
import sys
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

T = TypeVar("T")

ESCAPE = "litebert-escape"
_PICTURES = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"}  # rich drops a bare \r
_VISIBLE = {**_PICTURES, 0x7F: "␡", **dict.fromkeys(range(0x80, 0xA0), "\ufffd")}
_JSON_LEAVES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def visible(value: T) -> T:
    """Text, or data with texts inside, with a sign for each control character: "\\x1b[31m" -> "␛[31m"."""
    seen: Any = value
    if isinstance(value, str):
        seen = value.translate(_VISIBLE)
    elif isinstance(value, dict):
        seen = {visible(key): visible(item) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        seen = type(value)(map(visible, value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        seen = dataclasses.replace(value, **{field.name: visible(getattr(value, field.name)) for field in fields})
    return cast(T, seen)


def one_line_json(data: object) -> str:
    """JSON in one readable line; json.dumps alone would leave the control characters from 127 on as they are."""
    return json.dumps(data, ensure_ascii=False).translate(_JSON_LEAVES)


def make_table(*columns: str, left: int = 1, unbroken: Collection[str] = ()) -> Table:
    """A table without lines: `left` columns of words, then numbers; `unbroken` columns are never folded."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        side = "left" if number < left else "right"
        table.add_column(name, justify=side, overflow="fold", no_wrap=name in unbroken)  # type: ignore[arg-type]
    return table


def print_facts(rows: Iterable[tuple[str, str]]) -> None:
    """One line per fact: its name in bold, and its value."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    Console(highlight=False).print(table)


class ProgressView:
    """Progress on stderr: a bar on a terminal, elsewhere a line every few seconds and at each new stage."""

    interval = 5.0

    def __enter__(self) -> ProgressView:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        self.stage = ""
        self.shown = time.monotonic()
        self.bar: Progress | None = None
        console = Console(stderr=True)
        if console.is_terminal:
            texts = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
            columns = (SpinnerColumn(), texts[0], BarColumn(), TaskProgressColumn(), texts[1], TimeElapsedColumn())
            self.bar = Progress(*columns, console=console, transient=True)
            self.task = self.bar.add_task("", total=None, note="")
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Show how far a stage is; a total of 0 is unknown."""
        is_new = stage != self.stage
        self.stage = stage
        if self.bar is not None:
            if is_new:  # a new task: the old one keeps its total
                self.bar.remove_task(self.task)
                self.task = self.bar.add_task(stage, total=total or None, note=note)
            self.bar.update(self.task, completed=done, total=total or None, note=note)
            return
        now = time.monotonic()
        if is_new or now - self.shown >= self.interval:
            self.shown = now
            share = f" {done / total:.0%}" if total else ""
            print(f"{stage}{share}{', ' if note else ''}{note}", file=sys.stderr, flush=True)


def escape_what_stdout_lacks() -> None:
    """Write "é" as "\\u00e9" where the output is ASCII, instead of failing; inside of JSON that is the same text."""
    codecs.register_error(ESCAPE, _escape)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=ESCAPE)


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return json.dumps(lacking)[1:-1], error.end
