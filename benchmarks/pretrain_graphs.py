"""Recorded pretraining steps on a GPU: against plain ones: equal values, equal learning, and their milliseconds.

    python benchmarks/pretrain_graphs.py [--part right|fast] [--steps 200] [--out result.json]

A step is recorded with one batch and replayed with another, then once more after the weights have changed: what is
frozen into a graph by mistake shows there. That plain steps are right is gpu_check.py's business. Then times, and a
small run with stages of depth and length: plain, replayed, and as `graphs: auto` chooses. CI has no GPU, so this is a
script; tests/pretraining/test_graphs.py holds what surrounds the graphs. `--device cpu` checks the script itself,
without graphs.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litebert.files import write_atomic
from litebert.model.config import ModelConfig, preset, vary
from litebert.model.heads import MaskedLMModel, PretrainingModel, PretrainingOutput
from litebert.pretraining.batches import NO_LABEL
from litebert.pretraining.config import RunConfig, run_config
from litebert.pretraining.dry_run import random_inputs
from litebert.pretraining.objective import Inputs, Totals, run_model, score, scorer, weigh
from litebert.pretraining.run import pretrain
from litebert.text.generate import generate_documents
from litebert.text.store import TokenStore
from litebert.text.train_vocab import VocabConfig, train_vocab
from litebert.train.device import Device, DeviceConfig, open_device, seed_everything, speed_up
from litebert.train.graphs import GraphStep
from litebert.train.log import read_metrics
from litebert.train.optimizer import clip_gradients, make_optimizer
from litebert.train.trainer import Loss, PlainStep

MOST = 0.01  # relative difference of a gradient: the same kernels, of which some add in any order
VOCABULARY = 1000
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def small_shape(**changes: Any) -> ModelConfig:
    """6 x 256, as the small reproductions have it."""
    size: dict[str, Any] = dict(hidden_size=256, num_attention_heads=4, intermediate_size=1024, num_hidden_layers=6)
    return vary(preset("albert-base"), **{**size, "vocab_size": VOCABULARY, **NO_DROPOUT, **changes})


def draw(seed: int, device: Device, longest: int = 128) -> Inputs:
    """Sequences of random lengths, filler behind them, and unused places among predictions and sequences."""
    rng = np.random.default_rng(seed)
    tokens = 4096 if device.is_cuda else 512
    starts = [0]
    while starts[-1] < tokens - 2 * longest:
        starts.append(starts[-1] + int(rng.integers(16, longest + 1)))
    real, sequences = len(starts) - 1, tokens // 16
    text = starts[-1]
    starts += list(range(text + longest, tokens, longest))
    bounds = np.array(starts + [tokens] * (sequences + 1 - len(starts)))
    positions = np.arange(tokens) - np.repeat(bounds[:-1], np.diff(bounds))
    ids = rng.integers(5, VOCABULARY, tokens)
    ids[text:] = 0
    places = rng.permutation(np.flatnonzero(positions[:text] > 0))[: text // 7]
    masked, labels = np.zeros(tokens // 6, np.int64), np.full(tokens // 6, NO_LABEL)
    masked[: len(places)], labels[: len(places)] = places, ids[places]
    order = np.full(sequences, NO_LABEL)
    order[:real] = rng.integers(0, 2, real)
    segments = (positions >= longest // 4).astype(np.int64)
    long = [torch.from_numpy(x.astype(np.int64)) for x in (ids, segments, positions, masked, labels, order)]
    return Inputs(*long[:3], torch.from_numpy(bounds.astype(np.int32)), *long[3:], longest)


def moved(inputs: Inputs, device: Device) -> Inputs:
    return Inputs._make(x.to(device.device) if isinstance(x, Tensor) else x for x in inputs)


def counts_of(inputs: Inputs) -> Tensor:
    return torch.stack([(inputs.labels >= 0).sum(), (inputs.order >= 0).sum()]).float()


def make_step(model: PretrainingModel, device: Device) -> PlainStep | GraphStep:
    """As a run makes it, on a copy of the model; on a GPU always replayed."""
    model = copy.deepcopy(model).to(device.device)
    speed_up(model, device)
    if device.is_cuda:
        return GraphStep(PlainStep(model, device, loss_of(model, scorer(device))), choose=False, check=True)
    return PlainStep(model, device, loss_of(model, score))


def plain_of(step: PlainStep | GraphStep) -> PlainStep:
    return step.plain if isinstance(step, GraphStep) else step


def loss_of(model: PretrainingModel, scored: Callable[[PretrainingOutput, Inputs], Totals]) -> Loss:
    return lambda inputs, counts: weigh(scored(run_model(model, inputs), inputs), counts)


def check_step(objective: str, device: Device) -> dict[str, Any]:
    """Gradients and totals of replayed steps, two micro-batches each, against plain ones."""
    torch.manual_seed(0)
    model = (MaskedLMModel if objective == "none" else PretrainingModel)(small_shape())
    step = make_step(model, device)
    reference = plain_of(make_step(model, device))
    errors: dict[str, list[float]] = {}
    for depth in (2, 6):
        for each in (step, reference):
            each.model.encoder.set_depth(depth)
            each.renew()
        found_errors = []
        for seeds, change in (((1, 2), 1.0), ((3, 4), 1.0), ((3, 4), 1.1)):
            batches = [draw(seed, device) for seed in seeds]
            counts = torch.stack([counts_of(batch) for batch in batches]).sum(0)
            totals = []
            for each in (step, reference):
                with torch.no_grad():
                    torch._foreach_mul_([p for p in each.model.parameters() if p.ndim == 2], change)
                each.clear()
                sums = [each(moved(b, device), counts.to(device.device)).cpu() for b in batches]
                totals.append(torch.stack(sums).sum(0))
            found, expected = totals
            assert torch.equal(found[[2, 5]], expected[[2, 5]]), "what is counted"
            losses = (found - expected)[[0, 3]].abs() / expected[[0, 3]].clamp(min=1)
            found_errors.append(max(gradient_error(step.model, reference.model), float(losses.max())))
        errors[f"depth {depth}"] = found_errors
    worst = max(max(values) for values in errors.values())
    return {"ok": worst < MOST and not step.news, "errors": errors, "news": step.news}


def gradient_error(model: PretrainingModel, reference: PretrainingModel) -> float:
    """The largest difference of a parameter's gradient, as a share of its size."""
    pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True)]
    assert all((p is None) == (q is None) for p, q in pairs)
    there = [(p, q) for p, q in pairs if p is not None and q is not None]
    # Those that are nearly nothing, such as the keys' bias, are all rounding: held to the typical one.
    typical = float(torch.stack([q.norm() / q.numel() ** 0.5 for _, q in there]).median())
    return max(float((p - q).norm() / max(float(q.norm()), typical * q.numel() ** 0.5)) for p, q in there)


def check_dropout(device: Device) -> dict[str, Any]:
    """A replay drops what the plain step drops: the seed decides, not the way."""
    torch.manual_seed(0)
    model = PretrainingModel(small_shape(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.1))
    batch = draw(1, device)
    step = make_step(model, device)
    inputs, counts = moved(batch, device), counts_of(batch).to(device.device)
    losses = {}
    for way, take in (
        ("plain", lambda: plain_of(step)(inputs, counts)),
        ("step", lambda: step(inputs, counts)),
    ):
        losses[way] = []
        for seed in (1, 2, 1):
            seed_everything(seed)
            losses[way].append([float(take()[0]), float(take()[0])])  # two micro-batches of one step
    plain, replayed = losses["plain"], losses["step"]
    near = np.allclose(plain, replayed, rtol=1e-4)  # another seed is farther away
    return {"ok": near and plain[0] == plain[2] != plain[1] and not step.news, **losses, "news": step.news}


def check_failure(device: Device) -> dict[str, Any]:
    """A step that waits for the GPU cannot be recorded: that is told, and plain ones go on, dropout and all."""
    if not device.is_cuda:
        return {"ok": True}
    torch.manual_seed(0)
    step = make_step(PretrainingModel(small_shape(hidden_dropout_prob=0.3)), dataclasses.replace(device, compile=False))
    plain = plain_of(step)
    batch = draw(1, device)
    inputs, counts = moved(batch, device), counts_of(batch).to(device.device)
    plainly = plain.loss

    def waits(inputs: Inputs, counts: Tensor) -> tuple[Tensor, Tensor]:
        loss, sums = plainly(inputs, counts)
        if torch.cuda.is_current_stream_capturing():
            sums[2].item()
        return loss, sums

    plain.loss = waits
    losses = []
    for _ in range(3):
        seed_everything(1)
        losses.append(float(step(inputs, counts)[0]))
    return {"ok": len(set(losses)) == 1 and len(step.news) == 1, "losses": losses, "news": step.news}


def check_runs(device: Device, choices: DeviceConfig, steps: int) -> dict[str, Any]:
    """The same run with and without graphs: mean loss of its last tenth, tokens per second, what was told."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = list(generate_documents(3000, seed=1))
        (folder / "text.txt").write_text("\n\n".join("\n".join(text) for text in texts), encoding="utf-8")
        tokenizer = train_vocab([folder / "text.txt"], VocabConfig(vocab_size=VOCABULARY)).tokenizer
        tokenizer.save(folder / "tokenizer")
        encoded = [tokenizer.encode_batch(text) for text in texts]
        TokenStore.write(folder / "store", encoded, tokenizer.fingerprint, tokenizer.vocab_size)
        for graphs in ("off", "on", "auto") if device.is_cuda else ("off",):
            config = small_run(folder, dataclasses.replace(choices, graphs=graphs), steps)  # type: ignore[arg-type]
            torch._dynamo.reset()  # or the third run would find too many shapes compiled, and be run without
            began = time.perf_counter()
            pretrain(config, folder / graphs, quiet=True)
            lines = read_metrics(folder / graphs / "metrics.jsonl")
            train = [line for line in lines if line["kind"] == "train"]
            results[graphs] = {
                "losses": [round(line["loss"], 4) for line in train],
                "tokens_per_second": round(statistics.median(line["tokens_per_second"] for line in train[-5:])),
                "seconds": round(time.perf_counter() - began, 1),
                "events": [line["message"] for line in lines if line["kind"] == "event"],
            }
            print(graphs, json.dumps(results[graphs]), flush=True)
    last = [found["losses"][-1] for found in results.values()]  # small differences grow where a run leaves a plateau
    told = [message for found in results.values() for message in found["events"] if "cannot be recorded" in message]
    return {"ok": max(last) < 1.1 * min(last) and not told, "last_losses": last, "runs": results}


def small_run(folder: Path, device: DeviceConfig, steps: int) -> RunConfig:
    return run_config(
        {
            "model": dataclasses.asdict(small_shape(max_position_embeddings=128)),
            "data": {"stores": [str(folder / "store")], "tokenizer": str(folder / "tokenizer"), "row_tokens": 4096},
            "recipe": {"max_length": 128},
            "optim": {"name": "adamw", "lr": 3e-4},
            "steps": steps,
            "batch_tokens": 8192,
            "micro_batch_tokens": 8192,
            "depth": [{"until": 0.5, "value": 3}, {"until": 1.0, "value": 6}],
            "length": [{"until": 0.25, "value": 64}, {"until": 1.0, "value": 128}],
            "device": dataclasses.asdict(device),
            "log": {"report_every": max(1, steps // 20), "evaluate_every": steps // 2},
        }
    )


def time_case(shape: ModelConfig, tokens: int, device: Device, rounds: int = 5, count: int = 20) -> dict[str, Any]:
    """Milliseconds of a micro-batch and of a whole step with clipping and optimiser: plain and replayed, in turns."""
    inputs = random_inputs(shape, tokens, 128, 0.15, device)
    counts = counts_of(inputs)
    config = RunConfig(model=shape, batch_tokens=tokens, micro_batch_tokens=tokens)
    sides: dict[str, list[Callable[[], None]]] = {}
    for name in ("plain", "replayed"):
        step = make_step(PretrainingModel(shape), device)
        if name == "plain":
            step = plain_of(step)
        optimizer = make_optimizer(step.model, config.optim, config.learning_rate().peak)

        def gradients(step: PlainStep | GraphStep = step) -> None:
            step(inputs, counts)

        def whole(step: PlainStep | GraphStep = step, optimizer: torch.optim.Optimizer = optimizer) -> None:
            step.clear()
            step(inputs, counts)
            clip_gradients(step.model.parameters())
            optimizer.step()

        sides[name] = [gradients, whole]
    if not device.is_cuda:
        rounds, count = 1, 1
    found: dict[str, list[float]] = {}
    for turn in range(rounds + 1):  # the first one compiles and records
        for name, works in sides.items():
            for what, work in zip(("micro-batch", "whole step"), works, strict=True):
                device.synchronize()
                began = time.perf_counter()
                for _ in range(count):
                    work()
                device.synchronize()
                if turn:
                    found.setdefault(f"{name}, {what}", []).append(1000 * (time.perf_counter() - began) / count)
    return {"ok": True, **{name: round(statistics.median(times), 2) for name, times in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--part", choices=["all", "right", "fast"], default="all", help="numbers only, or times only")
    parser.add_argument("--steps", type=int, default=200, help="of each of the small runs")
    parser.add_argument("--out", help="write JSON here")
    options = parser.parse_args()
    choices = DeviceConfig(device=options.device)
    device = open_device(choices)
    plain = dataclasses.replace(device, fast_layers=False)
    small = small_shape(vocab_size=8000)
    large, tokens = (vary(preset("albert-base"), **NO_DROPOUT), 32_768) if device.is_cuda else (small, 1024)
    right: dict[str, Callable[[], dict[str, Any]]] = {
        "sop, fast layers": lambda: check_step("sop", device),
        "none, fast layers": lambda: check_step("none", device),
        "sop, plain layers": lambda: check_step("sop", plain),
        "none, plain layers": lambda: check_step("none", plain),
        "dropout": lambda: check_dropout(device),
        "failed recording": lambda: check_failure(device),
    }
    fast: dict[str, Callable[[], dict[str, Any]]] = {
        "6 x 256, 8,192 tokens: ms": lambda: time_case(small, min(tokens, 8192), device),
        "albert-base, 32,768 tokens: ms": lambda: time_case(large, tokens, device),
        "runs": lambda: check_runs(device, choices, options.steps),
    }
    checks = {"all": right | fast, "right": right, "fast": fast}[options.part]
    results: dict[str, Any] = {"device": device.name, "torch": torch.__version__}
    for name, check in checks.items():
        began = time.perf_counter()
        try:
            results[name] = check()
        except Exception as error:  # the others are still worth knowing
            traceback.print_exc(limit=-4)
            results[name] = {"ok": False, "error": str(error)[:300]}
        results[name]["seconds"] = round(time.perf_counter() - began, 1)
        print(name, json.dumps(results[name]), flush=True)
        torch._dynamo.reset()  # another model is another set of shapes
        if options.out:
            write_atomic(options.out, json.dumps(results, indent=1) + "\n")
    wrong = [name for name, found in results.items() if isinstance(found, dict) and not found["ok"]]
    print("WRONG: " + ", ".join(wrong) if wrong else "all right")


if __name__ == "__main__":
    main()
