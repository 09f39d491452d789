"""`litebert plan`: what a run would cost on many GPUs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.options import Json
from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.pretraining.plan import Prediction


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
    as_json: Json = False,
) -> None:
    """Predict tokens/s, days, memory and communication of a run on N GPUs, from rates measured on one."""
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
    _print_plan(
        f"{model}, batch {batch:,} x {length}, {steps:,} steps",
        rows,
        f"1 GPU: rates measured on {rates.gpu} ({rates.measured}). More: an extrapolation, compute divided evenly and "
        f"one ring all-reduce of fp32 gradients per step at {bandwidth:g} GB/s, nothing overlapped.",
    )


def _print_plan(title: str, rows: Sequence[Prediction], note: str) -> None:
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
    console.print(title)
    console.print(table)
    console.print(note, style="dim")
