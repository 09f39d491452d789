"""`litebert report RUN...`: pretraining runs, or a fine-tuning run, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litebert.cli import app


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are compared on one page.", metavar="RUN")],
    out: Annotated[
        Path | None, typer.Option(help="The page; by default report.html, in the run folder if there is only one.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Write one self-contained HTML page: curves, scores, filled masks, hardware and config of some runs.

    The folder of a reproduction (`litebert reproduce`) gives a page with its tables, verdicts and figures.
    """
    if len(runs) == 1 and (runs[0] / "reproduction.json").exists():
        from litebert.reproduce.page import write_outcomes

        _show(write_outcomes(runs[0], out), open_page)
        return
    from litebert.finetune.page import is_finetuning, write_report_of
    from litebert.report.page import write_page
    from litebert.report.runs import read_runs
    from litebert.report.summary import print_summary

    if len(runs) == 1 and is_finetuning(runs[0]):
        page = write_report_of(runs[0], out)
    else:
        found = read_runs(runs)
        page = write_page(found, out or (found[0].folder if len(found) == 1 else Path()) / "report.html")
        print_summary(found)
    _show(page, open_page)


def _show(page: Path, open_page: bool) -> None:
    print(f"report: {page}")
    if open_page:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            print("no browser here; open the file in one")
