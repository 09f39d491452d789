"""`litebert evaluate`: what models have learned, from text alone or for a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.early import check_data, check_files, check_models, check_out_folder
from litebert.cli.options import Columns, Encoding, Json, column_pairs
from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.finetuning.evaluate import Scored


@app.command()
def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(help="Model folders or Hub names; several for a task also as an ensemble.", metavar="MODEL..."),
    ],
    task: Annotated[
        str | None, typer.Option(help="Score a fine-tuned model; by default for the task that it was trained for.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The task's folder, a labelled file, or hub:owner/name.")] = None,
    column: Columns = None,
    encoding: Encoding = "utf-8",
    predictions: Annotated[
        Path | None, typer.Option(help="Write what is said about each example here, for servers of GLUE and SQuAD too.")
    ] = None,
    store: Annotated[list[Path] | None, typer.Option(help="A token store; may be given several times.")] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="A text file instead of a store; may be given several times.")
    ] = None,
    blimp: Annotated[
        Path | None, typer.Option(help="A folder of minimal pairs (.jsonl with sentence_good and sentence_bad).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Minimal pairs per file; by default all.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="The tokenizer's folder; by default the model's own.")] = None,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a sequence; by default what the task or the model takes.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="Of a text, score about this many tokens.")] = 200_000,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="Of a CPU, for a task; 0 for all that there are.")] = 0,
    as_json: Json = False,
) -> None:
    """Score models: on a task with --data, or masked LM, sentence order and next sentence on any text (Table 5)."""
    if limit is not None and blimp is None:
        raise ConfigError("--limit counts minimal pairs; give it with --blimp FOLDER")
    if blimp is not None:
        if store or text or task or data or column or predictions or len(models) > 1:
            raise ConfigError("--blimp scores one model on minimal pairs; leave out the other kinds of data and models")
        _evaluate_pairs(models[0], blimp, tokenizer, limit, device, as_json)
    elif store or text:
        if task or data or column or predictions or len(models) > 1:
            raise ConfigError(
                "--store and --text score one model on text; leave out --task, --data, --column, --predictions and "
                "other models"
            )
        if encoding != "utf-8":
            raise ConfigError(
                f"--encoding: is for labelled files (--data); text must be UTF-8: iconv -f {encoding} -t utf-8 FILE"
            )
        _evaluate_text(models[0], store or [], text or [], tokenizer, length, tokens, device, as_json)
    elif task or data:
        _evaluate_task(models, task, data, column or [], encoding, length, predictions, device, threads, as_json)
    else:
        raise ConfigError(
            "say what to score on: --data FILE for a task, --text FILE or --store FOLDER for text, "
            "--blimp FOLDER for minimal pairs"
        )


def _evaluate_task(
    models: list[str],
    task: str | None,
    data: str | None,
    columns: list[str],
    encoding: str,
    length: int | None,
    predictions: Path | None,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    from litebert.tasks.read import find_task

    if task is not None:
        task = find_task(task)
    check_data(data)
    check_models(*models)
    check_out_folder(predictions)
    from litebert.finetuning.evaluate import evaluate_task

    scored = evaluate_task(
        models,
        task=task,
        data=data,
        columns=column_pairs(columns),
        encoding=encoding,
        max_length=length,
        predictions=predictions,
        device=device,
        threads=threads,
    )
    if as_json:
        rows = [
            {
                "model": one.name,
                "split": e.split.name,
                "examples": len(e.predictions),
                "scores": {name: metric.as_dict() for name, metric in e.scores.items()},
                **({"thresholds": dict(e.thresholds)} if e.thresholds else {}),
            }
            for one in scored
            for e in one.evaluations
        ]
        print(json.dumps(rows, indent=2))
    else:
        _print_scores(scored)
        if predictions is not None:
            print(f"predictions: {predictions}")


def _print_scores(scored: list[Scored]) -> None:
    from rich.console import Console
    from rich.table import Table

    from litebert.finetuning.results import show_interval, show_value

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("model", "split", "metric", "score", "95 % interval", "examples"):
        table.add_column(column, justify="left" if column in ("model", "split", "metric") else "right", overflow="fold")
    for one in scored:
        model = one.name
        for e in one.evaluations:
            split, count = e.split.name, f"{len(e.predictions):,}"
            if not e.scores:
                table.add_row(model, split, "no labels", "", "", count)
            for name, metric in e.scores.items():
                table.add_row(model, split, name, show_value(metric.value, name), show_interval(metric, name), count)
                model = split = count = ""  # said once
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for one in scored:
        for e in one.evaluations:
            for line in _explain_thresholds(e.thresholds):
                console.print(f"{one.name}, {e.split.name}: {line}")


def _explain_thresholds(thresholds: Mapping[str, float]) -> list[str]:
    """At which no-answer score a question is left without an answer, for each family of scores."""
    words = {
        "fixed": "scores without a prefix are at the fixed no-answer threshold {}",
        "tuned": "tuned_ is at {}, which the model was saved with (the best on the dev set of its training)",
        "best": "best_ is at {}, the best on these very examples: an upper bound",
    }
    return [words[name].format(f"{threshold:.4g}") for name, threshold in thresholds.items()]


def _evaluate_text(
    model: str,
    stores: list[Path],
    texts: list[Path],
    tokenizer: Path | None,
    length: int | None,
    tokens: int,
    device: str,
    as_json: bool,
) -> None:
    if tokens < 1:
        raise ConfigError(f"--tokens: must be at least 1, got {tokens}")
    check_models(model)
    check_files(*stores, *texts, tokenizer)
    from litebert.pretraining.evaluate import evaluate_model

    scores = evaluate_model(
        model, stores=stores, texts=texts, tokenizer=tokenizer, length=length, num_tokens=tokens, device=device
    )
    if as_json:
        print(json.dumps(scores.as_dict(), indent=2))
        return
    for name, accuracy, count in (
        ("masked LM", scores.mlm_accuracy, scores.mlm_count),
        ("sentence order", scores.sop_accuracy, scores.sop_count),
        ("next sentence", scores.nsp_accuracy, scores.nsp_count),
    ):
        print(f"{name:15s} " + ("no such head" if accuracy is None else f"{accuracy:6.1%}  of {count:,}"))


def _evaluate_pairs(
    model: str, folder: Path, tokenizer: Path | None, limit: int | None, device: str, as_json: bool
) -> None:
    check_models(model)
    check_files(folder, tokenizer)
    from litebert.pretraining.minimal_pairs import evaluate_pairs

    scores = evaluate_pairs(model, folder, tokenizer, limit, device)
    if as_json:
        print(json.dumps(scores.as_dict(), indent=2))
        return
    for name, accuracy in [*scores.phenomena.items(), *((f"all of {field}", v) for field, v in scores.fields.items())]:
        print(f"{name:56s} {accuracy:6.1%}")
    pairs = sum(scores.counts.values())
    print(f"{'mean over phenomena':56s} {scores.accuracy:6.1%}  {len(scores.phenomena)} phenomena, {pairs:,} pairs")
    if scores.clipped:
        print(f"{scores.clipped} sentences are longer than the model's limit and judged by their beginning")
