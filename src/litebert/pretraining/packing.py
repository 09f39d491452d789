"""Examples -> rows: a fixed number of tokens, filled with whole sequences in random order.

    pack([9, 4, 7, 3], capacity of 12 tokens)   -> [9, 3], [7, 4]

Rows take the next sequence of a shuffled queue as long as it fits, then the longest of the next `AHEAD` ones that fits
the gap. Short sequences are common enough in real text that the gap left over is a few tokens.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np

from litebert.pretraining.draws import Integers

AHEAD = 512


class Capacity(NamedTuple):
    """What a row holds at most; the same for every row of a run, so that shapes are static."""

    tokens: int
    sequences: int
    predictions: int


class Packing(NamedTuple):
    """Row r holds sequences members[starts[r] : starts[r + 1]]."""

    members: Integers
    starts: Integers


def pack(lengths: Integers, budgets: Integers, capacity: Capacity, num_rows: int | None = None) -> Packing:
    """Fill rows from a queue (the order given); `budgets` are the predictions each sequence may need.

    Without `num_rows`, every sequence is placed once and the last row may be far from full. With it, exactly that
    many rows are filled: what is left over is dropped, and a queue that runs dry starts again.
    """
    longest = int(lengths.max())
    length_of, budget_of = lengths.tolist(), budgets.tolist()
    waiting: list[list[int]] = [[] for _ in range(longest + 1)]  # by length: numbers in the queue
    lengths_waiting = 0  # bit n is set if waiting[n] may hold something
    placed = bytearray()  # one per number in the queue that has been let in
    members: list[int] = []
    starts = [0]
    head = 0  # the oldest number in the queue that may not be placed yet
    num_sequences = len(length_of)
    for row in count():
        if row == num_rows:
            break
        # Let in as many as the row can hold and `AHEAD` more.
        target = head + AHEAD + capacity.sequences
        if num_rows is None:
            target = min(target, num_sequences)
        for number in range(len(placed), target):
            length = length_of[number % num_sequences]
            waiting[length].append(number)
            lengths_waiting |= 1 << length
            placed.append(0)
        tokens, sequences, predictions = capacity
        while head < len(placed):  # the queue, in order
            if not placed[head]:
                index = head % num_sequences
                length, budget = length_of[index], budget_of[index]
                if length > tokens or not sequences or budget > predictions:
                    break
                placed[head] = 1
                members.append(index)
                tokens, sequences, predictions = tokens - length, sequences - 1, predictions - budget
            head += 1
        while sequences:  # the gap: the longest that fits
            length = (lengths_waiting & ((2 << min(tokens, longest)) - 1)).bit_length() - 1
            if length < 0:
                break
            queue = waiting[length]
            while queue and placed[queue[-1]]:
                queue.pop()
            if not queue:
                lengths_waiting ^= 1 << length
                continue
            index = queue[-1] % num_sequences
            if budget_of[index] > predictions:
                break
            placed[queue.pop()] = 1
            members.append(index)
            tokens, sequences, predictions = tokens - length, sequences - 1, predictions - budget_of[index]
        if len(members) == starts[-1]:
            break
        starts.append(len(members))
    return Packing(np.array(members, np.int64), np.array(starts, np.int64))
