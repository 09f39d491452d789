"""Examples as model inputs: unpadded sequences of ids with [CLS] and [SEP], and their targets.

    text_sequence(tokenizer, "a film", "a movie", 128)  -> [CLS] ▁a ▁film [SEP] ▁a ▁movie [SEP], segments 0000 111

Each kind of task (`litebert.tasks.kinds`) builds its sequences from the parts here: texts are joined, contexts too long
for one sequence are cut into windows, and targets are laid out to match a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.task import Example, Task, kind_of
from litebert.text.tokenizer import Tokenizer

IGNORE = -100  # target of a token without one
MAX_STRIDE = 128  # as in the released code
Ids = NDArray[np.int32]
Arrays = dict[str, NDArray[Any]]
Target = int | float | NDArray[np.float32] | NDArray[np.int64] | tuple[int, int, bool]
Window = tuple[int, int]  # first token, number of tokens


@dataclass(frozen=True, slots=True)
class Feature:
    """One unpadded model input with [CLS] and [SEP]; `example` is the index of its example in the split.

    The target is a label id (of the correct option, on every option), a number, a 0/1 vector (multi-label), tag ids
    [len] with -100 for tokens without one, or the token positions (start, end, impossible) of an answer.
    """

    ids: Ids
    segments: NDArray[np.int8]
    example: int = 0
    target: Target | None = None
    cut: int = 0  # tokens that did not fit
    option: int = 0  # multiple choice: the number of the option
    offsets: NDArray[np.int32] | None = None  # [len, 2] characters in the context, or in the words joined by spaces
    words: NDArray[np.int32] | None = None  # tags: the word at its first piece if this window decides it, otherwise -1
    inside: NDArray[np.bool_] | None = None  # question answering: whether a token is in the context
    max_context: NDArray[np.bool_] | None = None  # question answering: whether this window has most context for a token

    @property
    def outside(self) -> NDArray[np.bool_] | None:
        """Tokens excluded as answers: all except the context and [CLS], which means "no answer"."""
        if self.inside is None:
            return None
        outside = ~self.inside
        outside[0] = False
        return outside


def make_features(task: Task, examples: Sequence[Example], tokenizer: Tokenizer, num_threads: int = 1) -> list[Feature]:
    """All sequences of a split, in the order of its examples."""
    return kind_of(task).features(task, examples, tokenizer, num_threads)


# ---------------------------------------------------------------------------------------------------------------------
# Joining texts


def text_sequence(tokenizer: Tokenizer, a: str, b: str | None, max_length: int) -> Feature:
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]; excess tokens are cut from the end of the longer text."""
    first, *second = tokenizer.encode_batch([a] if b is None else [a, b])
    return join(tokenizer, first, second[0] if second else None, max_length)


def cut_pair(a: int, b: int, room: int) -> tuple[int, int]:
    """Tokens to keep of each text if the longer one (b if equal) always loses its last: (5, 9, 10) -> (5, 5)."""
    if a + b <= room:
        return a, b
    half = (room + 1) // 2
    if a < half:
        return a, room - a
    if b < room - half:
        return room - b, b
    return half, room - half


def join(
    tokenizer: Tokenizer, a: Ids, b: Ids | None, max_length: int, example: int = 0, target: Target | None = None
) -> Feature:
    """The same from token ids; `cut` counts those that did not fit."""
    size_a, size_b = cut_pair(len(a), 0 if b is None else len(b), max_length - (2 if b is None else 3))
    length = size_a + 2 + (0 if b is None else size_b + 1)
    ids = np.empty(length, dtype=np.int32)
    segments = np.zeros(length, dtype=np.int8)
    ids[0] = tokenizer.cls_id
    ids[1 : size_a + 1] = a[:size_a]
    ids[size_a + 1] = tokenizer.sep_id
    lost = len(a) - size_a
    if b is not None:
        ids[size_a + 2 : -1] = b[:size_b]
        ids[-1] = tokenizer.sep_id
        segments[size_a + 2 :] = 1
        lost += len(b) - size_b
    return Feature(ids, segments, example, target, lost)


# ---------------------------------------------------------------------------------------------------------------------
# Windows of a long text


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
    """The largest stride of windows of `room` tokens that keeps every span of up to `longest` tokens whole in one.

    (61, 30) -> 32; at most 128, and 1 if a span can fill the whole window.
    """
    return min(MAX_STRIDE, room - min(longest, room) + 1)


def best_windows(windows: list[Window], num_tokens: int) -> NDArray[np.int32]:
    """For each token, the window with the most context on its shorter side (the first if equal)."""
    owner = np.zeros(num_tokens, dtype=np.int32)
    if len(windows) == 1:  # the usual case
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


def wrap(tokenizer: Tokenizer, ids: Ids) -> Ids:
    """[CLS] ids [SEP]."""
    return np.concatenate([[tokenizer.cls_id], ids, [tokenizer.sep_id]], dtype=np.int32)


def pad_offsets(offsets: NDArray[np.int32], before: int, after: int) -> NDArray[np.int32]:
    """Offsets [len, 2] with (0, 0) for the tokens before and after the text."""
    padded = np.zeros((before + len(offsets) + after, 2), dtype=np.int32)  # ten times faster than np.pad
    padded[before : before + len(offsets)] = offsets
    return padded


# ---------------------------------------------------------------------------------------------------------------------
# Targets in the layout of a batch: one value per sequence or per token


@dataclass(frozen=True)
class Places:
    """The layout of a batch: the shape of its ids, where each sequence starts in the flat view, and N with filler."""

    shape: tuple[int, ...]
    first: NDArray[np.int64]
    num_rows: int

    def per_row(self, values: Any, rest: float = IGNORE, dtype: Any = np.int64) -> NDArray[Any]:
        """One value per sequence, `rest` for filler rows: [N]."""
        filled = np.full(self.num_rows, rest, dtype)
        filled[: len(values)] = values
        return filled

    def per_token(
        self, sequences: Sequence[Feature], values_of: Callable[[Feature], Any], rest: int = IGNORE
    ) -> NDArray[np.int64]:
        """One value per token, `rest` for filler: in the shape of the ids."""
        flat = np.full(int(np.prod(self.shape)), rest, np.int64)
        for begin, sequence in zip(self.first, sequences, strict=True):
            flat[begin : begin + len(sequence.ids)] = values_of(sequence)
        return flat.reshape(self.shape)
