"""The model of a run: how it starts, its loss on a batch, and its raw outputs for sequences.

    make_model(config, task)                          -> the model, and the names of its new parameters
    batch_loss(model, kind, inputs, targets, ...)     -> the summed loss, so that any split into micro-batches adds up
    run_sequences(model, task, sequences, device)     -> {"logits": [labels]}, ... for each sequence

Outputs by head: logits [labels] ([len, labels] for tags, a scalar for an option); start, end [len]; start_index,
start_log_prob [K], end_index, end_log_prob [K_end, K], answerable; vector [H] of the encoder alone. The losses
belong to the kinds of tasks (`litebert.tasks.kinds`). Flat is [T] tokens of a packed batch or [B * S] of a padded
one; filler belongs to row N, which losses ignore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.errors import ConfigError
from litebert.finetuning.batches import Batch, Layout, Shape, make_batch
from litebert.finetuning.config import FinetuneConfig
from litebert.model.config import load_config, vary
from litebert.model.encoder import pool_tokens
from litebert.model.heads import Model, model_class, named_outputs
from litebert.model.hub import load_model, load_model_and_report
from litebert.tasks.features import Feature
from litebert.tasks.task import Task, kind_of
from litebert.train.device import Device, fetch, send


def model_changes(task: Task, config: FinetuneConfig) -> dict[str, Any]:
    """How the model's config differs from that of the model it starts from."""
    changes: dict[str, Any] = {
        "labels": task.labels,
        "problem_type": kind_of(task).problem_type,
        "classifier_dropout_prob": config.classifier_dropout,
        "exits": config.exits,
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
    """The model at its start, and the names of the parameters that are new."""
    head, changes = kind_of(task).head(task), model_changes(task, config)
    if config.head == "keep":
        before = load_config(config.model)
        if kind_of(task).num_outputs(task) is not None and before.labels != task.labels:
            raise ConfigError(
                f"head: keep: {config.model} has the labels {', '.join(before.labels) or 'of no classifier'}, the task "
                f"{', '.join(task.labels) or 'none'}; use head: new"
            )
        if config.exits and before.exits != config.exits:
            raise ConfigError(
                f"head: keep: {config.model} has exits at {', '.join(map(str, before.exits)) or 'full depth only'}, "
                f"the config at {', '.join(map(str, config.exits))}; use head: new"
            )
        return load_model(config.model, head, **changes), []
    # Only the encoder is taken: a head of the same shape may mean other things.
    source, report = load_model_and_report(config.model, "encoder", new_head=True)
    loaded = {name: tensor for name, tensor in source.state_dict().items() if name not in report.missing}
    # Nothing reads the pooler of an encoder alone: a new one would stay random.
    more = {"pooler": "encoder.pooler.weight" in loaded} if head == "encoder" else {}
    model = model_class(head)(vary(source.config, **changes), **more)
    missing = model.load_state_dict(
        {name: tensor for name, tensor in loaded.items() if name in model.state_dict()}, strict=False
    ).missing_keys
    return model, list(missing)


Tensors = dict[str, Tensor]


def to_device(batch: Batch, device: torch.device) -> tuple[Tensors, Tensors]:
    """Inputs and targets as tensors; does not wait for the GPU."""
    inputs = {name: send(array, device) for name, array in batch.inputs.items()}
    return inputs, {name: send(array, device) for name, array in batch.targets.items()}


def run_model(model: Model, inputs: Tensors, max_length: int, **more: Any) -> Any:
    """Run the model on a packed or padded batch."""
    if model.head == "multiple-choice":
        more["num_choices"] = 1  # one score per sequence: the number of options varies
    return model(**_encoder_inputs(model, inputs, max_length), **more)


def _encoder_inputs(model: Model, inputs: Tensors, max_length: int) -> dict[str, Any]:
    """A batch's inputs, with what shortens the encoder's work on them."""
    more: dict[str, Any] = {"max_length": max_length} if "starts" in inputs else {}
    vectors = model.head in ("classification", "multiple-choice") and model.config.pooling == "first"
    if model.encoder.fast_layers is not None and vectors:
        more["positions"] = inputs["input_ids"].new_empty(0)  # only [CLS] is needed, which shortens the last layer
    return inputs | more


def batch_loss(
    model: Model,
    kind: str,
    inputs: Tensors,
    targets: Tensors,
    max_length: int,
    num_rows: int,
    shares: Mapping[int, float] | None = None,
) -> tuple[Tensor, Tensor]:
    """The summed loss and the number of correct predictions (0 if that is not meaningful).

    With `shares`, the loss is the weighted sum over several exits; correct predictions are those of the last one.
    """

    def loss_at(**at: Any) -> tuple[Tensor, Tensor]:
        def forward(**more: Any) -> Any:
            return run_model(model, inputs, max_length, **at, **more)

        return kind_of(kind).loss(model.head, forward, targets, num_rows)

    if shares is None:
        return loss_at()
    exits = model.at_exits(depths=tuple(shares), **_encoder_inputs(model, inputs, max_length))
    found = [loss_at(at=exit) for exit in exits]
    losses = [share * loss for share, (loss, _) in zip(shares.values(), found, strict=True)]
    return torch.stack(losses).sum(), found[-1][1]


Outputs = dict[str, NDArray[Any]]
EVAL_TOKENS = 16_384  # at a time on a GPU; a CPU gains nothing from more than its caches hold
EVAL_TOKENS_CPU = 2048


def layout_for(device: Device, attention_dropout: float = 0.0) -> Layout:
    """Packed wherever the hardware has a kernel for it: a GPU's takes half precision and no dropout."""
    fast = not device.is_cuda or (device.precision == "bf16" and attention_dropout == 0.0)
    return "packed" if fast else "padded"


@torch.inference_mode()
def run_sequences(
    model: Model, task: Task, sequences: Sequence[Feature], device: Device, fixed: bool = False
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


def _different(sequences: Sequence[Feature]) -> dict[bytes, Feature]:
    """The texts to embed, each once: a search asks many questions about one paragraph."""
    return {sequence.ids.tobytes(): sequence for sequence in sequences}


def _cut(sequences: Sequence[Feature], max_tokens: int, padded_length: int) -> Iterator[NDArray[np.int64]]:
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
    """Outputs by name; per-token outputs are flat, [T] or [B * S]."""
    if head == "encoder":
        return {"vector": output}
    named = named_outputs(head, output)
    if head == "span":
        return {name: logits.flatten() for name, logits in named.items()}
    if head == "token-classification":
        return {"logits": named["logits"].flatten(0, -2)}
    return named
