"""The model of a run at its start, from its config."""

from __future__ import annotations

import dataclasses

from litebert.errors import ConfigError
from litebert.model.heads import MaskedLMModel, PretrainingModel
from litebert.model.hub import load_model_and_report
from litebert.pretraining.config import RunConfig


def make_model(config: RunConfig, load: bool = True) -> tuple[PretrainingModel, list[str]]:
    """The model at its start, random or from another model (also a shallower one), and notes about that."""
    cls = MaskedLMModel if config.recipe.objective == "none" else PretrainingModel
    model = cls(config.model)
    if config.init_from is None or not load:
        return model, []
    source, report = load_model_and_report(config.init_from, cls.head, new_head=True)
    if source.config.vocab_size != config.model.vocab_size:
        raise ConfigError(
            f"init_from: {config.init_from} has {source.config.vocab_size} pieces, the tokenizer "
            f"{config.model.vocab_size}; continue with the tokenizer of that model"
        )
    differences = {
        field.name: (getattr(source.config, field.name), getattr(config.model, field.name))
        for field in dataclasses.fields(config.model)
        if field.name in _DECISIVE and getattr(source.config, field.name) != getattr(config.model, field.name)
    }
    if differences:
        listed = ", ".join(f"{name} {old} there, {new} here" for name, (old, new) in differences.items())
        raise ConfigError(f"init_from: {config.init_from} does not fit the model of this config: {listed}")
    try:
        model.load_state_dict(source.state_dict())
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ConfigError(f"init_from: {config.init_from} does not fit the model of this config: {reason}") from None
    notes = [f"{config.init_from} has no {', '.join(report.missing)}: begun anew"] if report.missing else []
    return model, notes


# What must agree with the model to start from: everything that decides what its weights compute.
_DECISIVE = (
    "embedding_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "sharing",
    "inner_group_num",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "embedding_projection",
)
