"""Run folders that look like real ones: a plateau, a drop, deeper stages, longer texts, skipped steps, filled masks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

EVENTS = ((0.41, "loss nan at step {}: step skipped"), (0.6, "resumed at step {}"))
DEPTHS = ((0.35, 1), (0.7, 2), (1.0, 4))

SAMPLES = [
    ("The baker puts the [MASK] into the oven. Then she waits until the crust is brown.", ["bread"], 0),
    ("First the gardener digs a hole. After that he waters the [MASK].", ["seedling"], 1),
    ("The train leaves the [MASK] at noon, and the travellers reach the [MASK] by night.", ["station", "coast"], 0),
    ("Before the concert the violinist tunes her [MASK].", ["instrument"], 2),
    ("At the end of the lesson the children put their [MASK] back on the shelf.", ["books"], 0),
    ("The mechanic loosens the [MASK] and takes off the wheel.", ["bolts"], 1),
]
OTHER_WORDS = ["water", "door", "lamp", "house", "wheel", "letter", "rope"]


def write_run(folder: Path, lines: int = 400, every: int = 10, seed: int = 0, **choices: Any) -> Path:
    """A run folder with so many training reports; choices: objective, lr, depths, samples, baselines, completed."""
    random = np.random.default_rng(seed)
    objective, lr = choices.get("objective", "sop"), choices.get("lr", 2e-3)
    depths, skill = choices.get("depths", DEPTHS), choices.get("skill", 1.0)
    folder.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    tokens, seconds, start = 0, 0.0, 1_767_225_600.0
    for number in range(1, lines + 1):
        share, step = number / lines, number * every
        depth = next(value for until, value in depths if share <= until)
        length = 64 if share <= 0.85 else 128
        rate = 118_000 / depth**0.8 * (1 + 0.03 * random.standard_normal())
        tokens += every * 1024 - int(random.integers(0, 40))
        seconds += every * 1024 / rate
        learned = skill / (1 + np.exp(-16 * (share - 0.22)))  # a plateau, then a drop
        learned *= 0.72 + 0.28 * share
        ordered = skill / (1 + np.exp(-22 * (share - 0.45)))
        values = {"mlm_loss": 2.1 + 4.6 * (1 - learned) + 2.4 * np.exp(-share * 60)}
        values["mlm_accuracy"] = 0.03 + 0.62 * learned
        if objective != "none":
            values |= {"sentence_loss": 0.7 - 0.53 * ordered, "sentence_accuracy": 0.5 + 0.44 * ordered}
        noise = {name: 1 + 0.05 * random.standard_normal() * (1.5 - share) for name in values}
        noisy = {name: min(value * noise[name], 1.0 if "accuracy" in name else 99) for name, value in values.items()}
        rows.append(
            {
                "step": step,
                "time": start + seconds,
                "kind": "train",
                "loss": noisy["mlm_loss"] + noisy.get("sentence_loss", 0.0),
                **noisy,
                "lr": lr * min(share / 0.05, 1.0) * min(1.0, (1 - share) / 0.95 + 1e-3),
                "gradient_norm": float(np.exp(0.35 * random.standard_normal()) * (0.5 + learned)),
                "tokens": tokens,
                "tokens_per_second": rate,
                "share_of_peak": 0.41 + 0.02 * random.standard_normal(),
                "depth": depth,
                "length": length,
                "seconds": seconds,
            }
        )
        if number > 1 and depth != rows[-2].get("depth", depth):
            rows.append({"step": step - every, "time": start, "kind": "event", "message": f"depth {depth}, length 64"})
        if number % max(1, lines // 16) == 0:
            held_out = {name: value * (1.015 if "loss" in name else 0.985) for name, value in values.items()}
            clock = {"time": start + seconds, "tokens": tokens, "seconds": seconds}
            rows.append({"step": step, "kind": "eval", **held_out, **clock})
    for share, message in choices.get("events", EVENTS):
        step = int(share * lines) * every
        rows.append({"step": step, "time": start, "kind": "event", "message": message.format(step)})
    rows.sort(key=lambda row: row["step"])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    write_config(folder, objective, lr, depths, lines * every, seed)
    facts = {
        "litebert": "0.1.0",
        "torch": "2.13.0",
        "python": "3.11.9",
        "started": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:02:00Z" if choices.get("completed", True) else None,
        "completed": choices.get("completed", True),
        "command": f"litebert pretrain quick.yaml --out runs/{folder.name} --set optim.lr={lr}",
        "hardware": {"device": "cpu", "name": "CPU, 2 threads", "precision": "fp32", "processes": 1, "threads": 2},
        "parameters": 1_276_868,
        "backbone_parameters": 1_264_130,
        "objective": objective,
    }
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    if choices.get("samples", True):
        (folder / "samples.json").write_text(json.dumps(make_samples(random)), encoding="utf-8")
    if choices.get("baselines", True):
        baselines = {"mlm": {"unigram": 0.081, "trigram": 0.312}}
        if objective != "none":
            baselines["sentence"] = {"connectives": 0.623, "chance": 0.5}
        (folder / "baselines.json").write_text(json.dumps(baselines), encoding="utf-8")
    return folder


def write_config(folder: Path, objective: str, lr: float, depths: Any, steps: int, seed: int) -> None:
    """A config like the one that a run saves, shortened."""
    text = f"""model:
  model_type: albert
  vocab_size: 4000
  embedding_size: 64
  hidden_size: 128
  num_hidden_layers: {depths[-1][1]}
  num_attention_heads: 4
data:
  stores: [store]
  tokenizer: vocab
  held_out: 0.02
recipe: {{objective: {objective}, max_length: 128, masking: ngram, mask_rate: 0.15, max_predictions: null}}
optim: {{name: lamb, lr: {lr}, warmup_steps: 200, shape: polynomial, eps: 1.0e-06, bias_correction: true, clip: 1.0}}
steps: {steps}
batch_tokens: 1024
depth: [{", ".join(f"{{until: {until}, value: {value}}}" for until, value in depths)}]
length: []
seed: {seed}
"""
    (folder / "config.yaml").write_text(text, encoding="utf-8")


def make_samples(random: np.random.Generator) -> list[dict[str, Any]]:
    """Texts whose right word comes first, later, or not at all."""
    samples = []
    for text, answers, rank in SAMPLES:
        guesses = []
        for answer in answers:
            words = list(random.permutation(OTHER_WORDS)[:5])
            if rank < 2:
                words[2 * rank] = answer
            shares = np.sort(random.dirichlet(np.ones(7) * (0.35 if rank == 0 else 1.0)))[::-1]
            guesses.append([{"token": str(w), "probability": float(p)} for w, p in zip(words, shares, strict=False)])
        samples.append({"text": text, "answers": answers, "guesses": guesses})
    return samples
