"""`litebert evaluate`: fine-tuned models on labelled data, or a pretrained one on raw text or minimal pairs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli import app
from litebert.cli.options import (
    Device,
    Json,
    as_option,
    check_data,
    check_files,
    check_models,
    check_out_folder,
    check_tokenizer,
    column_pairs,
)
from litebert.cli.terminal import make_table
from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.finetuning.evaluate import Scored
    from litebert.pretraining.evaluate import Intrinsic
    from litebert.pretraining.minimal_pairs import PairScores

# The options of the two jobs, in a panel of the help each.
labelled = partial(typer.Option, rich_help_panel="Fine-tuned model, labelled data")
raw = partial(typer.Option, rich_help_panel="Pretrained model, raw text or minimal pairs")
FLAGS = {"columns": "column"}  # options that are not called like the parameter


@app.command()
def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(help="Model folders or Hub names; several are also scored as an ensemble.", metavar="MODEL..."),
    ],
    data: Annotated[
        str | None, labelled(help="Labelled data: a folder of the task's files, a file, or hub:owner/name.")
    ] = None,
    task: Annotated[str | None, labelled(help="Task of the data; by default the model's own.")] = None,
    column: Annotated[
        list[str] | None, labelled(help="role=name, such as text=review; other columns are guessed.")
    ] = None,
    encoding: Annotated[str | None, labelled(help="Encoding of text files: cp949, gb18030, cp1252, ...")] = None,
    predictions: Annotated[
        Path | None, labelled(help="Folder to write per-example predictions to, and GLUE and SQuAD submissions.")
    ] = None,
    depth: Annotated[
        str | None,
        labelled(help="Answer after this many layers, for models with exits; all: score and time each exit."),
    ] = None,
    threads: Annotated[int | None, labelled(min=0, help="CPU threads; 0: one per available core.")] = None,
    text: Annotated[list[Path] | None, raw(help="Raw text file to score on; may be repeated.")] = None,
    store: Annotated[list[Path] | None, raw(help="Token store (litebert corpus build); may be repeated.")] = None,
    blimp: Annotated[
        Path | None, raw(help="Folder of minimal pairs: .jsonl with sentence_good and sentence_bad.")
    ] = None,
    tokenizer: Annotated[Path | None, raw(help="Folder or file of the tokenizer; by default the model's own.")] = None,
    tokens: Annotated[
        int | None, raw(min=1, help="Score about this many tokens of the text; by default 200,000.")
    ] = None,
    limit: Annotated[int | None, raw(min=1, help="Minimal pairs per file; by default all.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="The longest input, in tokens; by default the limit of the task or model.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score models: fine-tuned ones on labelled data, or a pretrained one on raw text or minimal pairs.

    Fine-tuned: litebert evaluate runs/reviews/best --data test.csv

    Pretrained: litebert evaluate run/model --text other.txt (masked LM, sentence order, next sentence: Table 5), or
    --blimp FOLDER (grammar)
    """
    given: dict[str, Any] = {
        "data": data,
        "text": text or [],
        "store": store or [],
        "blimp": blimp,
        "task": task,
        "columns": column_pairs(column or []),
        "encoding": encoding,
        "predictions": predictions,
        "tokenizer": tokenizer,
        "max_length": max_length,
        "tokens": tokens,
        "limit": limit,
        "threads": threads,
        "depth": _depth(depth),
    }
    from litebert.evaluation import check_job
    from litebert.evaluation import evaluate as score

    check_job(given, len(models), lambda name: as_option(FLAGS.get(name, name)))
    if task is not None:
        from litebert.tasks.read import find_task

        given["task"] = find_task(task)
    check_data(data)
    check_models(*models)
    check_files(*given["text"], *given["store"], blimp)
    check_tokenizer(tokenizer)
    check_out_folder(predictions)
    scores: Any = score(models, device=device, **given)
    if isinstance(scores, list):
        for note in scores[0].notes:
            print(note, file=sys.stderr)
        _print_task(scores, predictions, as_json)
    elif as_json:
        print(json.dumps(scores.as_dict(), indent=2))
    elif blimp is not None:
        _print_pairs(scores)
    else:
        _print_intrinsic(scores)


def _depth(depth: str | None) -> int | str | None:
    if depth in (None, "all", "auto"):
        return depth
    if not depth.isdigit():
        raise ConfigError(f"--depth: must be a number of layers, auto or all, not {depth!r}")
    return int(depth)


def _print_task(scored: list[Scored], predictions: Path | None, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "model": one.name,
                "split": e.split.name,
                "examples": len(e.predictions),
                **(
                    {}
                    if one.depth is None
                    else {name: getattr(one, name) for name in ("depth", "mean_depth", "seconds")}
                ),
                "scores": {name: metric.as_dict() for name, metric in e.scores.items()},
                **({"thresholds": dict(e.thresholds)} if e.thresholds else {}),
            }
            for one in scored
            for e in one.evaluations
        ]
        print(json.dumps(rows, indent=2))
        return
    _print_scores(scored)
    if predictions is not None:
        print(f"predictions: {predictions}")


def _print_scores(scored: list[Scored]) -> None:
    from rich.console import Console

    from litebert.tasks.metrics import show_interval, show_value

    timed = any(one.depth is not None for one in scored)
    # At depths there is one model: its name above the table leaves room for the columns.
    first = ("split", "depth", "ms each") if timed else ("model", "split")
    columns = (*first, "metric", "score", "95 % interval", "examples")
    table = make_table(*columns, left=columns.index("score"), unbroken=columns if timed else columns[2:])
    for place, one in enumerate(scored):
        model = one.name if place == 0 or one.name != scored[place - 1].name else ""
        for e in one.evaluations:
            count = f"{len(e.predictions):,}"
            cells = [model, e.split.name]
            if one.seconds is not None:
                total = sum(len(each.predictions) for each in one.evaluations)
                layers = f"auto {one.mean_depth:.2f}" if one.depth == "auto" else str(one.depth)
                cells = [e.split.name, layers, f"{1000 * one.seconds / total:.2f}"]
            if not e.scores:
                table.add_row(*cells, "no labels", "", "", count)
            for name, metric in e.scores.items():
                table.add_row(*cells, name, show_value(metric.value, name), show_interval(metric, name), count)
                cells, count, model = [""] * len(cells), "", ""  # shown once
    console = Console(highlight=False, soft_wrap=True)
    if timed:
        console.print(scored[0].name)
    console.print(table)
    for one in scored:
        for e in one.evaluations:
            for line in _explain_thresholds(e.thresholds, e.task.exit_thresholds if one.depth == "auto" else {}):
                where = f"{one.name}, {e.split.name}" if one.depth is None else f"{e.split.name}, depth {one.depth}"
                console.print(f"{where}: {line}")


def _explain_thresholds(thresholds: Mapping[str, float], earlier: Mapping[int, float]) -> list[str]:
    """The no-answer threshold behind each family of scores; `earlier` are those of exits before full depth."""
    words = {
        "fixed": "scores without a prefix use the fixed no-answer threshold {}",
        "tuned": "tuned_ uses {}, saved with the model (the best on its dev set)",
        "best": "best_ uses {}, the best on these examples: an upper bound",
    }
    shown = {name: f"{threshold:.4g}" for name, threshold in thresholds.items()}
    if earlier and "tuned" in shown:
        shown["tuned"] += "".join(f", {each:.4g} at depth {depth}" for depth, each in sorted(earlier.items()))
    return [words[name].format(number) for name, number in shown.items()]


def _print_intrinsic(scores: Intrinsic) -> None:
    for name, accuracy, count, need in (
        ("masked LM", scores.mlm_accuracy, scores.mlm_count, ""),
        ("sentence order", scores.sop_accuracy, scores.sop_count, " and a document of several sentences"),
        ("next sentence", scores.nsp_accuracy, scores.nsp_count, " and several documents"),
    ):
        missing = f"not scored: needs such a head{need}"
        print(f"{name:15s} " + (missing if accuracy is None else f"{accuracy:6.1%}  of {count:,}"))


def _print_pairs(scores: PairScores) -> None:
    for name, accuracy in [*scores.phenomena.items(), *((f"all of {field}", v) for field, v in scores.fields.items())]:
        print(f"{name:56s} {accuracy:6.1%}")
    pairs = sum(scores.counts.values())
    print(f"{'mean over phenomena':56s} {scores.accuracy:6.1%}  {len(scores.phenomena)} phenomena, {pairs:,} pairs")
    if scores.clipped:
        print(f"{scores.clipped} sentences are longer than the model's limit; only their beginning is scored")
