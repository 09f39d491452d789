"""Training on a CPU that others use too: threads, and how they wait for each other.

    python benchmarks/busy_machine.py [--neighbours 0 1 2] [--preset cpu/albert-tiny] [--seconds 3] [--rounds 5]

Torch's threads meet after every operation. By libgomp's default a thread that is done spins for a while; if a
neighbour has taken the core of one of them, the others burn theirs until it comes back. Every side is a process of its
own, since libgomp reads its settings when it is loaded; the sides take turns, so that other load meets all alike. A
figure is the median of tokens per second over the rounds, with the least and the greatest. Results:
docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

SIDES: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, {}),
    "all, default": (0, {}),
    "all, spin 10000": (0, {"GOMP_SPINCOUNT": "10000"}),
    "all, spin 1000": (0, {"GOMP_SPINCOUNT": "1000"}),
    "all, passive": (0, {"OMP_WAIT_POLICY": "passive"}),
}
SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1, os.cpu_count() or 1])
    parser.add_argument("--preset", default="cpu/albert-tiny")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one side in one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        work(options.preset, SIDES[options.side][0], options.seconds)
        return
    import torch

    print(f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, torch {torch.__version__}")
    sides = {name: start(name, options) for name in SIDES}
    try:
        for count in options.neighbours:
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
            try:
                show(count, measure(sides, options.rounds))
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
    finally:
        for process in sides.values():
            process.kill()
            process.wait()


def start(name: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    """A process that trains for a while whenever it gets a line, and answers with its speed."""
    environment = {key: value for key, value in os.environ.items() if key not in SETTINGS}
    command = [sys.executable, __file__, "--side", name, "--preset", options.preset, "--seconds", str(options.seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env={**environment, **SIDES[name][1]}, **pipes)


def measure(sides: dict[str, subprocess.Popen[str]], rounds: int) -> dict[str, list[float]]:
    """Tokens per second of each side, in turns."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, process in sides.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            found[name].append(float(process.stdout.readline()))
    return found


def show(count: int, found: dict[str, list[float]]) -> None:
    print(f"{count} busy neighbours, load {os.getloadavg()[0]:.1f}")
    one = statistics.median(found["1 thread"])
    for name, rates in found.items():
        middle = statistics.median(rates)
        print(
            f"  {name:16} {middle:8.0f} tokens/s ({min(rates):.0f} to {max(rates):.0f}), {middle / one:.2f} of 1 thread"
        )


def work(preset: str, threads: int, seconds: float) -> None:
    """One side: steps of a preset's model, on batches as the loader makes them."""
    from litebert.pretraining.config import load_run_config
    from litebert.pretraining.dry_run import random_inputs, training_step
    from litebert.train.config import DeviceConfig
    from litebert.train.device import open_device

    config = load_run_config(preset)
    device = open_device(DeviceConfig(device="cpu", threads=threads))
    tokens = min(config.micro_batch_tokens, 2048)
    inputs = random_inputs(config.model, tokens, config.recipe.max_length, config.recipe.mask_rate, device)
    step = training_step(config, device)
    step(inputs)
    for _ in sys.stdin:
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            step(inputs)
            count += 1
        print(count * tokens / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()
