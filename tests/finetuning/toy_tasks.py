"""A tiny model and tiny files of every kind, whose right answers can be learnt from single words."""

from __future__ import annotations

import csv
import json
import random
import string
from pathlib import Path

from interruptions import stopped_at
from tiny_shape import tiny_shape

from litebert.config import merge
from litebert.finetuning.config import FinetuneConfig, finetune_config
from litebert.finetuning.run import finetune
from litebert.model.heads import PretrainingModel
from litebert.model.hub import save_model
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import seed_everything

NEUTRAL = "the a film story plot was is very and it one day we saw with more".split()
GOOD, BAD = ["good", "great", "fine"], ["bad", "poor", "dull"]
NAMES, PLACES = ["anna", "ben", "zoe"], ["rome", "paris", "oslo"]
WORDS = [*NEUTRAL, *GOOD, *BAD, *NAMES, *PLACES, "who", "where", "lives", "in", "?", "."]
KINDS = (
    "classification",
    "regression",
    "multi-label",
    "token-classification",
    "multiple-choice",
    "question-answering",
)


def make_model(folder: Path, seed: int = 0, **changes) -> Path:
    """A model folder of a few thousand parameters with its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    pieces += [*string.ascii_lowercase, *string.digits, *(f"##{letter}" for letter in string.ascii_lowercase)]
    vocab = folder / "vocab.txt"
    vocab.write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(vocab)
    settings = {"max_position_embeddings": 64, "initializer_range": 0.2, **changes}
    seed_everything(seed)
    save_model(PretrainingModel(tiny_shape(vocab_size=tokenizer.vocab_size, **settings)), folder)
    tokenizer.save(folder)
    return folder


def _sentence(draw: random.Random, *words: str) -> str:
    chosen = draw.sample(NEUTRAL, draw.randint(1, 5)) + list(words)
    draw.shuffle(chosen)
    return " ".join(chosen)


def rows_of(kind: str, count: int, seed: int = 0) -> list[dict]:
    """Labelled rows of a kind, as JSON objects."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        good = draw.random() < 0.5
        word = draw.choice(GOOD if good else BAD)
        name, place = draw.choice(NAMES), draw.choice(PLACES)
        if kind == "classification":
            rows.append({"text": _sentence(draw, word), "label": "pos" if good else "neg"})
        elif kind == "regression":
            rows.append({"text": _sentence(draw, word), "score": round(draw.random() / 4 + (4 if good else 1), 2)})
        elif kind == "multi-label":
            labels = [label for label, said in (("opinion", good), ("place", number % 3 == 0)) if said]
            words = [*([word] if good else []), *([place] if number % 3 == 0 else [])]
            rows.append({"text": _sentence(draw, *words), "labels": labels})
        elif kind == "token-classification":
            words = _sentence(draw, name, place).split()
            tag = {**dict.fromkeys(NAMES, "B-PER"), **dict.fromkeys(PLACES, "B-LOC")}
            rows.append({"words": words, "tags": [tag.get(word, "O") for word in words]})
        elif kind == "multiple-choice":
            options = [draw.choice(BAD), draw.choice(BAD), draw.choice(BAD)]
            answer = draw.randrange(3)
            options[answer] = draw.choice(GOOD)
            rows.append({"passage": _sentence(draw), "question": "it was", "options": options, "label": answer})
        else:
            context = f"{_sentence(draw)} . {name} lives in {place} . {_sentence(draw)}"
            answers = {"text": [place], "answer_start": [context.index(place)]}
            rows.append(
                {"id": f"q{number}", "question": f"where lives {name} ?", "context": context, "answers": answers}
            )
            if seed % 2 and number % 3 == 0:  # odd seeds hold questions without an answer
                rows[-1] |= {"question": "who is dull ?", "answers": {"text": [], "answer_start": []}}
    return rows


def mixed_choices(count: int, seed: int = 0) -> list[dict]:
    """Questions with two, three or four options, by turns."""
    rows = rows_of("multiple-choice", count, seed)
    for number, row in enumerate(rows):
        options, right = row["options"], row["options"][row.pop("label")]
        wrong = [option for option in [*options, "dull"] if option not in GOOD]
        options = [*wrong[: number % 3 + 1], right]
        row |= {"options": options[number % 2 :] + options[: number % 2], "answer": right}
    return rows


def write_rows(path: Path, rows: list[dict]) -> Path:
    """Rows as JSONL, or as CSV where the name says so."""
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def make_files(folder: Path, kind: str, train: int = 24, dev: int = 12, seed: int = 0) -> dict[str, str]:
    """train, dev and test files of a kind, as settings of a config's `data`."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = "csv" if kind in ("classification", "regression") else "jsonl"
    files = {}
    for split, count, offset in (("train", train, 0), ("dev", dev, 2), ("test", dev, 4)):
        rows = rows_of(kind, count, seed + offset)
        files[split] = str(write_rows(folder / f"{split}.{suffix}", rows))
    return files


def tiny_config(model: Path, files: dict[str, str], kind: str = "classification", **changes) -> FinetuneConfig:
    """A run of a few steps."""
    data = {
        "task": kind,
        "model": str(model),
        "preset": "base",
        "data": {split: path for split, path in files.items() if split != "test"},
        "optim": {"lr": 0.01},
        "batch": 8,
        "steps": 6,
        "max_length": 40,
        "device": {"device": "cpu", "threads": 1},
        "log": {"report_every": 1, "evaluate_every": 2},
    }
    return finetune_config(merge(data, changes))


def finetune_in_two(config: FinetuneConfig, folder: Path, step: int) -> None:
    """Run until a signal comes at `step`, then again to the end."""
    with stopped_at(step):
        assert not finetune(config, folder, quiet=True).completed
    assert finetune(config, folder, quiet=True).completed
