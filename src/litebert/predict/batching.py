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


def plan_padded(lengths: Sequence[int], max_tokens: int, pass_cost: int) -> list[NDArray[np.int64]]:
    """Indices of the sequences of each pass, padded to its longest: ([3, 9, 3, 8], 512, 4) -> [[1, 3], [0, 2]].

    Padding costs as much as real tokens, and a pass costs as much as `pass_cost` tokens by itself. Sequences of like
    lengths are taken together as is cheapest by that count, and then cut so that no pass holds more than `max_tokens`
    (one sequence always fits).
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
