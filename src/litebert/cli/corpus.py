"""`litebert corpus ...`: from text files to a token store."""

from __future__ import annotations

import typer

from litebert.cli import app

corpus_app = typer.Typer(help="Build and look at token stores.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")
