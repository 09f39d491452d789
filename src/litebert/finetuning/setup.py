"""The model of a run at its start, from its config."""

from __future__ import annotations

from typing import Any

from litebert.errors import ConfigError
from litebert.finetuning.config import FinetuneConfig
from litebert.model.config import load_config, vary
from litebert.model.heads import Model, model_class
from litebert.model.hub import load_model, load_model_and_report
from litebert.tasks.task import Task, kind_of


def model_changes(task: Task, config: FinetuneConfig) -> dict[str, Any]:
    """How the model's config differs from that of the model it starts from."""
    changes: dict[str, Any] = {
        "labels": task.labels,
        "problem_type": kind_of(task).problem_type,
        "classifier_dropout_prob": config.classifier_dropout,
    }
    if config.head == "new":
        # A linear head on frozen features does better with all tokens than with a [CLS] that was trained for order.
        averaged = (config.head_only or config.few) and kind_of(task).head(task) in (
            "classification",
            "multiple-choice",
        )
        changes["pooling"] = "mean" if averaged else "first"
    if config.dropout is not None:
        changes |= {"hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.dropout}
    return changes


def make_model(config: FinetuneConfig, task: Task) -> tuple[Model, list[str]]:
    """The model at its start, and the names of its parameters that no file brought."""
    head, changes = kind_of(task).head(task), model_changes(task, config)
    if config.head == "keep":
        before = load_config(config.model)
        if kind_of(task).num_outputs(task) is not None and before.labels != task.labels:
            raise ConfigError(
                f"head: keep: {config.model} has the labels {', '.join(before.labels) or 'of no classifier'}, the task "
                f"{', '.join(task.labels) or 'none'}; use head: new"
            )
        return load_model(config.model, head, **changes), []
    # Only the encoder is taken: a head of the same shape may mean other things.
    source, report = load_model_and_report(config.model, "encoder", new_head=True)
    brought = {name: tensor for name, tensor in source.state_dict().items() if name not in report.missing}
    # Nothing reads the pooler of an encoder alone: a new one would be random for ever.
    more = {"pooler": "encoder.pooler.weight" in brought} if head == "encoder" else {}
    model = model_class(head)(vary(source.config, **changes), **more)
    missing = model.load_state_dict(
        {name: tensor for name, tensor in brought.items() if name in model.state_dict()}, strict=False
    ).missing_keys
    return model, list(missing)
