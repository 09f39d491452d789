"""`litebert pretrain` and `litebert plan`: training runs, and what they would cost."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from litebert.cli import app
from litebert.errors import ConfigError, check_choice


@app.command()
def pretrain(
    config: Annotated[str | None, typer.Argument(help="A YAML file, or the name of a preset.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; the same command goes on where it was stopped.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, for example optim.lr=1e-3.")] = None,
    resume: Annotated[str, typer.Option(help="auto, never or must.")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print shapes, memory, steps and time; train nothing.")
    ] = False,
    show_presets: Annotated[bool, typer.Option("--list", help="List the presets and exit.")] = False,
) -> None:
    """Pretrain a model on token stores; kill it at any time and run it again."""
    if show_presets:
        _print_presets()
        return
    if config is None:
        raise ConfigError("name a YAML file or a preset; litebert pretrain --list shows the presets")
    check_choice("--resume", resume, ("auto", "never", "must"))
    from litebert.pretraining.config import load_run_config

    run_config = load_run_config(config, settings or [])
    if dry_run:
        from litebert.pretraining.dry_run import describe_run

        for line in describe_run(run_config):
            print(line, flush=True)
        return
    if out is None:
        raise ConfigError("--out: name the folder of the run")
    from litebert.pretraining.data import Data, load_tokenizer

    Data(run_config, load_tokenizer(run_config))  # a wrong path is told now, not after torch has been loaded
    from litebert.pretraining.run import pretrain as train

    result = train(run_config, out, resume)  # type: ignore[arg-type]
    if result.signal is not None:
        raise typer.Exit(128 + result.signal)
    from litebert.train.distributed import world_from_environment

    if world_from_environment().is_main:
        print(f"model: {result.model}")
        print(f"next:  litebert report {out}")


def _print_presets() -> None:
    from rich.console import Console
    from rich.table import Table

    from litebert.pretraining.config import run_config
    from litebert.pretraining.presets import RUN_PRESETS

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in ("preset", "optimiser", "peak lr", "batch tokens", "steps", "depth", "length"):
        left = column in ("preset", "optimiser", "depth")
        table.add_column(column, justify="left" if left else "right", no_wrap=column == "preset")
    for name in RUN_PRESETS:
        config = run_config({"preset": name})
        depths = ",".join(str(stage.value) for stage in config.depth) or str(config.model.num_hidden_layers)
        table.add_row(
            name,
            config.optim.name,
            f"{config.learning_rate().peak:g}",
            f"{config.batch_tokens:,}",
            f"{config.steps:,}",
            depths,
            str(config.recipe.max_length),
        )
    Console(highlight=False).print(table)


@app.command()
def plan(
    model: Annotated[str, typer.Argument(help="A model preset (albert-xlarge), a config file or a model folder.")],
    gpus: Annotated[list[int] | None, typer.Option(help="Number of GPUs; may be given several times.")] = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 125_000,
    batch: Annotated[int, typer.Option(help="Sequences per global batch.")] = 4096,
    length: Annotated[int, typer.Option(help="Tokens per sequence.")] = 512,
    micro_batch_tokens: Annotated[int, typer.Option(help="Tokens that one GPU takes at a time.")] = 32_768,
    bandwidth: Annotated[
        float, typer.Option(help="GB/s that each GPU's link carries (an assumption of yours).")
    ] = 100.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Predict tokens/s, days, memory and communication of a run on N GPUs, from rates measured on one."""
    from dataclasses import asdict

    from litebert.cli.model import find_config
    from litebert.pretraining.plan import load_rates, predict

    for option, value in (
        ("--steps", steps),
        ("--batch", batch),
        ("--length", length),
        ("--micro-batch-tokens", micro_batch_tokens),
    ):
        if value < 1:
            raise ConfigError(f"{option}: must be at least 1, got {value}")
    if not 0 < bandwidth < math.inf:
        raise ConfigError(f"--bandwidth: must be above 0, got {bandwidth:g}")
    config, rates = find_config(model), load_rates()
    rows = [
        predict(config, count, batch * length, steps, length, micro_batch_tokens, bandwidth * 1e9, rates)
        for count in gpus or [1, 8, 64]
    ]
    if as_json:
        print(
            json.dumps({"gpu": rates.gpu, "measured": rates.measured, "rows": [asdict(row) for row in rows]}, indent=2)
        )
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("GPUs", "tokens/s", "s/step", "of it communication", "days", "GPU hours", "GB per GPU"):
        table.add_column(column, justify="right")
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
    console.print(f"{model}, batch {batch:,} x {length}, {steps:,} steps")
    console.print(table)
    console.print(
        f"1 GPU: rates measured on {rates.gpu} ({rates.measured}). More: an extrapolation, compute divided evenly and "
        f"one ring all-reduce of fp32 gradients per step at {bandwidth:g} GB/s, nothing overlapped.",
        style="dim",
    )
