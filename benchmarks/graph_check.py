"""Recorded graphs on a GPU against fp32 on the CPU: fine-tuning steps of every kind of task, predictions of every head.

    python benchmarks/graph_check.py [--only adapter] [--out result.json]

A step is recorded with one batch and replayed with another, then once more after the weights have changed: what is
frozen into a graph by mistake shows there. Dropout must follow the seed. Passes of every kind of encoder are checked
both ways, by large products and by the kernels for few tokens, whichever would be chosen for its speed, and once more
in another order, since all graphs share their memory. Two models at a time must not disturb each other, nor must a
recording that fails. CI has no GPU, so this is a script; `--device cpu` checks the script itself, without graphs.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import re
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from litebert.files import write_atomic
from litebert.finetuning.batches import Batch, Layout, Shape, make_batch
from litebert.finetuning.model import batch_loss, to_device
from litebert.finetuning.run import Inputs, weigh
from litebert.model.adapter import add_adapter
from litebert.model.config import ADAPTER_TARGETS, AdapterConfig, ModelConfig, preset, vary
from litebert.model.heads import MODELS, EncoderModel, Model, model_class
from litebert.model.hub import load_model
from litebert.predict.fused import FusedEncoder
from litebert.predict.graphs import GraphedEncoder, sample_table
from litebert.predict.runtime import ENCODER_OUTPUTS, HEAD_OUTPUTS, Outputs, Request
from litebert.predict.torch_runtime import TorchRuntime
from litebert.tasks.features import Feature
from litebert.tasks.task import Task, kind_of
from litebert.train.device import Device, DeviceConfig, open_device, seed_everything, speed_up
from litebert.train.graphs import GraphStep
from litebert.train.schedule import loss_shares
from litebert.train.trainer import Loss, PlainStep

TASKS = (
    Task("classification", "classification", labels=("a", "b"), max_length=64),
    Task("regression", "regression", max_length=64),
    Task("multi-label", "multi-label", labels=("a", "b", "c"), max_length=64),
    Task("token-classification", "token-classification", labels=("O", "B"), max_length=64),
    Task("multiple-choice", "multiple-choice", num_choices=2, max_length=64),
    Task("span", "question-answering", max_length=64),
    Task("answer", "question-answering", answerable_head=True, max_length=64),
)
ADAPTERS = {
    "adapter": AdapterConfig(8),
    "adapter of all matrices": AdapterConfig(16, targets=ADAPTER_TARGETS),
    "adapter of a high rank": AdapterConfig(100),
    "adapter per application": AdapterConfig(8, per_application=True),
}
EXITS = loss_shares((1, 2, 4))  # every exit learns in every step
MOST = 0.05  # relative error of a gradient, in bf16
# Encoders for both ways of prediction; heads of 48 and 26 have no attention kernels of ours and no way for few tokens.
KINDS: dict[str, dict[str, Any]] = {
    "shared": {},
    "shared attention": {"sharing": "attention"},
    "groups": {"num_hidden_groups": 2, "inner_group_num": 2},
    "bert": {"model_type": "bert", "sharing": "none", "embedding_size": 256, "hidden_act": "gelu"},
    "heads of 48": {"hidden_size": 192},
    "heads of 26": {"hidden_size": 104},  # as ALBERT-tiny's
    "default": {},  # the trained model in the box
}
SHAPES: dict[Layout, Shape] = {"packed": Shape(640, 12 + 640 // 64 + 1), "padded": Shape(64, 12)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="the checks whose names have this in them")
    parser.add_argument("--out", help="write JSON here")
    options = parser.parse_args()
    device = open_device(DeviceConfig(device=options.device))
    layouts: tuple[Layout, ...] = ("packed", "padded")
    checks: dict[str, Callable[[], dict[str, Any]]] = {
        f"step {task.name}, {layout}": lambda task=task, layout=layout: check_step(task, layout, device)  # type: ignore[misc]
        for task in TASKS
        for layout in layouts
    }
    checks |= {
        f"step {name}": lambda adapter=adapter: check_step(TASKS[0], "packed", device, adapter)  # type: ignore[misc]
        for name, adapter in ADAPTERS.items()
    }
    checks |= {
        f"step {task.name} with exits, {layout}": lambda task=task, layout=layout: check_step(  # type: ignore[misc]
            task, layout, device, shares=EXITS
        )
        for task in TASKS
        for layout in layouts
    }
    checks["dropout"] = lambda: check_dropout(device)
    checks |= {f"pass {kind}": lambda kind=kind: check_pass(kind, device) for kind in KINDS}  # type: ignore[misc]
    checks |= {f"predict {head}": lambda head=head: check_head(head, device) for head in MODELS}  # type: ignore[misc]
    checks |= {"two threads": lambda: check_threads(device), "failed recording": lambda: check_failure(device)}
    results: dict[str, Any] = {"device": device.name, "torch": torch.__version__}
    for name, check in checks.items():
        if options.only not in name:
            continue
        began = time.perf_counter()
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                results[name] = check()
            results[name]["told"] = sorted(
                {str(w.message)[:200] for w in told if re.search("CUDA graph|Triton kernels", str(w.message))}
            )
            results[name]["ok"] &= not results[name]["told"]
        except Exception as error:  # the others are still worth knowing
            traceback.print_exc(limit=-3)
            results[name] = {"ok": False, "error": str(error)[:300]}
        results[name]["seconds"] = round(time.perf_counter() - began, 1)
        print(name, json.dumps(results[name]), flush=True)
        if options.out:
            write_atomic(options.out, json.dumps(results, indent=1) + "\n")
    wrong = [name for name, found in results.items() if isinstance(found, dict) and not found["ok"]]
    print("WRONG: " + ", ".join(wrong) if wrong else "all right")


def small_config(**changes: Any) -> ModelConfig:
    size: dict[str, Any] = dict(hidden_size=256, num_attention_heads=4, intermediate_size=1024, num_hidden_layers=4)
    return vary(preset("albert-base"), vocab_size=1000, **(size | changes))


def make_model(task: Task, dropout: float = 0.0, exits: tuple[int, ...] = ()) -> Model:
    torch.manual_seed(0)
    head = kind_of(task).head(task)
    labels = task.labels if head in ("classification", "token-classification") else ()
    return model_class(head)(small_config(labels=labels, classifier_dropout_prob=dropout, exits=exits)).train()


def draw(task: Task, layout: Layout, seed: int) -> Batch:
    """Twelve random sequences with targets."""
    rng = np.random.default_rng(seed)
    sequences = []
    for number in range(12):
        size = int(rng.integers(10, 50))
        targets: dict[str, Any] = {
            "classification": int(rng.integers(2)),
            "regression": float(rng.normal()),
            "multi-label": rng.integers(0, 2, 3).tolist(),
            "token-classification": rng.integers(0, 2, size),
            "multiple-choice": number // 2 % 2,
            "question-answering": (2, 5, bool(number % 2)),
        }
        sequences.append(
            Feature(
                ids=rng.integers(5, 1000, size).astype(np.int32),
                segments=(np.arange(size) > size // 2).astype(np.int8),
                example=number // 2,
                option=number % 2,
                target=targets[task.kind],
                inside=np.arange(size) > 1,
            )
        )
    return make_batch(task, sequences, layout, 0, SHAPES[layout])


def make_step(
    model: Model, task: Task, layout: Layout, device: Device, shares: Mapping[int, float] | None = None
) -> PlainStep | GraphStep:
    """As a run makes it, on a copy of the model."""
    model = copy.deepcopy(model).to(device.device)
    if layout == "packed":
        speed_up(model, dataclasses.replace(device, compile=False))
    loss = loss_of(model, task, shares)
    if device.is_cuda:
        return GraphStep(PlainStep(model, device, loss), choose=False, check=False)
    return PlainStep(model, device, loss)


def loss_of(model: Model, task: Task, shares: Mapping[int, float] | None = None) -> Loss:
    return lambda inputs, counts: weigh(*batch_loss(model, task.kind, *inputs[:4], shares), counts)


def take(step: PlainStep | GraphStep, batch: Batch, count: float = 4) -> torch.Tensor:
    """One step on a batch that is not on the device yet."""
    device = step.device.device
    inputs = Inputs(*to_device(batch, device), batch.max_length, batch.num_rows)
    return step(inputs, torch.tensor([count], device=device))


def check_step(
    task: Task,
    layout: Layout,
    device: Device,
    adapter: AdapterConfig | None = None,
    shares: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """Gradients of recorded steps against plain ones on the CPU."""
    model = make_model(task, exits=tuple(shares or ()))
    if adapter is not None:
        add_adapter(model, adapter)
        for name, parameter in model.named_parameters():
            if name.endswith("lora_b"):  # as after some training
                torch.nn.init.normal_(parameter, std=0.02)
    cpu = open_device(DeviceConfig(device="cpu"))
    step = make_step(model, task, layout, device, shares)
    reference = PlainStep(model, cpu, loss_of(model, task, shares))
    plainly: list[Any] = []  # calls of the plain layers
    step.model.encoder.attention[0].register_forward_hook(lambda *call: plainly.append(call[0]))
    errors = []
    for seed, change in ((1, 1.0), (2, 1.0), (2, 1.1)):
        batch = draw(task, layout, seed)
        for each in (step, reference):
            with torch.no_grad():
                torch._foreach_mul_([p for p in each.model.parameters() if p.ndim == 2], change)
            each.clear()
        found, expected = take(step, batch).float().cpu(), take(reference, batch).float()
        errors.append(max(gradient_error(step.model, model), float((found[0] - expected[0]).abs() / expected[0].abs())))
    ran = time_steps(step, draw(task, layout, 2), device)
    ok = max(errors) < MOST and not step.news
    ok &= bool(plainly) == (layout == "padded" or not device.is_cuda)
    return {"ok": ok, "errors": errors, "milliseconds": ran, "news": step.news}


def gradient_error(model: Model, reference: Model) -> float:
    """The largest difference of a parameter's gradient, as a share of that gradient.

    A bias that a softmax does not see, of the keys or of all starts and ends, has no gradient: what it gets is the
    rounding of a sum over all tokens. Such a one is held to the whole gradient.
    """
    pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True)]
    assert all((p is None) == (q is None) for p, q in pairs)
    there = [(p.float().cpu(), q) for p, q in pairs if p is not None and q is not None]
    sizes = torch.stack([q.norm() / q.numel() ** 0.5 for _, q in there])
    typical, whole = float(sizes.median()), float(torch.stack([q.norm() for _, q in there]).norm())
    return max(
        float((p - q).norm() / (whole if size < typical / 100 else max(float(q.norm()), typical * q.numel() ** 0.5)))
        for (p, q), size in zip(there, sizes.tolist(), strict=True)
    )


def time_steps(step: PlainStep | GraphStep, batch: Batch, device: Device, count: int = 20) -> float:
    device.synchronize()
    began = time.perf_counter()
    for _ in range(count if device.is_cuda else 1):
        take(step, batch)
    device.synchronize()
    return round(1000 * (time.perf_counter() - began) / count, 2)


def check_dropout(device: Device) -> dict[str, Any]:
    """Another seed, another loss; the same seed, the same loss."""
    task = TASKS[0]
    step, batch = make_step(make_model(task, dropout=0.5), task, "packed", device), draw(task, "packed", 1)
    losses = []
    take(step, batch, 1)  # recorded here
    for seed in (1, 2, 1):
        seed_everything(seed)
        losses.append(float(take(step, batch, 1)[0]))
    return {"ok": losses[0] == losses[2] != losses[1], "losses": losses, "news": step.news}


def check_pass(kind: str, device: Device) -> dict[str, Any]:
    """Whole passes in batches of recorded shapes against fp32 on the CPU; a replay gives the same bits again."""
    torch.manual_seed(0)
    model = load_model("default") if kind == "default" else EncoderModel(small_config(**KINDS[kind])).eval()
    cpu = open_device(DeviceConfig(device="cpu"))
    runtimes = [TorchRuntime(copy.deepcopy(model), each) for each in (device, cpu)]
    want, worst, passed = frozenset({"hidden", "first", "mean"}), 0.0, []
    for seed, sizes in ((1, (20, 33, 9)), (2, (25, 30, 8)), (3, (128,)), (4, (100,)), (5, (500, 300, 120)), (6, (3,))):
        requests = random_requests(seed, sizes, want | (frozenset({"pooled"}) & runtimes[1].outputs))
        found, expected = (runtime.run(requests) for runtime in runtimes)
        passed.append((requests, found))
        worst = max(worst, farthest(found, expected))
    for requests, found in (passed[-1], *reversed(passed)):
        for ours, same in zip(found, runtimes[0].run(requests), strict=True):
            for name in requests[0].want - {"mean"}:  # a mean is summed in any order
                assert np.array_equal(ours[name], same[name]), f"{name} differs from one run to the next"
    most = 2 * MOST if kind == "default" else MOST  # a trained layer applied twelve times enlarges its own rounding
    graphs = len(getattr(runtimes[0].encoder, "_graphs", ()))
    return {"ok": worst < most and bool(graphs) == device.is_cuda, "error": round(worst, 5), "graphs": graphs}


def random_requests(seed: int, sizes: tuple[int, ...], want: frozenset[str]) -> list[Request]:
    rng = np.random.default_rng(seed)
    ids = [rng.integers(5, 1000, size).astype(np.int32) for size in sizes]
    return [Request(each, (np.arange(len(each)) > len(each) // 2).astype(np.int8), want) for each in ids]


def farthest(found: list[Outputs], expected: list[Outputs]) -> float:
    """The largest difference of an output, as a share of its size."""
    pairs = [(ours[name], theirs[name]) for ours, theirs in zip(found, expected, strict=True) for name in theirs]
    return max(float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)) for ours, theirs in pairs)


def check_threads(device: Device) -> dict[str, Any]:
    """Two models that record and replay at the same time, as in a server, against each alone."""
    torch.manual_seed(0)
    models = [EncoderModel(small_config(num_hidden_layers=layers)).eval() for layers in (2, 3)]
    batches = [random_requests(size, (size,) * 3, frozenset({"hidden", "pooled"})) for size in (5, 20, 40, 90, 150)]

    def work(runtime: TorchRuntime) -> list[Outputs]:
        return [output for _ in range(20) for batch in batches for output in runtime.run(batch)]

    alone = [work(TorchRuntime(copy.deepcopy(model), device)) for model in models]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(work, [TorchRuntime(copy.deepcopy(model), device) for model in models]))
    worst = max(farthest(*pair) for pair in zip(together, alone, strict=True))
    return {"ok": worst < MOST, "error": round(worst, 5)}


@torch.inference_mode()
def check_failure(device: Device) -> dict[str, Any]:
    """A recording that waits for the GPU fails; random numbers, older graphs and later recordings go on."""
    encoder = TorchRuntime(EncoderModel(small_config()).eval(), device).encoder
    if not isinstance(encoder, GraphedEncoder):
        return {"ok": not device.is_cuda}
    table = sample_table((64, 1, 64), encoder.config).to(device.device)
    places = (table.ids, table.segments, table.positions, table.starts, table.longest)

    def waits() -> Any:
        output = FusedEncoder.encode(encoder, *places)
        if torch.cuda.is_current_stream_capturing():
            output.hidden.sum().item()
        return output

    graph = encoder._capture(lambda: FusedEncoder.encode(encoder, *places), table)
    expected = graph.replay(*table.used).hidden.clone()
    failed = ""
    try:
        encoder._capture(waits, table)
    except RuntimeError as error:
        failed = str(error.__context__ or error)[:100]
    torch.rand(4, device=device.device)
    later = encoder._capture(lambda: FusedEncoder.encode(encoder, *places), table)
    same = all(torch.equal(each.replay(*table.used).hidden, expected) for each in (later, graph))
    return {"ok": same and bool(failed), "failed": failed}


def check_head(head: str, device: Device) -> dict[str, Any]:
    """All outputs of a head in two batches of one recorded shape, against fp32 on the CPU."""
    torch.manual_seed(0)
    labels = ("a", "b", "c") if head in ("classification", "token-classification") else ()
    model = model_class(head)(small_config(labels=labels)).eval()
    cpu = open_device(DeviceConfig(device="cpu"))
    runtimes = [TorchRuntime(copy.deepcopy(model), each, max_tokens=8192) for each in (device, cpu)]
    want = (HEAD_OUTPUTS[head] | ENCODER_OUTPUTS) - {"start_index", "end_index", "start_log_prob", "end_log_prob"}
    worst: dict[str, float] = {}
    for seed, sizes in ((1, (20, 33, 9)), (2, (25, 30, 8)), (3, (400, 512, 300) * 5)):
        rng = np.random.default_rng(seed)
        requests = [
            Request(
                rng.integers(5, 1000, size).astype(np.int32),
                np.zeros(size, np.int8),
                want,
                np.array([1, 3]) if "masked_lm" in want else None,
                np.arange(size) == 1 if head == "answer" else None,
            )
            for size in sizes
        ]
        found, expected = (runtime.run(requests) for runtime in runtimes)
        for ours, theirs in zip(found, expected, strict=True):
            for name in want:
                difference = float(np.abs(ours[name] - theirs[name]).max() / max(0.1, np.abs(theirs[name]).max()))
                worst[name] = max(worst.get(name, 0.0), difference)
    return {"ok": max(worst.values()) < MOST, "errors": {name: round(value, 5) for name, value in worst.items()}}


if __name__ == "__main__":
    main()
