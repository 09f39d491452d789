"""CUDA graphs for small batches, where launching kernels costs more than running them.

A graph is recorded for one shape and replayed for any batch that fits into it, so shapes come in steps: tokens,
sequences and the longest sequence are rounded up. Everything from the ids to the pooled output is in the graph; its
input is one table, filled by one copy. Unused tokens and sequences hold arbitrary values, which affect nothing else,
since only attention sees more than one token.
"""

from __future__ import annotations

import bisect
import dataclasses
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litebert.model.config import ModelConfig
from litebert.model.encoder import Encoder
from litebert.predict.fused import Encoded, FusedEncoder, Table, lay_out
from litebert.train.graphs import Replayable, leave_recording

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
SEQUENCES = (1, 4, 16, 32, 64, 256, 1024)
LENGTHS = (64, 128, 256, 512)

_RECORDING = threading.Lock()  # torch can record one graph at a time, and a server has a thread for each model

Shape = tuple[int, int, int]  # tokens, sequences, longest sequence


@dataclass
class Graph:
    """A recorded pass with its input and output buffers."""

    graph: Replayable
    table: Table
    output: Encoded  # of all places

    def holds(self, ids: Tensor) -> bool:
        """Whether a batch is in the table already."""
        return ids.data_ptr() == self.table.whole.data_ptr()

    def fill(self, ids: Tensor, segments: Tensor, positions: Tensor, starts: Tensor) -> None:
        """Copy a batch into the table."""
        table, size = self.table, len(ids)
        places = [table.ids[:size], table.segments[:size], table.positions[:size]]
        torch._foreach_copy_(places, [ids, segments, positions])  # one kernel for the three
        table.starts[: len(starts)].copy_(starts)
        if len(starts) < len(table.starts):
            table.starts[len(starts) :].fill_(size)

    def replay(self, tokens: int, sequences: int) -> Encoded:
        """The output of the batch in the table; it holds until the next replay."""
        self.graph.replay()
        return self.result(tokens, sequences)

    def result(self, tokens: int, sequences: int) -> Encoded:
        """The output of the last replay."""
        hidden, first, pooled = self.output
        return Encoded(hidden[:tokens], first[:sequences], None if pooled is None else pooled[:sequences])


class GraphedEncoder(FusedEncoder):
    """A FusedEncoder on a GPU that replays recorded passes where a batch fits one, and runs plainly where not."""

    def __init__(self, encoder: Encoder, triton: bool = False):
        super().__init__(encoder, triton)
        self._graphs: dict[Shape, Graph | None] = {}  # those of the present depth
        self._by_depth: dict[int | None, dict[Shape, Graph | None]] = {None: self._graphs}
        self._ahead: Graph | None = (
            None  # it was started when its table was filled, and its output has not been read yet
        )
        self._memory: Any = None  # one memory for all graphs, since one runs at a time
        self._stream: Any = None  # to record on; torch's own is on whatever GPU was first used
        self._records = True

    def stop_after(self, layers: int | None = None) -> None:
        """As Encoder's; each depth has its graphs."""
        super().stop_after(layers)
        self._graphs = self._by_depth.setdefault(layers, {})

    def room(self, tokens: int, sequences: int, length: int) -> tuple[int, int]:
        """That of the graph, so that a table made so is the graph's input as it is."""
        graph = self._graph(tokens, sequences, length)
        return super().room(tokens, sequences, length) if graph is None else graph.table.room

    def take(self, table: Table) -> Table:
        """Into the graph's own table, if the batch has one; the pass starts at once.

        Python needs longer to get from here to `encode` than a GPU should wait.
        """
        graph = self._graph(*table.used, table.longest)
        if graph is None or graph.table.room != table.room:
            return super().take(table)
        graph.table.whole.copy_(table.whole, non_blocking=True)
        graph.graph.replay()
        self._ahead = graph
        return table.moved(graph.table.whole)

    def encode(self, ids: Tensor, segments: Tensor, positions: Tensor, starts: Tensor, max_length: int) -> Encoded:
        """As FusedEncoder; a graph's outputs are valid until the next call."""
        graph = self._graph(len(ids), len(starts) - 1, max_length)
        if graph is None:
            return super().encode(ids, segments, positions, starts, max_length)
        started, self._ahead = graph is self._ahead, None
        if graph.holds(ids):
            if started:
                return graph.result(len(ids), len(starts) - 1)
        else:
            graph.fill(ids, segments, positions, starts)
        return graph.replay(len(ids), len(starts) - 1)

    def _graph(self, tokens: int, sequences: int, length: int) -> Graph | None:
        shape = shape_of(tokens, sequences, length)
        # Which adapters a pass has differs from batch to batch.
        if shape is None or self.mix is not None or not self.use_graphs:
            return None
        if shape not in self._graphs and self._records:
            self._graphs[shape] = self._record(shape)
        return self._graphs.get(shape)

    def _record(self, shape: Shape) -> Graph | None:
        """A graph of the pass for a shape; None if recording fails."""
        device = self.embeddings.word.weight.device
        table = sample_table(shape, self.config).to(device)
        plain = super().encode
        arguments = (table.ids, table.segments, table.positions, table.starts, table.longest)
        try:
            return self._capture(lambda: plain(*arguments), table)
        except Exception as error:
            if not isinstance(error, RuntimeError):  # Triton, a C compiler without Python's headers, ...
                if self._kernels is None:
                    raise
                self._kernels = None
                warnings.warn(f"no Triton kernels, so slower: {error}", stacklevel=2)
                return self._record(shape)
            self._records = False  # what failed once fails again
            warnings.warn(f"no CUDA graphs, so slower: {error.__context__ or error}", stacklevel=2)
            return None

    def _capture(self, run: Callable[[], Encoded], table: Table) -> Graph:
        device = table.whole.device
        stream = torch.cuda.current_stream(device)
        # Compilation and cuBLAS's choices happen before the recording, on a separate stream, as torch requires. It is
        # not the one to record on: cuBLAS's work space there has to come from the graphs' memory, which is never freed.
        side = torch.cuda.Stream(device)
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            for _ in range(3):
                run()
        stream.wait_stream(side)
        self._memory = self._memory or torch.cuda.graph_pool_handle()
        self._stream = self._stream or torch.cuda.Stream(device)
        graph = torch.cuda.CUDAGraph()
        # Another thread may use the GPU meanwhile, for another model.
        recording = torch.cuda.graph(graph, self._memory, self._stream, capture_error_mode="thread_local")
        try:
            with _RECORDING, recording:
                output = run()
        except BaseException:
            leave_recording(stream)
            self._memory = None  # to torch, a recording that failed may use it forever
            raise
        return Graph(graph, table, output)


def sample_table(shape: Shape, config: ModelConfig) -> Table:
    """A random batch to record and measure with: sequences as long as they may be."""
    tokens, sequences, length = shape
    longest = min(tokens, length, config.max_position_embeddings)
    total = min(tokens, sequences * longest)
    rng = np.random.default_rng(0)
    cuts = range(longest, total, longest)
    ids = np.split(rng.integers(0, config.vocab_size, total), cuts)
    segments = np.split(rng.integers(0, config.type_vocab_size, total), cuts)
    return dataclasses.replace(lay_out(ids, segments, (tokens, sequences)), longest=length)


def round_up(value: int, steps: tuple[int, ...]) -> int | None:
    """The smallest step that holds a value: (100, (64, 128)) -> 128; None if none does."""
    place = bisect.bisect_left(steps, value)
    return steps[place] if place < len(steps) else None


def shape_of(tokens: int, sequences: int, length: int) -> Shape | None:
    """The shape of the graph for a batch: (100 tokens, 3 sequences, longest 40) -> (112, 4, 64); None: too large."""
    shape = round_up(tokens, TOKENS), round_up(sequences, SEQUENCES), round_up(length, LENGTHS)
    return None if None in shape else shape  # type: ignore[return-value]
