"""`litebert finetune`: from labelled data to a scored model and its report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from litebert.cli import app
from litebert.cli.options import (
    ALONE,
    AdapterCommand,
    Columns,
    LabelledData,
    ListPresets,
    Resume,
    Task,
    TrainFile,
    as_option,
    check_data,
    check_files,
    check_out_folder,
    column_pairs,
)
from litebert.cli.terminal import make_table
from litebert.errors import ConfigError, check_choice


@app.command(cls=AdapterCommand)
def finetune(
    task: Task = None,
    train: TrainFile = None,
    dev: Annotated[Path | None, typer.Option(help="Dev file: the best weights are chosen on it.")] = None,
    test: Annotated[Path | None, typer.Option(help="Test file: predictions are written for it.")] = None,
    predict_test: Annotated[
        bool, typer.Option("--predict-test", help="Write predictions for the test split of --data too.")
    ] = False,
    data: LabelledData = None,
    column: Columns = None,
    model: Annotated[
        str | None, typer.Option(help="A model folder or Hub name to start from, pretrained or fine-tuned.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write: the run, by default runs/TASK. To resume it, rerun the same command."),
    ] = None,
    head_only: Annotated[
        bool, typer.Option("--head-only", help="Fit a linear head on the frozen encoder: a quick first result.")
    ] = False,
    few: Annotated[
        bool, typer.Option("--few", help="For a handful of labels: contrastive pairs, then a linear head (SetFit).")
    ] = False,
    pairs: Annotated[
        str | None,
        typer.Option(
            help="Similarity: make training pairs from plain text: sentences, adjacent or titles.", metavar="HOW"
        ),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(help="Train a LoRA adapter of this rank (alone: 8) instead of all weights.", metavar="[RANK]"),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Settings by name; --list shows them.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training data.")] = None,
    batch: Annotated[int | None, typer.Option(help="Examples per step, over all devices.")] = None,
    lr: Annotated[
        str | None, typer.Option(help="Learning rate, or several to try: 1e-5,2e-5,5e-5.", metavar="RATE")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="The longest input, in tokens.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, or a GPU by number: cuda:1.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of runs with different seeds.")] = 1,
    config: Annotated[Path | None, typer.Option(help="A YAML file with the run's settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, such as optim.freeze=embeddings.")
    ] = None,
    resume: Resume = "auto",
    show_presets: ListPresets = False,
) -> None:
    """Fine-tune a model on labelled data. It can be stopped at any time: rerun the same command to resume."""
    if show_presets:
        _print_presets()
        return
    check_choice("--resume", resume, ("auto", "never", "must"))
    if task is None and config is None:
        from litebert.tasks.kinds import KINDS

        raise ConfigError(
            f"--task: name a public task (sst-2, squad-2.0, race, ...) or the kind of your own data: {', '.join(KINDS)}"
        )
    for other, is_given in (("--few", few), ("--adapter", adapter is not None)):
        if head_only and is_given:
            raise ConfigError(f"--head-only and {other}: give one of them")
    flags: dict[str, Any] = {
        "task": task,
        "model": model,
        "preset": preset,
        "epochs": epochs,
        "batch": batch,
        "max_length": max_length,
        "device": {"device": device},
        "head_only": head_only or None,
        "few": few or None,
        "similarity": {"pairs": pairs},
        "adapter": {"rank": _rank(adapter, config)},
        "data": {
            "predict_test": predict_test or None,
            "folder": data,
            "train": train,
            "dev": dev,
            "test": test,
            "columns": column_pairs(column or []),
        },
    }
    from litebert.finetuning.config import config_from
    from litebert.tasks.read import find_task

    rates = _rates(lr)
    if task is not None:
        find_task(task)
    check_files(train, dev, test)
    check_data(data)
    check_out_folder(out)
    made = config_from(flags, config, settings or [], rates)
    from litebert.finetuning.study import run_and_print

    out = out or Path("runs") / made.task
    result = run_and_print(made, out, seeds, rates, resume, as_option)  # type: ignore[arg-type]
    if result.signal is not None:
        raise typer.Exit(128 + result.signal)
    from litebert.train.processes import world_from_environment

    if not world_from_environment().is_main:
        return
    from litebert.report import write_report

    page = write_report([out])
    print(f"model:  {result.model}")
    if result.adapter is not None:
        print(f"adapter: {result.adapter}")
    print(f"report: {page}")
    if result.predictions is not None:
        print(f"predictions: {result.predictions}")
    print(f"next:   litebert evaluate {result.model} --data FILE")


def _rank(text: str | None, config: Path | None) -> int | None:
    """The rank in `--adapter 16`; of `--adapter` alone that of the config file, or else the default."""
    if text is None:
        return None
    from litebert.model.config import AdapterConfig

    default = AdapterConfig.rank
    if text != ALONE:
        rank = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
        if rank < 1:
            raise ConfigError(
                f"--adapter: the rank must be a whole number >= 1, got {text!r}; without one it is {default}"
            )
        return rank
    from litebert.config import read_yaml

    known = read_yaml(config).get("adapter") if config is not None else None
    return known.get("rank", default) if isinstance(known, dict) else default


def _rates(text: str | None) -> list[float]:
    try:
        rates = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ConfigError(f"--lr {text}: expected numbers separated by commas, such as 1e-5,2e-5") from None
    return rates


def _print_presets() -> None:
    from rich.console import Console

    from litebert.finetuning.config import PRESETS, describe_length, finetune_config

    columns = ("preset", "lr", "batch", "length", "warm-up", "dropout", "max tokens")
    table = make_table(*columns, unbroken=columns)
    for name, preset in PRESETS.items():
        if name.startswith("v2/") and preset == PRESETS[name.replace("v2", "v1")]:
            continue
        config = finetune_config({"preset": name})
        both = name.startswith("v1/") and preset == PRESETS[name.replace("v1", "v2")]
        table.add_row(
            name.replace("v1/", "v1/ v2/") if both else name,
            f"{config.optim.lr:g}",
            str(config.batch),
            describe_length(config),
            str(config.optim.warmup_steps) if config.optim.warmup_steps is not None else "10 %",
            "model's" if config.dropout is None else f"{config.dropout:g}",
            str(config.max_length or "task's"),
        )
    console = Console(highlight=False)
    console.print(table)
    console.print("v1 and v2 without a task: the task's row in the paper's Table 14. frozen: trains the head only.")
    console.print("auto: cpu without a GPU, small for narrow models, else base.")
