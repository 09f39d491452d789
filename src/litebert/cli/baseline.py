"""`litebert baseline`: what simple methods score on the same data, to see what a model adds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.options import (
    Columns,
    Encoding,
    Json,
    LabelledData,
    ScoredTokens,
    TokenizerFolder,
    TrainFile,
    check_files,
    check_models,
    column_pairs,
)
from litebert.cli.terminal import make_table
from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.baselines.table import BaselineTable

MASKED_LM = "masked-lm"


@app.command()
def baseline(
    task: Annotated[
        str,
        typer.Option(
            help="A public task (sst-2, race, ...), the kind of your own data (classification, ...), or masked-lm."
        ),
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(help="bow, tfidf, ngram, word2vec, fasttext, several with commas, or all (the default)."),
    ] = None,
    train: TrainFile = None,
    dev: Annotated[Path | None, typer.Option(help="Dev file: the methods are scored on it.")] = None,
    test: Annotated[Path | None, typer.Option(help="Test file: scored too if it has labels.")] = None,
    data: LabelledData = None,
    column: Columns = None,
    encoding: Encoding = "utf-8",
    train_text: Annotated[
        list[Path] | None,
        typer.Option(help="Raw text file to train word vectors or count n-grams on; may be repeated."),
    ] = None,
    text: Annotated[Path | None, typer.Option(help="masked-lm: raw text file to score on.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A run, model folder or Hub name to add as a row; may be repeated.")
    ] = None,
    tokenizer: TokenizerFolder = None,
    max_train: Annotated[int, typer.Option(help="Fit on a random sample of this many training examples (0: all).")] = 0,
    tokens: ScoredTokens = 200_000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    as_json: Json = False,
) -> None:
    """Score the majority class, bag of words, TF-IDF, word vectors and models in one table."""
    kinds = [name for part in method or ["all"] for name in part.split(",") if name]
    texts, models = train_text or [], model or []
    if task == MASKED_LM:
        if train or dev or test or data or column or max_train:
            raise ConfigError(
                "masked-lm takes --train-text FILE (to count n-grams in) and --text FILE (to score on), "
                "not --train, --dev, --test, --data, --column or --max-train"
            )
        check_files(*texts, text)
        check_models(*models)
        from litebert.baselines.masks import score_masks

        scored = score_masks(kinds, texts, text, models, tokenizer, tokens, seed)
    else:
        for name, given in (("--tokenizer", tokenizer), ("--text", text)):
            if given:
                hint = "; word vectors are trained on --train-text" if name == "--text" else ""
                raise ConfigError(f"{name}: goes with --task masked-lm only{hint}")
        scored = _score(task, kinds, (train, dev, test), data, column or [], encoding, texts, models, max_train, seed)
    if as_json:
        print(json.dumps(scored.as_dict(), indent=2))
    else:
        show_table(scored)


def _score(
    task: str,
    kinds: list[str],
    files: tuple[Path | None, Path | None, Path | None],
    folder: str | None,
    column: list[str],
    encoding: str,
    text: list[Path],
    models: list[str],
    max_train: int,
    seed: int,
) -> BaselineTable:
    from rich.console import Console

    from litebert.baselines.features import TextFiles
    from litebert.baselines.table import score_baselines
    from litebert.finetuning.baselines import read_methods
    from litebert.tasks.read import read_task

    train, dev, test = files
    columns = column_pairs(column)
    data = read_task(task, folder=folder, train=train, dev=dev, test=test, columns=columns or None, encoding=encoding)
    # Models are read first: a wrong folder is reported before minutes of training word vectors.
    runs = read_methods(models, data, dev or folder or test, columns, encoding)
    with Console(stderr=True).status("") as status:
        scored = score_baselines(
            data,
            kinds,
            corpus=TextFiles(text) if text else None,
            max_train=max_train,
            seed=seed,
            on_start=lambda kind: status.update(kind),
        )
    return dataclasses.replace(scored, methods=(*scored.methods, *runs))


def show_table(scored: BaselineTable) -> None:
    """Print one row per method and split, one column per metric."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from litebert.baselines.table import rows_of

    header, rows = rows_of(scored)
    table = make_table(*header, left=2, unbroken=header[2:])
    for row in rows:
        table.add_row(*map(Text, row))
    sizes = ", ".join(f"{count:,} {split}" for split, count in scored.examples.items())
    brackets = "; 95 % intervals in brackets" if any("(" in cell for row in rows for cell in row) else ""
    legend = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, style="dim")
    legend.add_row(scored.task, f"{sizes}{brackets}; s: CPU seconds")
    for method in scored.methods:
        legend.add_row(Text(method.name), Text(method.what))
    console = Console(highlight=False)
    console.print(table)
    console.print()
    console.print(legend)
    for note in scored.notes:
        console.print(Text(note, style="dim"))
