"""From a batch to its loss, for every kind of task: a sum and nothing divided, so that any cut of a batch adds up.

Shapes: N sequences, L labels; flat = [T] tokens of a packed batch or [B * S] of a padded one. Both layouts share one
code: what belongs to no sequence is row N, which no loss sees.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.finetuning.batches import Batch
from litebert.model.heads import AnswerOutput, Model
from litebert.tasks.features import IGNORE
from litebert.tasks.task import Kind
from litebert.train.device import send

Tensors = dict[str, Tensor]


def to_device(batch: Batch, device: torch.device) -> tuple[Tensors, Tensors]:
    """Inputs and targets as tensors; on a GPU without waiting for it."""
    inputs = {name: send(array, device) for name, array in batch.inputs.items()}
    return inputs, {name: send(array, device) for name, array in batch.targets.items()}


def run_model(model: Model, inputs: Tensors, max_length: int, **more: Any) -> Any:
    """The model's own output for a packed or padded batch."""
    if "starts" in inputs:
        more["max_length"] = max_length
    if model.head == "multiple-choice":
        more["num_choices"] = 1  # a score per sequence; questions may have different numbers of options
    if model.encoder.fast_layers is not None and model.head in ("classification", "multiple-choice"):
        more["positions"] = inputs["input_ids"].new_empty(0)  # only [CLS] is looked at: the last layer can be brief
    return model(**inputs, **more)


def batch_loss(
    model: Model, kind: Kind, inputs: Tensors, targets: Tensors, max_length: int, num_rows: int
) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and how many predictions were right (0 where that has no meaning)."""
    if model.head == "answer":
        # The gold start is given to the end's head in training; unused rows take their first token.
        output = run_model(model, inputs, max_length, start_positions=targets["start"].clamp(min=0))
        return _answer_loss(output, targets)
    output = run_model(model, inputs, max_length)
    if kind == "question-answering":
        start, end = (logits.float().flatten() for logits in output)
        return _span_loss(start, end, targets, num_rows)
    logits = output.float()
    if kind == "multiple-choice":
        return _choice_loss(logits.flatten(), targets["group"], targets["gold"], num_rows)
    if kind == "regression":
        error = (logits - targets["values"]).square() * targets["used"][:, None]
        return error.sum(), error.new_zeros(())
    if kind == "multi-label":
        # Mean over the labels, sum over the examples.
        loss = F.binary_cross_entropy_with_logits(logits, targets["values"], reduction="none").mean(-1)
        right = ((logits >= 0) == (targets["values"] > 0.5)).float().mean(-1)  # a probability of 0.5 reaches
        return (loss * targets["used"]).sum(), (right * targets["used"]).sum()
    labels, logits = targets["labels"], logits.flatten(0, -2)  # [N] and [N, L], or flat and [flat, L]
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return loss, (logits.argmax(-1) == labels).sum()


def _choice_loss(scores: Tensor, group: Tensor, gold: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    total = row_logsumexp(scores, group, num_rows)[group]
    loss = ((total - scores) * gold).sum()
    best = torch.full((num_rows + 1,), -torch.inf, device=scores.device).scatter_reduce(
        0, group, scores.detach(), "amax"
    )
    return loss, ((scores.detach() == best[group]) * gold).sum()


def _span_loss(start: Tensor, end: Tensor, targets: Tensors, num_rows: int) -> tuple[Tensor, Tensor]:
    """(start + end) / 2, each a softmax over the sequence's own tokens."""
    rows, used = targets["rows"], targets["used"]
    loss = start.new_zeros(())
    for logits, place in ((start, targets["start"]), (end, targets["end"])):
        gold = logits[targets["first"] + place.clamp(min=0)]  # [N]
        loss = loss + ((row_logsumexp(logits, rows, num_rows)[:-1] - gold) * used).sum() / 2
    return loss, loss.new_zeros(())


def _answer_loss(output: AnswerOutput, targets: Tensors) -> tuple[Tensor, Tensor]:
    """(start + end) / 2 + answerability / 2, as in the released code; no answer is [CLS]."""
    start = F.cross_entropy(output.start.float(), targets["start"], ignore_index=IGNORE, reduction="sum")
    end = F.cross_entropy(output.end.float(), targets["end"], ignore_index=IGNORE, reduction="sum")
    answerable = output.answerable.float()
    null = F.binary_cross_entropy_with_logits(answerable, targets["impossible"], reduction="none")
    right = ((answerable > 0) == (targets["impossible"] > 0.5)) * targets["used"]
    return (start + end) / 2 + (null * targets["used"]).sum() / 2, right.sum()


def row_logsumexp(values: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """log sum exp over the places of each row: [flat] -> [N + 1]; a row without places gives a large negative."""
    with torch.no_grad():
        top = torch.full((num_rows + 1,), -1e30, device=values.device).scatter_reduce(0, rows, values, "amax")
    sums = torch.zeros_like(top).index_add(0, rows, (values - top[rows]).exp())
    return top + sums.clamp(min=1e-30).log()
