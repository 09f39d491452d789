"""`litebert report RUN...`: pretraining runs, or fine-tuning runs, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litebert.cli import app
from litebert.errors import DataError


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
    from litebert.finetuning.page import is_finetuning, write_report_of

    finetuned = [folder for folder in runs if is_finetuning(folder)]
    if len(runs) == len(finetuned) == 1:
        page = write_report_of(runs[0], out)
    elif len(runs) == len(finetuned):
        page = _compare_finetuning(runs, out)
    else:
        page = _report_pretraining(runs, out)
    _show(page, open_page)


def _report_pretraining(folders: list[Path], out: Path | None) -> Path:
    from litebert.report.page import write_page
    from litebert.report.runs import read_runs
    from litebert.report.summary import print_summary

    runs = read_runs(folders)
    if others := [run.name for run in runs if run.facts.get("kind") == "finetune"]:
        raise DataError(
            f"{', '.join(others)}: fine-tuning among pretraining, with no score in common; report them apart"
        )
    page = write_page(runs, out or (runs[0].folder if len(runs) == 1 else Path()) / "report.html")
    print_summary(runs)
    return page


def _compare_finetuning(folders: list[Path], out: Path | None) -> Path:
    from litebert.finetuning.comparison import expand, group_runs, print_groups
    from litebert.finetuning.page import write_comparison_page
    from litebert.report.runs import read_runs

    runs = read_runs(expand(folders))
    page = write_comparison_page(runs, out or Path("report.html"))
    print_groups(group_runs(runs))
    return page


def _show(page: Path, open_page: bool) -> None:
    print(f"report: {page}")
    if open_page:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            print("no browser here; open the file in one")
