"""Every path through the model on a GPU against the reference: values, gradients, and the loss of some hundred steps.

    python benchmarks/gpu_check.py [--steps 300] [--out result.json]

First the loss and all gradients of one packed batch: plain layers in fp32 and bf16, the fast layers, the fast layers in
FP8, each against fp32 on the CPU. Then the same training run, batch by batch, by each of them. CI has no GPU, so this
is a script; what can run on a CPU is held by tests/model/fast. `--device cpu` checks the script itself.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch

from litebert.files import write_atomic
from litebert.model.config import ModelConfig, preset
from litebert.model.heads import PretrainingModel
from litebert.pretraining.batches import Batches
from litebert.pretraining.dry_run import random_inputs
from litebert.pretraining.objective import Inputs, run_exits, run_model, score, scorer, to_device
from litebert.pretraining.recipes import Recipe
from litebert.text.generate import generate_documents
from litebert.text.store import TokenStore
from litebert.text.train_vocab import VocabConfig, train_vocab
from litebert.train.device import Device, DeviceConfig, open_device, speed_up
from litebert.train.optimizer import AdamW, clip_gradients, parameter_groups

WAYS: dict[str, tuple[dict[str, Any], float]] = {  # a way, and how far from the reference it may be
    "fp32": ({"precision": "fp32", "compile": "off"}, 2e-3),
    "bf16": ({"compile": "off"}, 0.05),
    "bf16 compiled": ({"fast_layers": "off"}, 0.05),
    "bf16 fast": ({}, 0.05),
    "bf16 fast, recomputed": ({"recompute": True}, 0.05),
    "fp8 fast": ({"fp8": True}, 0.3),
}


def run(model: PretrainingModel, inputs: Inputs, device: Device) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients; of a model with exits, of the mean over them."""
    model.zero_grad(set_to_none=True)
    exits = model.config.exits
    with device.autocast():
        outputs = list(run_exits(model, inputs, exits)) if exits else [run_model(model, inputs)]
        scored = [score(output, inputs) for output in outputs]
    losses = [totals.mlm_loss / totals.mlm_count + totals.sentence_loss / totals.sentence_count for totals in scored]
    loss = torch.stack(losses).mean()
    loss.backward()
    return loss.item(), {name: p.grad.float().cpu() for name, p in model.named_parameters() if p.grad is not None}


def check_gradients(config: ModelConfig, ways: dict[str, Device]) -> tuple[dict[str, Any], bool]:
    """Each way against fp32 on the CPU, on one batch."""
    cpu = open_device(DeviceConfig(device="cpu"))
    torch.manual_seed(0)
    model = PretrainingModel(config)
    inputs = random_inputs(config, 2048, 128, 0.15, cpu)
    expected_loss, expected = run(model, inputs, cpu)
    found, passed = {}, True
    for name, device in ways.items():
        copy = PretrainingModel(config).to(device.device)
        copy.load_state_dict(model.state_dict())
        speed_up(copy, device)
        moved = Inputs(*(x.to(device.device) if isinstance(x, torch.Tensor) else x for x in inputs))
        try:
            loss, gradients = run(copy, moved, device)
        except Exception:  # the other ways are still worth knowing
            traceback.print_exc()
            found[name], passed = {"ok": False}, False
            continue
        errors = {
            key: float((gradients[key] - g).norm() / g.norm().clamp(min=1e-12))
            for key, g in expected.items()
            if not key.endswith("key.bias")  # its true gradient is 0
        }
        worst = max(errors, key=errors.__getitem__)
        limit = WAYS[name][1]
        ok = abs(loss - expected_loss) < limit and errors[worst] < limit
        passed &= ok
        found[name] = {"loss": loss, "worst": worst, "relative_error": errors[worst], "ok": ok}
        print(
            f"{name:24s} loss {loss:.5f} (reference {expected_loss:.5f})  largest relative gradient error "
            f"{errors[worst]:.2e} ({worst})  {'ok' if ok else 'TOO FAR'}",
            flush=True,
        )
    return found, passed


def check_training(config: ModelConfig, ways: dict[str, Device], steps: int) -> tuple[dict[str, list[float]], bool]:
    """The same run by each way: mean loss of every tenth of it. The fast ways must learn as the plain one does."""
    with tempfile.TemporaryDirectory() as folder:
        texts = list(generate_documents(3000, seed=1))
        (Path(folder) / "text.txt").write_text("\n\n".join("\n".join(text) for text in texts), encoding="utf-8")
        tokenizer = train_vocab([Path(folder) / "text.txt"], VocabConfig(vocab_size=1000)).tokenizer
        encoded = [tokenizer.encode_batch(text) for text in texts]
        TokenStore.write(Path(folder) / "store", encoded, tokenizer.fingerprint, tokenizer.vocab_size)
        store = TokenStore.open(Path(folder) / "store", tokenizer)
        batches = Batches(store, tokenizer, Recipe(max_length=128), tokens_per_batch=8192, row_tokens=8192)
        packed = [batches.batch(step) for step in range(steps)]
    curves = {}
    # Beside the ways, the first of them again from weights that differ in the third digit: how far apart two runs of
    # one arithmetic end. Where a run leaves the plateau, small differences grow.
    first = next(iter(ways))
    for name, device in {**ways, f"{first}, disturbed": ways[first]}.items():
        torch.manual_seed(0)
        model = PretrainingModel(config).to(device.device)
        if name.endswith("disturbed"):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1 + 1e-3 * torch.randn_like(parameter))
        model.encoder.set_depth(2)
        speed_up(model, device)
        scored = scorer(device)
        optimizer = AdamW(parameter_groups(model), lr=1e-3, betas=(0.9, 0.98))
        losses = []
        for step, batch in enumerate(packed):
            inputs = to_device(batch, device.device, 128)
            with device.autocast():
                totals = scored(run_model(model, inputs), inputs)
            loss = totals.mlm_loss / totals.mlm_count + totals.sentence_loss / totals.sentence_count.clamp(min=1)
            loss.backward()
            clip_gradients(model.parameters())
            optimizer.param_groups[0]["lr"] = optimizer.param_groups[-1]["lr"] = 1e-3 * min(1, (step + 1) / 50)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        curve = torch.stack(losses).view(10, -1).mean(1).tolist()
        curves[name] = curve
        print(f"{name:24s} " + "  ".join(f"{value:.3f}" for value in curve), flush=True)
    reference = next(iter(curves.values()))[-1]
    return curves, all(abs(curve[-1] - reference) < 0.1 * reference for curve in curves.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="a multiple of ten")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda", help="cpu: only to see that the script works")
    options = parser.parse_args()
    if options.device == "cpu":
        ways = {"fp32": open_device(DeviceConfig(device="cpu"))}
        shape: dict[str, Any] = dict(hidden_size=32, num_attention_heads=2, intermediate_size=64, embedding_size=16)
    else:
        ways = {name: open_device(DeviceConfig(device="cuda", **choice)) for name, (choice, _) in WAYS.items()}
        shape = {}
    gradients, first = check_gradients(preset("albert-base", num_hidden_layers=4, **shape), ways)
    print("with exits", flush=True)
    of_exits, also = check_gradients(preset("albert-base", num_hidden_layers=4, exits=(1, 2, 4), **shape), ways)
    learner = preset("albert-base", num_hidden_layers=2, vocab_size=1000, **shape)
    working = {name: device for name, device in ways.items() if gradients[name]["ok"]}
    curves, second = check_training(learner, working, options.steps)
    if options.out:
        write_atomic(
            options.out, json.dumps({"gradients": gradients, "exits": of_exits, "curves": curves}, indent=1) + "\n"
        )
    raise SystemExit(not (first and also and second))


if __name__ == "__main__":
    main()
