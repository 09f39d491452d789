"""Sequences in, numbers out: what a runtime is asked for and what it gives. TorchRuntime and OnnxRuntime answer.

Raw outputs by name, numpy float32 (indices int64), each for one sequence of `len` tokens:
    logits       [labels], [len, labels] for token classification, [] for multiple choice
    start, end   [len] of the span head; start_index, start_log_prob [K], end_index, end_log_prob [K_end, K] and
                 answerable [] of the answer head
    masked_lm    [P, V] at the positions asked for              sentence  [2]
    hidden       [len, H]      pooled, first, mean  [H]         attentions  [L, A, len, len]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.model.config import ModelConfig
    from litebert.model.heads import Model

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


def outputs_of(model: Model) -> frozenset[str]:
    """The raw outputs of a model that torch runs."""
    outputs = ENCODER_OUTPUTS | HEAD_OUTPUTS[model.head]
    return outputs - {"pooled"} if model.encoder.pooler is None else outputs


@dataclass(frozen=True)
class Request:
    """One sequence for the model, unpadded, and the names of the outputs wanted of it."""

    ids: NDArray[np.int32]  # [len], with [CLS] and [SEP]s
    segments: NDArray[np.int8]  # [len]
    want: frozenset[str]
    positions: NDArray[np.int64] | None = None  # of the tokens to predict, for "masked_lm"
    outside: NDArray[np.bool_] | None = None  # where no answer can lie, for the answer head
    later: int = 0  # sequences of its length that may be asked for once its outputs are known

    def __len__(self) -> int:
        return len(self.ids)


class Runtime(Protocol):
    """Whatever can run a model over requests."""

    name: str  # what runs it, and on what
    config: ModelConfig
    head: str
    outputs: frozenset[str]  # the raw outputs that it can give

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        ...


def check_request(config: ModelConfig, request: Request) -> None:
    """Refuse what would end in an index error, or on a GPU in a dead process."""
    most, ids = config.max_position_embeddings, request.ids
    if not 0 < len(ids) <= most:
        raise InputError(f"a sequence has {len(ids)} tokens, the model takes 1 to {most}")
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise InputError(
            f"a sequence holds ids {ids.min()} to {ids.max()}, the model takes 0 to {config.vocab_size - 1}"
        )


def fit_segments(config: ModelConfig, request: Request) -> NDArray[np.int8]:
    """The segments of a request as the model knows them: one with a single kind takes a pair for one text."""
    return np.minimum(request.segments, np.int8(min(127, config.type_vocab_size - 1)))
