"""The kernels for few tokens one by one on this GPU, beside the large products: right, how fast, with other tiles.

    python benchmarks/predict_kernels.py [--tune] [--pdl] [--out result.json]
    python benchmarks/predict_kernels.py --device cpu --tune     (does the script work? a tiny model, interpreted)

A time is that of one of many launches in a recorded graph, as in a real pass: weights stay in the GPU's cache and
launches follow each other closely. Every product is first held to float64, a split one also to itself, many times over.
`--products` takes some of them: several such runs at once fill Triton's cache for the one that is to be timed.
`--tune` tries other tiles for each product and other blocks for attention, and prints what to write into
src/litebert/predict/small_ops.py. `--pdl` measures programmatic launches too. At the end stand whole passes, both ways.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if "cpu" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # chosen when the kernels are first imported

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.files import write_atomic
from litebert.model.config import ModelConfig, preset, vary
from litebert.model.fast import triton_ops
from litebert.model.fast.plain_ops import Packing
from litebert.model.fast.triton_ops import Blocks
from litebert.model.heads import EncoderModel
from litebert.predict import small_ops
from litebert.predict.fused import FusedEncoder
from litebert.predict.graphs import difference, sample_table
from litebert.predict.small import SmallEncoder
from litebert.predict.small_ops import Norm, Rows, Tile, Weights

LAUNCHES = 24  # in a graph
REPLAYS = 10
PRODUCTS = ("qkv", "merge", "widen", "narrow")
WRONG = 0.01  # of a product with bf16 operands and result
SIDES = (
    *((16, 16), (16, 32), (16, 64), (32, 16), (32, 32), (32, 64)),
    *((64, 16), (64, 32), (64, 64), (128, 32), (128, 64), (128, 128)),
)
DEPTHS = ((64, 4), (64, 6), (128, 3))  # with stages
SPLIT_SIDES = ((32, 32), (32, 64), (64, 32), (64, 64))
ATTEND = [Blocks(rows, columns, 4, 2) for rows in (16, 32, 64) for columns in (32, 64, 128)]

Run = Callable[[], Any]


class Case:
    """One of a layer's products for some number of rows, as the pass calls it and as cuBLAS does."""

    def __init__(self, name: str, config: ModelConfig, rows: int, device: torch.device, dtype: torch.dtype):
        hidden, inner = config.hidden_size, config.intermediate_size
        self.name, self.eps, self.device = name, config.layer_norm_eps, device
        columns, depth = {
            "qkv": (3 * hidden, hidden),
            "merge": (hidden, hidden),
            "widen": (inner, hidden),
            "narrow": (hidden, inner),
        }[name]
        self.shape = rows, columns, depth
        self.weight = (torch.randn(columns, depth, device=device) / depth**0.5).to(dtype)
        self.bias = torch.randn(columns, device=device)
        self.normed = name in ("qkv", "widen")
        self.x = waiting_rows(rows, depth, hidden // 32, device, dtype)
        if not self.normed:
            self.x = Rows(self.x.values)
        self.activation = "gelu_tanh" if name == "widen" else "none"
        self.residual = None if self.normed else waiting_rows(rows, columns, hidden // 32, device, dtype)
        self.norm = None if self.normed else Norm(*(1 + 0.1 * torch.randn(2, columns, device=device)))
        self.weights: Weights = small_ops.fold(self.weight, self.bias, self.x.norm, dtype)
        self.arrived = torch.zeros(small_ops.MAX_TILES, dtype=torch.int32, device=device)

    def small(self, tile: Tile | None = None) -> Rows:
        """By our kernel."""
        arguments = (self.x, self.weights, self.eps, self.activation, self.residual, self.norm)
        return small_ops.product(*arguments, arrived=self.arrived, tile=tile)

    def large(self) -> Tensor:
        """By cuBLAS, with the kernel that follows where there is one."""
        x, weight = self.x.values, self.weight
        if self.residual is not None:
            assert self.norm is not None
            return triton_ops.add_norm_only(self.residual.values, F.linear(x, weight), self.bias, *self.norm, self.eps)
        if self.name == "widen" and x.is_cuda:
            return torch._addmm_activation(self.bias.to(x.dtype), x, weight.t(), use_gelu=True)
        return F.linear(x, weight, self.bias.to(x.dtype))

    def exact(self) -> Tensor:
        """In float64, from the operands as they are."""
        y = exact_rows(self.x, self.eps) @ self.weight.double().T + self.bias.double()
        if self.activation != "none":
            y = F.gelu(y, approximate="tanh")
        return y if self.residual is None else y + exact_rows(self.residual, self.eps)

    def check(self, tile: Tile | None = None) -> float:
        """How far a tile's result is from float64; it must not change from one launch to the next."""
        found = self.small(tile).values
        off = difference(found.double(), self.exact())
        assert off < WRONG, f"{self.name} {self.shape} {tile}: {off:.4f} off"
        for _ in range(50 if tile is not None and tile.split > 1 and found.is_cuda else 1):
            assert torch.equal(self.small(tile).values, found), f"{self.name} {self.shape} {tile}: differs from itself"
        return off


def waiting_rows(rows: int, width: int, tiles: int, device: torch.device, dtype: torch.dtype) -> Rows:
    """Random rows with the parts of their statistics."""
    values = (torch.randn(rows, width, device=device) + torch.randn(rows, 1, device=device) / 4).to(dtype)
    cut = values.double().view(rows, tiles, -1)
    parts = torch.stack([cut.mean(-1), cut.var(-1, correction=0) * cut.shape[-1]]).permute(2, 0, 1).float().contiguous()
    return Rows(values, parts, Norm(*(1 + 0.1 * torch.randn(2, width, device=device))))


def exact_rows(rows: Rows, eps: float) -> Tensor:
    """In float64, behind their LayerNorm if they wait for one."""
    values = rows.values.double()
    if rows.norm is None:
        return values
    return F.layer_norm(values, values.shape[1:], rows.norm.scale.double(), rows.norm.shift.double(), eps)


def microseconds(run: Run, device: torch.device, launches: int = LAUNCHES) -> float:
    """Of one launch, the median of several replays of a graph of many."""
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began) * 1e6
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            run()
    graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in itertools.pairwise(events))
    return times[len(times) // 2] * 1000 / launches


def candidates(rows: int, columns: int, depth: int) -> Iterator[Tile]:
    """Tiles worth trying: not much larger than the product, and neither too few programs nor far too many."""
    for split in (1, 2, 4) if depth > columns else (1,):
        for tile_rows, tile_columns in SIDES if split == 1 else SPLIT_SIDES:
            for tile_depth, stages in DEPTHS:
                if columns % tile_columns or depth % (tile_depth * split) or tile_rows >= max(32, 2 * rows):
                    continue
                programs = -(-rows // tile_rows) * (columns // tile_columns) * split
                if 12 <= programs <= 800:
                    warps = 8 if tile_rows * tile_columns == 128 * 128 else 4
                    yield Tile(tile_rows, tile_columns, tile_depth, warps, stages, split)


def tune_product(case: Case, quick: bool) -> tuple[Tile, float, dict[str, float]]:
    """The best tile of a product, its time, and those of all."""
    found: dict[Tile, float] = {}
    for number, tile in enumerate(candidates(*case.shape)):
        if quick and number % 5:
            continue
        try:
            case.check(tile)
            found[tile] = microseconds(functools.partial(case.small, tile), case.device)
        except Exception as error:  # too much shared memory or registers, or wrong (check says so): not a candidate
            print(case.name, tile, str(error)[:100], flush=True)
    if not found:
        tile = small_ops.choose_tile(*case.shape)
        found[tile] = microseconds(case.small, case.device)
    best = min(found, key=lambda tile: found[tile])
    return best, found[best], {" ".join(map(str, tile)): round(took, 2) for tile, took in found.items()}


def attention_case(config: ModelConfig, rows: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Packing]:
    """Sequences of at most 128 tokens."""
    length = min(rows, 128)
    starts = torch.arange(0, rows + 1, length, device=device, dtype=torch.int32)
    qkv = torch.randn(rows, 3 * config.hidden_size, device=device).to(dtype)
    return qkv, Packing(starts, starts, length, length)


def passes(config: ModelConfig, rows: int, device: torch.device, dtype: torch.dtype, pdl: bool) -> dict[str, float]:
    """Microseconds of whole passes, and how far each is from float64 on the same parameters."""
    torch.manual_seed(0)
    model = EncoderModel(config).eval().requires_grad_(False)
    table = sample_table((rows, max(1, rows // 128), 128), config)
    expected = model.double().encoder(**table.inputs()).hidden
    model = model.float().to(device)
    small, fused = SmallEncoder(model.encoder, dtype), FusedEncoder(model.to(dtype).encoder, triton=True)
    table = table.to(device)
    places = (table.ids, table.segments, table.positions, table.starts, table.longest)
    ways: dict[str, Run] = {"large": lambda: fused.encode(*places), "small": lambda: small(table)}
    found = {}
    for name, run in ways.items():
        found[name] = microseconds(run, device, launches=1)
        found[f"{name} off"] = difference(run().hidden[: table.used[0]].double().cpu(), expected)
    if pdl:
        small_ops.PDL = True
        try:
            found["small, programmatic launches"] = microseconds(ways["small"], device, launches=1)
            again = [ways["small"]().hidden[: table.used[0]].clone() for _ in range(20)]
            found["small, programmatic launches off"] = difference(again[0].double().cpu(), expected)
            # Has to be 0: anything else is a kernel that did not wait for the one before.
            found["small, programmatic launches, from itself"] = max(difference(each, again[0]) for each in again)
        finally:
            small_ops.PDL = False
    return {name: round(value, 5) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="albert-base")
    parser.add_argument("--tokens", type=int, nargs="+", help="default: 16 to 512")
    parser.add_argument("--products", nargs="+", choices=PRODUCTS, default=PRODUCTS, help="default: all four")
    parser.add_argument("--tune", action="store_true", help="try other tiles")
    parser.add_argument("--pdl", action="store_true", help="programmatic launches too (Hopper and newer)")
    parser.add_argument("--out", type=Path, help="write JSON here")
    options = parser.parse_args()
    device, config = torch.device(options.device), preset(options.preset)
    on_gpu = device.type == "cuda"
    if not on_gpu:
        size = dict(hidden_size=64, num_attention_heads=2, intermediate_size=128, num_hidden_layers=2, vocab_size=100)
        config = vary(config, **size)
    tokens = options.tokens or ([16, 32, 64, 128, 256, 512] if on_gpu else [16])
    dtype = torch.bfloat16 if on_gpu else torch.float32
    name = torch.cuda.get_device_name() if on_gpu else "CPU, interpreted"
    result: dict[str, Any] = {"device": name, "torch": torch.__version__, "preset": options.preset}
    result |= {"date": time.strftime("%Y-%m-%d"), "unit": "microseconds"}

    def keep(part: str, value: Any) -> None:
        result[part] = value
        print(part, json.dumps(value), flush=True)
        if options.out:
            write_atomic(options.out, json.dumps(result, indent=1) + "\n")

    tuned: dict[tuple[int, int], dict[int, Tile]] = {}
    with torch.inference_mode():
        for rows in tokens:
            layer = {"small": 0.0, "large": 0.0, "tuned": 0.0}
            for product in options.products:
                torch.manual_seed(0)
                case = Case(product, config, rows, device, dtype)
                tile = small_ops.choose_tile(*case.shape)
                off = case.check(tile)
                took = microseconds(case.small, device), microseconds(case.large, device)
                keep(f"{rows} {product}", {"tile": tile, "small": took[0], "large": took[1], "off": off})
                best = took[0]
                if options.tune:
                    chosen, best, all_of_them = tune_product(case, quick=not on_gpu)
                    tuned.setdefault(case.shape[1:], {})[rows] = chosen
                    keep(f"{rows} {product} tuned", {"tile": chosen, "best": best, "all": all_of_them})
                for way, value in zip(layer, (*took, best), strict=True):
                    layer[way] += value
            qkv, packing = attention_case(config, rows, device, dtype)
            heads = config.num_attention_heads
            views = qkv.view(rows, 3, heads, -1).unbind(1)
            attend = functools.partial(triton_ops.attend_only, *views, packing)
            large, used = (
                microseconds(attend, device),
                microseconds(functools.partial(attend, blocks=small_ops.ATTEND), device),
            )
            tried = ATTEND if options.tune and on_gpu else [small_ops.ATTEND]
            blocks = {str(tuple(each)): microseconds(functools.partial(attend, blocks=each), device) for each in tried}
            keep(f"{rows} attention", {"small": used, "large": large, "blocks": blocks})
            for way, value in zip(layer, (used, large, min(*blocks.values(), used)), strict=True):
                layer[way] += value
            keep(f"{rows} layer", {way: round(value, 2) for way, value in layer.items()})
            keep(f"{rows} pass", passes(config, rows, device, dtype, options.pdl and on_gpu))
        if options.tune:
            text = {str(shape): {rows: repr(tile) for rows, tile in found.items()} for shape, found in tuned.items()}
            keep("tuned", text)
            small_ops.TUNED = tuned
            for rows in tokens:
                keep(f"{rows} pass, tuned", passes(config, rows, device, dtype, options.pdl and on_gpu))
            print("TUNED = {")
            for shape, found in tuned.items():
                print(f"    {shape}: {{" + ", ".join(f"{rows}: Tile{tuple(t)}" for rows, t in found.items()) + "},")
            print("}")


if __name__ == "__main__":
    main()
