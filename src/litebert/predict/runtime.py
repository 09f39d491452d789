"""Sequences in, numbers out: what runs a model. TorchRuntime here; OnnxRuntime in onnx_runtime.py.

Raw outputs by name, numpy float32 (indices int64), each for one sequence of `len` tokens:
    logits       [labels], [len, labels] for token classification, [] for multiple choice
    start, end   [len] of the span head; start_index, start_log_prob [K], end_index, end_log_prob [K_end, K] and
                 answerable [] of the answer head
    masked_lm    [P, V] at the positions asked for              sentence  [2]
    hidden       [len, H]      pooled, first, mean  [H]         attentions  [L, A, len, len]
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.model.config import ModelConfig
from litebert.model.encoder import EncoderOutput
from litebert.model.heads import AnswerOutput, Model, PretrainingOutput
from litebert.predict.batching import plan_batches
from litebert.train.device import Device

Outputs = dict[str, NDArray[Any]]

# What each head adds to the encoder's own outputs.
ENCODER_OUTPUTS = frozenset({"hidden", "first", "mean", "attentions"})
HEAD_OUTPUTS = {
    "encoder": frozenset({"pooled"}),
    "pretraining": frozenset({"masked_lm", "sentence", "pooled"}),
    "masked-lm": frozenset({"masked_lm"}),
    "sentence-order": frozenset({"sentence", "pooled"}),
    "classification": frozenset({"logits", "pooled"}),
    "token-classification": frozenset({"logits"}),
    "multiple-choice": frozenset({"logits", "pooled"}),
    "span": frozenset({"start", "end"}),
    "answer": frozenset({"start_index", "start_log_prob", "end_index", "end_log_prob", "answerable"}),
}


@dataclass(frozen=True)
class Request:
    """One sequence for the model, unpadded, and the names of the outputs wanted of it."""

    ids: NDArray[np.int32]  # [len], with [CLS] and [SEP]s
    segments: NDArray[np.int8]  # [len]
    want: frozenset[str]
    positions: NDArray[np.int64] | None = None  # of the tokens to predict, for "masked_lm"
    outside: NDArray[np.bool_] | None = None  # where no answer can lie, for the answer head

    def __len__(self) -> int:
        return len(self.ids)


class Runtime(Protocol):
    """Whatever can run a model over requests."""

    config: ModelConfig
    head: str
    outputs: frozenset[str]  # the raw outputs that it can give

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        ...


class TorchRuntime:
    """A model in torch, on whatever device `device` names."""

    def __init__(self, model: Model, device: Device, max_tokens: int = 8192):
        self.config = model.config
        self.head = model.head
        self.outputs = ENCODER_OUTPUTS | HEAD_OUTPUTS[model.head]
        self.device = device
        self.max_tokens = max_tokens
        self.model = model.eval().requires_grad_(False).to(device.device)
        self._lock = threading.Lock()

    @torch.inference_mode()
    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order; safe to call from several threads."""
        results: list[Outputs] = [{} for _ in requests]
        with self._lock:
            for attentions in (False, True):
                # Attention maps need another path through the encoder, so these requests run apart.
                chosen = [i for i, request in enumerate(requests) if ("attentions" in request.want) == attentions]
                for batch in plan_batches([len(requests[i]) for i in chosen], self.max_tokens, max_padding=0.1):
                    numbers = [chosen[i] for i in batch]
                    outputs = self._run_padded([requests[i] for i in numbers], attentions)
                    for number, output in zip(numbers, outputs, strict=True):
                        results[number] = output
        return results

    def _run_padded(self, requests: Sequence[Request], attentions: bool) -> list[Outputs]:
        size = max(map(len, requests))
        ids = np.full((len(requests), size), self.config.pad_token_id, np.int64)
        segments, mask = np.zeros_like(ids), np.zeros_like(ids)
        outside = np.ones(ids.shape, np.bool_)
        for row, request in enumerate(requests):
            length = len(request)
            ids[row, :length], segments[row, :length], mask[row, :length] = request.ids, request.segments, 1
            if request.outside is not None:
                outside[row, :length] = request.outside
        inputs: dict[str, Any] = {"segment_ids": self._tensor(segments), "output_attentions": attentions}
        if not mask.all():
            inputs["attention_mask"] = self._tensor(mask)
        if self.head in ("pretraining", "masked-lm"):
            inputs["positions"] = self._tensor(_flat_positions(requests, size))
        elif self.head == "answer":
            inputs["outside"] = self._tensor(outside)
        elif self.head == "multiple-choice":
            inputs["num_choices"] = 1
        caught: list[EncoderOutput] = []
        # The model runs as it is; what the encoder hands to the head is caught on the way.
        hook = self.model.encoder.register_forward_hook(lambda module, arguments, output: caught.append(output))
        try:
            head_output = self.model(self._tensor(ids), **inputs)
        finally:
            hook.remove()
        batch = _named_outputs(self.head, caught[0], head_output)
        return [self._pick(batch, row, request, requests) for row, request in enumerate(requests)]

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device.device, non_blocking=True)

    def _pick(self, batch: dict[str, Any], row: int, request: Request, requests: Sequence[Request]) -> Outputs:
        """What one request wanted, cut to its length."""
        length, output = len(request), {}
        for name in request.want:
            if name == "masked_lm":
                first = sum(_num_positions(other) for other in requests[:row])
                value = batch[name][first : first + _num_positions(request)]
            elif name == "attentions":
                value = torch.stack([layer[row, :, :length, :length] for layer in batch[name]])
            elif name == "first":
                value = batch["hidden"][row, 0]
            elif name == "mean":
                value = batch["hidden"][row, :length].float().mean(0)
            else:
                value = batch[name][row]
                if name in ("hidden", "start", "end") or (name == "logits" and self.head == "token-classification"):
                    value = value[:length]
            output[name] = _numpy(value)
        return output


def _named_outputs(head: str, encoded: EncoderOutput, output: Any) -> dict[str, Any]:
    """The outputs of a batch by their names; rows are still padded."""
    named: dict[str, Any] = {"hidden": encoded.hidden, "pooled": encoded.pooled, "attentions": encoded.attentions}
    if isinstance(output, PretrainingOutput):
        named |= {"masked_lm": output.masked_lm, "sentence": output.sentence}
    elif isinstance(output, AnswerOutput):
        named |= {
            "start_index": output.start_index,
            "start_log_prob": output.start_log_prob,
            "end_index": output.end_index,
            "end_log_prob": output.end,
            "answerable": output.answerable,
        }
    elif head == "span":
        named |= {"start": output[0], "end": output[1]}
    elif head == "multiple-choice":
        named["logits"] = output.squeeze(-1)
    elif head != "encoder":
        named["logits"] = output
    return named


def _num_positions(request: Request) -> int:
    return 0 if request.positions is None else len(request.positions)


def _flat_positions(requests: Sequence[Request], size: int) -> NDArray[np.int64]:
    """The places to predict in the flattened batch."""
    found = [row * size + r.positions for row, r in enumerate(requests) if r.positions is not None]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _numpy(tensor: Tensor) -> NDArray[Any]:
    return (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
