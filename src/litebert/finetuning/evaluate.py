"""Saved models scored on a task's data: one, several side by side, and several as an ensemble.

evaluate_task(["runs/a/best", "runs/b/best"], data="glue/SST-2")   -> [Scored("runs/a/best", ...), ...,
                                                                       Scored("ensemble", ...)]
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.finetuning.data import Data, Split
from litebert.finetuning.results import Evaluation, predict_split, score_split, write_depths, write_predictions
from litebert.folders import folder_hint
from litebert.model.config import load_config, suggest_exits
from litebert.model.heads import Model
from litebert.model.hub import load_model
from litebert.predict.ability import Depth
from litebert.predict.exits import ExitRule, load_rule
from litebert.predict.load import is_adapter, load_adapted
from litebert.predict.runtime import Request, Runtime, wanted_outputs
from litebert.predict.torch_runtime import TorchRuntime
from litebert.remote import DEFAULT, DEFAULT_FOLDER, find_folder
from litebert.tasks.decode import Prediction, average, decode, write_submission
from litebert.tasks.read import data_form, find_task, named_tasks, read_task
from litebert.tasks.sentence_folder import transformer_folder
from litebert.tasks.task import TASK_FILE, Task, TaskData, kind_of, load_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device, DeviceConfig, open_device, speed_up

ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class Scored:
    """A model (or the ensemble) and its results on each split."""

    name: str
    evaluations: list[Evaluation]
    depth: Depth | None = None  # layers applied, where that was asked for
    seconds: float | None = None  # that the model took for all examples then
    mean_depth: float | None = None  # layers per token: under "auto" a mean
    notes: tuple[str, ...] = ()  # about the data: columns that were guessed, texts that were cut


def evaluate_task(
    models: Sequence[Path | str],
    *,
    task: str | None = None,
    data: Any = None,
    columns: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    max_length: int | None = None,
    predictions: Path | str | None = None,
    device: str = "auto",
    threads: int = 0,
    depth: Depth | Literal["all"] | None = None,
) -> list[Scored]:
    """Score models on a folder, a file, rows in memory or a TaskData; several also as an ensemble (mean probabilities).

    The task is that of the first model unless named. `predictions` is a folder for per-example predictions, also for
    splits without labels, and for submission files for GLUE and SQuAD. With `depth`, one model is scored and timed at
    one of its exits, by its rule of early exit (auto), or at all of these (all), which `litebert report` shows then.
    """
    if not models:
        raise ConfigError("name at least one model folder")
    hardware = open_device(DeviceConfig(device=device, threads=threads))
    found = data if isinstance(data, TaskData) else read_labelled(task, find_folder(models[0]), data, columns, encoding)
    splits = {**found.dev, **(found.test if predictions is not None or not found.dev else {})}
    if not splits:
        where = data if isinstance(data, Path | str) else found.task.name
        raise DataError(f"{where}: no dev or test split found")
    if depth is not None and len(models) > 1:
        raise ConfigError(f"depth: scores one model at a time, got {len(models)}")
    if depth == "all" and predictions is not None:
        raise ConfigError("predictions: depth all has several per example; choose one depth")

    notes: dict[str, None] = {}  # each once, in order

    def opened(source: Path | str) -> tuple[Model, Task, list[Split]]:
        model, own, tokenizer = open_member(source, found.task, max_length)
        data = Data(own, dataclasses.replace(found, dev=splits, test={}), tokenizer)
        cut = data.dev
        notes.update(dict.fromkeys(data.notes))
        return model, own, cut

    members: list[tuple[str, Task, list[tuple[Split, list[Prediction]]]]] = []
    if depth is None:
        for source in models:
            model, own, cut = opened(source)
            model = _ready(model, hardware)
            members.append((str(source), own, [(split, predict_split(model, own, split, hardware)) for split in cut]))
        scored = [Scored(name, [score_split(own, split, said) for split, said in made]) for name, own, made in members]
    else:
        model, own, cut = opened(models[0])
        runtime, folder = TorchRuntime(model, hardware), find_folder(models[0])
        scored = _at_depths(str(models[0]), runtime, own, cut, depth, load_rule(transformer_folder(folder)))
        if depth == "all" and Path(models[0]).is_dir():
            write_depths(folder, [_curve_row(one) for one in scored], runtime.name)
    if len(members) > 1:
        scored.append(Scored(ENSEMBLE, _ensemble(members)))
    if predictions is not None:
        for evaluation in scored[-1].evaluations:
            split = evaluation.split
            write_predictions(Path(predictions) / f"{split.name}.jsonl", evaluation)
            write_submission(evaluation.task, split.name, split.examples, evaluation.predictions, predictions)
    return [dataclasses.replace(each, notes=tuple(notes)) for each in scored]


def read_labelled(
    name: str | None, model: Path, data: Any, columns: Mapping[str, str] | None, encoding: str
) -> TaskData:
    """The data to score a model on, read as its own task unless another is named."""
    known = load_task(model)
    if name is None and known is None:
        hint = folder_hint(model) or "; fine-tune it first, or give the task of the data (task)"
        called = DEFAULT if model == DEFAULT_FOLDER else model
        raise ConfigError(f"{called}: not fine-tuned for a task (no {TASK_FILE}){hint}")
    name = find_task(name or (data_form(known) if known is not None else ""))
    if not isinstance(data, Path | str | None):
        read = read_task(name, test=data, columns=columns, task=known)
        return dataclasses.replace(read, dev={"data": read.test["test"]}, test={})
    where = None if data is None else str(data)
    if where is None or where.startswith("hub:") or Path(where).is_dir():
        return read_task(name, folder=where, columns=columns, encoding=encoding, task=known)
    if not Path(where).is_file():
        raise DataError(f"{where}: no such file or folder")
    # Your own files may or may not have labels; public dev and test files are recognised by name.
    split = "dev" if name in named_tasks() and "test" not in Path(where).name.lower() else "test"
    read = read_task(name, **{split: where}, columns=columns, encoding=encoding, task=known)
    if split == "test" and name not in named_tasks():
        return dataclasses.replace(read, dev={Path(where).stem: read.test["test"]}, test={})
    return read


def open_member(source: Path | str, task: Task, max_length: int | None) -> tuple[Model, Task, Tokenizer]:
    """A model with the task as it knows it: its own lengths and threshold, the metrics of the data's."""
    folder, adapted = find_folder(source), None
    known = load_task(folder)
    if is_adapter(folder):
        adapted, _, folder = load_adapted(folder)
    own = task if known is None else dataclasses.replace(known, name=task.name, metrics=task.metrics or known.metrics)
    if own.kind != task.kind or own.labels != task.labels:
        raise ConfigError(
            f"{source}: was trained for {own.kind} with the labels {', '.join(own.labels) or '(none)'}; "
            f"{task.name} is {task.kind} with {', '.join(task.labels) or '(none)'}"
        )
    model = adapted or load_model(folder, kind_of(own).head(own))
    expected = kind_of(own).num_outputs(own)
    if expected is not None and model.config.num_labels != expected:
        raise CheckpointError(f"{source}: has {model.config.num_labels} outputs, {task.name} needs {expected}")
    length = min(max_length or own.max_length, load_config(folder).max_position_embeddings)
    return model, dataclasses.replace(own, max_length=length), Tokenizer.load(folder)


def _ready(model: Model, device: Device) -> Model:
    model = model.to(device.device).eval()
    speed_up(model, dataclasses.replace(device, compile=False))  # a pass over a dev set is over before it is compiled
    return model


def _at_depths(
    name: str,
    runtime: TorchRuntime,
    task: Task,
    splits: Sequence[Split],
    depth: Depth | Literal["all"],
    rule: ExitRule | None,
) -> list[Scored]:
    """A model at one exit, by its rule, or at each exit and by its rule if it has one."""
    config = runtime.config
    depths: tuple[Depth, ...] = (depth,) if depth != "all" else config.exits
    if depth == "all" and kind_of(task).compares and not depths:  # vectors can be had at any depth
        depths = tuple(range(1, config.num_hidden_layers + 1))
    if (depth == "all" and len(depths) < 2) or (depth == "auto" and not config.exits):
        some = suggest_exits(config.num_hidden_layers)
        raise ConfigError(f"depth: {name} has no exits; fine-tune it with some, such as exits: {some}")
    if depth == "auto" and rule is None:
        raise ConfigError(
            f"depth: {name} has no rule for auto yet; make one: litebert calibrate {name} --data FILE --max-loss 0.3"
        )
    if depth == "all" and rule is not None and config.exits:
        depths = (*depths, "auto")
    scored = []
    for each in depths:
        when: dict[str, Any] = {"rule": rule} if each == "auto" else {"depth": each}
        requests = [as_requests(runtime, task, split, **when) for split in splits]
        runtime.run([request for own in requests for request in own[:64]])  # the first pass at a depth is slower
        begin = time.perf_counter()
        outputs = [runtime.run(own) for own in requests]
        seconds = time.perf_counter() - begin
        layers = [[int(output["depth"]) for output in own] for own in outputs]
        lengths = [len(request) for own in requests for request in own]
        evaluations = [
            score_split(task, split, decode(task, split.examples, split.features, own))
            for split, own in zip(splits, outputs, strict=True)
        ]
        mean = float(np.average(np.concatenate(layers), weights=lengths))
        scored.append(Scored(name, evaluations, each, seconds, mean))
    return scored


def as_requests(runtime: Runtime, task: Task, split: Split, more: Sequence[str] = (), **when: Any) -> list[Request]:
    """The sequences of a split for a runtime; what its head says is wanted, and `more`."""
    want = wanted_outputs(task, runtime.head) | frozenset(more)
    groups: list[object | None] = [object() if runtime.head == "multiple-choice" else None for _ in split.examples]
    return [
        Request(
            each.ids,
            each.segments,
            want,
            outside=each.outside if each.words is None else each.words < 0,
            group=groups[each.example],
            **when,
        )
        for each in split.features
    ]


def _curve_row(scored: Scored) -> dict[str, Any]:
    """What `litebert report` shows of one depth."""
    assert scored.seconds is not None
    examples = sum(len(each.predictions) for each in scored.evaluations)
    return {
        "depth": scored.depth,
        "mean_depth": scored.mean_depth,
        "ms": 1000 * scored.seconds / examples,
        "splits": {
            each.split.name: {name: metric.as_dict() for name, metric in each.scores.items()}
            for each in scored.evaluations
            if each.scores
        },
    }


def _ensemble(members: Sequence[tuple[str, Task, list[tuple[Split, list[Prediction]]]]]) -> list[Evaluation]:
    threshold = float(np.mean([task.null_threshold for _, task, _ in members]))
    task = dataclasses.replace(members[0][1], null_threshold=threshold)
    evaluations = []
    for number, (split, _) in enumerate(members[0][2]):
        together = average(task, [made[number][1] for _, _, made in members])
        evaluations.append(score_split(task, split, together))
    return evaluations
