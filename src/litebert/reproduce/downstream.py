"""Scores on labelled tasks, for the paper's columns: of single models, and of several as an ensemble.

TASKS/
  glue/SST-2/train.tsv ...    or SST-2/ at once       squad/train-v1.1.json, dev-v1.1.json     race/{train,dev,test}/...
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.config import build, merge, read_yaml
from litebert.finetuning.config import FinetuneConfig, finetune_config, pick_preset
from litebert.finetuning.data import Split, read_data
from litebert.finetuning.results import predict_split
from litebert.finetuning.run import finetune
from litebert.model.config import load_config
from litebert.model.hub import load_model
from litebert.reproduce import CellStopped
from litebert.reproduce.paper import METRICS
from litebert.reproduce.statistics import jackknife_error
from litebert.tasks.decode import Prediction, average
from litebert.tasks.glue import SOURCES
from litebert.tasks.metrics import Metric, score
from litebert.tasks.task import Example, Task, kind_of
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import DeviceConfig, open_device, speed_up

GROUPS = 40  # of examples; the jackknife leaves out one at a time

#: The paper scores SQuAD 2.0 at the no-answer threshold that is best on dev.
THRESHOLD_PREFIX = "best_"

#: Metric -> task, and the name of the score there (MNLI: on the matched set, as in the paper).
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
    """Scores in percent by metric, half-widths of their 95 % intervals, and missing data sets."""

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

    `settings` belong to a fine-tuning config; the default preset depends on the model's size.
    """
    settings = dict(settings or {})
    on_gpu = open_device(DeviceConfig(**settings.get("device", {}))).is_cuda
    auto = pick_preset(load_config(model_folder).hidden_size, on_gpu)
    scores: dict[str, float] = {}
    spread: dict[str, float] = {}
    missing: dict[str, None] = {}
    for task, metrics in _by_task(wanted).items():
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


def _by_task(wanted: Iterable[str]) -> dict[str, list[str]]:
    """The wanted metrics of each task: ("squad1_f1", "squad1_em") -> {"squad-1.1": ["squad1_f1", "squad1_em"]}."""
    tasks: dict[str, list[str]] = {}
    for metric in wanted:
        if metric in SCORES:
            tasks.setdefault(SCORES[metric][0], []).append(metric)
    return tasks


def find_data_set(task: str, folder: Path) -> Path | None:
    """The folder of a task's files below `folder`; None if there is no training set."""
    if task in SOURCES:
        places = [folder / "glue" / SOURCES[task].folder, folder / SOURCES[task].folder]
        return next((place for place in places if any(place.glob("train*"))), None)
    if task.startswith("squad-"):
        name = f"train-v{task.removeprefix('squad-')}.json"
        return next((place for place in (folder / "squad", folder) if (place / name).exists()), None)
    places = [folder / "race", folder / "RACE", folder]
    return next((place for place in places if (place / "train" / "middle").is_dir()), None)


# -- ensembles ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EnsembleScore:
    """An ensemble's score in percent, its gain over the mean of its members, and the standard error of the gain."""

    score: float
    gain: float
    error: float


def score_ensemble(folders: Sequence[Path], tasks_folder: Path, wanted: Iterable[str]) -> dict[str, EnsembleScore]:
    """Score the mean of several models' predictions; `folders` were written by score_downstream.

    A task is skipped if a member lacks it.
    """
    scores = {}
    for name, own in _by_task(wanted).items():
        runs, source = [folder / name for folder in folders], find_data_set(name, tasks_folder)
        if source is None or len(runs) < 2 or not all((run / "best").is_dir() for run in runs):
            continue
        task, split, members = _predict(runs, source)
        found = compare(task, split.examples, members, average(task, members))
        for metric in own:
            scores[metric] = found[SCORES[metric][1].removeprefix(THRESHOLD_PREFIX)]
    return scores


def compare(
    task: Task, examples: Sequence[Example], members: Sequence[list[Prediction]], together: list[Prediction]
) -> dict[str, EnsembleScore]:
    """Each metric of a task; the error is a jackknife over groups of examples."""
    # Questions that may have no answer: every model gets its best threshold on dev.
    models = [kind_of(task).tune(task, examples, said)[1] for said in (together, *members)]

    def values(kept: Sequence[int]) -> list[dict[str, float]]:
        some = [examples[i] for i in kept]
        found = [score(task, some, [said[i] for i in kept], resamples=0) for said in models]
        return [{name: 100 * one[name].value for name in task.metrics} for one in found]

    def gains(scores: list[dict[str, float]]) -> dict[str, float]:
        first, *others = scores
        return {name: first[name] - statistics.fmean(other[name] for other in others) for name in task.metrics}

    everything = range(len(examples))
    whole, groups = values(everything), min(len(examples), GROUPS)
    parts = [
        gains(values([i for i in everything if i % groups != group])) for group in range(groups if groups > 1 else 0)
    ]
    return {
        name: EnsembleScore(whole[0][name], gain, jackknife_error([part[name] for part in parts]))
        for name, gain in gains(whole).items()
    }


def _predict(runs: Sequence[Path], source: Path) -> tuple[Task, Split, list[list[Prediction]]]:
    """The predictions of fine-tuned models for the first dev split, read with the config of their runs."""
    config = build(FinetuneConfig, read_yaml(runs[0] / "config.yaml"), f"{runs[0] / 'config.yaml'}: ")
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, folder=str(source)))
    device = open_device(config.device)
    model_folder = runs[0] / "best"
    data = read_data(config, Tokenizer.load(model_folder), load_config(model_folder))
    split = data.dev[0]
    said = []
    for run in runs:
        model = load_model(run / "best", kind_of(data.task).head(data.task)).to(device.device).eval()
        speed_up(model, dataclasses.replace(device, compile=False))  # one pass is over before it is compiled
        said.append(predict_split(model, data.task, split, device))
    return data.task, split, said
