"""One run, or one per seed and learning rate: finished ones are skipped, all are summarised in one table.

STUDY/
  lr-1e-05-seed-0/ ...   one run folder each          summary.json   all runs, and median and spread per setting
  best/                  the model that scored best   report.html    the same as a page
  adapter/               its adapter, if it was trained as one
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from litebert.errors import ConfigError
from litebert.files import staged_folder, sweep, write_atomic
from litebert.finetuning.baselines import print_baselines
from litebert.finetuning.config import FROM_MNLI, FinetuneConfig, describe, with_seed
from litebert.finetuning.data import open_tokenizer, read_data
from litebert.finetuning.results import SUMMARY_FILE, Scores, explain_threshold, num_train_examples
from litebert.finetuning.run import FinetuneResult, train_model
from litebert.model.config import load_config
from litebert.remote import find_folder
from litebert.tasks.metrics import goodness, show_interval, show_spread, show_value
from litebert.tasks.task import load_task
from litebert.train.folder import Resume
from litebert.train.processes import world_from_environment
from litebert.train.trainer import TrainingStoppedError


@dataclass(frozen=True)
class Member:
    """One run of a study."""

    name: str
    lr: float
    seed: int
    result: FinetuneResult

    @property
    def value(self) -> float | None:
        """The dev score that decides which run is best."""
        return self.result.scores.value

    @property
    def goodness(self) -> float:
        """The same such that higher is better."""
        return self.result.scores.goodness


@dataclass(frozen=True)
class Setting:
    """All seeds of one learning rate, represented by the median of their scores."""

    lr: float
    members: tuple[Member, ...]

    @property
    def values(self) -> list[float]:
        """The scores, sorted."""
        return sorted(member.value for member in self.members if member.value is not None)

    @property
    def median(self) -> float | None:
        """The median score (the mean of the middle two for an even number)."""
        return statistics.median(self.values) if self.values else None

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; 0 for a single seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Study:
    """The runs of a study, and how it ended."""

    folder: Path
    members: tuple[Member, ...]
    completed: bool = True
    signal: int | None = None

    @property
    def metric(self) -> str:
        """The score that decides."""
        return next((m.result.scores.metric for m in self.members if m.result.completed), "")

    @property
    def settings(self) -> list[Setting]:
        """The members by learning rate."""
        lrs = dict.fromkeys(member.lr for member in self.members)
        return [Setting(lr, tuple(m for m in self.members if m.lr == lr)) for lr in lrs]

    @property
    def best(self) -> Member | None:
        """The run with the best dev score."""
        scored = [member for member in self.members if member.value is not None]
        return max(scored, key=lambda member: member.goodness) if scored else None

    @property
    def kept(self) -> Member:
        """The run whose model is kept: the best one or, without a dev set, the first that finished."""
        return self.best or next(member for member in self.members if member.result.completed)

    @property
    def best_setting(self) -> Setting | None:
        """The learning rate with the best median."""
        metric = self.metric
        scored = [(goodness(metric, s.median), s) for s in self.settings if s.median is not None]
        return max(scored, key=lambda pair: pair[0])[1] if scored else None

    @property
    def median(self) -> float | None:
        """The median over the seeds of the best run's learning rate: what to expect from another seed."""
        best = self.best
        return next((s.median for s in self.settings if best in s.members), None) if best else None


def run_study(
    config: FinetuneConfig,
    out: Path | str,
    seeds: int = 1,
    lrs: Sequence[float] = (),
    resume: Resume = "auto",
    console: Console | None = None,
    quiet: bool = False,
) -> Study:
    """Fine-tune once per learning rate and seed; finished runs are reused."""
    if seeds < 1:
        raise ConfigError(f"seeds: must be >= 1, got {seeds}")
    out, rates = Path(out), list(dict.fromkeys(lrs)) or [config.optim.lr]
    configs = [
        (lr, seed, with_seed(config, seed, lr)) for lr in rates for seed in range(config.seed, config.seed + seeds)
    ]
    is_main = world_from_environment().is_main
    console = console or Console(highlight=False, soft_wrap=True, quiet=quiet or not is_main)
    data = read_data(config, open_tokenizer(config.model), load_config(config.model))
    members: list[Member] = []
    for number, (lr, seed, one) in enumerate(configs, start=1):
        name = f"lr-{lr:g}-seed-{seed}"
        console.print(f"run {number} of {len(configs)}: lr {lr:g}, seed {seed}", style="bold")
        try:
            result = train_model(one, out / name, resume, console, quiet, data)
        except TrainingStoppedError as error:  # one diverging rate does not end the search
            console.print(f"stopped: {error}", style="yellow")
            result = FinetuneResult(out / name, 0, completed=False)
        if result.signal is not None:
            return Study(out, tuple(members), completed=False, signal=result.signal)
        members.append(Member(name, lr, seed, result))
        if is_main:
            write_summary(Study(out, tuple(members), completed=number == len(configs)))
    study = Study(out, tuple(members))
    if not any(member.result.completed for member in members):
        raise TrainingStoppedError(f"{out}: all {len(members)} runs diverged; lower the learning rate")
    if is_main:
        sweep(out)
        for name in ("best", "adapter"):
            if (study.folder / study.kept.name / name).is_dir():
                _copy_best(study, name)
    return study


def write_summary(study: Study) -> None:
    """Write summary.json: every run, and the median and spread of each setting."""
    settings = []
    for setting in study.settings:
        settings.append(
            {
                "lr": setting.lr,
                "median": setting.median,
                "spread": setting.spread,
                "min": min(setting.values, default=None),
                "max": max(setting.values, default=None),
                "seeds": len(setting.members),
            }
        )
    best, best_setting = study.best, study.best_setting
    data: dict[str, Any] = {
        "completed": study.completed,
        "metric": study.metric,
        "runs": [{"name": m.name, "lr": m.lr, "seed": m.seed, **m.result.scores.as_dict()} for m in study.members],
        "settings": settings,
        "best": best.name if best else None,
        "best_lr": best_setting.lr if best_setting else None,
    }
    write_atomic(study.folder / SUMMARY_FILE, json.dumps(data, indent=1))


def _copy_best(study: Study, name: str) -> None:
    with staged_folder(study.folder / name, keep=lambda name: False) as staging:
        best = study.folder / study.kept.name / name
        for file in sorted(path for path in best.rglob("*") if path.is_file()):
            place = staging / file.relative_to(best)
            place.parent.mkdir(exist_ok=True)
            write_atomic(place, file.read_bytes())


def print_study(
    study: Study, console: Console | None = None, task: str = "classification", spell: Callable[[str], str] = str
) -> None:
    """All runs, then the median and spread of each setting; `spell` writes the names of settings in advice."""
    console = console or Console(highlight=False, soft_wrap=True)
    metric = study.metric
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("lr", "seed", metric, "95 % interval", "chosen step"):
        table.add_column(column, justify="right")
    for setting in study.settings:
        for member in setting.members:
            scores = member.result.scores
            star = " *" if member is study.best else "  "
            value, interval = show_value(scores.value, metric) + star, show_interval(scores.deciding, metric)
            table.add_row(f"{member.lr:g}", str(member.seed), value, interval, f"{scores.step:,}")
        if len(setting.members) > 1 and setting.values:
            value = show_value(setting.median, metric) + "  "
            seeds = f"seeds {show_value(setting.values[0], metric)} – {show_value(setting.values[-1], metric)}"
            spread = f"± {show_spread(setting.spread, metric)}"
            table.add_row(f"{setting.lr:g}", "median", value, seeds, spread, style="bold")
    console.print(table)
    if study.best is not None:
        console.print(
            "* best on dev; a median comes with the lowest and highest seed, ± is the standard deviation over seeds",
            style="dim",
        )
        num_train = num_train_examples(study.folder / study.best.name)
        print_baselines(study.best.result.scores, console, num_train, median=study.median, task=task, spell=spell)


@dataclass(frozen=True)
class StudyOutcome:
    """Where the model and its predictions for a test file are; `signal` is set if the run was stopped."""

    model: Path | None = None
    predictions: Path | None = None
    signal: int | None = None

    @property
    def adapter(self) -> Path | None:
        """The adapter beside the model, if one was trained."""
        folder = None if self.model is None else self.model.parent / "adapter"
        return folder if folder is not None and folder.is_dir() else None


def run_and_print(
    config: FinetuneConfig,
    out: Path,
    seeds: int = 1,
    lrs: Sequence[float] = (),
    resume: Resume = "auto",
    spell: Callable[[str], str] = str,
) -> StudyOutcome:
    """Train once, or once per learning rate and seed, and print the scores: the command `finetune`.

    `spell` writes the names of settings in what is printed.
    """
    if seeds < 1:
        raise ConfigError(f"seeds: must be >= 1, got {seeds}")
    if config.head_only and (seeds > 1 or lrs):
        raise ConfigError(
            f"{spell('head_only')}: the fit has no seed and no learning rate; leave out {spell('seeds')} and "
            f"{spell('lr')}"
        )
    is_main = world_from_environment().is_main
    console = Console(highlight=False, soft_wrap=True, quiet=not is_main)
    console.print(f"preset {config.preset}: {describe(config)}")
    if config.task in FROM_MNLI and config.preset[:2] in ("v1", "v2") and not _knows_mnli(config.model):
        console.print(f"the paper starts {config.task} from a model fine-tuned on MNLI: model RUN/best", style="yellow")
    if seeds == 1 and len(lrs) <= 1:
        result = train_model(config, out, resume, console)
        if not result.completed:
            return StudyOutcome(signal=result.signal)
        print_scores(result.scores, console)
        num_train = num_train_examples(out)
        print_baselines(result.scores, console, num_train, config.head_only, task=config.task, spell=spell)
        return StudyOutcome(result.model, _predictions(config, out))
    study = run_study(config, out, seeds, lrs, resume, console)
    if not study.completed:
        return StudyOutcome(signal=study.signal)
    print_study(study, console, config.task, spell)
    best = out / study.kept.name
    return StudyOutcome(out / "best", _predictions(config, best))


def print_scores(scores: Scores, console: Console) -> None:
    """Every score with its interval."""
    for split, metrics in scores.splits.items():
        shown = []
        for name, metric in metrics.items():
            interval = show_interval(metric, name)
            shown.append(f"{name} {show_value(metric.value, name)}" + (f" ({interval})" if interval else ""))
        console.print(f"{split}: {', '.join(shown)}", style="bold")
    if scores.threshold is not None:
        console.print(explain_threshold(scores.threshold))


def _predictions(config: FinetuneConfig, run: Path) -> Path | None:
    return run / "predictions" if config.data.test is not None or config.data.predict_test else None


def _knows_mnli(model: str) -> bool:
    task = load_task(find_folder(model, weights=False))
    return task is not None and task.name == "mnli"
