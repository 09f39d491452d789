"""Throughput of one model with several adapters in every batch, beside one adapter alone.

    python benchmarks/adapter_mix.py [--adapters 8] [--rank 8] [--sequences 32] [--length 64] [--out result.json]

Four ways take turns over the same sequences: the base model without an adapter; one adapter merged into it, the fastest
way to run one alone; the same adapter beside the base products; and all adapters, one per sequence. With one thread,
seconds are processor time, so that other work on the machine matters little. A ratio is the median over the rounds.
First, every sequence of the mix is compared with its adapter alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.files import write_atomic
from litebert.machine import cpu_name
from litebert.model.adapter import AdapterConfig, add_adapter, load_adapter, merge_adapter, save_adapter
from litebert.model.config import preset, vary
from litebert.model.heads import ClassificationModel, Model, PretrainingModel
from litebert.predict.adapters import Adapter, make_adapter
from litebert.predict.runtime import Outputs, Request, outputs_of
from litebert.predict.torch_runtime import TorchRuntime
from litebert.tasks.task import Task
from litebert.train.device import Device, DeviceConfig, open_device

TASK = Task("mood", "classification", labels=("bad", "good"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="albert-base")
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", help="write JSON here")
    options = parser.parse_args()
    device = open_device(DeviceConfig(device=options.device, threads=options.threads))
    torch.manual_seed(0)
    config = vary(preset(options.preset), labels=TASK.labels)
    base = PretrainingModel(config)
    with tempfile.TemporaryDirectory() as folder:
        folders = [write_adapter(Path(folder, str(n)), base, options.rank) for n in range(options.adapters)]
        shared = TorchRuntime(copy_base(base, PretrainingModel), device)
        adapters = [open_one(each, base, shared) for each in folders]
        merged = [TorchRuntime(merge_one(each, base), device) for each in folders[: options.adapters]]
    ids = np.random.default_rng(0).integers(5, config.vocab_size, (options.sequences, options.length), np.int32)
    turns = [number % options.adapters for number in range(options.sequences)]
    mix = requests(ids, [adapters[number] for number in turns])
    found = shared.run(mix)
    worst = max(
        float(np.abs(output["logits"] - merged[turn].run(requests(ids[i : i + 1], [None]))[0]["logits"]).max())
        for i, (turn, output) in enumerate(zip(turns, found, strict=True))
    )
    ways: dict[str, Callable[[], list[Outputs]]] = {
        "no adapter": lambda: shared.run(requests(ids, [None] * len(ids), "pooled")),
        "one, merged": lambda: merged[0].run(requests(ids, [None] * len(ids))),
        "one": lambda: shared.run(requests(ids, [adapters[0]] * len(ids))),
        f"mix of {options.adapters}": lambda: shared.run(mix),
    }
    seconds = measure(ways, options.rounds, device, options.threads)
    alone, result = seconds["one, merged"], describe(options, device)
    result["largest difference of a logit"] = worst
    for name, times in seconds.items():
        share = statistics.median(a / b for a, b in zip(alone, times, strict=True))
        rate = options.sequences * options.length / statistics.median(times)
        result[name] = {"tokens per second": round(rate), "of one merged": round(share, 3)}
        print(f"{name:12} {rate:10,.0f} tokens/s   {share:.3f} of one merged")
    print(f"largest difference of a logit {worst:.1e}")
    if options.out:
        write_atomic(options.out, json.dumps(result, indent=1) + "\n")


def copy_base(base: Model, kind: type[Model]) -> Model:
    """A model of another head with the base's encoder in it, as its own copy."""
    model = kind(base.config)
    model.encoder.load_state_dict(base.encoder.state_dict())
    return model.eval()


def write_adapter(folder: Path, base: Model, rank: int) -> Path:
    """An adapter folder with random numbers."""
    model = copy_base(base, ClassificationModel)
    add_adapter(model, AdapterConfig(rank=rank))
    for name, parameter in model.named_parameters():
        if ".lora_b" in name:
            parameter.data = 0.02 * torch.randn(parameter.shape)
    return save_adapter(model, folder, "base")


def open_one(folder: Path, base: Model, runtime: TorchRuntime) -> Adapter:
    """An adapter for shared passes."""
    model = copy_base(base, ClassificationModel)
    load_adapter(model, folder)
    like = runtime.encoder.embeddings.word.weight
    return make_adapter(folder.name, model, TASK, base.encoder.state_dict(), like, outputs_of(model))


def merge_one(folder: Path, base: Model) -> Model:
    """The same adapter as a model of its own."""
    model = copy_base(base, ClassificationModel)
    load_adapter(model, folder)
    merge_adapter(model)
    return model.eval()


def requests(ids: Any, adapters: list[Any], want: str = "logits") -> list[Request]:
    return [
        Request(row, np.zeros(len(row), np.int8), frozenset({want}), adapter=adapter)
        for row, adapter in zip(ids, adapters, strict=True)
    ]


def measure(
    ways: dict[str, Callable[[], list[Outputs]]], rounds: int, device: Device, threads: int
) -> dict[str, list[float]]:
    """Seconds of each way in each round, in turns."""
    clock = time.process_time if threads == 1 and not device.is_cuda else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, run in ways.items():
            began = clock()
            run()  # its outputs are on the CPU, so the device is done
            if number:  # the first round warms up
                seconds[name].append(clock() - began)
    return seconds


def describe(options: argparse.Namespace, device: Device) -> dict[str, Any]:
    machine = device.name if device.is_cuda else cpu_name()
    setting = {name: value for name, value in vars(options).items() if name != "out"}
    return {"setting": setting, "machine": machine, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}


if __name__ == "__main__":
    main()
