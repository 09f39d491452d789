"""Choose when a model may answer early: the cheapest rule that meets a limit on labelled examples.

calibrate("RUN/best", data="dev.csv", max_loss=0.3)     at most 0.3 points below full depth, as fast as that allows
calibrate("RUN/best", data="dev.csv", speed_up=2)       half the layers on average, as good as that allows

Every example is read once at every exit; all rules are then tried on these outputs.

Shapes: D exits, N examples, L outputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError
from litebert.finetuning.data import Data, Split
from litebert.finetuning.evaluate import open_member, read_labelled
from litebert.finetuning.model import run_sequences
from litebert.model.heads import Model
from litebert.predict.exits import ExitRule, Problem, problem_of, save_rule, simulate
from litebert.remote import find_folder
from litebert.tasks.metrics import goodness, score
from litebert.tasks.task import Task, kind_of
from litebert.train.device import Device, DeviceConfig, open_device

# Probabilities from which on an answer may stand.
CONFIDENCES = (*np.arange(0.5, 0.95, 0.05).round(2).tolist(), 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995)
# Largest change between two exits, in standard deviations of the scores.
CHANGES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class Trial:
    """A rule and its results; the score is the task's first metric, higher is better."""

    rule: ExitRule
    score: float
    mean_depth: float


@dataclass(frozen=True)
class Calibration:
    """The chosen rule, compared with full depth."""

    metric: str
    chosen: Trial
    full_score: float
    full_depth: int
    examples: int
    trials: Sequence[Trial]

    @property
    def speed_up(self) -> float:
        """The number of layers divided by the mean number applied: an upper bound on the speed-up."""
        return self.full_depth / self.chosen.mean_depth


def calibrate(
    model: Path | str,
    data: Path | str,
    *,
    max_loss: float | None = None,
    speed_up: float | None = None,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    device: str = "auto",
    threads: int = 0,
) -> Calibration:
    """Choose a rule of early exit on labelled examples and save it with the model, for `depth="auto"`.

    max_loss: how many points (of 100) the score may lose against full depth. speed_up: how many times fewer layers to
    apply on average. Give one of the two.
    """
    if (max_loss is None) == (speed_up is None):
        raise ConfigError("give one of max_loss (points) and speed_up")
    if max_loss is not None and max_loss < 0:
        raise ConfigError(f"max_loss: must be >= 0, got {max_loss:g}")
    if speed_up is not None and speed_up < 1:
        raise ConfigError(f"speed_up: must be >= 1, got {speed_up:g}")
    folder = find_folder(model)
    found = read_labelled(task, folder, data, columns, encoding)
    hardware = open_device(DeviceConfig(device=device, threads=threads))
    opened, own, tokenizer = open_member(folder, found.task, None)
    if opened.head != "classification":
        raise ConfigError(f"{model}: early exit is for classification and regression so far, not {own.kind}")
    if len(opened.config.exits) < 2:
        raise ConfigError(f"{model}: has no exits; fine-tune it with some, such as exits: [3, 6, 9, 12]")
    splits = [split for split in Data(own, found, tokenizer).dev if split.is_labelled]
    if not splits:
        raise ConfigError(f"{data}: no labels to calibrate on")
    logits = logits_at_exits(opened.to(hardware.device), own, splits[0], hardware)
    result = choose(own, splits[0], logits, opened.config.exits, problem_of(opened.config), max_loss, speed_up)
    facts: dict[str, Any] = {
        "asked": {"max_loss": max_loss} if max_loss is not None else {"speed_up": speed_up},
        "metric": result.metric,
        "score": result.chosen.score,
        "full_score": result.full_score,
        "mean_depth": result.chosen.mean_depth,
        "examples": result.examples,
    }
    save_rule(result.chosen.rule, folder, facts)
    return result


def logits_at_exits(model: Model, task: Task, split: Split, device: Device) -> NDArray[np.float32]:
    """The logits [D, N, L] of every example at every exit."""
    found = []
    for depth in model.config.exits:
        model.set_depth(depth)
        found.append(np.stack([output["logits"] for output in run_sequences(model, task, split.features, device)]))
    model.set_depth(None)
    return np.stack(found)


def choose(
    task: Task,
    split: Split,
    logits: NDArray[np.float32],
    exits: Sequence[int],
    problem: Problem,
    max_loss: float | None,
    speed_up: float | None,
) -> Calibration:
    """The best rule: the fewest layers within a loss, or the best score within a number of layers."""
    full = score_at(task, split, logits, np.full(len(split.examples), len(exits) - 1))
    trials = []
    for rule in candidates(problem, len(exits), logits):
        chosen = simulate(rule, problem, logits)
        trials.append(Trial(rule, score_at(task, split, logits, chosen), float(np.take(exits, chosen).mean())))
    never = ExitRule("confidence", 2.0) if problem == "classes" else ExitRule("patience", 0.0, len(exits))
    trials.append(Trial(never, full, float(exits[-1])))
    if max_loss is not None:
        fit = [trial for trial in trials if trial.score >= full - max_loss / 100]
        best = min(fit, key=lambda trial: (trial.mean_depth, -trial.score))
    else:
        assert speed_up is not None
        fit = [trial for trial in trials if trial.mean_depth <= exits[-1] / speed_up]
        if not fit:
            least = min(trial.mean_depth for trial in trials)
            raise ConfigError(
                f"speed_up: {speed_up:g} is more than these exits allow; at most {exits[-1] / least:.2f} here"
            )
        best = max(fit, key=lambda trial: (trial.score, -trial.mean_depth))
    return Calibration(task.metrics[0], best, full, exits[-1], len(split.examples), trials)


def candidates(problem: Problem, num_exits: int, logits: NDArray[np.float32]) -> Iterator[ExitRule]:
    """The rules to try."""
    if problem == "classes":
        yield from (ExitRule("confidence", float(threshold)) for threshold in CONFIDENCES)
    changes = [float(change * logits[-1].std()) for change in CHANGES] if problem == "number" else [0.0]
    yield from (ExitRule("patience", change, count) for change in changes for count in range(1, num_exits))


def score_at(task: Task, split: Split, logits: NDArray[np.float32], chosen: NDArray[np.int64]) -> float:
    """The first metric, better if higher, where exit `chosen` [N] answers for each example."""
    kind = kind_of(task)
    answers = [
        kind.predict(task, example, [feature], [{"logits": logits[exit, number]}])
        for number, (example, feature, exit) in enumerate(zip(split.examples, split.features, chosen, strict=True))
    ]
    plain = dataclasses.replace(task, metrics=task.metrics[:1])
    metric = score(plain, split.examples, answers, 0)[task.metrics[0]]
    return goodness(task.metrics[0], metric.value)
