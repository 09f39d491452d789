"""From what a person says to a run or a study of runs: the `finetune` command without the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from litebert.config import merge
from litebert.errors import ConfigError
from litebert.finetune.baselines import Baselines, print_constants, read_baselines
from litebert.finetune.config import FinetuneConfig, finetune_config, read_settings
from litebert.finetune.page import write_run_page, write_study_page
from litebert.finetune.recipes import FROM_MNLI, pick_recipe
from litebert.finetune.results import Scores, explain_threshold, show_interval, show_value
from litebert.finetune.run import finetune
from litebert.finetune.study import print_study, run_study
from litebert.model.folder import find_folder, load_config
from litebert.tasks.read import check_task
from litebert.tasks.task import load_task
from litebert.train.device import open_device
from litebert.train.folder import Resume


@dataclass(frozen=True)
class Outcome:
    """Where the model, the page and what it says about a test file are; `signal` says that it was stopped before."""

    model: Path | None = None
    report: Path | None = None
    predictions: Path | None = None
    signal: int | None = None


def config_from(
    flags: Mapping[str, Any], file: Path | str | None, settings: Sequence[str], lrs: Sequence[float] = ()
) -> FinetuneConfig:
    """The config of a run: recipe < YAML file < flags < settings; `auto` picks a recipe for the model and machine."""
    data, where = read_settings(file, [])
    data = merge(data, _given(flags))
    if lrs:
        data = merge(data, {"optim": {"lr": lrs[0]}})
    data = merge(data, read_settings(None, settings)[0])
    check_task(str(data.get("task") or FinetuneConfig.task))
    device = open_device(finetune_config(data, where=where).device)
    model = str(data.get("model") or FinetuneConfig.model)
    return finetune_config(data, pick_recipe(load_config(model).hidden_size, device.is_cuda), where)


def run(
    config: FinetuneConfig, out: Path, seeds: int = 1, lrs: Sequence[float] = (), resume: Resume = "auto"
) -> Outcome:
    """One run, or one per learning rate and seed; prints what they came to and writes the page."""
    if seeds < 1:
        raise ConfigError(f"--seeds: must be at least 1, got {seeds}")
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"recipe {config.recipe}: {describe(config)}")
    if config.task in FROM_MNLI and config.recipe[:2] in ("v1", "v2") and not _knows_mnli(config.model):
        console.print(f"The paper starts {config.task} from a model fine-tuned on MNLI: --init-from", style="yellow")
    if seeds == 1 and len(lrs) <= 1:
        result = finetune(config, out, resume, console)
        if not result.completed:
            return Outcome(signal=result.signal)
        print_scores(result.scores, console, read_baselines(out))
        return Outcome(result.model, write_run_page(out), _predictions(config, out))
    study = run_study(config, out, seeds, lrs, resume, console)
    if not study.completed:
        return Outcome(signal=study.signal)
    print_study(study, console)
    best = out / study.kept.name
    return Outcome(out / "best", write_study_page(out), _predictions(config, best))


def describe(config: FinetuneConfig) -> str:
    """A config in one line: "lr 2e-05, batch 32, 3 epochs, from default"."""
    length = describe_length(config)
    frozen = {"none": "", "embeddings": ", embeddings frozen", "encoder": ", encoder frozen"}[config.optim.freeze]
    return f"lr {config.optim.lr:g}, batch {config.batch}, {length}{frozen}, from {config.model}"


def describe_length(config: FinetuneConfig) -> str:
    """How long a run is: "800 steps", "1 epoch"."""
    if config.steps:
        return f"{config.steps:,} step" + "s" * (config.steps != 1)
    return f"{config.epochs:g} epoch" + "s" * (config.epochs != 1)


def print_scores(scores: Scores, console: Console, baselines: Baselines | None = None) -> None:
    """Every score with its interval, and what saying always the same would score on the first split."""
    for split, metrics in scores.splits.items():
        shown = []
        for name, metric in metrics.items():
            interval = show_interval(metric, name)
            shown.append(f"{name} {show_value(metric.value, name)}" + (f" ({interval})" if interval else ""))
        console.print(f"{split}: {', '.join(shown)}", style="bold")
    if scores.threshold is not None:
        console.print(explain_threshold(scores.threshold))
    print_constants(baselines or {}, scores.metric, scores.pessimistic, console)


def _predictions(config: FinetuneConfig, run: Path) -> Path | None:
    return run / "predictions" if config.data.test is not None or config.data.predict_test else None


def _knows_mnli(model: str) -> bool:
    task = load_task(find_folder(model, weights=False))
    return task is not None and task.name == "mnli"


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Only what somebody said."""
    given: dict[str, Any] = {}
    for name, value in flags.items():
        plain = _given(value) if isinstance(value, Mapping) else str(value) if isinstance(value, Path) else value
        if plain is not None and plain != {}:
            given[name] = plain
    return given
