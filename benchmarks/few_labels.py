"""A handful of labels per class: `--few`, `--head-only` and full fine-tuning beside TF-IDF, over several draws.

    python benchmarks/few_labels.py default DATA --out results/few-labels --jobs 15
    python benchmarks/few_labels.py default DATA --out /tmp/f --tasks trec --per-class 4 --samples 1 --steps 4 --dev 50

DATA holds glue/SST-2, topics/trec, topics/banking77 and, for NSMC, korean/nsmc. Each sample draws so many training
examples of each class at random; all rows of a sample learn from the same ones, and dev is the official file (every
n-th example, up to --dev). "few, similar" starts from a model that was trained for similarity, as SetFit does: the
folder --similar, or default:similarity merged. Runs that are complete are not run again. With --jobs, the samples of
each task run side by side with logs in OUT/logs. SCORES.json and SCORES.md are written at the end. NSMC is Korean and
runs only with --korean-model.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from side_by_side import run_side_by_side

from litebert.files import write_atomic
from litebert.finetuning.config import finetune_config, pick_preset
from litebert.finetuning.run import finetune
from litebert.model.config import load_config
from litebert.predict.load import merge_folder
from litebert.tasks.read import read_task
from litebert.tasks.task import TaskData

TASKS: dict[str, tuple[str, dict[str, str]]] = {
    "banking77": ("classification", {"train": "topics/banking77/train.csv", "dev": "topics/banking77/test.csv"}),
    "sst-2": ("classification", {"train": "glue/SST-2/train.tsv", "dev": "glue/SST-2/dev.tsv"}),
    "trec": ("classification", {"train": "topics/trec/train.tsv", "dev": "topics/trec/dev.tsv"}),
    "nsmc": ("classification", {"train": "korean/nsmc/ratings_train.txt", "dev": "korean/nsmc/ratings_test.txt"}),
}
SIMILAR = "few, similar"
METHODS: dict[str, dict[str, Any]] = {
    "few": {"few": True},
    SIMILAR: {"few": True},
    "head only": {"head_only": True},
    "whole model": {"optim": {"lr": 1e-4}},
}
LEAST_STEPS = 100  # of the whole model: three epochs of sixteen examples are three steps, which teach nothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--korean-model", help="for NSMC, which is left out without it")
    parser.add_argument("--similar", help="a model folder for the method 'few, similar'")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--samples", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="seeds of the draws")
    parser.add_argument("--dev", type=int, default=1000, help="examples to score on, at most")
    parser.add_argument("--jobs", type=int, default=1, help="samples that run side by side")
    parser.add_argument("--steps", type=int, help="for a smoke run")
    parser.add_argument("--adapter", type=int, default=0, help="rank, for the methods few; 0: the whole model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto", help="of training")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if not arguments.korean_model:
        arguments.tasks = [task for task in arguments.tasks if task != "nsmc"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    if SIMILAR in arguments.methods and not arguments.similar:
        arguments.similar = str(arguments.out / "similar")
        if not Path(arguments.similar).exists():
            merge_folder(f"{arguments.model}:similarity", arguments.similar)
    if arguments.jobs > 1:
        alone = {
            f"{task}-{sample}": [__file__, *in_words(arguments), "--tasks", task, "--samples", str(sample)]
            for task in arguments.tasks
            for sample in arguments.samples
        }
        run_side_by_side(alone, arguments.out / "logs", arguments.jobs)
    rows: dict[tuple[str, int, str], list[float]] = {}
    for task in arguments.tasks:
        kind, files = TASKS[task]
        data = read_task(kind, **{split: str(arguments.data / file) for split, file in files.items()})
        for per_class in arguments.per_class:
            for sample in arguments.samples:
                few = draw(data, per_class, sample, arguments.dev)
                for method in arguments.methods:
                    score_one(rows, task, per_class, sample, method, few, arguments)
    if len(arguments.tasks) > 1 or len(arguments.samples) > 1:
        write(arguments.out, arguments, rows)


def in_words(arguments: argparse.Namespace) -> list[str]:
    """The command line without what differs between jobs."""
    found = [arguments.model, str(arguments.data)]
    for key, value in vars(arguments).items():
        if key not in ("model", "data", "tasks", "samples", "jobs") and value is not None:
            found += [f"--{key.replace('_', '-')}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return found


def score_one(
    rows: dict[tuple[str, int, str], list[float]],
    task: str,
    per_class: int,
    sample: int,
    method: str,
    few: TaskData,
    arguments: argparse.Namespace,
) -> None:
    """Train one method on one draw and add its accuracy, and with the first method that of TF-IDF."""
    settings = dict(METHODS[method])
    model = arguments.korean_model if task == "nsmc" else arguments.model
    model = arguments.similar if method == SIMILAR else model
    if method == "whole model":
        settings["steps"] = max(LEAST_STEPS, 3 * len(few.train) // 16)
    if settings.get("few") and arguments.adapter:
        settings["adapter"] = {"rank": arguments.adapter}
    if arguments.steps and method != "head only":
        settings["steps"] = arguments.steps
    common = {"task": "classification", "model": model, "seed": sample, "log": {"evaluate_every": 0}}
    machine = {"device": {"device": arguments.device, "threads": arguments.threads, "precision": arguments.precision}}
    auto = pick_preset(load_config(model).hidden_size, torch.cuda.is_available())
    config = finetune_config({**common, **machine, **settings}, auto=auto)
    folder = arguments.out / f"{task}-{per_class}-{sample}-{method.replace(', ', '-').replace(' ', '-')}"
    began = time.monotonic()
    result = finetune(config, folder, quiet=True, data=few)
    accuracy = result.scores.splits["dev"]["accuracy"].value
    rows.setdefault((task, per_class, method), []).append(accuracy)
    if method == arguments.methods[0]:
        for each in result.scores.baselines:
            if each.metric == "accuracy" and "TF-IDF" in each.baseline:
                rows.setdefault((task, per_class, "TF-IDF"), []).append(each.score.value)
    print(
        f"{task}, {per_class} per class, sample {sample}, {method}: {100 * accuracy:.1f} "
        f"({time.monotonic() - began:.0f} s)",
        flush=True,
    )


def draw(data: TaskData, per_class: int, seed: int, most_dev: int) -> TaskData:
    """The task with so many training examples of each class, drawn at random."""
    random = np.random.default_rng(seed)
    labels = np.array([example.label for example in data.train])
    chosen: list[int] = []
    for label in np.unique(labels):
        places = np.flatnonzero(labels == label)
        chosen += random.choice(places, min(per_class, len(places)), replace=False).tolist()
    dev = {"dev": data.dev["dev"][:: max(1, len(data.dev["dev"]) // most_dev)][:most_dev]}
    return dataclasses.replace(data, train=[data.train[i] for i in sorted(chosen)], dev=dev, test={}, notes=[])


def write(out: Path, arguments: argparse.Namespace, rows: dict[tuple[str, int, str], list[float]]) -> None:
    """SCORES.json, and the same as a table: the mean over samples and its standard deviation."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    facts = {"machine": machine, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(arguments).items()}
    scores = [{"task": t, "per_class": n, "method": m, "accuracy": values} for (t, n, m), values in rows.items()]
    write_atomic(out / "SCORES.json", json.dumps({**facts, "settings": settings, "scores": scores}, indent=1))
    lines = ["| task | labels per class | method | accuracy | over samples |", "|---|---|---|---|---|"]
    for (task, per_class, method), values in rows.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.mean(values)
        lines.append(f"| {task} | {per_class} | {method} | {100 * mean:.1f} | ± {100 * spread:.1f} ({len(values)}) |")
    note = f"{machine}, torch {torch.__version__}, {facts['date']}"
    write_atomic(out / "SCORES.md", "\n".join([*lines, "", note, ""]))


if __name__ == "__main__":
    main()
