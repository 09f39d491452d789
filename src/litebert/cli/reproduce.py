"""`litebert reproduce`: the paper's tables and figures, one command each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.options import Json, Store, StoreTokenizer, check_files, check_out_folder, check_tokenizer
from litebert.cli.terminal import make_table
from litebert.errors import ConfigError, check_choice

if TYPE_CHECKING:
    from litebert.reproduce.plan import Options
    from litebert.reproduce.reproduction import JudgedTable


@app.command()
def reproduce(
    tables: Annotated[
        list[str] | None, typer.Argument(help="table1 ... table13, figure1, figure2; or all.", metavar="TABLE...")
    ] = None,
    scale: Annotated[str, typer.Option(help="How large the runs are: paper, gpu-hour, gpu-minutes or cpu.")] = "cpu",
    minutes: Annotated[
        float | None, typer.Option("--minutes-per-row", help="Minutes to train each run of a row (one run per seed).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps of each run, instead of minutes.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of runs with different seeds; by default the table's.")
    ] = None,
    store: Store = None,
    more_store: Annotated[
        list[Path] | None, typer.Option(help="Token store of additional data (table7, figure2); may be repeated.")
    ] = None,
    tokenizer: StoreTokenizer = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Folder of data sets (glue/SST-2, squad, race): adds downstream columns.")
    ] = None,
    measure: Annotated[
        list[str] | None, typer.Option(help="Measure only this metric, such as speed; may be repeated.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value in the config of every run, such as optim.lr=5e-4.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write: the runs. To resume, rerun the same command.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at the same time; by default 1, or one per core at the scale cpu.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Train nothing; print runs, tokens and hours.")] = False,
    table_format: Annotated[
        str, typer.Option(help="Format of the printed tables: screen, markdown or latex.")
    ] = "screen",
    as_json: Json = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the choices and exit.")] = False,
) -> None:
    """Reproduce tables of the ALBERT paper at a scale, beside the paper's numbers, with a verdict per claim."""
    if show_list:
        _print_list()
        return
    if not tables:
        raise ConfigError("name a table, such as table5; `litebert reproduce --list` shows all")
    check_choice("--table-format", table_format, ("screen", "markdown", "latex"))
    from litebert.reproduce.paper import NAMES, load_table
    from litebert.reproduce.scale import load_scales

    names = list(NAMES) if tables == ["all"] else list(dict.fromkeys(tables))
    check_choice("--scale", scale, load_scales())
    for name in names:
        load_table(name)
    out = out or Path("runs") / f"{'-'.join(names)}-{scale}"
    check_out_folder(out)
    check_tokenizer(tokenizer)
    check_files(*((store or []) if tokenizer else []), *(more_store or []), tasks)
    if (more_store or tokenizer) and not store:
        raise ConfigError("--more-store and --tokenizer go with --store, the token stores to train on; give it too")
    from litebert.config import override
    from litebert.reproduce.plan import Options as make_options

    override({}, settings or [])  # a malformed key=value is reported before a corpus is built
    options = make_options(seeds, minutes, steps, tuple(settings or ()), tuple(measure or ()), tasks)
    if dry_run:
        _print_estimates(names, scale, options)
        return
    _run(
        names,
        scale,
        out,
        options,
        (tuple(store or ()), tuple(more_store or ()), tokenizer),
        jobs,
        "json" if as_json else table_format,
    )


def _run(
    names: list[str],
    scale: str,
    out: Path,
    options: Options,
    data: tuple[tuple[Path, ...], tuple[Path, ...], Path | None],
    jobs: int | None,
    form: str,
) -> None:
    """Train and judge what is missing, print it, write the page; exit code 1 if a row failed."""
    from litebert.report.reproduction_page import write_reproduction_page
    from litebert.reproduce import CellStopped
    from litebert.reproduce.reproduction import DataChoice, reproduce
    from litebert.train.processes import world_from_environment

    try:
        outcomes = reproduce(names, scale, out, options, DataChoice(*data), jobs, say=_say)
    except CellStopped as stopped:
        _say("stopped: rerun the same command to resume")
        raise typer.Exit(128 + stopped.signal) from None
    if not world_from_environment().is_main:
        return
    page = write_reproduction_page(out)
    _print_outcomes(outcomes, form)
    _say(f"page: {page}")
    if any(outcome.results.problems for outcome in outcomes):
        raise typer.Exit(1)


def _say(text: str) -> None:
    """Progress goes to stderr, so that stdout holds nothing but the tables."""
    print(text, file=sys.stderr, flush=True)


def _print_outcomes(outcomes: list[JudgedTable], form: str) -> None:
    from rich.console import Console

    from litebert.report.reproduction_tables import to_json, to_latex, to_markdown, to_screen

    if form == "json":
        tables = [to_json(outcome) for outcome in outcomes]
        print(json.dumps(tables[0] if len(tables) == 1 else tables, indent=1, ensure_ascii=False))
    elif form == "screen":
        console = Console(highlight=False)
        for outcome in outcomes:
            console.print(to_screen(outcome), "")
    else:
        print("\n".join((to_latex if form == "latex" else to_markdown)(outcome) for outcome in outcomes))


def _print_list() -> None:
    from rich.console import Console

    from litebert.reproduce.paper import NAMES, load_table
    from litebert.reproduce.scale import load_scales

    listed = make_table("name", "title", "what varies", "rows", "seeds", "claims", left=3, unbroken=["name"])
    for name in NAMES:
        table = load_table(name)
        counts = (sum(row.is_run for row in table.rows.values()), table.seeds, len(table.claims))
        listed.add_row(name, table.title, table.varies, *map(str, counts))
    console = Console(highlight=False)
    console.print(listed, "")
    for scale in load_scales().values():
        console.print(f"--scale {scale.name:9s} {scale.about}")


def _print_estimates(names: list[str], scale_name: str, options: Options) -> None:
    from rich.console import Console

    from litebert.report.numbers import count
    from litebert.reproduce.paper import load_table
    from litebert.reproduce.plan import estimate
    from litebert.reproduce.scale import load_scale

    console = Console(highlight=False)
    scale = load_scale(scale_name)
    for name in names:
        table = load_table(name)
        rows, source = estimate(table, scale, options)
        console.print(f"[bold]{table.label}[/bold]. {table.title}, scale {scale.name}")
        listed = make_table("row", "model", "parameters", "runs", "steps", "tokens", "hours", left=2, unbroken=["row"])
        for row in rows:
            counts = (count(row.parameters), str(row.runs), f"{row.steps:,}", count(row.tokens))
            listed.add_row(row.row, row.shape, *counts, _hours(row.hours))
        if rows:
            total = (str(sum(row.runs for row in rows)), "", count(sum(row.tokens for row in rows)))
            listed.add_row("all", "", "", *total, _hours(sum(row.hours for row in rows)), style="bold")
            console.print(listed)
        console.print(f"hours: {source}" if rows else source, "", style="dim")


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.2g}"
