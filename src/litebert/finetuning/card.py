"""The model card of a fine-tuned folder: what it does, its scores, how it was trained, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.finetuning.baselines import describe_verdicts, show_lead
from litebert.finetuning.config import FinetuneConfig
from litebert.finetuning.results import Scores, explain_threshold
from litebert.model.heads import Model
from litebert.model.names import hub_class
from litebert.tasks.metrics import show_interval, show_value
from litebert.tasks.task import Task, kind_of
from litebert.train.folder import save_card


def write_card(
    folder: Path, config: FinetuneConfig, task: Task, model: Model, scores: Scores, facts: Mapping[str, Any]
) -> Path:
    """Write README.md to a model folder."""
    hardware, kind = facts["hardware"], model.config.model_type
    where = f"on {hardware['name']} ({hardware['precision']}), seed {config.seed}"
    if config.head_only:
        how = f"The encoder of `{config.model}`, unchanged, under a linear head that was fitted on its features of "
        how += f"{facts['train_examples']:,} examples {where}."
    else:
        how = f"Fine-tuned from `{config.model}` on {facts['train_examples']:,} examples for "
        how += f"{facts['steps']:,} steps of {config.batch} {where}."
    body = [how, ""]
    if task.labels:
        body += [f"Labels: {', '.join(f'`{label}`' for label in task.labels)}.", ""]
    call = kind_of(task).call(task)
    auto_class = hub_class(model.head, kind)
    return save_card(
        folder,
        tags=(kind, task.kind),
        pipeline=kind_of(task).pipeline,
        title=f"{kind.upper()} fine-tuned for {task.name} with litebert",
        body=[*body, *_score_table(scores)],
        code=(
            "from litebert import Predictor",
            'predictor = Predictor("this/folder")',
            f"predictor.{call}",
        ),
        elsewhere=f"The folder also opens in transformers: `{auto_class}.from_pretrained(...)`."
        if auto_class and model.config.fits_hub
        else "transformers has no such model; the folder opens in litebert only.",
        config=config,
        facts=facts,
    )


def _score_table(scores: Scores) -> list[str]:
    if not scores.splits:
        return []
    lines = [
        "## Scores",
        "",
        f"Step {scores.step:,} was selected for its {scores.metric} on dev, so dev scores are slightly optimistic. "
        "Intervals: 95 %, bootstrap over examples.",
        "",
        "| split | metric | score | interval |",
        "|---|---|---|---|",
    ]
    for split, metrics in scores.splits.items():
        for name, metric in metrics.items():
            lines.append(f"| {split} | {name} | {show_value(metric.value, name)} | {show_interval(metric, name)} |")
    if scores.threshold is not None:
        lines += ["", explain_threshold(scores.threshold)]
    return [*lines, "", *_baseline_table(scores)]


def _baseline_table(scores: Scores) -> list[str]:
    """The baselines and the model, and which is ahead."""
    if not scores.baselines:
        return []
    lines = [
        "| baseline on dev | metric | score | interval | the model's lead | the model is |",
        "|---|---|---|---|---|---|",
    ]
    for each in scores.baselines:
        shown = show_value(each.score.value, each.metric), show_interval(each.score, each.metric)
        lines.append(f"| {each.baseline} | {each.metric} | {' | '.join(shown)} | {show_lead(each)} | {each.verdict} |")
    return [*lines, "", *(sentence for sentence, _ in describe_verdicts(scores)), ""]
