"""`litebert score`: a model over many files, resumable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from litebert.cli import app
from litebert.cli.options import Device, Encoding, Json, Runtime, check_models, pairs
from litebert.cli.terminal import ProgressView

if TYPE_CHECKING:
    from litebert.bulk.score import Progress


@app.command()
def score(
    model: Annotated[str, typer.Argument(help="A model folder, a Hub name, or the package's default.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders, globs or addresses (s3://...): .parquet .csv .tsv .jsonl, else one text per line; "
            "also .gz, .zst, .xz, .bz2."
        ),
    ],
    out: Annotated[str, typer.Option(help="Folder to write the Parquet parts to, also an address.")],
    ability: Annotated[
        str | None, typer.Option(help="What to ask for: embed, classify, ...; default: what the model was trained for.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column of the inputs to read: NAME for the text, or for any input INPUT=NAME."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the ability as key=value, such as pooling=cls.")
    ] = None,
    keep: Annotated[str | None, typer.Option(help="Columns of the input to write: a,b (all by default).")] = None,
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Compute equal rows of a part once.")] = False,
    part_rows: Annotated[int, typer.Option(min=0, help="Rows per part; 0: 2,048 on a CPU, 8,192 on a GPU.")] = 0,
    max_chars: Annotated[int, typer.Option(min=1, help="A longer text gets an error instead of a result.")] = 1_000_000,
    encoding: Encoding = "utf-8",
    engine: Annotated[Literal["local", "ray"], typer.Option(help="local, or ray: on a cluster.")] = "local",
    workers: Annotated[
        int, typer.Option(min=0, help="Worker processes; 0: one per core (on a GPU cluster four per GPU).")
    ] = 0,
    worker_threads: Annotated[int, typer.Option(min=1, help="CPU threads of each worker.")] = 1,
    runtime: Runtime = "auto",
    device: Device = "auto",
    pass_tokens: Annotated[
        int, typer.Option(min=0, help="Tokens of one pass through the model; 0: 8,192, and more on a GPU with exits.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Ask a model about every row of many files: the rows with its answers become Parquet parts in a folder.

    Rerun the same command to resume after a kill: finished parts are kept. A row that is unreadable, empty or too long
    gets a message in the column `error`.

    Example: litebert score default texts.csv --ability embed --column body --out vectors
    """
    columns = pairs([name if "=" in name else f"text={name}" for name in column or []], "--column", "text=review")
    options = {name: _value(value) for name, value in pairs(settings or [], "--set", "pooling=cls").items()}
    check_models(model)
    from litebert.bulk.score import score as run
    from litebert.train.log import short_count, short_time

    with ProgressView() as view:
        summary = run(
            model,
            inputs,
            out,
            ability=ability,
            columns=columns,
            options=options,
            keep=None if keep is None else [name for name in keep.split(",") if name],
            dedupe=dedupe,
            part_rows=part_rows,
            max_chars=max_chars,
            encoding=encoding,
            engine=engine,
            workers=workers,
            runtime=runtime,
            device=device,
            worker_threads=worker_threads,
            max_tokens=pass_tokens,
            progress=None if as_json else lambda progress: _show_progress(view, progress),
        )
    if as_json:
        from dataclasses import asdict

        print(json.dumps(asdict(summary), ensure_ascii=False))
        return
    before = summary.rows - summary.scored_rows
    resumed = f" ({before:,} of them in earlier runs)" if before else ""
    parts = "1 part" if summary.parts == 1 else f"{summary.parts:,} parts"
    files = "1 file" if summary.inputs == 1 else f"{summary.inputs:,} files"
    every = "1 row" if summary.rows == 1 else f"{summary.rows:,} rows"
    print(f"{summary.out}: {every} in {parts} from {files}{resumed}")
    if summary.scored_rows:
        rates = f"{short_count(summary.scored_rows / summary.seconds)} rows/s"
        tokens = f"{short_count(summary.scored_tokens / summary.seconds)} tokens/s"
        print(f"{rates}, {tokens}, {short_time(summary.seconds)}")
    if summary.errors:
        rows = "1 row has" if summary.errors == 1 else f"{summary.errors:,} rows have"
        print(f"{rows} an error instead of a result, see the column `error`")
        for example in summary.examples:
            print(f"  {example}")


def _show_progress(view: ProgressView, progress: Progress) -> None:
    from litebert.train.log import short_count, short_time

    speed = f"{short_count(progress.rows_per_second)} rows/s, {short_count(progress.tokens_per_second)} tokens/s"
    left = "" if progress.seconds_left is None else f", {short_time(progress.seconds_left)} left"
    noun = "error" if progress.errors == 1 else "errors"
    errors = f", {progress.errors:,} {noun}" if progress.errors else ""
    view.update("scoring", round(1000 * progress.share), 1000, f"{progress.rows:,} rows, {speed}{left}{errors}")


def _value(text: str) -> Any:
    """A number or a flag if it reads as one, else the text: "3" -> 3, "true" -> True, "cls" -> "cls"."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
