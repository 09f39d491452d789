"""Several models of one row as one, held against them: the same examples, limits and threshold rule on both sides.

score_ensemble([a / "tasks", b / "tasks"], TASKS, ("sst2",))    -> {"sst2": Together(score=91.2, gain=0.8, error=0.3)}
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.config import build, read_yaml
from litebert.finetuning.config import FinetuneConfig
from litebert.finetuning.data import Split, read_data
from litebert.finetuning.scoring import predict_split
from litebert.model.folder import load_config
from litebert.model.hub import load_model
from litebert.reproduce.downstream import SCORES, THRESHOLD_PREFIX, find_data_set
from litebert.tasks.decode import Prediction, average
from litebert.tasks.examples import Example
from litebert.tasks.metrics import score
from litebert.tasks.task import Task, kind_of
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import open_device, speed_up

GROUPS = 40  # of examples, each left out once


@dataclass(frozen=True)
class Together:
    """An ensemble's score in percent, what it gains on the mean of its members, and the standard error of that."""

    score: float
    gain: float
    error: float


def score_ensemble(folders: Sequence[Path], tasks_folder: Path, wanted: Iterable[str]) -> dict[str, Together]:
    """The mean of several models' predictions, scored; `folders` are those of score_downstream.

    A task that some member lacks is left out.
    """
    metrics: dict[str, list[str]] = {}
    for metric in wanted:
        if metric in SCORES:
            metrics.setdefault(SCORES[metric][0], []).append(metric)
    scores = {}
    for name, own in metrics.items():
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
) -> dict[str, Together]:
    """Each metric of a task; the error is a jackknife over groups of examples that all models lose at once."""
    # Where questions may have no answer, all get the threshold that is best on dev, as the members' own did.
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
        name: Together(whole[0][name], gain, _jackknife_error([part[name] for part in parts]))
        for name, gain in gains(whole).items()
    }


def _jackknife_error(parts: Sequence[float]) -> float:
    """The standard error of an estimate from what it is without each of some groups of equal size."""
    return math.sqrt((len(parts) - 1) * statistics.pvariance(parts)) if parts else 0.0


def _predict(runs: Sequence[Path], source: Path) -> tuple[Task, Split, list[list[Prediction]]]:
    """What the models of some fine-tuning runs say of the first dev split, read as they read it."""
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
