"""Which sequences run together: batches of similar lengths under a token budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def plan_batches(
    lengths: Sequence[int], max_tokens: int, max_padding: float = 0.0, max_sequences: int = 512
) -> list[NDArray[np.int64]]:
    """Indices of the sequences of each batch, the longest first: [3, 9, 3] -> [[1], [0, 2]].

    A batch holds at most `max_tokens` after padding to its longest sequence (one sequence always fits), at most
    `max_sequences` sequences, and at most a share of `max_padding` of its cells is padding. For batches that are
    packed instead of padded, `max_padding` 1 with a generous budget is the plain cut by tokens.
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
