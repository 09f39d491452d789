"""Score, mean depth and time of a fine-tuned model at every exit, and with early exit calibrated on other examples.

    python benchmarks/depth_curve.py RUN/best --data dev.csv --halves 10 --threads 1

Early exit is calibrated on a random half of the data and scored and timed on the other half, as often as --halves says;
rows give the medians over them, and the worst loss. "patience k" is PABEE's own rule. Prints one JSON object with the
machine, the versions and the date.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from litebert import __version__
from litebert.errors import ConfigError
from litebert.finetuning.calibrate import choose, logits_at_exits, score_at
from litebert.finetuning.data import Data, Split
from litebert.finetuning.evaluate import open_member, read_labelled
from litebert.machine import cpu_name
from litebert.predict.exits import ExitRule, problem_of, simulate
from litebert.predict.runtime import Request
from litebert.predict.torch_runtime import TorchRuntime
from litebert.train.device import DeviceConfig, open_device

PROMISES = [
    {"max_loss": 0.0, "speed_up": None},
    {"max_loss": 0.3, "speed_up": None},
    {"max_loss": 1.0, "speed_up": None},
    {"max_loss": None, "speed_up": 1.5},
    {"max_loss": None, "speed_up": 2.0},
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--halves", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="of each timing; the median counts")
    parser.add_argument("--batch", type=int, default=32, help="texts that are asked about together")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()

    device = open_device(DeviceConfig(device=given.device, threads=given.threads))
    found = read_labelled(None, given.model, given.data, None, "utf-8")
    model, task, tokenizer = open_member(given.model, found.task, None)
    split = Data(task, found, tokenizer).dev[0]
    exits, problem = model.config.exits, problem_of(model.config)
    logits = logits_at_exits(model.to(device.device), task, split, device)
    runtime = TorchRuntime(open_member(given.model, found.task, None)[0], device)

    # With one thread, processor time: other work on the machine matters little then.
    clock = time.process_time if given.threads == 1 and not device.is_cuda else time.perf_counter

    def seconds(numbers: np.ndarray, **when: object) -> float:
        """Per example, in batches as they come."""
        requests = [
            Request(split.features[i].ids, split.features[i].segments, frozenset({"logits"}), **when) for i in numbers
        ]
        taken = []
        for _ in range(given.rounds + 1):
            begin = clock()
            for first in range(0, len(requests), given.batch):
                runtime.run(requests[first : first + given.batch])
            taken.append(clock() - begin)
        return statistics.median(taken[1:]) / len(requests)

    everything = np.arange(len(split.examples))
    full_score = score_at(task, split, logits, np.full(len(everything), len(exits) - 1))
    rows = []
    for number, depth in enumerate(exits):
        rows.append(
            {
                "depth": depth,
                "score": score_at(task, split, logits, np.full(len(everything), number)),
                "ms": 1000 * seconds(everything, depth=depth),
            }
        )
    full_ms = rows[-1]["ms"]
    halves = [np.random.default_rng(seed).permutation(everything) for seed in range(given.halves)]
    early = []
    for promise in PROMISES:
        trials = []
        for order in halves:
            seen, unseen = order[: len(order) // 2], order[len(order) // 2 :]
            try:
                chosen = choose(task, _part(split, seen), logits[:, seen], exits, problem, **promise).chosen.rule
            except ConfigError as error:  # a speed-up beyond what these exits allow
                early.append({**promise, "error": str(error)})
                break
            trials.append(_trial(chosen, unseen, task, split, logits, exits, problem, seconds))
        else:
            early.append({**promise, **_summary(trials, full_ms)})
    for patience in range(1, len(exits)):
        if problem != "number":
            rule = ExitRule("patience", patience=patience)
            trials = [
                _trial(rule, order[len(order) // 2 :], task, split, logits, exits, problem, seconds) for order in halves
            ]
            early.append({"rule": f"patience {patience}", **_summary(trials, full_ms)})
    print(
        json.dumps(
            {
                "model": str(given.model),
                "examples": len(everything),
                "metric": task.metrics[0],
                "full_score": full_score,
                "exits": rows,
                "early": early,
                "batch": given.batch,
                "halves": given.halves,
                "machine": device.name if device.is_cuda else f"{cpu_name()}, {torch.get_num_threads()} threads",
                "versions": {"litebert": __version__, "torch": torch.__version__, "python": platform.python_version()},
                "date": datetime.date.today().isoformat(),
            },
            indent=1,
        )
    )


def _part(split: Split, numbers: np.ndarray) -> Split:
    examples, features = [split.examples[i] for i in numbers], [split.features[i] for i in numbers]
    return replace(split, examples=examples, features=features)


def _trial(rule, unseen, task, split, logits, exits, problem, seconds) -> dict[str, float]:
    part, here = _part(split, unseen), logits[:, unseen]
    chosen = simulate(rule, problem, here)
    full = score_at(task, part, here, np.full(len(unseen), len(exits) - 1))
    return {
        "loss": 100 * (full - score_at(task, part, here, chosen)),
        "depth": float(np.take(exits, chosen).mean()),
        "ms": 1000 * seconds(unseen, rule=rule),
    }


def _summary(trials: list[dict[str, float]], full_ms: float) -> dict[str, float]:
    median = {name: statistics.median(trial[name] for trial in trials) for name in trials[0]}
    worst = max(trial["loss"] for trial in trials)
    return {**median, "worst_loss": worst, "times_faster": full_ms / median["ms"]}


if __name__ == "__main__":
    main()
