"""`litebert adapter`: adapters and plain model folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litebert.cli import app
from litebert.cli.early import check_files, check_out_folder

adapter = typer.Typer(help="Adapters that `litebert finetune --adapter RANK` (or PEFT) made.", no_args_is_help=True)
app.add_typer(adapter, name="adapter")


@adapter.command()
def merge(
    folder: Annotated[Path, typer.Argument(help="An adapter's folder, such as RUN/adapter.")],
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    base: Annotated[str | None, typer.Option(help="The base model; by default the one that the adapter names.")] = None,
) -> None:
    """Write an adapter and its base as one plain model folder, for export, transformers and everything else."""
    check_files(folder)
    check_out_folder(out)
    from litebert.predict.load import merge_folder

    print(f"model: {merge_folder(folder, out, base)}")
