"""Options that several commands have, and what their values mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litebert.errors import ConfigError

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TrainFile = Annotated[Path | None, typer.Option(help="Training file: CSV, TSV, JSONL, JSON or Parquet.")]
TaskFolder = Annotated[str | None, typer.Option(help="A folder with the task's files, or hub:owner/name.")]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="role=name, for example text=review; the rest is guessed.")
]
Encoding = Annotated[str, typer.Option(help="Of text files that are not UTF-8: cp949, gb18030, cp1252, ...")]


def column_pairs(settings: list[str]) -> dict[str, str]:
    """["text=review"] -> {"text": "review"}."""
    pairs = {}
    for setting in settings:
        role, equals, name = setting.partition("=")
        if not equals or not role or not name:
            raise ConfigError(f"--column {setting}: expected role=name, for example --column text=review")
        pairs[role.strip()] = name.strip()
    return pairs
