"""What `embed` is worth after training for similarity: STS-B dev, and SQuAD's questions over all its paragraphs.

    python benchmarks/similarity_scores.py default DATA --corpus wiki.txt.xz --out results/similarity
    python benchmarks/similarity_scores.py default DATA --corpus wiki.txt.xz --out /tmp/s --recipes simcse sts \\
        --steps 3 --limit 64 --pairs 200 --batch 8 --device cpu                        # a smoke run

DATA holds glue/STS-B, pairs/ (snli, mnli, qqp as CSV) and squad/. A recipe is a chain of stages, each starting from
the model of the one before; stages that are complete are not run again, and recipes share their first stages. Dev is
scored once, at the end of a recipe: nothing is chosen on it. SCORES.json and SCORES.md are written on the way.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from litebert.baselines.table import score_baselines
from litebert.files import write_atomic
from litebert.finetuning.config import finetune_config
from litebert.finetuning.data import make_pairs
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.run import finetune
from litebert.tasks.metrics import Metric
from litebert.tasks.read import read_task
from litebert.tasks.task import TaskData

GRADES = {"entailment": 1.0, "neutral": 0.5, "contradiction": 0.0}
# Stage: where its examples are from, and its settings on top of the common ones.
STAGES: dict[str, dict[str, Any]] = {
    "simcse": {"from": "corpus", "similarity": {"pairs": "sentences"}, "max_length": 64, "optim": {"lr": 3e-5}},
    "adjacent": {"from": "corpus", "similarity": {"pairs": "adjacent", "symmetric": True}, "max_length": 64},
    "titles": {"from": "corpus", "similarity": {"pairs": "titles", "symmetric": True}, "max_length": 128},
    "entailed": {"from": "entailed", "similarity": {"symmetric": True}, "max_length": 64},
    "graded": {"from": "graded", "max_length": 64},
    "sts": {"from": "sts", "max_length": 64, "epochs": 4.0, "batch": 32},
    "questions": {"from": "squad", "max_length": 256},
}
# Recipe: its stages. Those that use no labels come first.
RECIPES: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "simcse": ("simcse",),
    "adjacent": ("adjacent",),
    "titles": ("titles",),
    "adjacent, simcse": ("adjacent", "simcse"),
    "sts": ("sts",),
    "entailed": ("entailed",),
    "graded": ("graded",),
    "graded, sts": ("graded", "sts"),
    "entailed, sts": ("entailed", "sts"),
    "adjacent, entailed, sts": ("adjacent", "entailed", "sts"),
    "adjacent, entailed, graded, sts": ("adjacent", "entailed", "graded", "sts"),
    "questions": ("questions",),
    "adjacent, questions": ("adjacent", "questions"),
    "titles, questions": ("titles", "questions"),
}
NO_LABELS = {"as it is", "simcse", "adjacent", "titles", "adjacent, simcse"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--corpus", type=Path, required=True, help="plain text, one paragraph per line")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--pairs", type=int, default=200_000, help="made from the corpus")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="shorter vectors to learn too: 64 128 256")
    parser.add_argument("--pooling", choices=["mean", "first"], default="mean")
    parser.add_argument("--adapter", type=int, default=0, help="rank; 0: the whole model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, help="of every stage, for a smoke run")
    parser.add_argument("--limit", type=int, default=0, help="examples per file, for a smoke run")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    dev = {"STS-B dev": sts(arguments), "SQuAD dev search": questions(arguments)}
    scores = {"BM25 or TF-IDF": {name: by_words(data) for name, data in dev.items()}}
    print_row("BM25 or TF-IDF", scores["BM25 or TF-IDF"])
    for recipe in arguments.recipes:
        began = time.monotonic()
        model = train(recipe, arguments)
        found = {
            name: evaluate_task([model], task="similarity", data=data, device=arguments.device)[0].evaluations[0].scores
            for name, data in dev.items()
        }
        scores[recipe] = found
        print_row(recipe, found, time.monotonic() - began)
        write(arguments.out, arguments, scores)


# -- training ----------------------------------------------------------------------------------------------------------


def train(recipe: str, arguments: argparse.Namespace) -> str:
    """The model at the end of a recipe's chain."""
    model = arguments.model
    for number, stage in enumerate(RECIPES[recipe]):
        name = "-".join(RECIPES[recipe][: number + 1])
        settings = {key: value for key, value in STAGES[stage].items() if key != "from"}
        common: dict[str, Any] = {
            "task": "similarity",
            "model": model,
            "seed": arguments.seed,
            "batch": arguments.batch,
            "epochs": 1.0,
            "optim": {"lr": arguments.lr},
            "similarity": {"temperature": arguments.temperature, "pooling": arguments.pooling},
            "device": {"device": arguments.device},
            "log": {"evaluate_every": 0},
            **({"adapter": {"rank": arguments.adapter}} if arguments.adapter else {}),
        }
        for key, value in settings.items():
            common[key] = {**common[key], **value} if isinstance(value, dict) else value
        if arguments.adapter:
            common["optim"]["lr"] = 10 * common["optim"]["lr"]
        if arguments.sizes:
            common["similarity"]["sizes"] = arguments.sizes
        common["similarity"].pop("pairs", None)  # they are made here, once for every seed
        if arguments.steps:
            common |= {"steps": arguments.steps, "batch": min(arguments.batch, 8)}
        config = finetune_config(common)
        result = finetune(config, arguments.out / name, quiet=True, data=examples(stage, arguments))
        model = str(result.model)
    return model


def examples(stage: str, arguments: argparse.Namespace) -> TaskData:
    """The training examples of a stage."""
    source = STAGES[stage]["from"]
    if source == "corpus":
        rows: Any = make_pairs(arguments.corpus, STAGES[stage]["similarity"]["pairs"], arguments.pairs, arguments.seed)
    elif source == "sts":
        return read_task("similarity", train=limited(arguments, arguments.data / "glue" / "STS-B" / "train.tsv"))
    elif source == "squad":
        return read_task("similarity", train=list(squad_pairs(arguments, "train")))
    else:
        rows = list(entailed(arguments.data / "pairs") if source == "entailed" else graded(arguments.data / "pairs"))
        rows = rows[: arguments.limit] if arguments.limit else rows
    return read_task("similarity", train=rows)


def entailed(folder: Path) -> Iterable[dict[str, Any]]:
    """What follows from what, and questions that are the same."""
    for name in ("snli", "mnli", "qqp"):
        for row in read_csv(folder / f"{name}-train.csv"):
            if row["label"] in ("entailment", "duplicate"):
                a, b, _ = row.values()
                yield {"text": a, "pair": b}


def graded(folder: Path) -> Iterable[dict[str, Any]]:
    """All of them as scores: entailed and duplicate 1, neutral 0.5, contradicted and different 0."""
    for name in ("snli", "mnli", "qqp"):
        for row in read_csv(folder / f"{name}-train.csv"):
            a, b, label = row.values()
            yield {"text": a, "pair": b, "score": GRADES.get(label, float(label == "duplicate"))}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def squad_pairs(arguments: argparse.Namespace, split: str) -> Iterable[dict[str, str]]:
    """Every question with its paragraph."""
    [path] = (arguments.data / "squad").glob(f"{split}*1.1*.json")
    count = 0
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                count += 1
                if arguments.limit and count > arguments.limit:
                    return
                yield {"question": question["question"], "passage": paragraph["context"]}


# -- evaluation --------------------------------------------------------------------------------------------------------


def sts(arguments: argparse.Namespace) -> TaskData:
    return read_task("similarity", dev=limited(arguments, arguments.data / "glue" / "STS-B" / "dev.tsv"))


def questions(arguments: argparse.Namespace) -> TaskData:
    return read_task("similarity", dev=list(squad_pairs(arguments, "dev")))


def limited(arguments: argparse.Namespace, path: Path) -> Any:
    data = read_task("similarity", dev=path).dev["dev"]
    rows = [{"text": e.texts[0], "pair": e.texts[1], "score": e.score} for e in data]
    return rows[: arguments.limit] if arguments.limit else rows


def by_words(data: TaskData) -> dict[str, Metric]:
    """TF-IDF of words, or BM25 for search."""
    table = score_baselines(dataclasses.replace(data, train=data.dev["dev"]), ["tfidf"])
    return dict(table.methods[-1].scores["dev"])


def print_row(name: str, found: dict[str, Any], seconds: float | None = None) -> None:
    shown = "; ".join(
        f"{split}: " + ", ".join(f"{metric} {100 * value.value:.1f}" for metric, value in scores.items())
        for split, scores in found.items()
    )
    print(f"{name}{'' if seconds is None else f' ({seconds:.0f} s)'}: {shown}", flush=True)


def write(out: Path, arguments: argparse.Namespace, scores: dict[str, dict[str, dict[str, Metric]]]) -> None:
    """SCORES.json, and the same as a table with 95 % intervals."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    facts = {
        "machine": machine,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "settings": {key: str(value) if isinstance(value, Path) else value for key, value in vars(arguments).items()},
    }
    plain = {
        name: {split: {metric: value.as_dict() for metric, value in found.items()} for split, found in row.items()}
        for name, row in scores.items()
    }
    write_atomic(out / "SCORES.json", json.dumps({**facts, "scores": plain}, indent=1))
    columns = [("STS-B dev", "spearman"), ("STS-B dev", "pearson")]
    columns += [("SQuAD dev search", name) for name in ("recall_at_1", "recall_at_10", "ndcg_at_10")]
    lines = ["| | labels | " + " | ".join(f"{split}: {metric}" for split, metric in columns) + " |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for name, row in scores.items():
        cells = []
        for split, metric in columns:
            value = row[split][metric]
            cells.append(f"{100 * value.value:.1f} ({100 * (value.low or 0):.1f} – {100 * (value.high or 0):.1f})")
        labels = "no" if name in NO_LABELS or name not in RECIPES else "yes"
        lines.append(f"| {name} | {labels} | {' | '.join(cells)} |")
    note = f"{machine}, torch {torch.__version__}, {facts['date']}; 95 % intervals over examples."
    write_atomic(out / "SCORES.md", "\n".join([*lines, "", note, ""]))


if __name__ == "__main__":
    main()
