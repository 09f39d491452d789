"""`litebert bench`: speed on this machine, compared with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from litebert.cli import CommandGroup, app
from litebert.cli.options import StoreTokenizer, check_out_file, check_stores

bench = typer.Typer(cls=CommandGroup, help="Measure speed on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("pretrain")
def pretrain(
    models: Annotated[
        list[str] | None, typer.Argument(help="Model presets; by default what fits the device.", metavar="MODEL")
    ] = None,
    length: Annotated[list[int] | None, typer.Option(min=1, help="Tokens per sequence; may be repeated.")] = None,
    micro_batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens per micro-batch on one device; by default 32,768 on a GPU.")
    ] = None,
    against: Annotated[
        str, typer.Option(help="transformers to compare with: compiled, eager, both (with a comma), or none.")
    ] = "compiled,eager",
    store: Annotated[
        Path | None, typer.Option(help="Token store (litebert corpus build), to measure the data loader too.")
    ] = None,
    tokenizer: StoreTokenizer = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns each side takes.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.001, help="Duration of a turn.")] = 1.0,
    fast_layers: Annotated[bool, typer.Option(help="Use our fast layers where the device has them.")] = True,
    fp8: Annotated[bool, typer.Option(help="Use 8-bit matrix products, for wide models.")] = False,
    recompute: Annotated[bool, typer.Option(help="Recompute activations instead of keeping them.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write: the result as JSON.")] = None,
) -> None:
    """Measure training speed, and that of transformers on the same tokens if it is installed."""
    import importlib.util

    from rich.console import Console

    from litebert.errors import InputError
    from litebert.files import write_atomic
    from litebert.model.config import preset

    console = Console(highlight=False, markup=False)  # markup would take [hf] for a style
    peers = [] if against == "none" else against.split(",")
    if unknown := set(peers) - {"compiled", "eager"}:
        raise InputError(f"--against: {', '.join(sorted(unknown))} is not one of: compiled, eager, none")
    if (store is None) != (tokenizer is None):
        raise InputError("--store and --tokenizer go together: give both or neither")
    for name in models or []:
        preset(name)
    check_out_file(out)
    if store is not None:
        check_stores([store], tokenizer)
    if peers and importlib.util.find_spec("transformers") is None:
        console.print('transformers is not installed (pip install "litebert[hf]"): only our side is measured')
        peers = []
    from litebert.bench import Case, bench_pretrain
    from litebert.train.device import DeviceConfig, open_device

    device = open_device(DeviceConfig(fast_layers="on" if fast_layers else "off", fp8=fp8, recompute=recompute))
    if not device.compile and "compiled" in peers:
        peers.remove("compiled")  # no compiler here, or a CPU
    names = models or (["albert-base"] if device.is_cuda else ["albert-tiny"])
    lengths = length or ([128, 512] if device.is_cuda else [128])
    cases = [
        Case(
            name,
            each,
            micro_batch_tokens or (32_768 if device.is_cuda else 1_024),
            tuple(peers),  # type: ignore[arg-type]
            str(store) if store else None,
            str(tokenizer) if tokenizer else None,
        )
        for name in names
        for each in lengths
    ]
    result = bench_pretrain(cases, device, rounds, seconds)
    console.print(f"{device.name}, {device.precision}, ceiling {result.hardware['ceiling_tflops']:,.1f} TFLOP/s")
    print(result.table())
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, json.dumps(result.as_dict(), indent=1) + "\n")
        print(f"written: {out}")
