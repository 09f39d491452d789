"""Scores on labelled tasks: the one place where the paper's columns meet our fine-tuning.

TASKS/
  glue/SST-2/train.tsv ...    or SST-2/ at once       squad/train-v1.1.json, dev-v1.1.json     race/{train,dev,test}/...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.config import merge
from litebert.finetuning.config import finetune_config
from litebert.finetuning.presets import pick_preset
from litebert.finetuning.run import finetune
from litebert.model.folder import load_config
from litebert.reproduce.metrics import METRICS
from litebert.reproduce.stop import CellStopped
from litebert.tasks.glue import SOURCES
from litebert.tasks.metrics import Metric
from litebert.train.device import DeviceConfig, open_device

#: Of scores at the no-answer threshold that is best on dev: the paper's SQuAD 2.0.
THRESHOLD_PREFIX = "best_"

#: Our metric -> the task, and what the task's scorer calls it (MNLI: of the matched set, as the paper).
SCORES = {
    "squad1_f1": ("squad-1.1", "f1"),
    "squad1_em": ("squad-1.1", "exact_match"),
    "squad2_f1": ("squad-2.0", f"{THRESHOLD_PREFIX}f1"),
    "squad2_em": ("squad-2.0", f"{THRESHOLD_PREFIX}exact_match"),
    "mnli": ("mnli", "accuracy"),
    "qnli": ("qnli", "accuracy"),
    "qqp": ("qqp", "accuracy"),
    "rte": ("rte", "accuracy"),
    "sst2": ("sst-2", "accuracy"),
    "mrpc": ("mrpc", "accuracy"),
    "cola": ("cola", "matthews"),
    "stsb": ("sts-b", "pearson"),
    "wnli": ("wnli", "accuracy"),
    "race": ("race", "accuracy"),
}


@dataclass(frozen=True)
class Downstream:
    """Scores in percent by metric, half-widths of their 95 % intervals, and the data sets that are not there."""

    scores: Mapping[str, float] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def score_downstream(
    model_folder: Path,
    tasks_folder: Path,
    out: Path,
    wanted: Iterable[str],
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Downstream:
    """Fine-tune a model on every wanted data set of a folder, each in a run folder below `out`, and score it on dev.

    `settings` are those of a fine-tuning config; without a preset, the one for the model's size is taken.
    """
    settings = dict(settings or {})
    on_gpu = open_device(DeviceConfig(**settings.get("device", {}))).is_cuda
    auto = pick_preset(load_config(model_folder).hidden_size, on_gpu)
    scores: dict[str, float] = {}
    spread: dict[str, float] = {}
    missing: dict[str, None] = {}
    tasks: dict[str, list[str]] = {}
    for metric in wanted:
        if metric in SCORES:
            tasks.setdefault(SCORES[metric][0], []).append(metric)
    for task, metrics in tasks.items():
        folder = find_data_set(task, tasks_folder)
        if folder is None:
            missing[METRICS[metrics[0]].task] = None
            continue
        own = {"task": task, "model": str(model_folder), "seed": seed, "data": {"folder": str(folder)}}
        result = finetune(finetune_config(merge(settings, own), auto), out / task, quiet=True)
        if not result.completed:
            raise CellStopped(result.signal or 15)
        first = next(iter(result.scores.splits.values()))
        for metric in metrics:
            found: Metric = first[SCORES[metric][1]]
            scores[metric] = 100 * found.value
            if found.low is not None and found.high is not None:
                spread[metric] = 50 * (found.high - found.low)
    return Downstream(scores, spread, tuple(missing))


def find_data_set(task: str, folder: Path) -> Path | None:
    """Where a task's files lie below a folder; None where they do not (or the training set is missing)."""
    if task in SOURCES:
        places = [folder / "glue" / SOURCES[task].folder, folder / SOURCES[task].folder]
        return next((place for place in places if any(place.glob("train*"))), None)
    if task.startswith("squad-"):
        name = f"train-v{task.removeprefix('squad-')}.json"
        return next((place for place in (folder / "squad", folder) if (place / name).exists()), None)
    places = [folder / "race", folder / "RACE", folder]
    return next((place for place in places if (place / "train" / "middle").is_dir()), None)
