"""`litebert pretrain`: a training run from its config, or what it would take here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litebert.cli import app
from litebert.cli.early import check_out_folder, check_stores
from litebert.errors import ConfigError, check_choice


@app.command()
def pretrain(
    config: Annotated[
        str | None, typer.Argument(help="A YAML file or a preset; by default the preset that suits this machine.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; the same command goes on where it was stopped.")
    ] = None,
    store: Annotated[list[Path] | None, typer.Option(help="A token store to train on (litebert corpus build).")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="The tokenizer that the stores were built with.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes; the schedules follow.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:1.")] = None,
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
    if config is None and not store:
        raise ConfigError(
            "name a YAML file, a preset (litebert pretrain --list), or what to train on (--store, --tokenizer)"
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
        raise ConfigError("--out: name the folder of the run")
    check_out_folder(out)
    from litebert.pretraining.data import Data, load_tokenizer

    Data(run_config, load_tokenizer(run_config))  # a wrong path is told now, not after torch has been loaded
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
    from rich.table import Table

    from litebert.pretraining.config import RUN_PRESETS, run_config

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
