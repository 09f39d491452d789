"""Several adapters on one model: requests with different adapters share a packed pass.

The base products run once for all tokens. Then each adapter adds its low-rank part to its own tokens, which are
adjacent: y[begin:end] += (x[begin:end] A^T) scale B^T. Each adapter has its own head.

    adapter = open_adapter("runs/sst2/adapter", "sentiment", runtime, base="default")
    mix = mix_of([None, adapter, adapter], starts)      # of three sequences
    mix.add("ffn.0.input", x, product)                  # in place

Shapes: T tokens, N sequences, R rank of an adapter (of the three projections of attention together: their sum).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.errors import CheckpointError
from litebert.model.adapter import AdaptedLinear
from litebert.model.encoder import EncoderOutput
from litebert.model.heads import Model

if TYPE_CHECKING:
    from litebert.model.config import ModelConfig
    from litebert.tasks.task import Task

PROJECTIONS = ("query", "key", "value")


class Pair(NamedTuple):
    """The low-rank part of one product; the scale is in `up`."""

    down: Tensor  # [in, R]
    up: Tensor  # [R, out]


@dataclass(frozen=True, eq=False)
class Adapter:
    """An adapter with its head, ready for shared passes."""

    name: str
    config: ModelConfig
    task: Task
    model: Model  # the head; its encoder is a Given
    pairs: Mapping[str, Pair]  # by the name of the product
    outputs: frozenset[str]

    @property
    def head(self) -> str:
        """The type of its result."""
        return self.model.head


class Given(nn.Module):
    """Replaces the encoder of a head: it returns the states of a pass that has run."""

    def __init__(self, embeddings: nn.Module | None = None):
        super().__init__()
        self.embeddings = embeddings  # of the base; the masked-LM head reads them
        self.output = EncoderOutput(torch.empty(0), None)
        self.chosen = False  # whether the states are those of the positions already

    def forward(self, input_ids: Tensor, positions: Tensor | None = None, **inputs: Any) -> EncoderOutput:
        hidden = self.output.hidden
        return EncoderOutput(hidden if positions is None or self.chosen else hidden[positions], self.output.pooled)


class Span(NamedTuple):
    """Neighbouring rows of one adapter."""

    adapter: Adapter
    begin: int
    end: int


@dataclass(frozen=True)
class Mix:
    """Which tokens and which sequences of a packed pass belong to which adapter; the rest are the base model's."""

    tokens: tuple[Span, ...]
    sequences: tuple[Span, ...] = field(default=())

    def add(self, key: str, x: Tensor, product: Tensor) -> Tensor:
        """Add each adapter's part of a product, in place."""
        for adapter, begin, end in self.tokens:
            pair = adapter.pairs.get(key)
            if pair is not None and end > begin:
                product[begin:end].addmm_(x[begin:end] @ pair.down, pair.up)
        return product

    def of_rows(self, rows: Tensor) -> Mix:
        """The same for some of the tokens, given in ascending order."""
        ends = torch.tensor([[span.begin, span.end] for span in self.tokens], dtype=rows.dtype, device=rows.device)
        found = torch.searchsorted(rows, ends).tolist()
        return replace(self, tokens=tuple(Span(s.adapter, *e) for s, e in zip(self.tokens, found, strict=True)))

    def of_first(self) -> Mix:
        """The same for one row per sequence."""
        return Mix(self.sequences)


def group_adapters(adapters: Sequence[Adapter | None]) -> list[tuple[Adapter | None, int, int]]:
    """Neighbours with the same adapter: [None, a, a] -> [(None, 0, 1), (a, 1, 3)]."""
    groups, begin = [], 0
    for _, same in itertools.groupby(adapters, key=id):
        found = list(same)
        groups.append((found[0], begin, begin + len(found)))
        begin += len(found)
    return groups


def mix_of(adapters: Sequence[Adapter | None], starts: NDArray[np.int64]) -> Mix | None:
    """The mix of a batch by the adapter of each sequence and the N + 1 starts; None for the base model alone."""
    groups = [(adapter, begin, end) for adapter, begin, end in group_adapters(adapters) if adapter is not None]
    if not groups:
        return None
    tokens = tuple(Span(adapter, int(starts[begin]), int(starts[end])) for adapter, begin, end in groups)
    return Mix(tokens, tuple(Span(*group) for group in groups))


def make_adapter(
    name: str, model: Model, task: Task, before: Mapping[str, Tensor], like: Tensor, outputs: frozenset[str]
) -> Adapter:
    """An adapter from a model that has it loaded (load_adapter), and not merged.

    `before` is the encoder's state without it, `like` a tensor with the type and the device of the base.
    """
    found = {path: module for path, module in model.encoder.named_modules() if isinstance(module, AdaptedLinear)}
    if any(module.own for module in found.values()):
        raise CheckpointError(f"{name}: differs by application of the layer, so it cannot share a pass; merge it")
    for path, tensor in model.encoder.state_dict().items():
        if ".lora_" not in path and not torch.equal(tensor, before[path]):
            raise CheckpointError(f"{name}: replaces encoder.{path} of its base, so it cannot share a pass; merge it")

    def pair_of(modules: Sequence[AdaptedLinear | None], outs: int) -> Pair:
        there = [(number, module) for number, module in enumerate(modules) if module is not None]
        down = torch.cat([module.lora_a for _, module in there]).T
        up = torch.zeros(down.shape[1], outs * len(modules))
        begin = 0
        for number, module in there:
            rank = module.lora_a.shape[0]
            up[begin : begin + rank, number * outs : (number + 1) * outs] = module.scale * module.lora_b.T
            begin += rank
        return Pair(*(each.detach().to(like).contiguous() for each in (down, up)))

    pairs = {}
    for place in {path.rpartition(".")[0] for path in found if path.endswith(PROJECTIONS)}:
        parts = [found.pop(f"{place}.{each}", None) for each in PROJECTIONS]
        pairs[f"{place}.qkv"] = pair_of(parts, model.config.hidden_size)
    for path, module in found.items():
        if not (path == "pooler" or path.startswith(("attention.", "ffn."))):
            raise CheckpointError(f"{name}: adapts encoder.{path}, which cannot share a pass; merge it")
        pairs[path] = pair_of([module], module.out_features)
    model.encoder = Given()  # type: ignore[assignment]
    head = model.eval().requires_grad_(False).to(like)
    return Adapter(name, model.config, task, head, pairs, outputs)


def with_given(model: Model) -> Model:
    """A model that shares the head of another and reads states that exist already."""
    head = model.__class__.__new__(model.__class__)
    head.__dict__ = {**model.__dict__, "_modules": dict(model._modules)}
    head.encoder = Given(model.encoder.embeddings)  # type: ignore[assignment]
    return head
