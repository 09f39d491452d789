"""From a batch to its two losses: sums and counts, so that any division of a global batch gives the same mean.

Shapes: T packed tokens, N sequences, P positions to predict, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.model.heads import PretrainingModel, PretrainingOutput
from litebert.pretraining.assembly import NO_LABEL, Batch
from litebert.train.device import Device, send


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


def to_device(batch: Batch, device: torch.device, max_length: int) -> Inputs:
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
    )


def run_model(model: PretrainingModel, inputs: Inputs) -> PretrainingOutput:
    """The logits of a packed batch: masked LM [P, V], sentence order [N, 2]."""
    return model(
        inputs.tokens,
        positions=inputs.masked,
        segment_ids=inputs.segments,
        position_ids=inputs.positions,
        starts=inputs.starts,
        max_length=inputs.max_length,
    )


def score(output: PretrainingOutput, inputs: Inputs) -> Totals:
    """Loss sums, right answers and counts of both objectives; what a model lacks counts nothing."""
    mlm = _score(output.masked_lm, inputs.labels)
    sentence = _score(output.sentence, inputs.order)
    return Totals(*mlm, *sentence)


def weigh(totals: Totals, counts: Tensor) -> tuple[Tensor, Tensor]:
    """A micro-batch's part of the two mean losses, added, given the counts [2] of the whole batch; the totals."""
    masked, pairs = counts.unbind()
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
