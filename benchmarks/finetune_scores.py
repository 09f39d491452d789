"""Dev scores of a model on public tasks: medians over seeds, a row from random weights, and the paper's beside them.

    python benchmarks/finetune_scores.py MODEL DATA --out results/ [--jobs 4] [--seeds 3]
    python benchmarks/finetune_scores.py MODEL DATA --out results/ --tasks sst-2 cola --lr 3e-5,1e-4 --evaluations 10
    python benchmarks/finetune_scores.py MODEL DATA --out results/ --tasks sst-2 --limit 50 --steps 4 --device cpu

DATA holds GLUE's folders (glue/SST-2, ...), squad/, race/ and pairs/ (samples of MNLI and QQP). Rates and epochs are
those of `TASKS`, and the last weights are scored: nothing is chosen on dev, unless --lr or --evaluations say so.
`rte-after-mnli` starts from the model of `mnli-20k` (the paper's footnote 4). Every task is a study in its own folder
under --out: what is done is skipped, so the command can be stopped and called again. With --jobs, several tasks run
side by side, the longest first, with logs in OUT/logs. SCORES.json and SCORES.md are written on the way.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from litebert.files import write_atomic
from litebert.finetuning.config import finetune_config
from litebert.finetuning.results import Scores
from litebert.finetuning.study import Setting, run_study
from litebert.model.config import load_config
from litebert.model.heads import PretrainingModel
from litebert.model.hub import save_model
from litebert.remote import find_folder
from litebert.tasks.metrics import show_interval, show_spread, show_value
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import DeviceConfig, open_device, seed_everything


class PublicTask(NamedTuple):
    """A task and how it is fine-tuned here."""

    path: str  # below DATA; of pairs: the beginning of their files' names
    seeds: int  # at most: large sets vary little
    lr: float
    epochs: float
    paper: str = ""  # ALBERT-base in Table 2
    after: str = ""  # the task whose model it starts from


TASKS: dict[str, PublicTask] = {
    "squad-1.1": PublicTask("squad", 3, 1e-4, 2, "89.3 / 82.3"),
    "race": PublicTask("race", 1, 5e-5, 1, "64.0"),
    "qnli": PublicTask("glue/QNLI", 3, 1e-4, 2),
    "sst-2": PublicTask("glue/SST-2", 3, 5e-5, 3, "90.3"),
    "mnli-20k": PublicTask("pairs/mnli", 3, 5e-5, 3),
    "qqp-20k": PublicTask("pairs/qqp", 3, 5e-5, 3),
    "cola": PublicTask("glue/CoLA", 5, 1e-4, 5),
    "sts-b": PublicTask("glue/STS-B", 5, 1e-4, 5),
    "mrpc": PublicTask("glue/MRPC", 5, 1e-4, 5),
    "rte": PublicTask("glue/RTE", 5, 5e-5, 5),
    "wnli": PublicTask("glue/WNLI", 5, 5e-5, 5),
    "rte-after-mnli": PublicTask("glue/RTE", 5, 5e-5, 5, after="mnli-20k"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5, help="at most; large tasks take fewer")
    parser.add_argument("--jobs", type=int, default=1, help="tasks that run side by side, in processes of their own")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--lr", default="", help="learning rates to choose among on dev, for example 3e-5,1e-4")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--evaluations", type=int, default=1, help="on dev in each run; beyond 1 the best one counts")
    parser.add_argument("--steps", type=int, help="for a smoke run")
    parser.add_argument("--limit", type=int, default=0, help="examples per split, for a smoke run")
    parser.add_argument(
        "--start", nargs="+", choices=["pretrained", "random"], default=["pretrained"], help="random: of the same shape"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--only-runs", action="store_true", help=argparse.SUPPRESS)  # be one of --jobs
    arguments = parser.parse_args()

    models = {"pretrained": arguments.model} if "pretrained" in arguments.start else {}
    if "random" in arguments.start:
        models["random weights"] = str(make_random(arguments.model, arguments.out / "random"))
    if arguments.jobs > 1:
        run_jobs(arguments)
    rows: list[dict[str, Any]] = []
    for task in arguments.tasks:
        for name, model in models.items():
            rows.append(measure(arguments, task, name, model))
            if not arguments.only_runs:
                write_results(arguments, rows)
    if arguments.only_runs:
        return
    print((arguments.out / "SCORES.md").read_text(encoding="utf-8"))


def run_jobs(arguments: argparse.Namespace) -> None:
    """Run the tasks in processes; one that starts from another's model waits for it."""
    logs = arguments.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    given = sys.argv[1:]
    begin = given.index("--tasks") if "--tasks" in given else len(given)
    end = next((i for i in range(begin + 1, len(given)) if given[i].startswith("--")), len(given))
    common = [*given[:begin], *given[end:], "--only-runs", "--jobs", "1"]
    done = {task: threading.Event() for task in arguments.tasks}

    def run(task: str) -> int:
        if TASKS[task].after in done:
            done[TASKS[task].after].wait()
        with (logs / f"{task}.log").open("w", encoding="utf-8") as log:
            command = [sys.executable, __file__, *common, "--tasks", task]
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
        done[task].set()
        print(f"{task}: {'done' if code == 0 else f'failed, see {log.name}'}", flush=True)
        return code

    first = [task for task in TASKS if task in arguments.tasks]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        codes = list(pool.map(run, first))
    if any(codes):
        raise SystemExit(1)


def make_random(model: str, out: Path) -> Path:
    """A model of the same shape and vocabulary that has seen nothing."""
    if not (out / "config.json").is_file():
        seed_everything(0)
        save_model(PretrainingModel(load_config(model)), out)
        Tokenizer.load(find_folder(model)).save(out)
    return out


def measure(arguments: argparse.Namespace, task: str, name: str, model: str) -> dict[str, Any]:
    """A study of one task; the setting whose median is best."""
    public = TASKS[task]
    path = arguments.data / public.path
    own = {"train": f"{path}-train.csv", "dev": f"{path}-dev.csv"}
    if public.after:
        model = str(folder_of(arguments, public.after, name) / "best")
    settings: dict[str, Any] = {
        "task": "classification" if task.endswith("k") else task.removesuffix(f"-after-{public.after.split('-')[0]}"),
        "preset": arguments.preset,
        "model": model,
        "data": {**(own if task.endswith("k") else {"folder": str(path)}), "limit": arguments.limit},
        "device": {"device": arguments.device, "precision": arguments.precision},
        "log": {"num_evaluations": arguments.evaluations},
        "epochs": arguments.epochs or public.epochs,
    }
    if arguments.steps:
        settings |= {"steps": arguments.steps, "log": {"evaluate_every": arguments.steps}}
    rates = [float(rate) for rate in arguments.lr.split(",") if rate] or [public.lr]
    began = time.perf_counter()
    out = folder_of(arguments, task, name)
    study = run_study(finetune_config(settings), out, min(arguments.seeds, public.seeds), rates)
    if study.signal is not None:
        raise SystemExit(128 + study.signal)
    best = study.best_setting
    assert best is not None
    return {
        "task": task,
        "model": name,
        "metric": study.metric,
        "paper": public.paper,
        "lr": best.lr,
        "seeds": len(best.members),
        "median": best.median,
        "spread": best.spread,
        "shown": show_setting(best, study.metric),
        "all": {f"{s.lr:g}": s.values for s in study.settings},
        "others": others(best, study.metric),
        "seconds": round(time.perf_counter() - began, 1),
    }


def folder_of(arguments: argparse.Namespace, task: str, name: str) -> Path:
    """Where the study of a task lies."""
    folder: Path = arguments.out / f"{task}-{name.split()[0]}"
    return folder


def show_setting(setting: Setting, metric: str) -> str:
    """The median with the interval of the middle run, and the spread over seeds: "91.3 (89.5 – 93.0), ± 0.21"."""
    interval = show_interval(middle_of(setting).deciding, metric)
    spread = f", ± {show_spread(setting.spread, metric)}" if len(setting.values) > 1 else ""
    return f"{show_value(setting.median, metric)} ({interval}){spread}"


def others(setting: Setting, metric: str) -> dict[str, str]:
    """The further scores of the run in the middle."""
    first = next(iter(middle_of(setting).splits.values()))
    return {name: show_value(found.value, name) for name, found in first.items() if name != metric}


def middle_of(setting: Setting) -> Scores:
    """The scores of the run in the middle (of an even number the worse of two)."""
    scored = sorted((m for m in setting.members if m.value is not None), key=lambda member: member.goodness)
    return scored[(len(scored) - 1) // 2].result.scores


def write_results(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """SCORES.json and SCORES.md in the folder."""
    device = open_device(DeviceConfig(device=arguments.device, precision=arguments.precision))
    facts = {
        "model": arguments.model,
        "preset": arguments.preset,
        "hardware": device.name,
        "precision": device.precision,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    write_atomic(arguments.out / "SCORES.json", json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    lines = [
        "| task | metric | model | median on dev (95 %), ± over seeds | seeds | lr | also | ALBERT-base in the paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        more = ", ".join(f"{name} {value}" for name, value in row["others"].items())
        cells = (
            row["task"],
            row["metric"],
            row["model"],
            row["shown"],
            row["seeds"],
            f"{row['lr']:g}",
            more,
            row["paper"],
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", ", ".join(f"{key} {value}" for key, value in facts.items()) + "."]
    write_atomic(arguments.out / "SCORES.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
