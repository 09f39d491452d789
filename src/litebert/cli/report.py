"""`litebert report RUN...`: runs, studies or a reproduction as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litebert.cli import app


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are compared on one page.", metavar="RUN")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default report.html, in the run folder if there is only one.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Write a self-contained HTML page about runs: curves, scores, filled masks, hardware and config.

    For the folder of a reproduction (`litebert reproduce`), a page of its tables, verdicts and figures.
    """
    from litebert.report import write_report

    page = write_report(runs, out, print_scores=True)
    print(f"report: {page}")
    if open_page:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            print("no browser found; open the file yourself")
