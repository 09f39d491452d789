"""Files for similarity whose answers follow from single words: two texts are near where both are good, or both bad."""

from __future__ import annotations

import random
from pathlib import Path

from toy_tasks import BAD, GOOD, tiny_config, write_rows


def opinion(draw: random.Random, good: bool) -> str:
    start = draw.choice(["the film was", "it is"])
    return f"{start} {draw.choice(GOOD if good else BAD)}"


def scored_rows(count: int, seed: int = 0) -> list[dict]:
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        a, b = draw.random() < 0.5, draw.random() < 0.5
        score = (4 if a == b else 1) + round(draw.random() / 4, 2)
        rows.append({"sentence1": opinion(draw, a), "sentence2": opinion(draw, b), "score": score})
    return rows


def labelled_rows(count: int, seed: int = 0) -> list[dict]:
    draw = random.Random(seed)
    return [
        {"text": opinion(draw, number % 2 == 0), "label": "neg" if number % 2 else "pos"} for number in range(count)
    ]


def triplet_rows(count: int, seed: int = 0) -> list[dict]:
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        good = draw.random() < 0.5
        texts = opinion(draw, good), opinion(draw, good), opinion(draw, not good)
        rows.append(dict(zip(("anchor", "positive", "negative"), texts, strict=True)))
    return rows


def pair_rows(count: int, seed: int = 0) -> list[dict]:
    """Questions, each with a text of its own: they share a made-up word."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        name = "".join(draw.choice("abcdefgh") for _ in range(4))
        rows.append({"question": f"where is {name} ?", "passage": f"{name} lives in rome . it is {draw.choice(GOOD)}"})
    return rows


def similarity_config(model: Path, folder: Path, train: list[dict], dev: list[dict] | None = None, **changes):
    """A run on rows, written to files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"train": str(write_rows(folder / "train.jsonl", train))}
    if dev is not None:
        files["dev"] = str(write_rows(folder / "dev.jsonl", dev))
    changes = {"optim": {"lr": 0.003}, "batch": 16, "log": {"evaluate_every": 0}, **changes}
    return tiny_config(model, files, kind="similarity", **changes)
