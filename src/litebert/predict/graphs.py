"""CUDA graphs for small batches, where launching kernels costs more than running them.

A graph is recorded for one shape and replayed for any batch that fits into it, so shapes come in steps: tokens,
sequences and the longest sequence are rounded up. Input lies packed in fixed places; tokens and sequences that are not
used come last. Their numbers mean nothing and touch no others, since only attention sees more than one token.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from litebert.model.encoder import Encoder
from litebert.predict.fused import FusedEncoder

# Steps of at most a quarter, of an eighth where the GPU is so busy that waste shows, up to the largest batch that a
# runtime makes by itself. In larger ones the GPU is busy for longer than it takes to launch everything.
TOKENS = (
    *range(16, 128, 16),
    *range(128, 256, 32),
    *range(256, 512, 64),
    *range(512, 1024, 128),
    *range(1024, 2048, 256),
    *range(2048, 4096, 256),
    *range(4096, 8193, 512),
)
SEQUENCES = (1, 4, 16, 64, 256, 1024)
LENGTHS = (64, 128, 256, 512)


class Replayable(Protocol):
    """A torch.cuda.CUDAGraph, or what stands for one in a test."""

    def replay(self) -> None: ...


@dataclass
class Graph:
    """A recorded pass with the places where its input and output lie."""

    graph: Replayable
    ids: Tensor  # [T]
    segments: Tensor  # [T]
    positions: Tensor  # [T]
    starts: Tensor  # [N + 1]
    hidden: Tensor  # [T, H]


def round_up(value: int, steps: tuple[int, ...]) -> int | None:
    """The smallest step that holds a value: (100, (64, 128)) -> 128; None if none does."""
    return next((step for step in steps if step >= value), None)


class GraphedEncoder(FusedEncoder):
    """A FusedEncoder on a GPU that replays recorded passes where a batch fits one, and runs plainly where not."""

    def __init__(self, encoder: Encoder, triton: bool = False):
        super().__init__(encoder, triton)
        self._graphs: dict[tuple[int, int, int], Graph | None] = {}
        self._pool: Any = None  # one memory for all graphs, since one runs at a time
        self._records = True

    def encode(
        self,
        ids: Tensor,
        segments: Tensor,
        positions: Tensor,
        starts: Tensor,
        max_length: int,
        rows: Tensor | None = None,
    ) -> Tensor:
        """The last hidden states, as in FusedEncoder; what a graph gave holds until the next call."""
        key = shape_of(len(ids), len(starts) - 1, max_length)
        if key is not None and key not in self._graphs and self._records:
            self._graphs[key] = self._record(*key)
        graph = None if key is None else self._graphs.get(key)
        if graph is None:
            return super().encode(ids, segments, positions, starts, max_length, rows)
        size = len(ids)
        places = [graph.ids[:size], graph.segments[:size], graph.positions[:size]]
        torch._foreach_copy_(places, [ids, segments, positions])  # one kernel for the three
        graph.starts.fill_(size)  # empty sequences behind the real ones
        graph.starts[: len(starts)].copy_(starts)
        graph.graph.replay()
        return graph.hidden[:size] if rows is None else graph.hidden[rows]

    def _record(self, tokens: int, sequences: int, length: int) -> Graph | None:
        device = self.embeddings.word.weight.device
        ids, segments, positions = (torch.zeros(tokens, dtype=torch.int64, device=device) for _ in range(3))
        starts = torch.full((sequences + 1,), min(tokens, length), dtype=torch.int32, device=device)
        starts[0] = 0
        arguments = (ids, segments, positions, starts, length)
        stream = torch.cuda.current_stream(device)
        try:
            # Compilation and cuBLAS's choices happen before the recording, on a stream of its own as torch asks for.
            side = torch.cuda.Stream(device)
            side.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side):
                for _ in range(3):
                    super().encode(*arguments)
            torch.cuda.current_stream(device).wait_stream(side)
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            # Another thread may use the GPU meanwhile, for another model.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                hidden = super().encode(*arguments)
        except RuntimeError as error:
            self._records = False  # what failed once fails again
            torch.cuda.set_stream(stream)  # a recording that fails leaves its own
            warnings.warn(f"no CUDA graphs, so slower: {error.__context__ or error}", stacklevel=2)
            return None
        return Graph(graph, ids, segments, positions, starts, hidden)


def shape_of(tokens: int, sequences: int, length: int) -> tuple[int, int, int] | None:
    """The shape of the graph for a batch: (100 tokens, 3 sequences, longest 40) -> (112, 4, 64); None: too large."""
    shape = round_up(tokens, TOKENS), round_up(sequences, SEQUENCES), round_up(length, LENGTHS)
    return None if None in shape else shape  # type: ignore[return-value]
