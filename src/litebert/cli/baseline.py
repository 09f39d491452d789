"""`litebert baseline`: what simpler methods score on the same files, so that one sees what a model adds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.options import Columns, Encoding, Json, TaskFolder, TrainFile, column_pairs
from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.ladder.climb import Ladder

MASKED_LM = "masked-lm"


@app.command()
def baseline(
    task: Annotated[
        str,
        typer.Option(help="A public task (sst-2, race, ...), the kind of your own (classification, ...), masked-lm."),
    ],
    kind: Annotated[
        list[str] | None,
        typer.Option(help="bow, tfidf, ngram, word2vec, fasttext; several (also with commas), or all, the default."),
    ] = None,
    train: TrainFile = None,
    dev: Annotated[Path | None, typer.Option(help="What is scored; for masked-lm a text file.")] = None,
    test: Annotated[Path | None, typer.Option(help="Scored too where it has labels.")] = None,
    data: TaskFolder = None,
    column: Columns = None,
    encoding: Encoding = "utf-8",
    text: Annotated[
        list[Path] | None,
        typer.Option(help="Text to learn word vectors (or n-grams) from; may be given several times."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", "--model", help="A run's or a model's folder, as a further row; may be repeated."),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="masked-lm without a model: whose pieces are guessed.")] = None,
    max_train: Annotated[int, typer.Option(help="Learn from so many training examples, drawn at random (0: all).")] = 0,
    tokens: Annotated[int, typer.Option(help="masked-lm: score about this many tokens.")] = 200_000,
    seed: Annotated[int, typer.Option(min=0, help="Decides samples, word vectors and intervals.")] = 0,
    as_json: Json = False,
) -> None:
    """Score the majority class, bag of words, TF-IDF, word vectors ... and models, in one table."""
    if tokens < 1:
        raise ConfigError(f"--tokens: must be at least 1, got {tokens}")
    kinds = [name for part in kind or ["all"] for name in part.split(",") if name]
    if task == MASKED_LM:
        from litebert.cli.baseline_masks import score_masks

        if train or test or data or column or max_train:
            raise ConfigError(
                "masked-lm takes text: --text FILE to count, --dev FILE to score; no --train, --data, ..."
            )
        ladder = score_masks(kinds, text or [], dev, against or [], tokenizer, tokens, seed)
    else:
        if tokenizer:
            raise ConfigError("--tokenizer: is for masked-lm; words of a task are found without one")
        ladder = _climb(
            task, kinds, (train, dev, test), data, column or [], encoding, text or [], against or [], max_train, seed
        )
    if as_json:
        print(json.dumps(ladder.as_dict(), indent=2))
    else:
        show_ladder(ladder)


def _climb(
    task: str,
    kinds: list[str],
    files: tuple[Path | None, Path | None, Path | None],
    folder: str | None,
    column: list[str],
    encoding: str,
    text: list[Path],
    against: list[str],
    max_train: int,
    seed: int,
) -> Ladder:
    from rich.console import Console

    from litebert.cli.baseline_against import read_rungs
    from litebert.ladder.climb import climb
    from litebert.ladder.vectors import TextFiles
    from litebert.tasks.read import read_task

    train, dev, test = files
    columns = column_pairs(column)
    data = read_task(task, folder=folder, train=train, dev=dev, test=test, columns=columns or None, encoding=encoding)
    # Runs are looked at first: a wrong folder should not be told after minutes of word vectors.
    models = read_rungs(against, data, dev or folder or test, columns, encoding)
    with Console(stderr=True).status("") as status:
        ladder = climb(
            data,
            kinds,
            corpus=TextFiles(text) if text else None,
            max_train=max_train,
            seed=seed,
            on_start=lambda kind: status.update(kind),
        )
    return dataclasses.replace(ladder, rungs=(*ladder.rungs, *models))


def show_ladder(ladder: Ladder) -> None:
    """One row per method (and split, where there are several), one column per metric."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from litebert.ladder.show import rows_of

    header, rows = rows_of(ladder)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in header:
        is_name = name in ("method", "split")
        table.add_column(name, justify="left" if is_name else "right", overflow="fold", no_wrap=not is_name)
    for row in rows:
        table.add_row(*map(Text, row))
    sizes = ", ".join(f"{count:,} {split}" for split, count in ladder.examples.items())
    brackets = "; in brackets 95 % intervals" if any("(" in cell for row in rows for cell in row) else ""
    legend = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, style="dim")
    legend.add_row(ladder.task, f"{sizes}{brackets}; s: seconds of one core")
    for rung in ladder.rungs:
        legend.add_row(Text(rung.name), Text(rung.what))
    console = Console(highlight=False)
    console.print(table)
    console.print()
    console.print(legend)
    for note in ladder.notes:
        console.print(Text(note, style="dim"))
