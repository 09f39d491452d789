"""The table of abilities, and which of them a model has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litebert.errors import InputError, did_you_mean
from litebert.model.config import ModelConfig
from litebert.predict.ability import Ability
from litebert.predict.masks import fill_mask
from litebert.predict.order import coherence, sentence_order
from litebert.predict.questions import answer, choose
from litebert.predict.runtime import Runtime
from litebert.predict.similarity import search, similarity
from litebert.predict.tags import tag
from litebert.predict.texts import attention, classify, embed
from litebert.remote import DEFAULT, shipped_adapters
from litebert.tasks.kinds import KINDS
from litebert.tasks.task import Task

ABILITIES: dict[str, Ability] = {
    each.name: each
    for each in (
        *(fill_mask, sentence_order, coherence),
        *(embed, similarity, search),
        *(classify, tag, answer, choose),
        attention,
    )
}


# Which adapter of the package answers for the bare model "default"; a pair is a question of entailment.
SHIPPED = {
    "classify": "sentiment",
    "answer": "questions",
    "embed": "similarity",
    "similarity": "similarity",
    "search": "similarity",
}
SHIPPED_PAIR = "entailment"


def shipped_for(ability: str, arguments: Mapping[str, Any]) -> str | None:
    """The name of the package's adapter for an ability: "classify" -> "sentiment", with a pair "entailment"."""
    if ability == "classify" and arguments.get("pair") is not None:
        return SHIPPED_PAIR
    return SHIPPED.get(ability)


def shipped_model(model: str, ability: str, arguments: Mapping[str, Any]) -> str:
    """The model that answers: ("default", "embed") -> "default:similarity"; any other model is itself."""
    name = shipped_for(ability, arguments) if model == DEFAULT else None
    return f"{DEFAULT}:{name}" if name in shipped_adapters() else model


def abilities_of(runtime: Runtime) -> tuple[str, ...]:
    """The names of a model's abilities, in the order of the table."""
    return tuple(
        name
        for name, ability in ABILITIES.items()
        if set(ability.outputs) <= runtime.outputs and (not ability.heads or runtime.head in ability.heads)
    )


def refuse(ability: str, name: str, head: str, able: tuple[str, ...]) -> InputError:
    """The error for a model that lacks an ability; it names the command that makes one."""
    if ability not in ABILITIES:
        hint = did_you_mean(ability, ABILITIES) or "."
        return InputError(f"no ability {ability!r}{hint} Known: {', '.join(ABILITIES)}")
    return InputError(
        f"{name}: this model ({head}) has no {ability}; it has {', '.join(able)}. "
        f"For one that does: {ABILITIES[ability].makes}"
    )


def infer_task(config: ModelConfig, head: str) -> Task | None:
    """The task of a model folder without task.json, from its config; None for pretrained models."""
    length = min(512, config.max_position_embeddings)
    labels = config.labels or tuple(f"LABEL_{number}" for number in range(config.num_labels))
    for kind in KINDS.values():
        if kind.fits(head, config.problem_type, config.num_labels):
            return kind.infer(head, labels, length)
    return None
