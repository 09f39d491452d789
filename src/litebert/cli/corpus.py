"""`litebert corpus ...`: from text files to a token store."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from litebert.cli import app
from litebert.cli.early import check_out_folder
from litebert.cli.groups import CommandGroup
from litebert.cli.options import Json
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.text.build import BuildReport, Progress

corpus_app = typer.Typer(cls=CommandGroup, help="Build and look at token stores.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")


@corpus_app.command()
def build(
    sources: Annotated[list[str], typer.Argument(help="Files, folders, patterns, or - for standard input.")],
    tokenizer: Annotated[Path, typer.Option(help="Folder or file of the tokenizer.")],
    out: Annotated[Path, typer.Option(help="Folder of the store.")],
    format: Annotated[
        Literal["auto", "lines", "paragraphs", "jsonl", "parquet", "wikiextractor", "wikiextractor-json"],
        typer.Option(help="lines: one sentence per line. paragraphs: lines are split into sentences."),
    ] = "auto",
    text_field: Annotated[str, typer.Option(help="Field of JSON lines, column of Parquet.")] = "text",
    language: Annotated[str, typer.Option(help="For splitting into sentences.")] = "auto",
    workers: Annotated[int, typer.Option(help="Processes; 0: one per core.")] = 0,
    on_error: Annotated[
        Literal["stop", "skip"], typer.Option(help="skip: leave bad documents out and count them.")
    ] = "stop",
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Drop exact duplicates of documents.")] = False,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="ray: on a cluster, part by part.")] = "local",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store that differs.")] = False,
    as_json: Json = False,
) -> None:
    """Turn text into a token store; run again after an interruption, it goes on where it stopped."""
    check_out_folder(out)
    from litebert.text.build import BuildOptions, build_store

    options = BuildOptions(format=format, text_field=text_field, language=language, deduplicate=deduplicate)
    with ProgressView() as view:
        report = build_store(
            sources,
            tokenizer,
            out,
            options,
            workers=workers,
            on_error=on_error,
            engine=engine,
            overwrite=overwrite,
            on_progress=view.update,
        )
    if as_json:
        from dataclasses import asdict

        print(json.dumps({"store": str(out), **asdict(report)}, indent=2, ensure_ascii=False))
    else:
        print_report(report, out)


@corpus_app.command()
def verify(
    stores: Annotated[list[Path], typer.Argument(help="Folders of token stores.")],
    tokenizer: Annotated[Path | None, typer.Option(help="Check that it is the one they were built with.")] = None,
    as_json: Json = False,
) -> None:
    """Read every byte of token stores and compare with the checksums; lists all damaged files."""
    from rich.console import Console

    from litebert.text.store import TokenStore, find_damage
    from litebert.text.tokenizer import Tokenizer

    vocabulary = None if tokenizer is None else Tokenizer.load(tokenizer)
    found: dict[str, list[str]] = {}
    for store in stores:
        began = time.monotonic()
        with Console(stderr=True).status(str(store)) as status:
            damage = found[str(store)] = find_damage(store, lambda file: status.update(f"reading {file}"))
        if not damage:
            opened = TokenStore.open(store, vocabulary)
            if not as_json:
                size = sum(part["bytes"] for part in opened.manifest["parts"])
                counts = f"{opened.num_documents:,} documents, {opened.num_tokens:,} tokens, {size:,} bytes"
                print(f"{store}: whole ({counts}, {time.monotonic() - began:.1f} s)")
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    if any(found.values()):
        raise DataError("\n  ".join(["damaged:", *(message for damage in found.values() for message in damage)]))


class ProgressView:
    """A bar on a terminal, a line every few seconds elsewhere; both on stderr."""

    interval = 5.0

    def __enter__(self) -> ProgressView:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self.began = self.shown = time.monotonic()
        self.bar: Progress | None = None
        console = Console(stderr=True)
        if console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.fields[source]}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[speed]}"),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=console, transient=True)
            self.task = self.bar.add_task("", total=None, source="", speed="")
            self.bar.start()
        return self

    def update(self, progress: Progress) -> None:
        """Show how far a build is."""
        now = time.monotonic()
        speed = f"{progress.text_bytes / 1e6 / max(now - self.began, 1e-3):.1f} MB/s"
        if self.bar is not None:
            name = Path(progress.source).name
            total = progress.total_bytes or None
            self.bar.update(self.task, completed=progress.done_bytes, total=total, source=name, speed=speed)
        elif now - self.shown >= self.interval:
            self.shown = now
            share = f"{progress.done_bytes / progress.total_bytes:4.0%}" if progress.total_bytes else "    "
            text = f"{progress.text_bytes / 1e6:,.0f} MB of text"
            print(f"{share}  {text}, {speed}  {progress.source}", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def print_report(report: BuildReport, out: Path) -> None:
    """The summary of a build as a table, with a few of the problems that were skipped."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("store", str(out))
    table.add_row("documents", f"{report.documents:,}")
    table.add_row("sentences", f"{report.sentences:,}")
    table.add_row("tokens", f"{report.tokens:,}")
    table.add_row("text", f"{report.text_bytes:,} bytes")
    table.add_row("read as", ", ".join(f"{name} ({_files(count)})" for name, count in report.formats.items()))
    if report.duplicates:
        table.add_row("duplicates", f"{report.duplicates:,} documents dropped")
    table.add_row("skipped", ", ".join(f"{n:,} {kind}" for kind, n in report.skipped.items()) or "nothing")
    if report.parts_reused == report.parts:
        table.add_row("parts", f"{report.parts:,}, all built before")
    elif report.parts_reused:
        table.add_row("parts", f"{report.parts:,}, of which {report.parts_reused:,} were finished before")
    table.add_row("seconds", f"{report.seconds:.1f}")
    Console(highlight=False).print(table)
    for note in report.notes:
        print(note, file=sys.stderr)
    for problem in report.problems:
        print(f"skipped: {problem}", file=sys.stderr)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"
