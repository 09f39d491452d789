"""Where the time of one pretraining step goes on this GPU: kernel by kernel, and what Python alone takes.

    python benchmarks/profile_step.py albert-base:128 albert-large:512 [--fp8] [--top 30]

Kernels as torch's profiler sees them; a step of 1,024 tokens beside it, which the GPU finishes before Python has asked
for it: what remains is the time to launch everything.
"""

from __future__ import annotations

import argparse
import gc
import time

import torch
from torch.profiler import ProfilerActivity, profile

from litebert.bench import Case, Side, make_batch, our_side, shape_of
from litebert.train.device import Device, DeviceConfig, open_device


def prepared(model: str, length: int, tokens: int, device: Device) -> Side:
    case = Case(model, length, tokens)
    side = our_side(model, shape_of(case), make_batch(case, device), device)
    for _ in range(3):
        side.step()
    return side


def milliseconds(side: Side, steps: int = 10) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        side.step()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - started) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="MODEL:LENGTH")
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--top", type=int, default=30)
    options = parser.parse_args()
    device = open_device(DeviceConfig(fp8=options.fp8))
    for name in options.cases:
        model, length = name.split(":")
        small = milliseconds(prepared(model, int(length), 1024, device))
        side = prepared(model, int(length), 32_768, device)
        took = milliseconds(side)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            side.step()
            torch.cuda.synchronize()
        kernels = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
        busy = sum(event.self_device_time_total for event in kernels) / 1000
        print(
            f"{name}: {took:.1f} ms per step of 32,768 tokens, {busy:.1f} of them in kernels; {small:.1f} ms to launch"
        )
        for event in kernels[: options.top]:
            print(f"{event.self_device_time_total / 1000:9.3f} ms {event.count:5d} x {event.key[:100]}")
        del side
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
