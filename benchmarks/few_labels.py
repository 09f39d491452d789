"""A few hundred labels: a linear head on frozen features (--head-only) and full fine-tuning, beside TF-IDF.

    python benchmarks/few_labels.py glue/SST-2 --labels 600 --samples 3 --out results/few-labels
Each sample draws that many training examples at random; dev is the whole official file. All rows of a sample learn from
the same examples; leads over TF-IDF are paired, with 95 % intervals. Runs that are complete are not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from litebert.finetuning.baselines import show_lead
from litebert.finetuning.config import finetune_config
from litebert.finetuning.presets import pick_preset
from litebert.finetuning.run import finetune
from litebert.model.config import load_config
from litebert.tasks.read import read_task
from litebert.tasks.task import TaskData


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="GLUE's SST-2 folder")
    parser.add_argument("--task", default="sst-2")
    parser.add_argument("--labels", type=int, default=600)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--model", default="default")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = read_task(arguments.task, folder=arguments.data)
    rows: dict[str, list[float]] = {}
    for sample in range(arguments.samples):
        few = draw(data, arguments.labels, sample)
        for name, settings in (("head only", {"head_only": True}), ("whole model", {})):
            folder = arguments.out / f"{arguments.labels}-{sample}-{name.replace(' ', '-')}"
            config = finetune_config(
                {
                    "task": arguments.task,
                    "model": arguments.model,
                    "device": {"threads": arguments.threads},
                    **settings,
                },
                auto=pick_preset(load_config(arguments.model).hidden_size, torch.cuda.is_available()),
            )
            began = time.process_time()
            result = finetune(config, folder, quiet=True, data=few)
            took = keep(folder / "cpu_seconds.json", time.process_time() - began)
            metric = result.scores.metric
            baselines = {each.baseline: each for each in result.scores.baselines if each.metric == metric}
            rows.setdefault(f"{name} ({config.preset})", []).append(result.scores.value or 0.0)
            for baseline, each in baselines.items():
                if name == "head only":
                    rows.setdefault(baseline, []).append(each.score.value)
            best = max(baselines.values(), key=lambda each: each.score.value)
            print(
                f"sample {sample}, {name}: {metric} {100 * (result.scores.value or 0):.1f}, {took:.0f} CPU s; "
                f"lead over {best.baseline} {show_lead(best)}: {best.verdict}",
                flush=True,
            )
    print("\n| method | mean | samples |\n|---|---|---|")
    for name, values in rows.items():
        shown = ", ".join(f"{100 * value:.1f}" for value in values)
        print(f"| {name} | {100 * statistics.mean(values):.1f} | {shown} |")


def draw(data: TaskData, labels: int, seed: int) -> TaskData:
    """The task with a random sample of its training examples."""
    chosen = np.random.default_rng(seed).choice(len(data.train), labels, replace=False)
    return dataclasses.replace(data, train=[data.train[i] for i in sorted(chosen.tolist())], test={})


def keep(path: Path, seconds: float) -> float:
    """The time of the run as it was first measured."""
    if not path.exists():
        path.write_text(json.dumps(seconds), encoding="utf-8")
    return float(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
