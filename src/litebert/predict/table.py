"""The input of a packed pass as one array, so that one copy brings all of it to where a GPU reads it.

It has places for T tokens and N sequences; a batch may use fewer. Unused tokens come last and belong to no sequence,
unused sequences are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Table:
    """Ids, segments and positions of T tokens, then the N + 1 starts of N sequences."""

    whole: Tensor  # [3 T + N + 1] int32
    room: tuple[int, int]  # T, N
    used: tuple[int, int]  # tokens and sequences of the batch
    longest: int  # no sequence is longer

    @property
    def ids(self) -> Tensor:
        """[T]."""
        return self.whole[: self.room[0]]

    @property
    def segments(self) -> Tensor:
        """[T]."""
        return self.whole[self.room[0] : 2 * self.room[0]]

    @property
    def positions(self) -> Tensor:
        """[T]: of each token in its sequence."""
        return self.whole[2 * self.room[0] : 3 * self.room[0]]

    @property
    def starts(self) -> Tensor:
        """[N + 1]."""
        return self.whole[3 * self.room[0] :]

    def inputs(self) -> dict[str, Any]:
        """The batch as the encoder takes it."""
        tokens, sequences = self.room
        ids, segments, positions, starts = self.whole.split((tokens, tokens, tokens, sequences + 1))
        if self.used != self.room:
            tokens, sequences = self.used
            ids, segments, positions = ids[:tokens], segments[:tokens], positions[:tokens]
            starts = starts[: sequences + 1]
        return {
            "input_ids": ids,
            "segment_ids": segments,
            "position_ids": positions,
            "starts": starts,
            "max_length": self.longest,
        }

    def to(self, device: torch.device) -> Table:
        """The table on a device; from pinned memory nobody waits for it."""
        return self.moved(self.whole.to(device, non_blocking=True))

    def moved(self, whole: Tensor) -> Table:
        """The same table elsewhere."""
        return Table(whole, self.room, self.used, self.longest)


def lay_out(
    ids: Sequence[NDArray[Any]], segments: Sequence[NDArray[Any]], room: tuple[int, int], pinned: bool = False
) -> Table:
    """Sequences end to end: ([2, 7, 3], [2, 3]), room (6, 3) -> ids 2 7 3 2 3 0, positions 0 1 2 0 1 0, starts 0 3 5 5.

    `pinned`: in memory that a GPU reads while the program goes on.
    """
    lengths = np.array([len(sequence) for sequence in ids])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    total = int(starts[-1])
    whole = torch.zeros(3 * room[0] + room[1] + 1, dtype=torch.int32, pin_memory=pinned)
    table = Table(whole, room, (total, len(ids)), int(lengths.max()))
    np.concatenate(ids, out=table.ids[:total].numpy(), casting="unsafe")
    np.concatenate(segments, out=table.segments[:total].numpy(), casting="unsafe")
    np.subtract(
        np.arange(total), np.repeat(starts[:-1], lengths), out=table.positions[:total].numpy(), casting="unsafe"
    )
    table.starts.numpy()[: len(starts)] = starts
    table.starts.numpy()[len(starts) :] = total
    return table
