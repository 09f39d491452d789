"""`litebert quickstart`: the whole story on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litebert.cli import app
from litebert.cli.early import check_out_folder


@app.command()
def quickstart(
    out: Annotated[Path, typer.Option(help="Folder for corpus, vocabulary, run and report.")] = Path("runs/quickstart"),
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps; fewer are quicker and learn less.")] = None,
    documents: Annotated[int, typer.Option(min=200, help="Documents to generate.")] = 6000,
) -> None:
    """Generate a corpus, train a small ALBERT on it, and show what it learned: three minutes on two cores."""
    check_out_folder(out)
    from litebert.quickstart import quickstart as tell

    tell(out, documents=documents, steps=steps)
