"""The table of abilities: which function answers, which models have it, and how to come by such a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litebert.errors import InputError, did_you_mean
from litebert.model.config import ModelConfig
from litebert.predict.choices import choose
from litebert.predict.inputs import Inputs
from litebert.predict.job import Steps
from litebert.predict.masks import fill_mask
from litebert.predict.order import coherence, sentence_order
from litebert.predict.questions import answer
from litebert.predict.runtime import Runtime
from litebert.predict.tags import tag
from litebert.predict.texts import attention, classify, embed
from litebert.tasks.kinds import KINDS
from litebert.tasks.task import Task

_PRETRAIN = "litebert pretrain CONFIG, or name a pretrained model"


@dataclass(frozen=True)
class Ability:
    """One thing a Predictor can do; `heads` () means that every model has it."""

    steps: Callable[..., Steps[Any]]
    outputs: tuple[str, ...]  # raw outputs that the runtime must give
    heads: tuple[str, ...] = ()
    makes: str = _PRETRAIN  # the command that makes a model with it
    takes_task: bool = False


ABILITIES: dict[str, Ability] = {
    "fill_mask": Ability(fill_mask, ("masked_lm",)),
    "sentence_order": Ability(sentence_order, ("sentence",)),
    "coherence": Ability(coherence, ("sentence",)),
    "embed": Ability(embed, ("mean", "first")),
    "classify": Ability(
        classify, ("logits",), ("classification",), "litebert finetune --task classification --train FILE", True
    ),
    "tag": Ability(
        tag, ("logits",), ("token-classification",), "litebert finetune --task token-classification --train FILE", True
    ),
    "answer": Ability(answer, (), ("span", "answer"), "litebert finetune --task question-answering --train FILE", True),
    "choose": Ability(
        choose, ("logits",), ("multiple-choice",), "litebert finetune --task multiple-choice --train FILE", True
    ),
    "attention": Ability(attention, ("attentions",), makes="the same model with the torch runtime"),
}


def abilities_of(runtime: Runtime) -> tuple[str, ...]:
    """The names of what a model can do, in the order of the table."""
    return tuple(
        name
        for name, ability in ABILITIES.items()
        if set(ability.outputs) <= runtime.outputs and (not ability.heads or runtime.head in ability.heads)
    )


def begin(ability: str, inputs: Inputs, task: Task | None, arguments: dict[str, Any]) -> Steps[Any]:
    """The steps of an ability for these arguments; names that it does not take are refused."""
    entry = ABILITIES[ability]
    given: tuple[Any, ...] = (inputs, task) if entry.takes_task else (inputs,)
    signature = inspect.signature(entry.steps)
    known = list(signature.parameters)[len(given) :]
    for name in arguments:
        if name not in known:
            raise InputError(f"{ability} takes no {name!r}{did_you_mean(name, known)}; it takes {', '.join(known)}")
    try:
        signature.bind(*given, **arguments)
    except TypeError as error:
        raise InputError(f"{ability}: {error}") from None
    return entry.steps(*given, **arguments)


def refuse(ability: str, name: str, head: str, able: tuple[str, ...]) -> InputError:
    """The error for a model that lacks an ability, with the command that makes one."""
    if ability not in ABILITIES:
        hint = did_you_mean(ability, ABILITIES) or "."
        return InputError(f"no ability {ability!r}{hint} Known: {', '.join(ABILITIES)}")
    return InputError(
        f"{name}: this model ({head}) has no {ability}; it has {', '.join(able)}. "
        f"For one that does: {ABILITIES[ability].makes}"
    )


def infer_task(config: ModelConfig, head: str) -> Task | None:
    """The task of a model folder without task.json, as its config tells it; None for pretrained models."""
    length = min(512, config.max_position_embeddings)
    labels = config.labels or tuple(f"LABEL_{number}" for number in range(config.num_labels))
    for kind in KINDS.values():
        if kind.fits(head, config.problem_type, config.num_labels):
            return kind.infer(head, labels, length)
    return None
