"""The loss of a batch, as a sum, so that any division into micro-batches adds up.

The losses belong to the kinds of tasks (`litebert.tasks.kinds`). Shapes: N sequences, L labels; flat = [T] tokens of a
packed batch or [B * S] of a padded one. Both layouts share the code: filler belongs to row N, which losses ignore.
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
    """Inputs and targets as tensors; does not wait for the GPU."""
    inputs = {name: send(array, device) for name, array in batch.inputs.items()}
    return inputs, {name: send(array, device) for name, array in batch.targets.items()}


def run_model(model: Model, inputs: Tensors, max_length: int, **more: Any) -> Any:
    """Run the model on a packed or padded batch."""
    if "starts" in inputs:
        more["max_length"] = max_length
    if model.head == "multiple-choice":
        more["num_choices"] = 1  # one score per sequence: the number of options varies
    if model.encoder.fast_layers is not None and model.head in ("classification", "multiple-choice"):
        more["positions"] = inputs["input_ids"].new_empty(0)  # only [CLS] is needed, which shortens the last layer
    return model(**inputs, **more)


def batch_loss(
    model: Model, kind: str, inputs: Tensors, targets: Tensors, max_length: int, num_rows: int
) -> tuple[Tensor, Tensor]:
    """The summed loss and the number of correct predictions (0 if that is not meaningful)."""

    def forward(**more: Any) -> Any:
        return run_model(model, inputs, max_length, **more)

    return kind_of(kind).loss(model.head, forward, targets, num_rows)
