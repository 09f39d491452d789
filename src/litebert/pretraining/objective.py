"""The model of a run at its start, and its two losses.

Losses are sums with counts, so that any division of a global batch gives the same mean.
Shapes: T packed tokens, N sequences, P positions to predict, V vocabulary."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.errors import ConfigError
from litebert.model.heads import MaskedLMModel, PretrainingModel, PretrainingOutput
from litebert.model.hub import load_model_and_report
from litebert.pretraining.batches import NO_LABEL, Batch
from litebert.pretraining.config import RunConfig
from litebert.train.device import Device, send


def make_model(config: RunConfig, load: bool = True) -> tuple[PretrainingModel, list[str]]:
    """The model at its start, random or from another (possibly shallower) model, and notes about it."""
    cls = MaskedLMModel if config.recipe.objective == "none" else PretrainingModel
    model = cls(config.model)
    if config.init_from is None or not load:
        if config.position_init == "sinusoidal":
            table = model.encoder.embeddings.position.weight
            with torch.no_grad():
                table.copy_(sinusoids(*table.shape) * (math.sqrt(2) * config.model.initializer_range))
        return model, []
    source, report = load_model_and_report(config.init_from, cls.head, new_head=True)
    if source.config.vocab_size != config.model.vocab_size:
        raise ConfigError(
            f"init_from: {config.init_from} has {source.config.vocab_size} pieces, the tokenizer "
            f"{config.model.vocab_size}; use that model's own tokenizer"
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
    notes = [f"{config.init_from} has no {', '.join(report.missing)}: initialised"] if report.missing else []
    return model, notes


def sinusoids(length: int, width: int) -> Tensor:
    """sin and cos of each position at wavelengths from 2 pi to 20,000 pi: [length, width], of root mean square 0.71."""
    rates = 10_000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates  # [length, width / 2]
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :width]


# Fields that must equal those of the model to start from: they decide what its weights compute.
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


class Inputs(NamedTuple):
    """A batch on the device."""

    tokens: Tensor  # [T]
    segments: Tensor  # [T]
    positions: Tensor  # [T]
    starts: Tensor  # [N + 1]
    masked: Tensor  # [P]
    labels: Tensor  # [P]
    order: Tensor  # [N]
    max_length: int
    step: int | None = None  # where it decides which exit learns; None: all of them do


class Totals(NamedTuple):
    """Sums over a batch; each a scalar tensor on the device."""

    mlm_loss: Tensor
    mlm_correct: Tensor
    mlm_count: Tensor
    sentence_loss: Tensor
    sentence_correct: Tensor
    sentence_count: Tensor

    def stacked(self) -> Tensor:
        """All six as one float32 vector, detached."""
        return torch.stack([value.detach().float() for value in self])


def to_device(batch: Batch, device: torch.device, max_length: int, step: int | None = None) -> Inputs:
    """Copy a batch; on a GPU without waiting for it."""
    return Inputs(
        send(batch.tokens, device).long(),
        send(batch.segments, device).long(),
        send(batch.positions, device).long(),
        send(batch.starts, device),
        send(batch.masked, device).long(),
        send(batch.labels, device).long(),
        send(batch.order, device).long(),
        max_length,
        step,
    )


def run_model(model: PretrainingModel, inputs: Inputs) -> PretrainingOutput:
    """The logits of a packed batch: masked LM [P, V], sentence order [N, 2]."""
    return model(inputs.tokens, positions=inputs.masked, **packing_of(inputs))


def run_exits(model: PretrainingModel, inputs: Inputs, depths: Sequence[int]) -> Iterator[PretrainingOutput]:
    """The logits at several depths, from one pass: one head serves them all."""
    for exit in model.at_exits(inputs.tokens, depths, positions=inputs.masked, **packing_of(inputs)):
        yield model(inputs.tokens, at=exit)


def packing_of(inputs: Inputs) -> dict[str, Any]:
    """How the encoder is to read the tokens."""
    return {
        "segment_ids": inputs.segments,
        "position_ids": inputs.positions,
        "starts": inputs.starts,
        "max_length": inputs.max_length,
    }


def score(output: PretrainingOutput, inputs: Inputs) -> Totals:
    """Loss sums, right answers and counts of both objectives; 0 for a head that the model lacks."""
    mlm = _score(output.masked_lm, inputs.labels)
    sentence = _score(output.sentence, inputs.order)
    return Totals(*mlm, *sentence)


def weigh(totals: Totals, counts: Tensor) -> tuple[Tensor, Tensor]:
    """A micro-batch's part of the two mean losses, added, given the counts of the whole batch; the totals."""
    masked, pairs = counts[:2].unbind()
    return totals.mlm_loss / masked + totals.sentence_loss / pairs, totals.stacked()


def scorer(device: Device) -> Callable[[PretrainingOutput, Inputs], Totals]:
    """`score`, compiled on a GPU: a row of logits is then read twice, not once per step of the formula."""
    return torch.compile(score, dynamic=False) if device.compile and device.is_cuda else score


def _score(logits: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if logits is None:
        zero = torch.zeros((), device=labels.device)
        return zero, zero, zero
    logits = logits.float()
    counted = labels != NO_LABEL
    loss = F.cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="sum")
    correct = ((logits.argmax(-1) == labels) & counted).sum()
    return loss, correct, counted.sum()
