"""Not a script: depth_curve.py --models, early exit of packed models on a CPU."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from depth_models import TASKS, read, unpack
from server_load import client, server

from litebert import __version__
from litebert.export.onnx_file import export_onnx
from litebert.files import write_atomic
from litebert.finetuning.calibrate import loss_metric
from litebert.finetuning.data import Data, Split
from litebert.finetuning.evaluate import as_requests, open_member
from litebert.machine import cpu_name
from litebert.predict.exits import ExitRule, load_rule
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.tasks.decode import decode
from litebert.tasks.task import Task

TURN = 20  # texts: full depth and parts have weights of their own, which nobody serves in turns


def measure_cpu(given: argparse.Namespace) -> None:
    """Every packed model by its own rule, on examples of dev that the rule was not calibrated on."""
    rows: dict[str, dict[str, Any]] = {}
    facts = {
        "machine": f"{cpu_name()}, {given.threads or 'all'} threads",
        "versions": {"litebert": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "date": datetime.date.today().isoformat(),
    }
    for task in (task for task in TASKS if task in given.tasks):
        file = given.models / f"{task}-{given.name}.npz"
        if not file.is_file():
            print(f"{file}: not there, left out")
            continue
        model = unpack(file, given.model, given.out / f"{task}-{given.name}" / "best")
        rule = load_rule(model)
        assert rule is not None
        found = read(given, task)[0]
        _, own, tokenizer = open_member(model, found.task, None)
        dev = next(iter(found.dev.values()))[: given.most_dev]
        order = np.random.default_rng(0).permutation(len(dev))[len(dev) // 2 :]  # as in the first split
        rest = [dev[number] for number in order]
        row: dict[str, Any] = {"rule": rule.describe()}
        if given.int8:
            split = sized(Data(own, dataclasses.replace(found, train=[], dev={"dev": rest}), tokenizer).dev[0], given)
            row["int8"] = one_by_one(given, model, rule, own, split)
        if given.server:
            row["server"] = load_server(given, model, own, rest)
        rows[task] = row
        write_atomic(given.out / "CPU.json", json.dumps({**facts, "tasks": rows}, indent=1) + "\n")
        print(task, json.dumps(row), flush=True)
    write_atomic(given.out / "CPU.md", "\n".join(cpu_tables(rows, facts)) + "\n")
    print((given.out / "CPU.md").read_text(encoding="utf-8"))


def sized(split: Split, given: argparse.Namespace) -> Split:
    """The first examples of one sequence of the length asked for; of any length if there are too few."""
    counts = np.bincount([feature.example for feature in split.features])
    one = [feature for feature in split.features if counts[feature.example] == 1]
    low, high = given.int8_length
    fit = [feature for feature in one if low <= len(feature.ids) <= high]
    fit = (fit if len(fit) >= given.int8 else one)[: given.int8]
    examples = [split.examples[feature.example] for feature in fit]
    return Split(split.name, examples, [dataclasses.replace(f, example=number) for number, f in enumerate(fit)])


def one_by_one(given: argparse.Namespace, model: Path, rule: ExitRule, task: Task, split: Split) -> dict[str, Any]:
    """Mean milliseconds of a text by itself, in int8: at full depth and by the rule, which take turns."""
    folder = model.parent / "onnx"
    export_onnx(model, folder, int8=True)
    runtime = OnnxRuntime(folder, threads=given.threads, precision="int8")
    asked = {"full": as_requests(runtime, task, split), "auto": as_requests(runtime, task, split, rule=rule)}
    outputs: dict[str, list[Any]] = {name: [] for name in asked}
    taken = dict.fromkeys(asked, 0.0)
    for name in asked:  # the first runs are slower
        runtime.run(asked[name][:2])
    for begin in range(0, len(split.features), TURN):
        for name in asked:
            runtime.run(asked[name][begin : begin + 1])  # its weights into the cache
            for number in range(begin, min(begin + TURN, len(split.features))):
                started = time.perf_counter()
                outputs[name] += runtime.run(asked[name][number : number + 1])
                taken[name] += time.perf_counter() - started
    full, auto = (decode(task, split.examples, split.features, own) for own in outputs.values())
    loss = loss_metric(task, split.examples, full, auto)
    count = len(split.examples)
    return {
        "texts": count,
        "tokens": sum(map(len, asked["full"])) / count,
        "threads": runtime.threads,
        "full_ms": 1000 * taken["full"] / count,
        "auto_ms": 1000 * taken["auto"] / count,
        "faster": taken["full"] / taken["auto"],
        "loss": loss.value,
        "loss_interval": [loss.low, loss.high],
        "layers": statistics.fmean(float(output["depth"]) for output in outputs["auto"]),
    }


def load_server(given: argparse.Namespace, model: Path, task: Task, examples: list[Any]) -> dict[str, Any]:
    """Requests per second of a server with 32 clients, at full depth and by the rule, by turns."""
    asks = hasattr(examples[0], "context")
    bodies = [
        {"question": each.question, "context": each.context}
        if asks
        else {"text": each.a, **({"pair": each.b} if each.b else {})}
        for each in examples[:512]
    ]
    write_atomic(model.parent / "texts.json", json.dumps({"dev": bodies}))
    threads = str(given.threads or 2)
    command = [sys.executable, "-m", "litebert", "serve", f"load={model}", "--port", "0"]
    rates: dict[str, list[float]] = {"full": [], "auto": []}
    with server([*command, "--threads", threads, "--device", "cpu"]) as address:
        for number in range(4):  # the first warms up
            for name, options in (("full", {}), ("auto", {"depth": "auto"})):
                seconds = given.server if number else min(given.server, 2.0)
                where = {"path": "answer" if asks else "classify"}
                found = client(address, model.parent, "dev", seconds, clients=32, **where, **options)
                if number:
                    rates[name].append(found["per_second"])
    full, auto = (statistics.median(rates[name]) for name in ("full", "auto"))
    return {"threads": int(threads), "full": full, "auto": auto, "faster": auto / full}


def cpu_tables(rows: dict[str, dict[str, Any]], facts: dict[str, Any]) -> list[str]:
    """One row per task, and the means."""
    lines = [
        f"{facts['machine']}, torch {facts['versions']['torch']}, {facts['date']}.",
        "",
        "| | tokens | int8, full | int8, auto | faster | loss (95 %) | layers | server, full | server, auto | faster |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task, row in rows.items():
        cells = [task]
        if "int8" in row:
            one = row["int8"]
            low, high = one["loss_interval"]
            cells += [f"{one['tokens']:.0f}", f"{one['full_ms']:.1f} ms", f"{one['auto_ms']:.1f} ms"]
            cells += [f"{one['faster']:.2f}x", f"{one['loss']:.2f} ({low:.2f} to {high:.2f})", f"{one['layers']:.2f}"]
        else:
            cells += [""] * 6
        if "server" in row:
            one = row["server"]
            cells += [f"{one['full']:.1f}/s", f"{one['auto']:.1f}/s", f"{one['faster']:.2f}x"]
        else:
            cells += [""] * 3
        lines.append("| " + " | ".join(cells) + " |")
    for name, what in (("int8", "one text, int8"), ("server", "server with 32 clients")):
        found = [row[name] for row in rows.values() if name in row]
        if found:
            mean = statistics.fmean(each["faster"] for each in found)
            loss = f" at a loss of {statistics.fmean(e['loss'] for e in found):.2f} points" if name == "int8" else ""
            lines += ["", f"Mean of {len(found)}, {what}: {mean:.2f}x{loss}."]
    return lines
