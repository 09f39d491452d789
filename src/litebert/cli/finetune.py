"""`litebert finetune`: from labelled files to a scored model folder and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from litebert.cli import app
from litebert.cli.early import check_data, check_files, check_out_folder
from litebert.cli.options import Columns, TaskFolder, TrainFile, column_pairs
from litebert.errors import ConfigError, check_choice


@app.command()
def finetune(
    task: Annotated[
        str | None,
        typer.Option(help="A public task (sst-2, squad-2.0, race, ...), or the kind of your own: classification, ..."),
    ] = None,
    train: TrainFile = None,
    dev: Annotated[Path | None, typer.Option(help="The best weights are chosen on this file.")] = None,
    test: Annotated[Path | None, typer.Option(help="Predictions are written for this file.")] = None,
    predict_test: Annotated[
        bool, typer.Option("--predict-test", help="Write predictions for the test split of --data too.")
    ] = False,
    data: TaskFolder = None,
    column: Columns = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "--init-from", help="A model folder or Hub name, also one fine-tuned on another task."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder (runs/TASK); the same command goes on where it was stopped.")
    ] = None,
    head_only: Annotated[
        bool, typer.Option("--head-only", help="Fit a linear head on the frozen encoder: a fast first answer.")
    ] = False,
    adapter: Annotated[
        int | None,
        typer.Option(help="Train a LoRA adapter of this rank instead of the whole model.", metavar="RANK"),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Settings by name; --list shows them.")] = None,
    recipe: Annotated[str | None, typer.Option(hidden=True, help="The old name of --preset.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training data.")] = None,
    batch: Annotated[int | None, typer.Option(help="Examples per step.")] = None,
    lr: Annotated[
        str | None, typer.Option(help="The learning rate, or several to try: 1e-5,2e-5,5e-5.", metavar="RATE")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="The longest input, in tokens.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:1.")] = None,
    seeds: Annotated[int, typer.Option(help="Train so many times with different seeds.")] = 1,
    config: Annotated[Path | None, typer.Option(help="A YAML file with the same settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, for example optim.freeze=embeddings.")
    ] = None,
    resume: Annotated[str, typer.Option(help="auto, never or must.")] = "auto",
    show_presets: Annotated[bool, typer.Option("--list", help="List the presets and exit.")] = False,
) -> None:
    """Fine-tune a model on labelled data; kill it at any time and run it again."""
    if show_presets:
        _print_presets()
        return
    check_choice("--resume", resume, ("auto", "never", "must"))
    if task is None and config is None:
        from litebert.tasks.kinds import KINDS

        raise ConfigError(
            f"--task: name a public task (sst-2, squad-2.0, race, ...) or the kind of your own data: {', '.join(KINDS)}"
        )
    flags: dict[str, Any] = {
        "task": task,
        "model": model,
        "preset": preset or recipe,
        "epochs": epochs,
        "batch": batch,
        "max_length": max_length,
        "device": {"device": device},
        "head_only": head_only or None,
    }
    if adapter is not None:
        flags["adapter"] = {"rank": adapter}
    flags["data"] = {
        "predict_test": predict_test or None,
        "folder": data,
        "train": train,
        "dev": dev,
        "test": test,
        "columns": column_pairs(column or []),
    }
    from litebert.finetuning.flags import config_from
    from litebert.tasks.read import find_task

    rates = _rates(lr)
    if task is not None:
        find_task(task)
    check_files(train, dev, test)
    check_data(data)
    check_out_folder(out)
    made = config_from(flags, config, settings or [], rates)
    from litebert.finetuning import start

    out = out or Path("runs") / made.task
    result = start.run(made, out, seeds, rates, resume)  # type: ignore[arg-type]
    if result.signal is not None:
        raise typer.Exit(128 + result.signal)
    from litebert.train.processes import world_from_environment

    if not world_from_environment().is_main:
        return
    from litebert.report import write_report

    page = write_report([out])
    print(f"model:  {result.model}")
    print(f"report: {page}")
    if result.predictions is not None:
        print(f"predictions: {result.predictions}")
    print(f"next:   litebert evaluate {result.model} --data FILE")


def _rates(text: str | None) -> list[float]:
    try:
        rates = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ConfigError(f"--lr {text}: expected numbers with commas between, for example 1e-5,2e-5") from None
    return rates


def _print_presets() -> None:
    from rich.console import Console
    from rich.table import Table

    from litebert.finetuning.config import finetune_config
    from litebert.finetuning.flags import describe_length
    from litebert.finetuning.presets import PRESETS

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("preset", "lr", "batch", "length", "warm-up", "dropout", "max tokens"):
        table.add_column(name, justify="left" if name == "preset" else "right", no_wrap=True)
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
    console.print("v1 and v2 alone mean the row of the task in the paper's Table 14. frozen trains the head alone.")
    console.print("auto: cpu where there is no GPU, small for narrow models, else base.")
