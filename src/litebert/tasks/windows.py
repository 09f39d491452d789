"""Long texts as overlapping windows, and which window sees each token best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_STRIDE = 128
Window = tuple[int, int]  # first token, number of tokens


def cut_windows(num_tokens: int, room: int, stride: int) -> list[Window]:
    """Windows of at most `room` tokens, each `stride` after the one before: (10, 6, 3) -> [(0, 6), (3, 6), (6, 4)]."""
    windows = []
    start = 0
    while True:
        length = min(num_tokens - start, room)
        windows.append((start, length))
        if start + length >= num_tokens:
            return windows
        start += min(length, stride)


def stride_for(room: int, longest: int) -> int:
    """How far windows of `room` tokens may move for every stretch of up to `longest` tokens to be whole in one.

    (61, 30) -> 32; never more than the 128 of the released code, and one that fills the room exactly needs steps of 1.
    """
    return min(MAX_STRIDE, room - min(longest, room) + 1)


def best_windows(windows: list[Window], num_tokens: int) -> NDArray[np.int32]:
    """For each token, the window in which it has most context on its poorer side (the first of equals)."""
    owner = np.zeros(num_tokens, dtype=np.int32)
    if len(windows) == 1:  # most often
        return owner
    best = np.full(num_tokens, -1.0)
    for number, (start, length) in enumerate(windows):
        left = np.arange(length)
        score = np.minimum(left, left[::-1]) + 0.01 * length  # BERT's rule: the longer window breaks ties
        here = slice(start, start + length)
        better = score > best[here]
        best[here][better] = score[better]
        owner[here][better] = number
    return owner
