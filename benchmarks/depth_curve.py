"""Depth as a dial: what exits cost at full depth, and how much faster early exit is at a loss that was promised.

    python benchmarks/depth_curve.py default DATA --out results/depth --device cuda --seeds 2
    python benchmarks/depth_curve.py default DATA --out results/depth --tasks sst-2 --set exit_loss=random --name random
    python benchmarks/depth_curve.py MODEL DATA --out /tmp/d --tasks sst-2 --steps 4 --limit 120 --device cpu --splits 2

DATA holds glue/SST-2, glue/QNLI, glue/STS-B and squad/. For every task and seed the model is fine-tuned without exits
and with them; what is complete is not trained again. Rules are then calibrated on a random half of dev for a loss of at
most --max-loss points and scored on the other half, --splits times: by confidence, by patience (PABEE's rule), by a
gate, and by the best of the three ("any"). On the first --timed of these halves, all texts of the other half are timed,
in one call of the runtime: at full depth, by each rule, and at each exit. Rows give medians over splits and seeds.
"patience k" is PABEE as published, and "any at its speed" is what our rules score where they may apply as many layers.
With --int8 N, the model is also exported, and N texts of the first half are timed one by one in int8 on the CPU, at
full depth and by the best rule, with the loss against int8 at full depth.
With --server S, `litebert serve` answers texts of the other half to 32 clients, for S seconds at full depth and as long
by the best rule, three times, on the CPU (tasks of single texts).
--max-tokens is what a pass holds (of each of two lanes on a GPU). DEPTH.json, DEPTH.md and DEPTH.svg are written on the
way, after each task.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import os
import platform
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from server_load import client, server

from litebert import __version__
from litebert.errors import ConfigError
from litebert.export.onnx_file import export_onnx
from litebert.files import write_atomic
from litebert.finetuning.calibrate import Paper, choose, loss_of, read_exits
from litebert.finetuning.config import finetune_config
from litebert.finetuning.data import Data
from litebert.finetuning.evaluate import as_requests, open_member, read_labelled
from litebert.finetuning.run import finetune
from litebert.machine import cpu_name
from litebert.model.config import load_config
from litebert.predict.exits import ExitRule, save_rule, simulate
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.torch_runtime import TorchRuntime
from litebert.report.depths import Line, Point, draw_depths
from litebert.tasks.decode import decode
from litebert.tasks.metrics import goodness, score_difference
from litebert.train.device import Device, DeviceConfig, open_device

TASKS = {"sst-2": "glue/SST-2", "qnli": "glue/QNLI", "sts-b": "glue/STS-B", "squad-1.1": "squad"}
RULES = ("confidence", "patience", "gate", "any")


def main() -> None:
    """Train, calibrate, measure; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="exits", help="of the runs with exits, to compare settings in one folder")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--exits", type=int, nargs="*", default=[], help="depths; by default four, evenly")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the runs with exits")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--evaluations", type=int, default=4, help="on dev in each run")
    parser.add_argument("--max-loss", type=float, default=0.3, help="points promised")
    parser.add_argument("--splits", type=int, default=10, help="halves of dev")
    parser.add_argument("--timed", type=int, default=3, help="of these, whose other half is timed")
    parser.add_argument("--rounds", type=int, default=5, help="of each timing; the median counts")
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--int8", type=int, default=0, metavar="N", help="time N texts one by one in int8 on the CPU")
    parser.add_argument("--server", type=float, default=0.0, metavar="S", help="load a server on the CPU for S seconds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--steps", type=int, help="for a smoke run")
    parser.add_argument("--limit", type=int, default=0, help="examples per split, for a smoke run")
    given = parser.parse_args()
    layers = load_config(given.model).num_hidden_layers
    given.exits = given.exits or sorted({math.ceil(layers * quarter / 4) for quarter in range(1, 5)})
    given.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[dict[str, Any]]] = {}
    for task in given.tasks:
        for seed in range(given.seeds):
            results.setdefault(task, []).append(measure(given, task, seed))
            write(given, results)
    print((given.out / "DEPTH.md").read_text(encoding="utf-8"))


# -- one task ----------------------------------------------------------------------------------------------------------


def measure(given: argparse.Namespace, task: str, seed: int) -> dict[str, Any]:
    """All numbers of one task and seed."""
    plain = train(given, task, seed, exits=False)
    model = train(given, task, seed, exits=True)
    device = open_device(DeviceConfig(device=given.device, threads=given.threads))
    found = read_labelled(task, model, given.data / TASKS[task], None, "utf-8")
    opened, own, tokenizer = open_member(model, found.task, None)
    split = Data(own, found, tokenizer, given.limit).dev[0]
    runtime = TorchRuntime(opened, device, given.max_tokens)
    paper = read_exits(runtime, own, split)
    depths, num_sequences = paper.trace.depths, len(split.features)
    everywhere = [np.full(num_sequences, number) for number in range(len(depths))]
    scores = paper.scores(everywhere)
    before = open_member(plain, found.task, None)[0]
    alone = TorchRuntime(before, device, given.max_tokens)
    plain_paper = read_exits(alone, own, split) if before.config.exits else full_paper(alone, paper)
    clock = Clock(runtime, given, device)
    halves = [np.random.default_rng(each).permutation(len(split.examples)) for each in range(given.splits)]
    half = len(split.examples) // 2
    rows: dict[str, list[dict[str, float]]] = {}
    int8: dict[str, float] = {}
    served: dict[str, float] = {}
    for number, order in enumerate(halves):
        seen, unseen = paper.part(np.sort(order[:half])), paper.part(np.sort(order[half:]))
        timed = number < given.timed
        full = clock.seconds(unseen, {}) if timed else math.nan
        for by in RULES:
            kept = choose(seen, given.max_loss, None, by)
            rows.setdefault(by, []).append(
                trial(kept.chosen.rule, unseen, clock if timed else None, full, margin=kept.margin)
            )
        if number == 0 and given.int8:
            part = unseen.part(np.arange(min(given.int8, len(unseen.split.examples))))
            int8 = one_by_one(given, model, kept.chosen.rule, part)
        if number == 0 and given.server and own.kind == "classification" and not own.pair:
            served = load_server(given, model, kept.chosen.rule, unseen)
        for patience in range(1, len(depths)):
            changes = [0.0]
            if paper.trace.problem == "number":
                spread = float(seen.trace.exits[-1].answer.std())
                changes = [0.1 * spread]
            rule = ExitRule("patience", changes[0], patience)
            rows.setdefault(f"patience {patience}", []).append(trial(rule, unseen, clock if timed else None, full))
            speed = depths[-1] / seen.mean_depth(simulate(rule, seen.trace))
            try:
                ours = choose(seen, None, speed).chosen.rule
            except ConfigError:  # by rounding
                ours = rule
            rows.setdefault(f"any at its speed {patience}", []).append(trial(ours, unseen, None, full))
        if timed:
            for depth in depths[:-1]:
                rows.setdefault(f"depth {depth}", []).append(fixed(depth, unseen, clock, full))
    return {
        "task": task,
        "seed": seed,
        "metric": own.metrics[0],
        "examples": len(split.examples),
        "sequences": num_sequences,
        "tokens": int(sum(len(feature.ids) for feature in split.features)),
        "plain": plain_paper.scores([np.zeros(num_sequences, int)])[0],
        "full": scores[-1],
        "exits": dict(zip(map(str, depths), scores, strict=True)),
        "rows": {name: summary(each) for name, each in rows.items()},
        "kept": {by: [each["loss"] - given.max_loss - each["margin"] for each in rows[by]] for by in RULES},
        "texts_per_second": clock.rate,
        **({"int8": int8} if int8 else {}),
        **({"server": served} if served else {}),
    }


def train(given: argparse.Namespace, task: str, seed: int, exits: bool) -> Path:
    """The best model of a run; a complete one is not run again."""
    settings: dict[str, Any] = {
        "task": task,
        "model": given.model,
        "preset": given.preset,
        "seed": seed,
        "data": {"folder": str(given.data / TASKS[task]), "limit": given.limit},
        "device": {"device": given.device, "threads": given.threads},
        "log": {"num_evaluations": given.evaluations},
    }
    if given.epochs:
        settings["epochs"] = given.epochs
    if given.steps:
        settings |= {"steps": given.steps, "log": {"evaluate_every": given.steps}}
    if exits:
        settings["exits"] = given.exits
        settings |= {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in given.set)}
    name = given.name if exits else "plain"
    result = finetune(finetune_config(settings), given.out / f"{task}-{name}-{seed}", quiet=True)
    print(f"{task}, {name}, seed {seed}: {result.scores.metric} {result.scores.deciding.value:.4f}", flush=True)
    return result.model


def full_paper(runtime: TorchRuntime, paper: Paper) -> Paper:
    """A model without exits on the same examples: one column, of full depth."""
    outputs = runtime.run(as_requests(runtime, paper.task, paper.split))
    return Paper(paper.task, paper.split, [outputs], replace(paper.trace, depths=(12,)), paper.numbers)


class Clock:
    """Times one call of the runtime for all texts of a part."""

    def __init__(self, runtime: TorchRuntime, given: argparse.Namespace, device: Device):
        self.runtime, self.rounds = runtime, given.rounds
        self.outputs: list[Any] = []  # of the last round
        self.rate: dict[str, float] = {}  # texts per second at full depth, of the last part
        # With one thread, processor time: other work on the machine matters little then.
        self.now = time.process_time if given.threads == 1 and not device.is_cuda else time.perf_counter

    def seconds(self, part: Paper, when: dict[str, Any]) -> float:
        """The median of some rounds."""
        requests = as_requests(self.runtime, part.task, part.split, **when)
        taken = []
        for _ in range(self.rounds + 1):  # the first is to get warm
            begin = self.now()
            self.outputs = self.runtime.run(requests)
            taken.append(self.now() - begin)
        found = statistics.median(taken[1:])
        if not when:
            self.rate["full"] = len(requests) / found
        return found


def trial(rule: ExitRule, unseen: Paper, clock: Clock | None, full: float, **more: float) -> dict[str, float]:
    """A rule on examples that it was not calibrated on."""
    chosen = simulate(rule, unseen.trace)
    row = {
        "loss": loss_of(unseen, chosen).value,
        "score": unseen.scores([chosen])[0],
        "layers": unseen.mean_depth(chosen),
        "fewer": unseen.trace.depths[-1] / unseen.mean_depth(chosen),
        **more,
    }
    if clock is not None:
        row["faster"] = full / clock.seconds(unseen, {"rule": rule})
        depths = np.array([int(output["depth"]) for output in clock.outputs])
        row["as_on_paper"] = float((depths == np.take(unseen.trace.depths, chosen)).mean())  # rounding may differ
    return row


def one_by_one(given: argparse.Namespace, model: Path, rule: ExitRule, part: Paper) -> dict[str, float]:
    """Mean milliseconds of a text by itself, in int8 on the CPU: at full depth and by a rule, texts taking turns."""
    folder = model.parent / "onnx"
    if not (folder / "export.json").is_file():
        export_onnx(model, folder, int8=True)
    runtime = OnnxRuntime(folder, threads=given.threads, precision="int8")
    asked = {"full": as_requests(runtime, part.task, part.split)}
    asked["auto"] = as_requests(runtime, part.task, part.split, rule=rule)
    begins = part.begins
    outputs: dict[str, list[Any]] = {"full": [], "auto": []}
    taken = {"full": 0.0, "auto": 0.0}
    for name in asked:  # the first runs are slower
        runtime.run(asked[name][:2])
    for begin, end in itertools.pairwise(begins.tolist()):
        for name in asked:
            started = time.perf_counter()
            outputs[name] += runtime.run(asked[name][begin:end])
            taken[name] += time.perf_counter() - started
    said = {name: decode(part.task, part.split.examples, part.split.features, own) for name, own in outputs.items()}
    metric = part.task.metrics[0]
    loss = score_difference(part.task, part.split.examples, said["full"], said["auto"], 0)[metric].value
    count = len(part.split.examples)
    return {
        "texts": count,
        "tokens": sum(len(request) for request in asked["full"]) / count,
        "threads": runtime.threads,
        "full_ms": 1000 * taken["full"] / count,
        "auto_ms": 1000 * taken["auto"] / count,
        "faster": taken["full"] / taken["auto"],
        "loss": math.copysign(100, goodness(metric, 1.0)) * loss,
        "layers": statistics.fmean(float(output["depth"]) for output in outputs["auto"]),
    }


def load_server(given: argparse.Namespace, model: Path, rule: ExitRule, part: Paper) -> dict[str, float]:
    """Requests per second of a server with 32 clients, at full depth and by a rule, by turns."""
    save_rule(rule, model, {"asked": {"max_loss": given.max_loss}})
    texts = {"dev": [example.a for example in part.split.examples]}
    write_atomic(model.parent / "texts.json", json.dumps(texts))
    threads = str(given.threads or 2)
    command = [sys.executable, "-m", "litebert", "serve", f"load={model}", "--port", "0"]
    rates: dict[str, list[float]] = {"full": [], "auto": []}
    with server([*command, "--threads", threads, "--device", "cpu"]) as address:
        for number in range(4):  # the first warms up
            for name, options in (("full", {}), ("auto", {"depth": "auto"})):
                found = client(address, model.parent, "dev", given.server, clients=32, **options)
                if number:
                    rates[name].append(found["per_second"])
    full, auto = (statistics.median(rates[name]) for name in ("full", "auto"))
    return {"threads": int(threads), "full": full, "auto": auto, "faster": auto / full}


def fixed(depth: int, unseen: Paper, clock: Clock, full: float) -> dict[str, float]:
    """One depth for all texts."""
    chosen = np.full(len(unseen.split.features), unseen.trace.depths.index(depth))
    return {
        "loss": loss_of(unseen, chosen).value,
        "score": unseen.scores([chosen])[0],
        "layers": float(depth),
        "fewer": unseen.trace.depths[-1] / depth,
        "faster": full / clock.seconds(unseen, {"depth": depth}),
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


def write(given: argparse.Namespace, results: dict[str, list[dict[str, Any]]]) -> None:
    """DEPTH.json, DEPTH.md and DEPTH.svg of what there is so far."""
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
    for task, found in results.items():
        exits = middle(found, lambda each: each["exits"])
        lines.append(Line(task, [Point(float(depth), score) for depth, score in exits.items()]))
        row = middle(found, lambda each: each["rows"]["any"])
        said = f"{task}, auto: {row['score']:.4f} at {row['layers']:.2f} layers"
        lines.append(Line(f"{task}, auto", [Point(row["layers"], row["score"], said)]))
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
        f"{given.seeds} seeds, {given.splits} halves, at most {given.max_loss:g} points promised, exits {given.exits}.",
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
    kept = [gap for task in tasks for each in results[task] for gap in each["kept"]["any"]]
    paper = min(promised[task][by].get("as_on_paper", 1.0) for task in tasks for by in RULES)
    lines.append(f"Texts stopped on the device where they do on paper: {100 * paper:.1f} % or more.")
    lines.append(f"The promise and its margin held in {sum(gap <= 0 for gap in kept)} of {len(kept)} calibrations.")
    for task in tasks:
        first = results[task][0]
        lines += [
            "",
            f"**{task}** ({first['metric']}, {first['examples']:,} examples): plain "
            f"{100 * statistics.median(e['plain'] for e in results[task]):.2f}, with exits "
            f"{100 * statistics.median(e['full'] for e in results[task]):.2f}; "
            f"{statistics.median(e['texts_per_second']['full'] for e in results[task]):,.0f} texts/s at full depth",
            "",
            "| | score | loss | worst | layers | faster |",
            "|---|---|---|---|---|---|",
        ]
        if "int8" in first:
            row = middle(results[task], lambda e: e["int8"])
            lines[-4] += (
                f"; one text, int8, {row['threads']:.0f} threads of {cpu_name()}: {row['full_ms']:.1f} ms at full "
                f"depth, {row['auto_ms']:.1f} ms by the best rule ({row['faster']:.2f}x, loss {row['loss']:.2f})"
            )
        if "server" in first:
            row = middle(results[task], lambda e: e["server"])
            lines[-4] += (
                f"; server with 32 clients, {row['threads']:.0f} threads of {cpu_name()}: {row['full']:.1f} requests/s "
                f"at full depth, {row['auto']:.1f} by the best rule ({row['faster']:.2f}x)"
            )
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
