"""How should a CPU read the weights: plain, packed by oneDNN, or packed by MKL, and for how many rows?

    python benchmarks/cpu_products.py [--threads 2] [--rows 16 128 512 1024] [--packed-for 16 128 512 2048] [--rounds 9]

The four products of a base encoder's layer, applied twelve times as ALBERT does, without anything in between. All
layouts take turns; a figure is the median in milliseconds, and the fastest round. predict/fused.py takes MKL's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

SHAPES = [(2304, 768), (768, 768), (3072, 768), (768, 3072)]  # query, key and value; output; widen; narrow
LAYERS = 12

Layout = Callable[[int, torch.Tensor], torch.Tensor]  # number of the product, its input


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 128, 512, 1024])
    parser.add_argument("--packed-for", type=int, nargs="+", default=[16, 128, 512, 2048])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    with torch.inference_mode():
        layouts = make_layouts(options.packed_for)
        print(f"torch {torch.__version__}, {options.threads} threads, load {os.getloadavg()[0]:.1f}")
        for rows in options.rows:
            for name, seconds in measure(layouts, rows, options.rounds).items():
                print(f"{rows:5} rows  {name:16} {1e3 * statistics.median(seconds):8.1f} {1e3 * min(seconds):8.1f} ms")


def make_layouts(packed_for: list[int]) -> dict[str, Layout]:
    weights = [torch.randn(shape) / 100 for shape in SHAPES]
    biases = [torch.randn(shape[0]) for shape in SHAPES]
    reordered = [torch.ops.mkldnn._reorder_linear_weight(weight) for weight in weights]
    layouts: dict[str, Layout] = {
        "plain": lambda i, x: F.linear(x, weights[i], biases[i]),
        "oneDNN": lambda i, x: torch.ops.mkldnn._linear_pointwise(x, reordered[i], biases[i], "none", [], ""),
    }
    for size in packed_for:
        packed = [torch.ops.mkl._mkl_reorder_linear_weight(weight, size) for weight in weights]
        layouts[f"MKL for {size}"] = lambda i, x, packed=packed: torch.ops.mkl._mkl_linear(
            x, packed[i], weights[i], biases[i], len(x)
        )
    return layouts


def measure(layouts: dict[str, Layout], rows: int, rounds: int) -> dict[str, list[float]]:
    inputs = [torch.randn(rows, depth) for _, depth in SHAPES]
    seconds: dict[str, list[float]] = {name: [] for name in layouts}
    for _ in range(rounds):
        for name, multiply in layouts.items():
            for timed in (False, True):  # first its weights back into the cache
                begin = time.perf_counter()
                for _ in range(LAYERS):
                    for i, x in enumerate(inputs):
                        multiply(i, x)
                if timed:
                    seconds[name].append(time.perf_counter() - begin)
    return seconds


if __name__ == "__main__":
    main()
