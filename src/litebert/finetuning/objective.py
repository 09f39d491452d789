"""From a batch to its loss: a sum and nothing divided, so that any cut of a batch adds up.

The losses themselves belong to the kinds of tasks (`litebert.tasks.kinds`). Shapes: N sequences, L labels; flat = [T]
tokens of a packed batch or [B * S] of a padded one. Both layouts share one code: what belongs to no sequence is row N,
which no loss sees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from litebert.finetuning.batches import Batch
from litebert.model.heads import Model
from litebert.tasks.task import kind_of
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
    model: Model, kind: str, inputs: Tensors, targets: Tensors, max_length: int, num_rows: int
) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and how many predictions were right (0 where that has no meaning)."""

    def forward(**more: Any) -> Any:
        return run_model(model, inputs, max_length, **more)

    return kind_of(kind).loss(model.head, forward, targets, num_rows)
