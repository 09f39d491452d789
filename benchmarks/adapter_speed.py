"""Training an adapter beside full fine-tuning: steps per second and memory at equal batches, taken in turn.

    python benchmarks/adapter_speed.py default --batch 32 --length 128 --rank 8 --steps 20
    python benchmarks/adapter_speed.py default --batch 4 --length 32 --steps 2 --device cpu      # a smoke run

All are the Trainer's own steps on the same random texts: forward, backward, clipping, update. Steps are taken in turn
and the medians compared, so that a busy machine is busy for all. Memory on a GPU is what torch allocated at most; on a
CPU, where nothing counts it, the bytes of weights, gradients and optimiser, and of what the graph keeps of a step.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.finetuning.config import finetune_config
from litebert.finetuning.data import open_tokenizer, read_data
from litebert.finetuning.run import Finetuning
from litebert.model.config import load_config
from litebert.tasks.read import read_task
from litebert.train.trainer import Trainer, open_machine

WORDS = "the a film story was is very and it we saw more good bad one day house river people".split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20, help="of each, after as many again to warm up (at most 5)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    arguments = parser.parse_args()
    ways: dict[str, dict[str, Any]] = {
        "full fine-tuning": {},
        "adapter": {"adapter": {"rank": arguments.rank}},
    }
    layers = load_config(arguments.model).num_hidden_layers
    ways["adapter per application"] = {
        "adapter": {"rank": layers * max(1, arguments.rank // layers), "per_application": True}
    }
    with tempfile.TemporaryDirectory() as folder:
        trainers = {name: make_trainer(Path(folder) / name, arguments, more) for name, more in ways.items()}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        memory = dict.fromkeys(ways, 0)
        warm = min(5, arguments.steps)
        for number in range(warm + arguments.steps):
            for name, trainer in trainers.items():
                took, most = one_step(trainer, measure=number == 0)
                if number >= warm:
                    seconds[name].append(took)
                memory[name] = max(memory[name], most)
        for trainer in trainers.values():
            trainer.__exit__(None, None, None)
    report(arguments, seconds, memory, trainers)


def make_trainer(folder: Path, arguments: argparse.Namespace, more: dict[str, Any]) -> Trainer:
    """A run that has begun, on random texts of one length."""
    random = np.random.default_rng(0)
    rows = [
        {"text": " ".join(random.choice(WORDS, arguments.length)), "label": "pn"[number % 2]}
        for number in range(2 * arguments.batch)
    ]
    config = finetune_config(
        {
            "task": "classification",
            "model": arguments.model,
            "batch": arguments.batch,
            "steps": 1000,
            "max_length": arguments.length,
            "micro_batch_tokens": arguments.batch * arguments.length,
            "device": {"device": arguments.device, "threads": arguments.threads, "precision": arguments.precision},
            "log": {"evaluate_every": 0},
            **more,
        }
    )
    data = read_data(
        config, open_tokenizer(config.model), load_config(config.model), read_task("classification", train=rows)
    )
    world, device = open_machine(config.device)
    folder.mkdir(parents=True)
    trainer = Trainer(Finetuning(config, data, device, world), config, folder, device, world, quiet=True)
    trainer.__enter__()
    return trainer


def one_step(trainer: Trainer, measure: bool) -> tuple[float, int]:
    """Seconds of a step, and the bytes that it needs at most."""
    on_gpu = trainer.device.is_cuda
    kept: dict[int, int] = {}
    own = {parameter.untyped_storage().data_ptr() for parameter in trainer.learner.model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    counting = measure and not on_gpu and trainer.learner.model.encoder.keeping is None
    if counting:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            took = timed(trainer)
    elif measure and not on_gpu:
        took = timed_lean(trainer, pack)
    else:
        if on_gpu:
            torch.cuda.synchronize()
            before = other_memory(trainer)
            torch.cuda.reset_peak_memory_stats()
        took = timed(trainer)
        if on_gpu:
            return took, torch.cuda.max_memory_allocated() - before
    return took, sum(kept.values()) + fixed_bytes(trainer) if measure else 0


def other_memory(trainer: Trainer) -> int:
    """What is allocated on the GPU for the other ways: all but this one's weights and moments."""
    return torch.cuda.memory_allocated() - fixed_bytes(trainer, gradients=False)


def timed(trainer: Trainer) -> float:
    """One step as the Trainer's loop takes it."""
    trainer.device.synchronize()
    began = time.perf_counter()
    totals, _ = trainer.forward_backward()
    trainer.update(totals)
    trainer.take_step.clear()
    trainer.step += 1
    trainer.device.synchronize()
    return time.perf_counter() - began


def timed_lean(trainer: Trainer, count: Any) -> float:
    """The same, counting what an adapter's own way of keeping tensors keeps."""
    lean = trainer.learner.model.encoder.keeping.__self__  # type: ignore[union-attr]
    plain = lean._pack

    def pack(tensor: torch.Tensor) -> Any:
        kept = plain(tensor)
        if isinstance(kept, torch.Tensor):
            count(kept)
        return kept

    lean._pack = pack
    took = timed(trainer)
    del lean._pack
    return took


def fixed_bytes(trainer: Trainer, gradients: bool = True) -> int:
    """Weights, gradients of what learns, and the optimiser's moments."""
    total = 0
    for parameter in trainer.learner.model.parameters():
        total += parameter.nbytes * (1 + (gradients and parameter.requires_grad))
        state = trainer.learner.optimizer.state.get(parameter, {})
        total += sum(value.nbytes for value in state.values() if isinstance(value, torch.Tensor))
    return total


def learning(trainer: Trainer) -> int:
    return sum(parameter.numel() for parameter in trainer.learner.model.parameters() if parameter.requires_grad)


def way_of(trainer: Trainer) -> str:
    """Which layers ran, and how: what is compared should have gone the same way."""
    layers = "plain" if trainer.learner.model.encoder.fast_layers is None else "fast"
    recorded = bool(getattr(trainer.take_step, "_recordings", ()))
    return f"{layers}, {'recorded' if recorded else 'kernel by kernel'}"


def report(
    arguments: argparse.Namespace, seconds: dict[str, list[float]], memory: dict[str, int], trainers: dict[str, Trainer]
) -> None:
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    learned = {name: learning(trainer) for name, trainer in trainers.items()}
    ways = {name: way_of(trainer) for name, trainer in trainers.items()}
    full = "full fine-tuning"
    print(f"batch {arguments.batch} x {arguments.length} tokens, {machine}, torch {torch.__version__}")
    print(
        "| | learning parameters | ms per step | speed | MB | memory | layers, steps |\n|---|---|---|---|---|---|---|"
    )
    for name, value in middle.items():
        print(
            f"| {name} | {learned[name]:,} | {1000 * value:.0f} | {middle[full] / value:.2f}x | "
            f"{memory[name] / 1e6:.0f} | {memory[name] / memory[full]:.2f}x | {ways[name]} |"
        )
    if arguments.out is not None:
        facts = {"machine": machine, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
        figures = {
            name: {
                "seconds": seconds[name],
                "bytes": memory[name],
                "parameters": learned[name],
                "way": ways[name],
            }
            for name in seconds
        }
        arguments.out.write_text(
            json.dumps({**facts, "batch": arguments.batch, "length": arguments.length, "ways": figures})
        )


if __name__ == "__main__":
    main()
