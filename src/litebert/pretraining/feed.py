"""The micro-batches of each step, on the device before they are asked for.

A step ends by waiting for the device, to learn its loss. If the next batches were fetched and copied only then, the
device would stand idle meanwhile; so `prepare` is called while it still has work.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch

from litebert.pretraining.assembly import Batch
from litebert.pretraining.objective import Inputs, to_device
from litebert.pretraining.stream import Stream


class StepBatches(NamedTuple):
    """One process's share of a global batch, and what there is to count in it."""

    inputs: list[Inputs]
    masked: int
    pairs: int
    tokens: int


class Feed:
    """Takes a stream's micro-batches step by step."""

    def __init__(self, stream: Stream, micro_batches: int, device: torch.device, max_length: int):
        self.stream, self.micro_batches, self.device, self.max_length = stream, micro_batches, device, max_length
        self._ready: StepBatches | None = None

    def prepare(self) -> None:
        """Fetch the next step's batches and begin to copy them, if that has not been done."""
        if self._ready is not None:
            return
        batches = [cast(Batch, next(self.stream)) for _ in range(self.micro_batches)]
        self._ready = StepBatches(
            [to_device(batch, self.device, self.max_length) for batch in batches],
            masked=sum(int((batch.labels >= 0).sum()) for batch in batches),
            pairs=sum(int((batch.order >= 0).sum()) for batch in batches),
            tokens=sum(int(batch.starts[batch.num_sequences]) for batch in batches),
        )

    def take(self) -> StepBatches:
        """The next step's batches."""
        self.prepare()
        assert self._ready is not None
        taken, self._ready = self._ready, None
        return taken

    def close(self) -> None:
        """Let go of the stream's workers."""
        self._ready = None
        self.stream.close()
