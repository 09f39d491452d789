"""Options that several commands share, and checks of their values before torch is loaded, which takes seconds.

An option name means the same in every command; `tests/flow/test_options.py` lists the meanings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from litebert.errors import ConfigError, DataError

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, or a GPU by number: cuda:1.")]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads; 0: one per available core.")]
Runtime = Annotated[str, typer.Option(help="auto, torch, or for an exported folder onnx, onnx-fp32, onnx-int8.")]
Task = Annotated[
    str | None,
    typer.Option(help="A public task (sst-2, squad-2.0, race, ...) or the kind of your data (classification, ...)."),
]
TrainFile = Annotated[Path | None, typer.Option(help="Training file: CSV, TSV, JSONL, JSON or Parquet.")]
LabelledData = Annotated[
    str | None, typer.Option(help="Labelled data: a folder of the task's files, a file, or hub:owner/name.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="role=name, such as text=review; other columns are guessed.")
]
Encoding = Annotated[str, typer.Option(help="Encoding of text files: cp949, gb18030, cp1252, ...")]
Store = Annotated[list[Path] | None, typer.Option(help="Token store (litebert corpus build); may be repeated.")]
TokenizerFolder = Annotated[
    Path | None, typer.Option(help="Folder or file of the tokenizer; by default the model's own.")
]
StoreTokenizer = Annotated[Path | None, typer.Option(help="Folder or file of the tokenizer that built the stores.")]
MicroBatch = Annotated[int, typer.Option(min=1, help="Tokens per micro-batch on one device.")]
ScoredTokens = Annotated[int, typer.Option(min=1, help="Score about this many tokens of the text.")]
TextField = Annotated[str, typer.Option(help="Field of JSON lines, or column of Parquet.")]
Resume = Annotated[str, typer.Option(help="auto (resume if there is a checkpoint), never or must.")]
ListPresets = Annotated[bool, typer.Option("--list", help="List the choices and exit.")]


def pairs(settings: list[str], option: str, example: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """["text=review"] -> {"text": "review"}; `example` is shown where a setting is not of this form."""
    found: dict[str, str] = {}
    for setting in settings:
        name, _, value = (part.strip() for part in setting.partition("="))
        if not name or not value:
            raise ConfigError(f"{option} {setting}: expected {form}, for example {option} {example}")
        if name in found:
            raise ConfigError(f"{option}: {name} is given twice, {found[name]!r} and {value!r}")
        found[name] = value
    return found


def column_pairs(settings: list[str]) -> dict[str, str]:
    """Columns by role: ["text=review"] -> {"text": "review"}."""
    return pairs(settings, "--column", "text=review", "role=name")


def as_option(name: str) -> str:
    """A setting as the option of the same name: "head_only" -> "--head-only"."""
    return f"--{name}".replace("_", "-")


ALONE = "default"  # the value of `--adapter` without one


class AdapterCommand(TyperCommand):
    """A command whose `--adapter` may go without its value, which no option of Typer's can."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, for running the command as well as for completing it in the shell."""
        return super().parse_args(ctx, fill_in(args, "--adapter", ALONE))


def fill_in(arguments: Sequence[str], option: str, value: str) -> list[str]:
    """Give an option that stands alone its value: ["--adapter", "--out", "a"] -> ["--adapter=8", "--out", "a"].

    What follows it is its value unless that is an option; a negative number is a value, which the command refuses.
    """
    found = list(arguments)
    end = found.index("--") if "--" in found else len(found)
    for i in range(end):
        following = found[i + 1] if i + 1 < end else "-"
        if found[i] == option and re.match(r"-(?!\d)", following):
            found[i] = f"{option}={value}"
    return found


def check_files(*paths: Path | str | None) -> None:
    """Every given path exists."""
    for path in paths:
        if path is not None and not Path(path).exists():
            raise DataError(f"{path}: no such file or folder")


def check_tokenizer(path: Path | None) -> None:
    """A tokenizer exists: a path, or default."""
    from litebert.remote import resolve_default

    check_files(None if path is None else resolve_default(path))


def check_out_file(path: Path | None) -> None:
    """A file can be written there; missing folders are created later."""
    if path is not None:
        if path.is_dir():
            raise DataError(f"{path}: is a folder; name a file in it")
        _check_writable(path, path.parent)


def check_out_folder(path: Path | None) -> None:
    """A folder can be written there."""
    if path is not None:
        _check_writable(path, path)


def _check_writable(path: Path, folder: Path) -> None:
    nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise DataError(f"{path}: cannot write: {nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise DataError(f"{path}: cannot write: no permission in {nearest}")


def check_data(data: str | None) -> None:
    """Labelled data exist, unless they are a data set on the Hub."""
    if data is not None and not data.startswith("hub:"):
        check_files(data)


def check_models(*sources: str) -> None:
    """Every model exists here, or may be on the Hub."""
    from litebert.remote import check_source

    for source in sources:
        check_source(source)


def check_stores(stores: Iterable[Path | str], tokenizer: Path | str | None) -> None:
    """Every store opens, and was built with the tokenizer, if one is given."""
    from litebert.text.store import TokenStore
    from litebert.text.tokenizer import Tokenizer

    vocabulary = None if tokenizer is None else Tokenizer.load(tokenizer)
    for store in stores:
        TokenStore.open(store, vocabulary)
