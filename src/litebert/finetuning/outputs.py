"""What a model says about sequences: raw outputs as numpy arrays, by the names that all of litebert uses.

logits [labels] (or [len, labels] for tags, a scalar for an option); start, end [len];
start_index, start_log_prob [K], end_index, end_log_prob [K_end, K], answerable; vector [H] of the encoder alone
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.finetuning.batches import Layout, Shape, make_batch
from litebert.finetuning.objective import run_model, to_device
from litebert.model.encoder import pool_tokens
from litebert.model.heads import Model, named_outputs
from litebert.tasks.features import Sequence
from litebert.tasks.task import Task
from litebert.train.device import Device, fetch

Outputs = dict[str, NDArray[Any]]
EVAL_TOKENS = 16_384  # at a time on a GPU; a CPU gains nothing from more than its caches hold
EVAL_TOKENS_CPU = 2048


def layout_for(device: Device, attention_dropout: float = 0.0) -> Layout:
    """Packed wherever the hardware has a kernel for it: a GPU's takes half precision and no dropout."""
    fast = not device.is_cuda or (device.precision == "bf16" and attention_dropout == 0.0)
    return "packed" if fast else "padded"


@torch.inference_mode()
def run_sequences(
    model: Model, task: Task, sequences: Many[Sequence], device: Device, fixed: bool = False
) -> list[Outputs]:
    """The raw outputs of each sequence, in order; with `fixed` all batches have one shape (for a compiled model)."""
    model.eval()
    layout = layout_for(device)
    max_tokens = EVAL_TOKENS if device.is_cuda else EVAL_TOKENS_CPU
    results: list[Outputs] = [{}] * len(sequences)
    if model.head == "encoder" and len(sequences) > len(different := _different(sequences)):
        found = dict(zip(different, run_sequences(model, task, list(different.values()), device, fixed), strict=True))
        return [found[sequence.ids.tobytes()] for sequence in sequences]
    for numbers in _cut(sequences, max_tokens, task.max_length if model.head == "answer" else 0):
        chosen = [sequences[i] for i in numbers]
        shape = Shape(max_tokens, len(chosen) + max_tokens // task.max_length + 1) if fixed else None
        shape = shape if layout == "packed" else None
        batch = make_batch(task, chosen, layout, model.config.pad_token_id, shape)
        inputs, _ = to_device(batch, device.device)
        with device.autocast():
            output = run_model(model, inputs, batch.max_length)
        if model.head == "encoder":
            output = pool_tokens(output.hidden, task.pooling, inputs.get("starts"), inputs.get("attention_mask"))
        named = {name: fetch(value) for name, value in _named(model.head, output).items()}
        first = batch.inputs["starts"] if layout == "packed" else np.arange(len(chosen)) * inputs["input_ids"].shape[1]
        for row, (number, sequence) in enumerate(zip(numbers, chosen, strict=True)):
            tokens = slice(int(first[row]), int(first[row]) + len(sequence.ids))
            per_token = model.head in ("span", "token-classification")
            results[number] = {name: value[tokens if per_token else row] for name, value in named.items()}
    return results


def _different(sequences: Many[Sequence]) -> dict[bytes, Sequence]:
    """The texts to embed, each once: a search asks many questions about one paragraph."""
    return {sequence.ids.tobytes(): sequence for sequence in sequences}


def _cut(sequences: Many[Sequence], max_tokens: int, padded_length: int) -> Iterator[NDArray[np.int64]]:
    """Batches of sequences of like length; `padded_length` counts for each where a head pads them all."""
    order = np.argsort([-len(sequence.ids) for sequence in sequences], kind="stable")
    begin = total = padded = 0
    for place, number in enumerate(order):
        length = len(sequences[number].ids)
        if place > begin and (total + length > max_tokens or padded + padded_length > 4 * max_tokens):
            yield order[begin:place]
            begin, total, padded = place, 0, 0
        total, padded = total + length, padded + padded_length
    if len(order):
        yield order[begin:]


def _named(head: str, output: Any) -> dict[str, torch.Tensor]:
    """Outputs by name; what is per token is flat, [T] or [B * S]."""
    if head == "encoder":
        return {"vector": output}
    named = named_outputs(head, output)
    if head == "span":
        return {name: logits.flatten() for name, logits in named.items()}
    if head == "token-classification":
        return {"logits": named["logits"].flatten(0, -2)}
    return named
