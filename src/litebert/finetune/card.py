"""The model card of a fine-tuned folder: what it does, how well, how it was made, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.files import write_atomic
from litebert.finetune.config import FinetuneConfig
from litebert.finetune.results import Scores, explain_threshold, show_interval, show_value
from litebert.model.heads import Model
from litebert.model.hub import ARCHITECTURES
from litebert.tasks.task import Task
from litebert.train.card import config_section

PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "multi-label": "text-classification",
    "token-classification": "token-classification",
    "multiple-choice": "multiple-choice",
    "question-answering": "question-answering",
}


def write_card(
    folder: Path, config: FinetuneConfig, task: Task, model: Model, scores: Scores, facts: Mapping[str, Any]
) -> Path:
    """Write README.md into a model folder."""
    hardware = facts["hardware"]
    lines = [
        "---",
        "library_name: litebert",
        f"tags: [{model.config.model_type}, {task.kind}]",
        f"pipeline_tag: {PIPELINES[task.kind]}",
        "---",
        "",
        f"# {model.config.model_type.upper()} fine-tuned for {task.name} with litebert",
        "",
        f"Started from `{config.model}` and trained on {facts['train_examples']:,} examples for {facts['steps']:,} "
        f"steps of {config.batch} on {hardware['name']} ({hardware['precision']}), seed {config.seed}.",
        "",
    ]
    if task.labels:
        lines += [f"Labels: {', '.join(f'`{label}`' for label in task.labels)}.", ""]
    if scores.splits:
        lines += [
            "## Scores",
            "",
            f"The weights of step {scores.step:,} had the best {scores.metric} on dev, so these scores are a little "
            "optimistic. Intervals: 95 %, bootstrap over the examples.",
            "",
            "| split | metric | score | interval |",
            "|---|---|---|---|",
        ]
        for split, metrics in scores.splits.items():
            for name, metric in metrics.items():
                lines.append(f"| {split} | {name} | {show_value(metric.value, name)} | {show_interval(metric, name)} |")
        if scores.threshold is not None:
            lines += ["", explain_threshold(scores.threshold)]
        lines.append("")
    auto_class = ARCHITECTURES[model.head][model.config.model_type == "bert"]
    lines += [
        "## Use",
        "",
        "```python",
        "from litebert import Predictor",
        'predictor = Predictor("this/folder")',
        f"predictor.{_call_of(task)}",
        "```",
        "",
        f"The folder also opens in transformers: `{auto_class}.from_pretrained(...)`."
        if auto_class and model.config.fits_hub
        else "transformers has no such model; the folder opens in litebert only.",
        "",
        *config_section(config, facts),
    ]
    write_atomic(folder / "README.md", "\n".join(lines))
    return folder / "README.md"


def _call_of(task: Task) -> str:
    if task.kind == "token-classification":
        return 'tag("a text")'
    if task.kind == "multiple-choice":
        return 'choose("a passage", "a question", ["one option", "another"])'
    if task.kind == "question-answering":
        return 'answer("a question?", "a text that answers it")'
    return 'classify("a text", "its pair")' if task.pair else 'classify("a text")'
