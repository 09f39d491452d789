"""`litebert quickstart`, `litebert pretrain`, `litebert plan`: train a model on text, or predict what it would cost."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.options import (
    Json,
    ListPresets,
    MicroBatch,
    Resume,
    Store,
    StoreTokenizer,
    check_out_folder,
    check_stores,
)
from litebert.cli.terminal import make_table
from litebert.errors import ConfigError, check_choice

if TYPE_CHECKING:
    from litebert.pretraining.plan import RunEstimate


@app.command()
def quickstart(
    out: Annotated[Path, typer.Option(help="Folder to write: corpus, vocabulary, run and report.")] = Path(
        "runs/quickstart"
    ),
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps.")] = None,
    documents: Annotated[int, typer.Option(min=200, help="Number of documents to generate.")] = 6000,
) -> None:
    """Generate a corpus, train a small ALBERT on it and show what it learned: three minutes on two cores."""
    check_out_folder(out)
    from litebert.quickstart import quickstart as tell

    tell(out, documents=documents, steps=steps)


@app.command()
def pretrain(
    config: Annotated[
        str | None, typer.Argument(help="A YAML file or a preset; by default the preset that suits this machine.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write: the run. To resume it, rerun the same command.")
    ] = None,
    store: Store = None,
    tokenizer: StoreTokenizer = None,
    minutes: Annotated[
        float | None, typer.Option(help="Minutes to train for; the schedules are fitted to them.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, or a GPU by number: cuda:1.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, such as optim.lr=1e-3.")] = None,
    resume: Resume = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train nothing; print shapes, memory, steps and time.")
    ] = False,
    show_presets: ListPresets = False,
) -> None:
    """Pretrain a model on token stores. It can be stopped at any time: rerun the same command to resume."""
    if show_presets:
        _print_presets()
        return
    if config is None and not store:
        raise ConfigError(
            "give a YAML file, a preset (`litebert pretrain --list`), or what to train on: --store and --tokenizer"
        )
    check_choice("--resume", resume, ("auto", "never", "must"))
    check_stores(store or [], tokenizer)
    from litebert.pretraining.config import choose_config, machine_preset

    if config is None:
        config = machine_preset(device)
        print(f"preset {config}")
    run_config = choose_config(config, store, tokenizer, minutes, device, settings or [])
    if dry_run:
        from litebert.pretraining.dry_run import describe_run

        for line in describe_run(run_config):
            print(line, flush=True)
        return
    if out is None:
        raise ConfigError("--out: give the folder to write the run to")
    check_out_folder(out)
    from litebert.pretraining.data import Data, load_tokenizer

    Data(run_config, load_tokenizer(run_config))  # a wrong path is reported now, before torch is loaded
    from litebert.pretraining.run import pretrain as train

    result = train(run_config, out, resume)  # type: ignore[arg-type]
    if result.signal is not None:
        raise typer.Exit(128 + result.signal)
    from litebert.train.processes import world_from_environment

    if world_from_environment().is_main:
        print(f"model: {result.model}")
        print(f"next:  litebert report {out}")


def _print_presets() -> None:
    from rich.console import Console

    from litebert.pretraining.config import RUN_PRESETS, run_config

    table = make_table(
        "preset", "optimiser", "depth", "peak lr", "batch tokens", "steps", "length", left=3, unbroken=["preset"]
    )
    for name in RUN_PRESETS:
        config = run_config({"preset": name})
        depths = ",".join(str(stage.value) for stage in config.depth) or str(config.model.num_hidden_layers)
        table.add_row(
            name,
            config.optim.name,
            depths,
            f"{config.learning_rate().peak:g}",
            f"{config.batch_tokens:,}",
            f"{config.steps:,}",
            str(config.recipe.max_length),
        )
    Console(highlight=False).print(table)


@app.command()
def plan(
    model: Annotated[str, typer.Argument(help="A preset, a config file, a model folder or a Hub name.")],
    gpus: Annotated[list[int] | None, typer.Option(min=1, help="Number of GPUs; may be repeated.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 125_000,
    batch: Annotated[int, typer.Option(min=1, help="Examples per step, over all devices.")] = 4096,
    length: Annotated[int, typer.Option(min=1, help="Tokens per sequence.")] = 512,
    micro_batch_tokens: MicroBatch = 32_768,
    bandwidth: Annotated[float, typer.Option(help="GB/s of each GPU's link (your assumption).")] = 100.0,
    as_json: Json = False,
) -> None:
    """Predict the speed, duration and memory of a pretraining run on several GPUs, from rates measured on one."""
    from litebert.pretraining.config import find_model_config
    from litebert.pretraining.plan import load_rates, most_gpus, predict_run

    if not 0 < bandwidth < math.inf:
        raise ConfigError(f"--bandwidth: must be > 0, got {bandwidth:g}")
    config, rates = find_model_config(model), load_rates()
    rows = [
        predict_run(config, count, batch * length, steps, length, micro_batch_tokens, bandwidth * 1e9, rates)
        for count in gpus or [count for count in (1, 8, 64) if count <= batch]
    ]
    most = most_gpus(config, batch * length, length, bandwidth * 1e9, rates)
    if as_json:
        facts = {"gpu": rates.gpu, "measured": rates.measured, "most_gpus": most}
        print(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=2))
        return
    _print_plan(
        f"{model}, batch {batch:,} x {length}, {steps:,} steps",
        rows,
        f"1 GPU: rates measured on {rates.gpu} ({rates.measured}). More: extrapolated, with compute split evenly and "
        f"one ring all-reduce of fp32 gradients per step at {bandwidth:g} GB/s, not overlapped with compute. "
        f"Up to {most:,} GPUs, twice as many make it at least 1.5 times as fast; beyond, less and less.",
    )


def _print_plan(title: str, rows: Sequence[RunEstimate], note: str) -> None:
    from rich.console import Console

    columns = ("GPUs", "tokens/s", "s/step", "communication", "days", "GPU hours", "GB per GPU")
    table = make_table(*columns, left=0)
    for row in rows:
        table.add_row(
            str(row.gpus),
            f"{row.tokens_per_second:,.0f}",
            f"{row.seconds_per_step:.3g}",
            f"{row.communication_seconds / row.seconds_per_step:.1%}",
            f"{row.days:,.1f}",
            f"{row.gpu_hours:,.0f}",
            f"{row.memory_bytes / 1e9:.0f}",
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(title)
    console.print(table)
    console.print(note, style="dim")
