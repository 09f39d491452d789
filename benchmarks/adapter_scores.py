"""Adapters beside full fine-tuning on SST-2, QNLI, STS-B and SQuAD 1.1, with the same data, seeds and epochs.

    python benchmarks/adapter_scores.py default DATA --out results/adapters --jobs 12
    python benchmarks/adapter_scores.py default DATA --out /tmp/a --limit 40 --steps 2 --seeds 1 --device cpu   # smoke

Three rows per task: the whole model, one adapter for all applications of the layer, and one for each of them, which
share the rank. Epochs are those of finetune_scores.py times --share; whole models take the rate given there, adapters
--lr. Nothing is chosen on dev: the last weights are scored. Every cell (task, method) is a study in a folder of its own
under --out; what is done is skipped. With --jobs, cells run side by side with logs in OUT/logs. SCORES.json and
SCORES.md are written at the end.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from finetune_scores import TASKS, middle_of
from side_by_side import run_side_by_side

from litebert.files import write_atomic
from litebert.finetuning.config import finetune_config
from litebert.finetuning.study import Study, run_study
from litebert.tasks.metrics import show_interval, show_spread, show_value

CHOSEN = ("squad-1.1", "qnli", "sst-2", "sts-b")  # the longest first
SEEDS = {"squad-1.1": 1, "qnli": 2, "sst-2": 3, "sts-b": 3}  # at most: large dev sets vary little
METHODS = ("whole model", "adapter", "one per application")
TARGETS = ("query", "key", "value", "attention_output", "ffn_input", "ffn_output", "pooler")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=CHOSEN, default=CHOSEN)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--rank", type=int, default=24)
    parser.add_argument("--lr", type=float, default=3e-4, help="of adapters")
    parser.add_argument("--share", type=float, default=1.0, help="of the epochs: 0.5 is half")
    parser.add_argument("--seeds", type=int, default=3, help="at most; large tasks take fewer")
    parser.add_argument("--jobs", type=int, default=1, help="cells that run side by side")
    parser.add_argument("--limit", type=int, default=0, help="examples per split, for a smoke run")
    parser.add_argument("--steps", type=int, help="for a smoke run")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    cells = [(task, method) for task in arguments.tasks for method in arguments.methods]
    if arguments.jobs > 1:
        keys = ("out", "rank", "lr", "share", "seeds", "limit", "device")
        given = [part for key in keys for part in (f"--{key}", str(getattr(arguments, key)))]
        given += ["--steps", str(arguments.steps)] if arguments.steps else []
        common = [__file__, arguments.model, str(arguments.data), *given]
        commands = {
            f"{task} {method}".replace(" ", "-"): [*common, "--tasks", task, "--methods", method]
            for task, method in cells
        }
        run_side_by_side(commands, arguments.out / "logs", arguments.jobs)
    rows = [measure(task, method, arguments) for task, method in cells]
    if len(cells) > 1:
        write_results(arguments, rows)


def measure(task: str, method: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The study of a cell as a row."""
    public = TASKS[task]
    settings: dict[str, Any] = {
        "task": task,
        "preset": "small",
        "model": arguments.model,
        "data": {"folder": str(arguments.data / public.path), "limit": arguments.limit},
        "device": {"device": arguments.device},
        "log": {"num_evaluations": 1},
        "epochs": public.epochs * arguments.share,
    }
    rate = public.lr
    if method != "whole model":
        own = method == "one per application"
        settings["adapter"] = {"rank": arguments.rank, "targets": TARGETS, "per_application": own}
        rate = arguments.lr
    if arguments.steps:
        settings |= {"steps": arguments.steps, "log": {"evaluate_every": arguments.steps}}
    began = time.monotonic()
    out = arguments.out / f"{task}-{method.replace(' ', '-')}"
    study = run_study(finetune_config(settings), out, min(arguments.seeds, SEEDS[task]), [rate])
    if study.signal is not None:
        raise SystemExit(128 + study.signal)
    return describe(study, task, method, rate, time.monotonic() - began)


def describe(study: Study, task: str, method: str, rate: float, seconds: float) -> dict[str, Any]:
    """What a study found: the middle run with its interval, and the spread over seeds."""
    best = study.best_setting
    assert best is not None
    value, metric = middle_of(best).deciding, study.metric
    learning = json.loads((best.members[0].result.folder / "run.json").read_text(encoding="utf-8"))
    spread = f", ± {show_spread(best.spread, metric)}" if len(best.values) > 1 else ""
    return {
        "task": task,
        "method": method,
        "metric": metric,
        "lr": rate,
        "median": best.median,
        "all": best.values,
        "shown": f"{show_value(best.median, metric)} ({show_interval(value, metric)}){spread}",
        "learning_parameters": learning["learning_parameters"],
        "seconds": round(seconds, 1),
    }


def write_results(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """SCORES.json and SCORES.md: a column per method, and the mean over tasks."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(arguments).items()}
    facts = {"machine": machine, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "settings": settings}
    write_atomic(arguments.out / "SCORES.json", json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    cells = {(row["task"], row["method"]): row for row in rows}
    lines = [f"| dev | {' | '.join(arguments.methods)} |", "|---" * (len(arguments.methods) + 1) + "|"]
    for task in arguments.tasks:
        shown = [cells[task, method]["shown"] for method in arguments.methods]
        lines.append(f"| {task}, {cells[task, arguments.methods[0]]['metric']} | {' | '.join(shown)} |")
    means = [statistics.mean(cells[task, method]["median"] for task in arguments.tasks) for method in arguments.methods]
    lines.append(f"| mean | {' | '.join(f'{100 * mean:.1f}' for mean in means)} |")
    learning = [f"{cells[arguments.tasks[0], method]['learning_parameters']:,}" for method in arguments.methods]
    lines.append(f"| parameters that learn ({arguments.tasks[0]}) | {' | '.join(learning)} |")
    rates = "; ".join(f"{method} {cells[arguments.tasks[0], method]['lr']:g}" for method in arguments.methods)
    note = f"{machine}, torch {torch.__version__}, {facts['date']}; rank {arguments.rank}, rates on the first: {rates}."
    write_atomic(arguments.out / "SCORES.md", "\n".join([*lines, "", note, ""]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
