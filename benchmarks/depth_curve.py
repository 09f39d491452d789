"""Depth as a dial: what exits cost at full depth, and how much faster early exit is at a promised loss.

    python benchmarks/depth_curve.py default DATA --out results/depth --jobs 8 --bring BACK --seeds 2
    python benchmarks/depth_curve.py default DATA --out results/depth --tasks sst-2 --set exit_loss=random --name random
    python benchmarks/depth_curve.py default DATA --out results/cpu --models BACK --int8 200 --server 10 --threads 2
    python benchmarks/depth_curve.py MODEL DATA --out /tmp/d --tasks sst-2 --steps 4 --limit 120 --device cpu --splits 2

DATA holds glue/SST-2, glue/QNLI, glue/STS-B and squad/. For every task and seed the model is fine-tuned without exits
and with them, at the rates and epochs of finetune_scores.py (--epochs sst-2=2 for others); what is complete is not
trained again, and dev is not seen. Rules are calibrated for a loss of at most --max-loss points on examples that were
held out of training and a random half of dev (--calibrate-on), and scored on the other half of dev, --splits times: by
confidence, by patience (PABEE's rule), by a gate, and by the best of the three ("any"). On the first --timed of these
halves, all texts of the other half are timed, in one call of the runtime: at full depth, by each rule, and at each
exit; --timed-tokens repeats or cuts them. Rows give medians over splits and seeds. "patience k" is PABEE as published,
and "any at its speed" is what our rules score where they may apply as many layers.
--jobs N trains N models side by side, then reads the tasks side by side, times one after the other, alone, and
calibrates on the halves that are not timed side by side again.
--bring FOLDER puts the tables and the models with exits there, these packed (about 9 MB each).
--max-tokens is what a pass holds (of each of two lanes on a GPU); of several the fastest counts, for full depth too.
DEPTH.json, DEPTH.md and DEPTH.svg are written on the way, after each task.

With --models FOLDER, only the CPU is measured, with packed models and the rules in them: --int8 N times N texts of dev
one by one in int8, at full depth and by the rule, with the loss against int8 at full depth, --int8-length LOW HIGH
those of so many tokens; --server S loads `litebert serve` with 32 clients, for S seconds at full depth and as long by
the rule, three times (tasks of single texts). CPU.json and CPU.md.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from depth_cpu import measure_cpu
from depth_models import TASKS, fit, folder_of, pack, read

from litebert import __version__
from litebert.errors import ConfigError
from litebert.files import write_atomic
from litebert.finetuning.calibrate import Calibration, ExitOutputs, choose, loss_of, read_exits
from litebert.finetuning.data import Data
from litebert.finetuning.evaluate import as_requests, open_member
from litebert.machine import cpu_name
from litebert.model.config import load_config
from litebert.predict.exits import ExitRule, save_rule, simulate
from litebert.predict.torch_runtime import TorchRuntime
from litebert.report.figures import Line, Point, draw_depths
from litebert.train.device import Device, DeviceConfig, open_device

Results = dict[str, dict[int, dict[str, Any]]]  # by task and seed

RULES = ("confidence", "patience", "gate", "any")


def main() -> None:
    """Train, calibrate, measure; print the tables."""
    given = parse()
    if given.only:
        worker(given)
    elif given.models:
        measure_cpu(given)
    else:
        run(given)


def parse() -> argparse.Namespace:
    """The options, with the exits filled in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="exits", help="of the runs with exits, to compare settings in one folder")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--exits", type=int, nargs="*", default=[], help="depths; by default four, evenly")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the runs with exits")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--epochs", nargs="*", default=[], metavar="TASK=N", help="other than in finetune_scores.py")
    parser.add_argument("--held-out", type=int, default=4000, help="training examples kept for calibration, at most")
    parser.add_argument("--most-dev", type=int, default=1 << 20, help="examples of dev that are read, at most")
    parser.add_argument("--calibrate-on", choices=["dev", "held-out", "both"], default="both")
    parser.add_argument("--max-loss", type=float, default=0.3, help="points promised")
    parser.add_argument("--splits", type=int, default=10, help="halves of dev")
    parser.add_argument("--timed", type=int, default=1, help="of these, whose other half is timed")
    parser.add_argument("--timed-tokens", type=int, default=0, help="how many (0: the texts as they are)")
    parser.add_argument("--rounds", type=int, default=3, help="of each timing; the median counts")
    parser.add_argument("--max-tokens", type=int, nargs="+", default=[8192])
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--bring", type=Path, help="folder for the tables and packed models")
    parser.add_argument("--models", type=Path, help="folder of packed models: measure them on the CPU")
    parser.add_argument("--int8", type=int, default=0, metavar="N", help="time N texts one by one")
    parser.add_argument("--int8-length", type=int, nargs=2, default=[0, 1 << 20], metavar=("LOW", "HIGH"))
    parser.add_argument("--server", type=float, default=0.0, metavar="S", help="load a server for S seconds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--steps", type=int, help="for a smoke run")
    parser.add_argument("--limit", type=int, default=0, help="examples per split, for a smoke run")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # be one of --jobs: what, task, seed
    given = parser.parse_args()
    given.epochs = {name: float(number) for name, _, number in (each.partition("=") for each in given.epochs)}
    layers = load_config(given.model).num_hidden_layers
    given.exits = given.exits or sorted({math.ceil(layers * quarter / 4) for quarter in range(1, 5)})
    given.out.mkdir(parents=True, exist_ok=True)
    return given


# -- processes ---------------------------------------------------------------------------------------------------------


def run(given: argparse.Namespace) -> None:
    """All runs, then all tasks; timing begins when nothing else works any more."""
    began = time.perf_counter()
    ordered = [task for task in TASKS if task in given.tasks]
    members = [(task, seed) for seed in range(given.seeds) for task in ordered]
    runs = [(task, seed, exits) for task, seed in members for exits in (True, False)]
    if given.jobs > 1:
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            codes = list(pool.map(lambda each: Worker(given, "train", *each).end(), runs))
        if any(codes):
            sys.exit(f"a run failed; see {given.out / 'logs'}")
    else:
        for each in runs:
            fit(given, *each)
    print(f"trained after {time.perf_counter() - began:.0f} s", flush=True)
    if given.train_only:
        return
    failed = False
    results: Results = {}
    for begin in range(0, len(members), given.jobs):
        chunk = members[begin : begin + given.jobs]
        if given.jobs == 1:
            for task, seed in chunk:
                for found in measure(given, task, seed, lambda: None):
                    results.setdefault(task, {})[seed] = found
                    write(given, results)
                if given.bring:
                    bring(given, task, seed)
            continue
        workers = [Worker(given, "measure", *each) for each in chunk]
        for each in workers:
            each.wait("READY")
        print(f"read after {time.perf_counter() - began:.0f} s", flush=True)
        for (task, seed), each in zip(chunk, workers, strict=True):
            each.say("TIME")
            each.wait("READY")
            collect(given, results, task, seed)
            if given.bring:
                bring(given, task, seed)
            print(f"{task}, seed {seed} timed after {time.perf_counter() - began:.0f} s", flush=True)
        for each in workers:  # the other halves, side by side
            each.say("GO ON")
        for (task, seed), each in zip(chunk, workers, strict=True):
            failed |= each.end() != 0
            collect(given, results, task, seed)
    if given.bring:
        bring_tables(given)
    print((given.out / "DEPTH.md").read_text(encoding="utf-8"))
    if failed:
        sys.exit(f"a task failed; see {given.out / 'logs'}")


class Worker:
    """This script in a process of its own, for one run or one task."""

    def __init__(self, given: argparse.Namespace, *what: Any):
        name = ":".join(map(str, what))
        (given.out / "logs").mkdir(exist_ok=True)
        with (given.out / "logs" / f"{name.replace(':', '-')}.log").open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--only", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # there are enough processes
            )

    def wait(self, word: str) -> None:
        """Until it says a word, or ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
            print(line, end="", flush=True)

    def say(self, word: str) -> None:
        """A word that it waits for; one that has ended hears nothing."""
        assert self.process.stdin is not None
        if self.process.poll() is None:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()

    def end(self) -> int:
        """Its exit code."""
        self.wait("")
        return self.process.wait()


def worker(given: argparse.Namespace) -> None:
    """One run, or one task."""
    what, task, seed, *exits = given.only.split(":")
    if what == "train":
        fit(given, task, int(seed), exits == ["True"])
        return

    def ready() -> None:
        print("READY", flush=True)
        sys.stdin.readline()

    part = part_of(given, task, int(seed))
    part.unlink(missing_ok=True)
    for found in measure(given, task, int(seed), ready):
        write_atomic(part, json.dumps(found))


def part_of(given: argparse.Namespace, task: str, seed: int) -> Path:
    """Where a worker writes what it has found so far."""
    part: Path = given.out / f"part-{task}-{given.name}-{seed}.json"
    return part


def collect(given: argparse.Namespace, results: Results, task: str, seed: int) -> None:
    """What a worker has found so far, into the tables."""
    part = part_of(given, task, seed)
    if part.exists():
        results.setdefault(task, {})[seed] = json.loads(part.read_text())
        write(given, results)


def bring_tables(given: argparse.Namespace) -> None:
    """The tables so far."""
    given.bring.mkdir(parents=True, exist_ok=True)
    for name in ("DEPTH.json", "DEPTH.md", "DEPTH.svg"):
        if (given.out / name).exists():
            shutil.copy(given.out / name, given.bring)


def bring(given: argparse.Namespace, task: str, seed: int) -> None:
    """The tables so far and a model, small."""
    bring_tables(given)
    if seed == 0:
        model = folder_of(given, task, seed, True) / "best"
        file = given.bring / f"{task}-{given.name}.npz"
        worst = pack(model, given.model, file)
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB, weights within {worst:.1e}", flush=True)


# -- one task ----------------------------------------------------------------------------------------------------------


def measure(given: argparse.Namespace, task: str, seed: int, ready: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """All numbers of one task and seed, after timing, and again after the halves that are not timed.

    `ready` returns when the machine is free, first for timing, then for other work.
    """
    plain, model = (fit(given, task, seed, exits) for exits in (False, True))
    device = open_device(DeviceConfig(device=given.device, threads=given.threads))
    found, held = read(given, task)
    opened, own, tokenizer = open_member(model, found.task, None)
    dev = next(iter(found.dev.values()))[: given.most_dev]
    both = dataclasses.replace(found, train=[], dev={"dev": [*dev, *held]})
    runtime = TorchRuntime(opened, device, given.max_tokens[0])
    paper = read_exits(runtime, own, Data(own, both, tokenizer).dev[0])
    on_dev = paper.part(np.arange(len(dev)))
    depths, num_sequences = paper.trace.depths, len(on_dev.split.features)
    scores = on_dev.scores([np.full(num_sequences, number) for number in range(len(depths))])
    alone = TorchRuntime(open_member(plain, found.task, None)[0], device, given.max_tokens[0])
    facts = {
        "task": task,
        "seed": seed,
        "metric": own.metrics[0],
        "examples": len(dev),
        "held_out": len(held),
        "trained_on": len(found.train),
        "epochs": given.epochs.get(task),
        "sequences": num_sequences,
        "tokens": int(sum(len(feature.ids) for feature in on_dev.split.features)),
        "plain": full_paper(alone, on_dev).scores([np.zeros(num_sequences, int)])[0],
        "full": scores[-1],
        "exits": dict(zip(map(str, depths), scores, strict=True)),
    }
    clock = Clock(runtime, given, device)
    halves = Halves(given, paper, len(dev))
    timed = min(max(given.timed, 1), given.splits)
    # One after another, some seconds each: processes forked beside CUDA's threads hang, others would first have to be
    # handed all outputs, and threads wait for each other.
    done = [halves.measure(number) for number in range(timed)]
    kept = done[0].kept
    promise = {"asked": {"max_loss": given.max_loss}, "margin": kept.margin}
    save_rule(kept.chosen.rule, model, promise, kept.curve, kept.full_depth)
    ready()
    for number, half in enumerate(done[: given.timed]):
        clock.compare(halves.unseen(number), {name: (half.rows[name], when) for name, when in half.asked.items()})
    facts["texts_per_second"] = clock.rate
    yield facts | gather(given, done)
    ready()
    if timed < given.splits:
        done += [halves.measure(number) for number in range(timed, given.splits)]
        yield facts | gather(given, done)


def gather(given: argparse.Namespace, halves: Sequence[Half]) -> dict[str, Any]:
    """What came of some halves, as medians."""
    rows = {name: [each.rows[name] for each in halves] for name in halves[0].rows}
    others = {name: [each.others[name] for each in halves if name in each.others] for name in halves[0].others}
    return {
        "rows": {name: summary(each) for name, each in rows.items()},
        "others": {name: summary(each) for name, each in others.items()},
        "kept": {by: [each["loss"] - given.max_loss - each["margin"] for each in rows[by]] for by in RULES},
        "losses": {by: [each["loss"] for each in rows[by]] for by in RULES},
    }


class Half(NamedTuple):
    """What came of one half of dev."""

    rows: dict[str, dict[str, float]]
    others: dict[str, dict[str, float]]
    asked: dict[str, dict[str, Any]]  # what is timed
    kept: Calibration


class Halves:
    """Calibrations on random halves of dev and of what was held out, each scored on the other half of dev."""

    def __init__(self, given: argparse.Namespace, paper: ExitOutputs, num_dev: int):
        self.given, self.paper, self.num_dev = given, paper, num_dev

    def order(self, number: int) -> np.ndarray[Any, Any]:
        """Dev, shuffled."""
        return np.random.default_rng(number).permutation(self.num_dev)

    def unseen(self, number: int) -> ExitOutputs:
        """The half that is scored and timed."""
        return self.paper.part(np.sort(self.order(number)[self.num_dev // 2 :]))

    def measure(self, number: int) -> Half:
        """All rules on one half."""
        given, paper, depths = self.given, self.paper, self.paper.trace.depths
        held = self.num_dev + np.random.default_rng(number).permutation(len(paper.split.examples) - self.num_dev)
        unseen = self.unseen(number)
        sources = {"dev": self.order(number)[: self.num_dev // 2], "held-out": held[: len(held) // 2]}
        sources["both"] = np.concatenate(list(sources.values()))
        if not len(held):
            sources = dict.fromkeys(sources, sources["dev"])
        seen = paper.part(np.sort(sources.pop(given.calibrate_on)))
        rows: dict[str, dict[str, float]] = {}
        asked: dict[str, dict[str, Any]] = {}
        for by in RULES:
            kept = choose(seen, given.max_loss, None, by)
            rows[by] = trial(kept.chosen.rule, unseen, margin=kept.margin)
            asked[by] = {"rule": kept.chosen.rule}
        others: dict[str, dict[str, float]] = {}
        if number < 3:
            for source, chosen in sources.items():
                other = choose(paper.part(np.sort(chosen)), given.max_loss, None)
                others[source] = trial(other.chosen.rule, unseen, margin=other.margin)
        change = 0.1 * float(seen.trace.exits[-1].answer.std()) if paper.trace.problem == "number" else 0.0
        for patience in range(1, len(depths)):
            rule = ExitRule("patience", change, patience)
            rows[f"patience {patience}"] = trial(rule, unseen)
            asked[f"patience {patience}"] = {"rule": rule}
            speed = depths[-1] / seen.mean_depth(simulate(rule, seen.trace))
            try:
                ours = choose(seen, None, speed).chosen.rule
            except ConfigError:  # by rounding
                ours = rule
            rows[f"any at its speed {patience}"] = trial(ours, unseen)
        for depth in depths[:-1]:
            rows[f"depth {depth}"] = fixed(depth, unseen)
            asked[f"depth {depth}"] = {"depth": depth}
        return Half(rows, others, asked, kept)


def full_paper(runtime: TorchRuntime, paper: ExitOutputs) -> ExitOutputs:
    """A model without exits on the same examples: one column, of full depth."""
    outputs = runtime.run(as_requests(runtime, paper.task, paper.split))
    depth = runtime.config.num_hidden_layers
    return ExitOutputs(
        paper.task, paper.split, [outputs], dataclasses.replace(paper.trace, depths=(depth,)), paper.numbers
    )


class Clock:
    """Times calls of the runtime for all texts of a part, ways taking turns."""

    def __init__(self, runtime: TorchRuntime, given: argparse.Namespace, device: Device):
        self.runtime, self.given = runtime, given
        self.rate: dict[str, float] = {}  # at full depth, of the last part
        # With one thread, processor time: other work on the machine matters little then.
        self.now = time.process_time if given.threads == 1 and not device.is_cuda else time.perf_counter

    def compare(self, part: ExitOutputs, asked: dict[str, tuple[dict[str, float], dict[str, Any]]]) -> None:
        """Write into each row how many times faster its way is than full depth."""
        ways = {"full": self.requests(part, {})} | {
            name: self.requests(part, when) for name, (_, when) in asked.items()
        }
        sizes = dict.fromkeys(("full", "any"), self.given.max_tokens[0])
        if len(self.given.max_tokens) > 1:
            for name in sizes:
                taken = {size: [self.seconds(ways[name], size)[0] for _ in range(3)] for size in self.given.max_tokens}
                sizes[name] = min(taken, key=lambda size: min(taken[size][1:]))
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(self.given.rounds + 1):  # the first is to get warm
            for name, requests in ways.items():
                taken_now, outputs = self.seconds(requests, sizes["full" if name == "full" else "any"])
                if number:
                    seconds[name].append(taken_now)
                elif name != "full" and "rule" in asked[name][1]:  # rounding may differ from what is on paper
                    chosen = np.take(part.trace.depths, simulate(asked[name][1]["rule"], part.trace))
                    depths = np.array([int(output["depth"]) for output in outputs[: len(chosen)]])
                    asked[name][0]["as_on_paper"] = float((depths == chosen[: len(depths)]).mean())
        full = statistics.median(seconds["full"])
        for name, (row, _) in asked.items():
            row["faster"] = full / statistics.median(seconds[name])
        tokens = sum(map(len, ways["full"]))
        self.rate = {"full": len(ways["full"]) / full, "tokens": tokens / full, "auto": len(ways["full"]) / full}
        self.rate |= {"auto": self.rate["full"] * asked["any"][0]["faster"], "timed": tokens}
        self.rate |= {f"pass_{name}": size for name, size in sizes.items()}

    def requests(self, part: ExitOutputs, when: dict[str, Any]) -> list[Any]:
        """Those of a part, repeated or cut to the number of tokens asked for."""
        found = as_requests(self.runtime, part.task, part.split, **when)
        most = self.given.timed_tokens
        if not most:
            return found
        found = found * math.ceil(most / sum(map(len, found)))
        ends = np.cumsum([len(request) for request in found])
        return found[: int(np.searchsorted(ends, most)) + 1]

    def seconds(self, requests: Sequence[Any], size: int) -> tuple[float, list[Any]]:
        """One call, in passes of some size."""
        self.runtime.max_tokens = self.runtime.lane_tokens = size
        begin = self.now()
        outputs = self.runtime.run(requests)
        return self.now() - begin, outputs


def trial(rule: ExitRule, unseen: ExitOutputs, **more: float) -> dict[str, float]:
    """A rule on examples that it was not calibrated on."""
    chosen = simulate(rule, unseen.trace)
    return {
        "loss": loss_of(unseen, chosen).value,
        "score": unseen.scores([chosen])[0],
        "layers": unseen.mean_depth(chosen),
        "fewer": unseen.trace.depths[-1] / unseen.mean_depth(chosen),
        **more,
    }


def fixed(depth: int, unseen: ExitOutputs) -> dict[str, float]:
    """One depth for all texts."""
    chosen = np.full(len(unseen.split.features), unseen.trace.depths.index(depth))
    return {
        "loss": loss_of(unseen, chosen).value,
        "score": unseen.scores([chosen])[0],
        "layers": float(depth),
        "fewer": unseen.trace.depths[-1] / depth,
    }


def summary(trials: list[dict[str, float]]) -> dict[str, float]:
    """Medians over the splits, and the worst loss."""
    names = {name: None for each in trials for name in each}
    median = {name: statistics.median(each[name] for each in trials if name in each) for name in names}
    return {
        **median,
        "mean_loss": statistics.fmean(t["loss"] for t in trials),
        "worst_loss": max(t["loss"] for t in trials),
    }


# -- tables and pictures -----------------------------------------------------------------------------------------------


def write(given: argparse.Namespace, found: Results) -> None:
    """DEPTH.json, DEPTH.md and DEPTH.svg of what there is so far."""
    results = {task: [found[task][seed] for seed in sorted(found[task])] for task in TASKS if task in found}
    device = open_device(DeviceConfig(device=given.device, threads=given.threads))
    facts = {
        "model": Path(given.model).name,
        "exits": given.exits,
        "set": given.set,
        "max_loss": given.max_loss,
        "splits": given.splits,
        "max_tokens": given.max_tokens,
        "machine": device.name if device.is_cuda else f"{cpu_name()}, {torch.get_num_threads()} threads",
        "load": [round(each, 1) for each in os.getloadavg()],
        "versions": {"litebert": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "date": datetime.date.today().isoformat(),
    }
    write_atomic(given.out / "DEPTH.json", json.dumps({**facts, "tasks": results}, indent=1) + "\n")
    write_atomic(given.out / "DEPTH.md", "\n".join(tables(given, results, facts)) + "\n")
    lines = []
    for task, runs in results.items():
        exits = middle(runs, lambda each: each["exits"])
        row = middle(runs, lambda each: each["rows"]["any"])
        auto = Point(row["layers"], row["score"], f"{task}, auto: {row['score']:.4f} at {row['layers']:.2f} layers")
        lines.append(Line(task, [Point(float(depth), score) for depth, score in exits.items()], [auto]))
    write_atomic(given.out / "DEPTH.svg", draw_depths(lines, "layers applied on average", alone=True) + "\n")


def middle(found: list[dict[str, Any]], pick: Any) -> dict[str, float]:
    """The medians over seeds of some numbers."""
    chosen = [pick(each) for each in found]
    return {name: statistics.median(each[name] for each in chosen if name in each) for name in chosen[0]}


def tables(given: argparse.Namespace, results: dict[str, list[dict[str, Any]]], facts: dict[str, Any]) -> list[str]:
    """The table of the promise, then one of every task."""
    tasks = list(results)
    promised = {task: {by: middle(results[task], lambda e, by=by: e["rows"][by]) for by in RULES} for task in tasks}
    cost = {task: statistics.median(100 * (e["full"] - e["plain"]) for e in results[task]) for task in tasks}
    lines = [
        f"{facts['machine']}, torch {facts['versions']['torch']}, {facts['date']}, load {facts['load'][0]}; "
        f"{given.seeds} seeds, {given.splits} halves, at most {given.max_loss:g} points promised, calibrated on "
        f"{given.calibrate_on}, exits {given.exits}.",
        "",
        f"| mean of {len(tasks)} | loss | fewer layers | faster |",
        "|---|---|---|---|",
    ]
    for by in RULES:
        rows = [promised[task][by] for task in tasks]
        shown = [statistics.fmean(row[name] for row in rows) for name in ("loss", "fewer", "faster")]
        name = {"patience": "patience (PABEE's rule)", "any": "the best of the three"}.get(by, by)
        lines.append(f"| {name} | {shown[0]:.2f} | {shown[1]:.2f}x | {shown[2]:.2f}x |")
    lines += [
        f"| full depth with exits, against plain | {-statistics.fmean(cost.values()):.2f} | | |",
        "",
    ]
    for source in results[tasks[0]][0]["others"]:
        rows = [middle(results[task], lambda e, s=source: e["others"][s]) for task in tasks]
        loss, fewer = (statistics.fmean(row[name] for row in rows) for name in ("loss", "fewer"))
        lines.insert(-2, f"| the best, calibrated on {source} alone | {loss:.2f} | {fewer:.2f}x | |")
    kept = [gap for task in tasks for each in results[task] for gap in each["kept"]["any"]]
    paper = min(promised[task][by].get("as_on_paper", 1.0) for task in tasks for by in RULES)
    lines.append(f"Texts stopped on the device where they do on paper: {100 * paper:.1f} % or more.")
    lines.append(f"The promise and its margin held in {sum(gap <= 0 for gap in kept)} of {len(kept)} calibrations.")
    for task in tasks:
        first, speeds = results[task][0], middle(results[task], lambda e: e["texts_per_second"])
        lines += [
            "",
            f"**{task}** ({first['metric']}, {first['examples']:,} examples): plain "
            f"{100 * statistics.median(e['plain'] for e in results[task]):.2f}, with exits "
            f"{100 * statistics.median(e['full'] for e in results[task]):.2f}; "
            f"{speeds['full']:,.0f} texts/s ({speeds['tokens'] / 1e6:.2f} M tokens/s) at full depth, "
            f"{speeds['auto']:,.0f} by the best rule",
            "",
            "| | score | loss | worst | layers | faster |",
            "|---|---|---|---|---|---|",
        ]
        for name in first["rows"]:
            row = middle(results[task], lambda e, name=name: e["rows"][name])
            faster = f"{row['faster']:.2f}x" if "faster" in row else ""
            lines.append(
                f"| {name} | {100 * row['score']:.2f} | {row['loss']:.2f} | {row['worst_loss']:.2f} "
                f"| {row['layers']:.2f} | {faster} |"
            )
    return lines


if __name__ == "__main__":
    main()
