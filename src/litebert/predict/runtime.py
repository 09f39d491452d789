"""The interface of runtimes (TorchRuntime, OnnxRuntime): sequences in, numbers out.

Raw outputs by name, numpy float32 (indices int64), each for one sequence of `len` tokens:
    logits       [labels], [len, labels] for token classification, [] for multiple choice
    start, end   [len] of the span head; start_index, start_log_prob [K], end_index, end_log_prob [K_end, K] and
                 answerable [] of the answer head
    masked_lm    [P, V] at the requested positions              sentence  [2]
    depth        [] where a depth or a rule was asked for: the exit that gave the others
    hidden       [len, H]      pooled, first, mean  [H]         attentions  [L, A, len, len]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.model.config import check_depth

if TYPE_CHECKING:
    from litebert.model.config import ModelConfig
    from litebert.model.heads import Model
    from litebert.predict.adapters import Adapter
    from litebert.predict.exits import ExitRule
    from litebert.tasks.task import Task

Outputs = dict[str, NDArray[Any]]

PASS_TOKENS = 8192  # of a pass, unless the user says otherwise

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


def wanted_outputs(task: Task | None, head: str) -> frozenset[str]:
    """What a task reads from a head; from an encoder, the vector that it compares."""
    if head == "encoder":
        return frozenset({"mean" if task is None else task.pooling})
    return HEAD_OUTPUTS[head] - {"pooled"}


@dataclass(frozen=True)
class Request:
    """One sequence for the model, unpadded, and the names of the outputs wanted of it."""

    ids: NDArray[np.int32]  # [len], with [CLS] and [SEP]s
    segments: NDArray[np.int8]  # [len]
    want: frozenset[str]
    positions: NDArray[np.int64] | None = None  # of the tokens to predict, for "masked_lm"
    outside: NDArray[np.bool_] | None = None  # where no answer can lie, or that decide no tag
    later: int = 0  # sequences of its length that may be asked for once its outputs are known
    adapter: Adapter | None = None  # what changes the base model for this sequence (adapters.py)
    depth: int | None = None  # layers to apply; None: all
    rule: ExitRule | None = None  # or as many as this rule finds enough, for the outputs of a head
    group: object | None = None  # requests with the same one stop together: the options of a question

    def __len__(self) -> int:
        return len(self.ids)


# Tokens that there is room for -> further requests that fit; [] if there are none now.
More = Callable[[int], Sequence[Request]]


class Runtime(Protocol):
    """Whatever can run a model over requests."""

    name: str  # what runs it, and on what
    config: ModelConfig
    head: str
    outputs: frozenset[str]  # the raw outputs that it can give
    any_depth: bool  # whether a request may stop before full depth

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        ...


class OpenRuntime(Runtime, Protocol):
    """A runtime whose passes others may join."""

    def run_open(self, requests: Sequence[Request], more: More, max_tokens: int) -> Iterator[tuple[int, Outputs]]:
        """The number and the outputs of each request as it is done; all have one rule of early exit.

        Requests that `more` adds join at the next exit and are numbered from there. At most `max_tokens` run at a time.
        """
        ...


class AdaptedRuntime:
    """The runtime of a base model as one of its adapters sees it."""

    def __init__(self, base: Runtime, adapter: Adapter):
        self.any_depth = adapter.head == "encoder"  # a head is that of full depth
        self.name, self.config, self.head, self.outputs = base.name, adapter.config, adapter.head, adapter.outputs
        self.base = base

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """As the base: requests carry their adapter themselves."""
        return self.base.run(requests)


def check_request(config: ModelConfig, request: Request) -> None:
    """Refuse what would end in an index error, or on a GPU in a dead process."""
    most, ids = config.max_position_embeddings, request.ids
    if not 0 < len(ids) <= most:
        raise InputError(f"a sequence has {len(ids)} tokens, the model takes 1 to {most}")
    if request.depth is not None:
        check_depth(config, request.depth)
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise InputError(
            f"a sequence holds ids {ids.min()} to {ids.max()}, the model takes 0 to {config.vocab_size - 1}"
        )


def check_requests(config: ModelConfig, requests: Sequence[Request]) -> None:
    """`check_request` for many requests; a single check if nothing is wrong."""
    if not requests:
        return
    for depth in {request.depth for request in requests}:
        if depth is not None:
            check_depth(config, depth)
    arrays = [request.ids for request in requests]
    sizes, ids = [*map(len, arrays)], np.concatenate(arrays)
    fit = min(sizes) > 0 and max(sizes) <= config.max_position_embeddings
    if not fit or ids.min() < 0 or ids.max() >= config.vocab_size:
        for request in requests:
            check_request(config, request)


def wanted_of(requests: Sequence[Request]) -> frozenset[str]:
    """All outputs that some of the requests want."""
    return frozenset().union(*{request.want for request in requests})


def rows_of_outputs(named: Mapping[str, NDArray[Any]], **same: NDArray[Any]) -> list[Outputs]:
    """Arrays [N, ...] as N outputs, each with what is the `same` for all: fast, for there may be many thousands."""
    names = (*named, *same)
    columns = [*named.values(), *(itertools.repeat(value) for value in same.values())]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=False)]


def fit_segments(config: ModelConfig, request: Request) -> NDArray[np.int8]:
    """The segments of a request as the model knows them: one with a single kind takes a pair for one text."""
    return np.minimum(request.segments, np.int8(min(127, config.type_vocab_size - 1)))


# ---------------------------------------------------------------------------------------------------------------------
# Which sequences run together: batches under a token budget, the longest sequences first


def plan_packed(lengths: Sequence[int], max_tokens: int) -> list[NDArray[np.int64]]:
    """Indices of the sequences of each batch, laid end to end without padding: ([3, 9, 3], 9) -> [[1], [0, 2]].

    A sequence longer than `max_tokens` gets its own batch.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches: list[list[int]] = []
    room = 0
    for number in order.tolist():
        if not batches or lengths[number] > room:
            batches.append([])
            room = max_tokens
        batches[-1].append(number)
        room -= lengths[number]
    return [np.array(batch, dtype=np.int64) for batch in batches]


def plan_padded(lengths: Sequence[int], max_tokens: int, pass_cost: int) -> list[NDArray[np.int64]]:
    """Indices of the sequences of each pass, padded to its longest: ([3, 9, 3, 8], 512, 4) -> [[1, 3], [0, 2]].

    Padding costs as much as real tokens, and each pass costs an extra `pass_cost` tokens. Sequences of similar lengths
    are grouped at the lowest total cost, then cut so that no pass holds more than `max_tokens` (one sequence always
    fits).
    """
    if not len(lengths):
        return []
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    sizes, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    sizes, counts = sizes[::-1], counts[::-1]  # the longest first
    ends = np.cumsum(counts)
    passes: list[NDArray[np.int64]] = []
    for first, last in _cheapest_groups(sizes, counts, pass_cost):
        group = order[ends[first] - counts[first] : ends[last]]
        step = max(1, max_tokens // int(sizes[first]))
        passes += [group[begin : begin + step] for begin in range(0, len(group), step)]
    return passes


def _cheapest_groups(sizes: NDArray[np.int64], counts: NDArray[np.int64], pass_cost: int) -> list[tuple[int, int]]:
    """Which neighbouring sizes are padded to their longest, as (first, last); each best cut from those before it."""
    before = np.concatenate([[0], np.cumsum(counts)])  # sequences longer than the i-th size
    best = np.zeros(len(sizes) + 1)
    begins = np.zeros(len(sizes) + 1, np.int64)
    for end in range(1, len(sizes) + 1):
        costs = best[:end] + pass_cost + (before[end] - before[:end]) * sizes[:end]
        begins[end] = int(costs.argmin())
        best[end] = costs[begins[end]]
    groups, end = [], len(sizes)
    while end:
        groups.append((int(begins[end]), end - 1))
        end = int(begins[end])
    return groups[::-1]
