"""Where the time of a recorded pass over many tokens goes on this GPU, and whether other blocks would be faster in it.

    python benchmarks/predict_pass.py [--sequences 32 --length 128] [--tune] [--pdl] [--out result.json]
    python benchmarks/predict_pass.py --device cpu --tune --pdl     (does the script work? a tiny model, interpreted)

Kernels are timed by torch's profiler while the recorded pass is replayed: one by one on buffers of their own they find
more in the GPU's cache. `--tune` records the pass anew with other blocks for attention
and LayerNorm (those of src/litebert/model/fast/triton_ops.py), and first with the same, to show what chance does;
`--pdl` with programmatic launches, whose results have to be the same to the last bit in every replay; `--bias` with the
queries' bias added by the product instead of the attention kernel. Passes are timed in turns, a few rounds of each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

if "cpu" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # chosen when the kernels are first imported

import torch
from torch import Tensor

from litebert.files import write_atomic
from litebert.model.config import preset, vary
from litebert.model.fast import triton_ops
from litebert.model.fast.plain_ops import Packing
from litebert.model.fast.triton_ops import Blocks
from litebert.model.heads import EncoderModel
from litebert.predict.fused import Attend, FusedAttention, FusedEncoder
from litebert.predict.graphs import GraphedEncoder, sample_table

ROUNDS, REPLAYS = 7, 40
NORMS = ((1024, 1), (1024, 2), (1024, 4), (2048, 2), (2048, 4), (4096, 2), (4096, 8), (8192, 8))  # elements, warps
ATTENDS = (Blocks(64, 64, 4, 2), Blocks(128, 64, 8, 2), Blocks(128, 128, 8, 1), Blocks(128, 64, 4, 2))


class Setting(NamedTuple):
    """What may differ between two passes."""

    elements: int  # of a block of LayerNorm
    warps: int
    attend: Blocks
    programmatic: bool = False
    bias_in_product: bool = False


Pass = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="albert-base")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tune", action="store_true", help="try other blocks")
    parser.add_argument("--pdl", action="store_true", help="try programmatic launches (Hopper and newer)")
    parser.add_argument("--bias", action="store_true", help="try the bias of the queries in their product")
    parser.add_argument("--out", type=Path, help="write JSON here")
    options = parser.parse_args()
    device = torch.device(options.device)
    config = preset(options.preset)
    if device.type == "cpu":
        size = dict(hidden_size=64, num_attention_heads=1, intermediate_size=128, num_hidden_layers=2, vocab_size=100)
        config, options.sequences, options.length = vary(config, embedding_size=16, **size), 2, 16
    torch.manual_seed(0)
    model = EncoderModel(config).eval().requires_grad_(False).to(device)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # biases begin at 0, where a mistake would not show
            parameter += 0.1 * torch.randn_like(parameter)
    model = model.to(torch.bfloat16) if device.type == "cuda" else model
    place = (options.sequences * options.length, options.sequences, options.length)
    with torch.inference_mode():
        found = measure(model, place, device, options)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, interpreted"
    found = {"device": name, "torch": torch.__version__, "shape": place, **found}
    if options.out:
        write_atomic(options.out, json.dumps(found, indent=1) + "\n")


def measure(
    model: EncoderModel, place: tuple[int, int, int], device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """The kernels of the pass as it is, then other settings beside it."""
    now = read_setting()
    run, states = record(model, place, device, now)
    kernels = profile(run) if device.type == "cuda" else []
    for row in kernels:
        print(f"{row['microseconds']:8.1f} us  {row['times']:5.1f} x {row['each']:6.2f}  {row['kernel'][:100]}")
    expected = states().clone()
    tried = []
    for setting in settings(now, options):
        write_setting(setting)
        try:
            other, other_states = record(model, place, device, setting)
            again = [other_states().clone() for _ in range(20 if setting.programmatic else 1)]
            times = in_turns(run, other, device)
        except Exception as error:  # what a GPU cannot do: too much memory for a block, for example
            print(f"{show(setting)}: {type(error).__name__} {str(error).splitlines()[0][:80]}")
            continue
        finally:
            write_setting(now)
        off = difference(again[0], expected)
        unsteady = max(difference(each, again[0]) for each in again)
        ratio = times[0] / times[1]
        said = f"{times[1]:.1f} us, {ratio:.4f}x of {times[0]:.1f}, {off:.0e} off, {unsteady:.0e} unsteady"
        print(f"{show(setting)}: {said}", flush=True)
        tried.append({"setting": show(setting), "microseconds": times, "off": off, "unsteady": unsteady})
    return {"kernels": kernels, "tried": tried}


def settings(now: Setting, options: argparse.Namespace) -> Iterator[Setting]:
    """One change at a time."""
    if options.tune:
        yield now
        yield from (now._replace(elements=elements, warps=warps) for elements, warps in NORMS)
        yield from (now._replace(attend=blocks) for blocks in ATTENDS)
    if options.pdl:
        yield now._replace(programmatic=True)
    if options.bias:
        yield now._replace(bias_in_product=True)
    if options.pdl and options.bias:
        yield now._replace(programmatic=True, bias_in_product=True)


def read_setting() -> Setting:
    norm = (triton_ops.ADD_NORM_ONLY_ELEMENTS, triton_ops.ADD_NORM_ONLY_WARPS)
    return Setting(*norm, triton_ops.ATTEND_ONLY_WHOLE[64], programmatic=triton_ops.ONLY_PDL)


def write_setting(setting: Setting) -> None:
    triton_ops.ADD_NORM_ONLY_ELEMENTS, triton_ops.ADD_NORM_ONLY_WARPS = setting.elements, setting.warps
    triton_ops.ATTEND_ONLY_WHOLE[64] = triton_ops.ATTEND_ONLY[64] = setting.attend
    triton_ops.ONLY_PDL = setting.programmatic


def show(setting: Setting) -> str:
    """Setting(2048, 2, Blocks(64, 64, 4, 2), True) -> "norm 2048 / 2, attention 64 64 4 2, programmatic"."""
    said = [f"norm {setting.elements} / {setting.warps}", f"attention {' '.join(map(str, setting.attend))}"]
    said += ["programmatic"] * setting.programmatic + ["bias in the product"] * setting.bias_in_product
    return ", ".join(said)


class BiasInProduct(FusedEncoder):
    """All three biases are added by the product that makes queries, keys and values."""

    def _attention(self, hidden: Tensor, starts: Tensor, max_length: int) -> Attend:
        packing, heads = Packing(starts, starts, max_length, max_length), self.config.num_attention_heads

        def attend(block: FusedAttention, hidden: Tensor) -> tuple[Tensor, Tensor]:
            q, k, v = block.project(hidden).unflatten(-1, (3, heads, -1)).unbind(1)
            return triton_ops.attend_only(q, k, v, packing).flatten(-2), block.merge.bias

        return attend


class GraphedBiasInProduct(BiasInProduct, GraphedEncoder):
    """The same, recorded."""


def record(
    model: EncoderModel, place: tuple[int, int, int], device: torch.device, setting: Setting
) -> tuple[Pass, Pass]:
    """A pass over a sample batch, recorded where there is a GPU; and the same with its states returned."""
    table = sample_table(place, model.config).to(device)
    places = (table.ids, table.segments, table.positions, table.starts, table.longest)
    if device.type == "cpu":
        plain = (BiasInProduct if setting.bias_in_product else FusedEncoder)(model.encoder, triton=True)
        return lambda: plain.encode(*places), lambda: plain.encode(*places).hidden
    encoder = (GraphedBiasInProduct if setting.bias_in_product else GraphedEncoder)(model.encoder, triton=True)
    encoder.encode(*places)  # records
    [graph] = [graph for graph in encoder._graphs.values() if graph is not None]

    def states() -> Tensor:
        graph.graph.replay()
        return graph.output.hidden

    return graph.graph.replay, states


def in_turns(run: Pass, other: Pass, device: torch.device) -> tuple[float, float]:
    """Microseconds of each, medians over rounds that take turns."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS if device.type == "cuda" else 1):
        for each, times in zip((run, other), took, strict=True):
            times.append(clock(each, device))
    return statistics.median(took[0]), statistics.median(took[1])


def difference(found: Tensor, expected: Tensor) -> float:
    """How far states are from others, as a share of these."""
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def clock(run: Pass, device: torch.device) -> float:
    if device.type == "cpu":
        start = time.perf_counter()
        run()
        return 1e6 * (time.perf_counter() - start)
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run()
    began.record()
    for _ in range(REPLAYS):
        run()
    ended.record()
    ended.synchronize()
    return 1e3 * began.elapsed_time(ended) / REPLAYS


def profile(run: Pass, passes: int = 10) -> list[dict[str, Any]]:
    """Microseconds of each kernel in a pass, the longest first, and of the gaps between them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(passes):
            run()
        torch.cuda.synchronize()
    events = [event for event in profiler.events() if event.device_type.name == "CUDA"]
    events.sort(key=lambda event: event.time_range.start)
    taken: dict[str, list[float]] = defaultdict(list)
    for event in events:
        taken[event.name].append(event.time_range.elapsed_us())
    between = sorted(b.time_range.start - a.time_range.end for a, b in pairwise(events))
    taken["(between kernels)"] = between[: len(between) - passes]  # without those between passes
    rows = [
        {
            "kernel": name,
            "microseconds": sum(times) / passes,
            "times": len(times) / passes,
            "each": statistics.mean(times),
        }
        for name, times in taken.items()
    ]
    return sorted(rows, key=lambda row: -row["microseconds"])


if __name__ == "__main__":
    main()
