"""Not a script: the models of depth_curve.py, and how they travel.

hold_out(data, 2000)            training data without some examples, to calibrate on; these are like dev's in length
fit(given, "sst-2", 0, True)    the model of a run; one that is complete is not trained again
pack(model, "default", file)    what fine-tuning changed, in a third of the bytes of half precision
unpack(file, "default", folder) the model again
"""

from __future__ import annotations

import argparse
import bisect
import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from finetune_scores import TASKS as PUBLIC
from safetensors.torch import load_file, save_file

from litebert.finetuning.config import finetune_config
from litebert.finetuning.run import finetune
from litebert.model.hub import WEIGHTS_FILE, load_model
from litebert.remote import find_folder
from litebert.tasks.read import read_task
from litebert.tasks.task import TaskData
from litebert.text.tokenizer import Tokenizer

TASKS = ("squad-1.1", "qnli", "sst-2", "sts-b")  # the longest first


# -- data --------------------------------------------------------------------------------------------------------------


def read(given: argparse.Namespace, task: str) -> tuple[TaskData, list[Any]]:
    """The data of a task, without the examples that are held out for calibration, and these."""
    found = read_task(task, folder=str(given.data / PUBLIC[task].path))
    found = dataclasses.replace(found, test={})
    if given.limit:
        dev = {name: examples[: given.limit] for name, examples in found.dev.items()}
        found = dataclasses.replace(found, train=found.train[: 4 * given.limit], dev=dev)
    return hold_out(found, given.held_out)


def hold_out(data: TaskData, count: int, seed: int = 0) -> tuple[TaskData, list[Any]]:
    """Training data without `count` examples (an eighth is lost at most), and these.

    They are as long as those of dev: SST-2 is trained on phrases and scored on sentences. What shares a paragraph or a
    sentence with one of them, or is a part of it, is not trained on either.
    """
    draw = np.random.default_rng(seed)
    train, dev = data.train, next(iter(data.dev.values()))
    by_source: dict[str, list[int]] = {}
    for number, each in enumerate(train):
        by_source.setdefault(source(each), []).append(number)
    lengths = np.array([words(each) for each in train])
    order = draw.permutation(len(train))
    order = order[np.argsort(lengths[order], kind="stable")].tolist()
    sizes = lengths[order].tolist()
    held: list[int] = []
    lost: set[int] = set()
    wanted = draw.choice([words(each) for each in dev], count).tolist()
    while wanted and len(held) < count and len(lost) < len(train) // 8:
        place = min(bisect.bisect_left(sizes, wanted.pop()), len(sizes) - 1)
        number = order.pop(place)
        sizes.pop(place)
        if number in lost:
            continue
        siblings = [each for key in parts(train[number]) for each in by_source.get(key, ())]
        lost.update(siblings)
        held += siblings if hasattr(train[number], "context") else [number]
    kept = [each for number, each in enumerate(train) if number not in lost]
    return dataclasses.replace(data, train=kept), [train[number] for number in held]


def words(example: Any) -> int:
    """The length of an example in words."""
    texts = (example.context,) if hasattr(example, "context") else (example.a, example.b or "")
    return sum(len(text.split()) for text in texts)


def source(example: Any) -> str:
    """What an example shares with others."""
    return example.context if hasattr(example, "context") else " ".join((example.b or example.a).split())


def parts(example: Any) -> set[str]:
    """Sources of examples that must not be trained on: its own, and those inside a single text."""
    if hasattr(example, "context") or example.b:
        return {source(example)}
    found = example.a.split()
    return {" ".join(found[begin:end]) for begin in range(len(found)) for end in range(begin + 1, len(found) + 1)}


# -- training ----------------------------------------------------------------------------------------------------------


def folder_of(given: argparse.Namespace, task: str, seed: int, exits: bool) -> Path:
    """The folder of a run."""
    name = given.name if exits else "plain"
    folder: Path = given.out / f"{task}-{name}-{seed}"
    return folder


def fit(given: argparse.Namespace, task: str, seed: int, exits: bool) -> Path:
    """The last weights of a run, which has seen no dev split; a complete one is not run again."""
    folder = folder_of(given, task, seed, exits)
    if (folder / "best" / "config.json").is_file():
        return folder / "best"
    settings: dict[str, Any] = {
        "task": task,
        "model": given.model,
        "preset": given.preset,
        "seed": seed,
        "device": {"device": given.device, "threads": given.threads},
        "optim": {"lr": PUBLIC[task].lr},
        "epochs": given.epochs.get(task, PUBLIC[task].epochs),
    }
    if given.steps:
        settings["steps"] = given.steps
    if exits:
        settings["exits"] = given.exits
        settings |= {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in given.set)}
    data = dataclasses.replace(read(given, task)[0], dev={})  # what is scored afterwards decides nothing
    began = time.perf_counter()
    result = finetune(finetune_config(settings), folder, quiet=True, data=data)
    (folder / "took.json").write_text(json.dumps({"seconds": time.perf_counter() - began, "steps": result.step}))
    print(f"{folder.name}: {result.step} steps in {time.perf_counter() - began:.1f} s", flush=True)
    assert result.model is not None
    return result.model


# -- small enough to travel --------------------------------------------------------------------------------------------


def pack(model: Path, base: str, file: Path) -> float:
    """Write a model as its change from another in 8 bits, each row with its own scale; the largest error of a weight.

    Fine-tuning changes weights by thousandths, so this is more exact than all of them in half precision.
    """
    weights, before = base_weights(str(model)), base_weights(base)
    saved: dict[str, np.ndarray[Any, Any]] = {}
    worst = 0.0
    for name, tensor in weights.items():
        change = tensor - before[name] if name in before else tensor
        if tensor.ndim < 2 or name not in before:
            saved[name] = change
            continue
        rows = change.reshape(len(change), -1)
        scale = np.maximum(np.abs(rows).max(1), 1e-12) / 127
        saved[name] = np.rint(rows / scale[:, None]).astype(np.int8)
        saved[f"{name}.scale"] = scale.astype(np.float32)
        worst = max(worst, float(scale.max()) / 2)
    texts = {each.name: each.read_text(encoding="utf-8") for each in sorted(model.glob("*.json"))}
    kept = ("config.json", "task.json", "exits.json")
    saved["files"] = np.frombuffer(json.dumps({name: texts[name] for name in kept if name in texts}).encode(), np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **saved)  # type: ignore[arg-type]
    return worst


def unpack(file: Path, base: str, folder: Path) -> Path:
    """Write a packed model into a folder."""
    found, before = np.load(file), base_weights(base)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    weights: dict[str, np.ndarray[Any, Any]] = {}
    for name in found.files:
        if name == "files" or name.endswith(".scale"):
            continue
        change = found[name]
        if change.dtype == np.int8:
            change = (change * found[f"{name}.scale"][:, None]).reshape(before[name].shape)
        weights[name] = np.ascontiguousarray(change + before[name] if name in before else change, dtype=np.float32)
    save_file({name: torch.from_numpy(array) for name, array in weights.items()}, folder / WEIGHTS_FILE)
    for name, text in json.loads(found["files"].tobytes()).items():
        (folder / name).write_text(text, encoding="utf-8")
    Tokenizer.from_pretrained(base).save(folder)
    load_model(folder)  # a damaged one ends here
    return folder


def base_weights(base: str) -> dict[str, np.ndarray[Any, Any]]:
    """The weights that fine-tuning began with, by their names in a file."""
    weights = load_file(find_folder(base) / WEIGHTS_FILE)
    return {name: tensor.float().numpy() for name, tensor in weights.items()}
