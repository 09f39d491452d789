"""`litebert corpus generate`: text made by code, for trying things out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from litebert.cli.corpus import corpus_app
from litebert.cli.early import check_out_file


@corpus_app.command()
def generate(
    documents: Annotated[int, typer.Option(min=1, help="How many.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Another seed, other documents.")] = 0,
    split: Annotated[
        Literal["train", "held-out"], typer.Option(help="No held-out sentence ever stands in a train corpus.")
    ] = "train",
    excerpts: Annotated[
        bool, typer.Option("--excerpts", help="Stories begin and end anywhere, which teaches order and not places.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Text file to write; standard output if left out.")] = None,
) -> None:
    """Write short stories made by code: one sentence per line, a blank line between documents."""
    check_out_file(out)
    from litebert.files import write_atomic
    from litebert.text.generate import generate_documents, join_documents

    stories = generate_documents(documents, seed=seed, split=split, excerpts=excerpts)
    if out is None:
        for number, story in enumerate(stories):  # one by one: `| head` need not wait for all
            print(("\n" if number else "") + join_documents([story]), end="")
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, join_documents(stories))
        print(f"{out}: {documents:,} documents")
