"""Which sequences run together: batches under a token budget, the longest sequences first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def plan_packed(lengths: Sequence[int], max_tokens: int) -> list[NDArray[np.int64]]:
    """Indices of the sequences of each batch, laid end to end without padding: ([3, 9, 3], 9) -> [[1], [0, 2]].

    A sequence longer than `max_tokens` is a batch of its own.
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


def plan_batches(
    lengths: Sequence[int], max_tokens: int, max_padding: float = 0.0, max_sequences: int = 512
) -> list[NDArray[np.int64]]:
    """The same for batches that are padded to their longest sequence: ([3, 9, 3], 9) -> [[1], [0, 2]].

    A batch holds at most `max_tokens` cells (one sequence always fits) and `max_sequences` sequences, and at most a
    share of `max_padding` of its cells is padding.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches: list[NDArray[np.int64]] = []
    begin = 0
    while begin < len(order):
        longest = lengths[order[begin]]
        end, real = begin + 1, longest
        while end < len(order) and end - begin < max_sequences:
            cells = (end - begin + 1) * longest
            more = real + lengths[order[end]]
            if cells > max_tokens or cells - more > max_padding * cells:
                break
            end, real = end + 1, more
        batches.append(order[begin:end])
        begin = end
    return batches
