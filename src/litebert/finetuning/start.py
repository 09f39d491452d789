"""A run or a study of runs, with what a person sees of it: the `finetune` command without the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from litebert.errors import ConfigError
from litebert.finetuning.baselines import print_baselines
from litebert.finetuning.config import FinetuneConfig
from litebert.finetuning.flags import describe
from litebert.finetuning.presets import FROM_MNLI
from litebert.finetuning.results import Scores, explain_threshold, num_train_examples, show_interval, show_value
from litebert.finetuning.run import train_model
from litebert.finetuning.study import print_study, run_study
from litebert.remote import find_folder
from litebert.tasks.task import load_task
from litebert.train.folder import Resume
from litebert.train.processes import world_from_environment


@dataclass(frozen=True)
class Outcome:
    """Where the model and its predictions for a test file are; `signal` is set if the run was stopped."""

    model: Path | None = None
    predictions: Path | None = None
    signal: int | None = None


def run(
    config: FinetuneConfig, out: Path, seeds: int = 1, lrs: Sequence[float] = (), resume: Resume = "auto"
) -> Outcome:
    """One run, or one per learning rate and seed; the main process prints the scores."""
    if seeds < 1:
        raise ConfigError(f"--seeds: must be at least 1, got {seeds}")
    if config.head_only and (seeds > 1 or lrs):
        raise ConfigError("--head-only: the fit has no seed and no learning rate; leave out --seeds and --lr")
    is_main = world_from_environment().is_main
    console = Console(highlight=False, soft_wrap=True, quiet=not is_main)
    console.print(f"preset {config.preset}: {describe(config)}")
    if config.task in FROM_MNLI and config.preset[:2] in ("v1", "v2") and not _knows_mnli(config.model):
        console.print(
            f"The paper starts {config.task} from a model fine-tuned on MNLI: --model RUN/best", style="yellow"
        )
    if seeds == 1 and len(lrs) <= 1:
        result = train_model(config, out, resume, console)
        if not result.completed:
            return Outcome(signal=result.signal)
        print_scores(result.scores, console)
        print_baselines(result.scores, console, num_train_examples(out), config.head_only)
        return Outcome(result.model, _predictions(config, out))
    study = run_study(config, out, seeds, lrs, resume, console)
    if not study.completed:
        return Outcome(signal=study.signal)
    print_study(study, console)
    best = out / study.kept.name
    return Outcome(out / "best", _predictions(config, best))


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
