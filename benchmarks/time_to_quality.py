"""How many minutes from random weights to a masked-LM accuracy on unseen text? Optimisers, depths, transformers.

    python benchmarks/time_to_quality.py --store wiki --store simplewiki --tokenizer vocab --out results \\
        [--target 0.40] [--minutes 5] [--only muon adamw ...] [--model albert-base] [--batch 65536]

Every side reads the same batches (128 tokens, n-gram masks, sentence order) and is scored on the same held-out rows at
full depth; the clock counts training alone, after compilation, and stands still during evaluations. The learning rate
is constant after its warm-up and falls linearly in the last half of the budget, which depth schedules follow too. So
every side has a budget of its own, about what it needs (MINUTES; --minutes sets one for all); a side that would need
longer says "not reached". `transformers` is AlbertForPreTraining, compiled, with the best AdamW that
docs/results/pretraining.md found, and no depth schedule, since it has none.

Written after every side, so that a run that is cut short has lost nothing: RESULTS/results.json (curves, hardware,
versions), results.md and curves.svg.
    --small: a tiny model for some seconds on any machine, to find mistakes before a GPU is lent.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from litebert.bench import choose_mask, pad, peer_model
from litebert.config import merge, override
from litebert.files import write_atomic
from litebert.pretraining.config import RunConfig, run_config
from litebert.pretraining.data import Data, load_tokenizer, settle
from litebert.pretraining.evaluate import Scores
from litebert.pretraining.objective import to_device
from litebert.pretraining.run import Pretraining
from litebert.train.device import Device, open_device
from litebert.train.learner import Evaluation
from litebert.train.processes import StopRequest, World
from litebert.train.schedule import learning_rate
from litebert.train.trainer import Trainer

GROWING = {"depth": [{"until": 0.25, "value": 3}, {"until": 0.5, "value": 6}, {"until": 1.0, "value": 12}]}
ADAMW = {"optim": {"name": "adamw", "lr": 1e-3, "beta2": 0.98, "bias_correction": True}}
MUON = {"optim": {"name": "muon", "lr": 2e-3, "beta2": 0.98, "bias_correction": True}}
SIDES: dict[str, dict[str, Any]] = {
    "muon": MUON,
    "muon, growing depth": {
        **MUON,
        **GROWING,
        # An update of fixed size is felt at every application, so the rate falls with the depth.
        "lr_factor": [{"until": 0.25, "value": 1.0}, {"until": 0.5, "value": 0.6}, {"until": 1.0, "value": 0.35}],
    },
    "adamw, growing depth": {**ADAMW, **GROWING},
    "adamw": ADAMW,
    "lamb, growing depth": {"optim": {"name": "lamb", "lr": 2.5e-3}, **GROWING},
    "transformers": ADAMW,
}
MINUTES = {"muon, growing depth": 2.0, "muon": 3.0}
OTHERS = 4.5  # minutes
SMALL = {
    "model": {"hidden_size": 32, "embedding_size": 16, "num_attention_heads": 2, "intermediate_size": 64},
    "batch_tokens": 4096,
    "micro_batch_tokens": 4096,
    "data": {"row_tokens": 1024, "workers": 0},
    "log": {"evaluate_every": 20, "evaluate_batches": 2, "report_every": 10},
}


class Race(Pretraining):
    """A pretraining run that ends when it has reached its target."""

    target = 1.0

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.reached = False

    def satisfied(self) -> bool:
        """At full depth only: a shallow model is another one."""
        return self.reached

    def evaluate(self, step: int) -> Evaluation | None:
        found = super().evaluate(step)
        assert isinstance(self.scores, Scores)
        full = self.stage.depth == self.config.model.num_hidden_layers
        self.reached = full and (self.scores.mlm_accuracy or 0.0) >= self.target
        return found


def race(config: RunConfig, target: float) -> dict[str, Any]:
    """One of ours: seconds, tokens and accuracy until the target or the end of the budget."""
    device = open_device(config.device)
    tokenizer = load_tokenizer(config)
    config = settle(config, tokenizer)
    learner = Race(config, Data(config, tokenizer), device, World())
    learner.target = target
    folder = Path(tempfile.mkdtemp(prefix="litebert-race-"))
    curve: list[dict[str, float]] = []
    try:
        with Trainer(learner, config, folder, device, World(), quiet=True) as trainer:
            plain = trainer.evaluate

            def evaluate() -> None:
                before = trainer.clock()
                plain()
                # Evaluating is not training: the run's own clock goes back by it.
                trainer._began += trainer.clock() - before
                if learner.scores is not None:
                    curve.append(point(before, trainer.step, trainer.tokens, learner.scores.mlm_accuracy or 0.0))

            trainer.evaluate = evaluate  # type: ignore[method-assign]
            warm_up(trainer)
            trainer.fit(StopRequest())
            evaluate()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"curve": curve}


def warm_up(trainer: Trainer) -> None:
    """Compile before the clock starts: one step without an update, and the same batch again afterwards."""
    trainer.forward_backward()
    trainer.take_step.clear()
    trainer._reopen_feed()
    trainer._began = time.monotonic()
    trainer.seconds = 0.0


def race_transformers(config: RunConfig, target: float) -> dict[str, Any]:
    """The same batches, padded, through transformers' model."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    device = open_device(config.device)
    tokenizer = load_tokenizer(config)
    config = settle(config, tokenizer)
    data = Data(config, tokenizer)
    torch.manual_seed(config.seed)
    peer = peer_model(config.model, transformers).to(device.device)
    choose_mask(peer, needed=True)  # lengths differ
    optim = config.optim
    optimizer = torch.optim.AdamW(
        peer.parameters(), lr=1.0, betas=(optim.beta1, optim.beta2), eps=optim.eps, fused=device.is_cuda
    )
    forward = torch.compile(peer, dynamic=True) if device.is_cuda else peer
    schedule, length = config.learning_rate(), config.recipe.max_length
    held_out = list(padded(data, config, device))
    curve: list[dict[str, float]] = []
    tokens = step = 0
    budget = 60 * (config.max_minutes or 0)
    with data.training(length).iterate(0, micro_batches=config.micro_batches(1), workers=config.data.workers) as stream:
        seconds, count = 0.0, config.micro_batches(1)
        while seconds < budget and step < config.steps:
            started = time.monotonic()
            for _ in range(count):
                batch = next(stream)
                inputs = to_device(batch, device.device, length)
                with device.autocast():
                    loss = forward(**pad(inputs)).loss / count
                loss.backward()
                tokens += int(batch.starts[batch.num_sequences])
            torch.nn.utils.clip_grad_norm_(peer.parameters(), optim.clip)
            share = max(seconds / budget, step / config.steps)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(share * config.steps, schedule)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            device.synchronize()
            if step:  # the first one compiles
                seconds += time.monotonic() - started
            step += 1
            if step % (config.log.evaluate_every or 100) == 0:
                curve.append(point(seconds, step, tokens, accuracy(forward, held_out, device)))
                if curve[-1]["accuracy"] >= target:
                    break
    return {"curve": curve}


def padded(data: Data, config: RunConfig, device: Device) -> Iterator[dict[str, torch.Tensor]]:
    """The held-out rows as transformers takes them."""
    batches = data.evaluation(config.recipe.max_length)
    assert batches is not None
    for number in range(min(config.log.evaluate_batches, batches.steps_per_epoch)):
        batch = batches.batch(number)
        yield pad(to_device(batch, device.device, config.recipe.max_length))


@torch.inference_mode()
def accuracy(forward: Any, batches: Sequence[dict[str, torch.Tensor]], device: Device) -> float:
    right = total = 0
    for batch in batches:
        with device.autocast():
            logits = forward(**batch).prediction_logits
        masked = batch["labels"] >= 0
        right += int((logits.argmax(-1)[masked] == batch["labels"][masked]).sum())
        total += int(masked.sum())
    return right / max(total, 1)


def point(seconds: float, step: int, tokens: int, found: float) -> dict[str, float]:
    return {"minutes": seconds / 60, "step": step, "tokens": tokens, "accuracy": found}


def summarize(name: str, budget: float, curve: list[dict[str, float]], target: float) -> dict[str, Any]:
    hit = next((p for p in curve if p["accuracy"] >= target), None)
    best = max((p["accuracy"] for p in curve), default=0.0)
    return {
        "side": name,
        "budget": budget,
        "minutes": hit["minutes"] if hit else None,
        "tokens": hit["tokens"] if hit else None,
        "best": best,
        "curve": curve,
    }


def table(rows: list[dict[str, Any]], target: float) -> str:
    lines = [f"| side | minutes to {target:.0%} | of a budget of | tokens | best seen |", "|---|---|---|---|---|"]
    for row in rows:
        minutes = f"{row['minutes']:.2f}" if row["minutes"] is not None else "not reached"
        tokens = f"{row['tokens'] / 1e6:.0f} M" if row["tokens"] is not None else ""
        lines.append(f"| {row['side']} | {minutes} | {row['budget']:g} | {tokens} | {row['best']:.1%} |")
    return "\n".join(lines) + "\n"


COLOURS = ("#0b6e4f", "#57a773", "#c8553d", "#e0a458", "#3d5a80", "#7d7d7d")


def draw(rows: list[dict[str, Any]], target: float, width: int = 760, height: int = 380) -> str:
    """Accuracy over minutes, one line a side, with the target."""
    left, top, right, bottom = 52, 16, 190, 40
    longest = max((p["minutes"] for row in rows for p in row["curve"]), default=1.0) or 1.0
    highest = max(target * 1.15, max((row["best"] for row in rows), default=0.1))

    def at(minutes: float, value: float) -> tuple[float, float]:
        x = left + (width - left - right) * minutes / longest
        return x, top + (height - top - bottom) * (1 - value / highest)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for tick in range(6):
        value, minutes = highest * tick / 5, longest * tick / 5
        x, y = at(minutes, value)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - right}" y2="{y:.1f}" stroke="#e3e3e3"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.0%}</text>')
        parts.append(f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{minutes:.1f}</text>')
    _, y = at(0, target)
    parts.append(
        f'<line x1="{left}" y1="{y:.1f}" x2="{width - right}" y2="{y:.1f}" stroke="#999" stroke-dasharray="4 4"/>'
    )
    for number, row in enumerate(rows):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(p["minutes"], p["accuracy"]) for p in row["curve"]))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{width - right + 12}" y="{top + 14 + 18 * number}" fill="{colour}">{row["side"]}</text>'
        )
    parts.append(
        f'<text x="{(width - right + left) / 2}" y="{height - 6}" text-anchor="middle">minutes of training</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="append", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", type=float, default=0.40)
    parser.add_argument("--minutes", type=float, help="budget of each side, instead of its own")
    parser.add_argument("--only", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--model", default="albert-base")
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of every run's config")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    common = {
        "model": {"preset": options.model},
        "recipe": {"name": "paper", "max_length": 128},
        "optim": {"warmup_steps": 200, "decay_share": 0.5},
        "data": {"stores": options.store, "tokenizer": options.tokenizer, "held_out": 0.01, "workers": 4},
        "steps": 1_000_000,
        "batch_tokens": options.batch,
        "micro_batch_tokens": min(options.batch, 65_536),
        "log": {"evaluate_every": 100, "evaluate_batches": 32, "checkpoint_every": 0, "checkpoint_minutes": 0},
    }
    if options.small:
        common = merge(common, {**SMALL, "optim": {"warmup_steps": 5}})
    rows: list[dict[str, Any]] = []
    for name in options.only:
        budget = {"max_minutes": options.minutes or MINUTES.get(name, OTHERS)}
        config = run_config(override(merge(merge(common, budget), SIDES[name]), options.set))
        print(f"=== {name}", flush=True)
        run = race_transformers if name == "transformers" else race
        rows.append(summarize(name, config.max_minutes or 0.0, run(config, options.target)["curve"], options.target))
        device = open_device(config.device)
        facts = {
            "hardware": device.name,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "date": time.strftime("%Y-%m-%d"),
            "options": {key: str(value) for key, value in vars(options).items()},
            "config": dataclasses.asdict(config),
            "rows": rows,
        }
        write_atomic(options.out / "results.json", json.dumps(facts, indent=1, default=str) + "\n")
        write_atomic(options.out / "results.md", table(rows, options.target))
        write_atomic(options.out / "curves.svg", draw(rows, options.target))
    print(table(rows, options.target))


if __name__ == "__main__":
    main()
