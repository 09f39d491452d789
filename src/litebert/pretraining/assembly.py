"""Examples and their text -> the arrays of a batch, packed end to end or padded.

Legend: B batch, S sequence, T tokens, N sequences at most, P predictions at most, C tokens of text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from litebert.pretraining.draws import Integers
from litebert.pretraining.examples import NO_ORDER, Examples
from litebert.pretraining.masking import Ids, Masks, Symbols, join_ranges

NO_LABEL = NO_ORDER  # one number for "nothing to predict here", which the loss passes over


class Shapes(NamedTuple):
    """The static sizes of a batch: T, N and P."""

    tokens: int
    sequences: int
    predictions: int


@dataclass(frozen=True)
class Batch:
    """Sequences end to end, without padding between them."""

    tokens: Ids  # [T] after masking; pad_id in the filler at the end
    segments: npt.NDArray[np.int8]  # [T] 0 = A, 1 = B
    positions: npt.NDArray[np.int16]  # [T] restart at 0 in every sequence
    starts: Ids  # [N + 1] sequence i is tokens[starts[i] : starts[i + 1]]; unused entries repeat T
    num_sequences: int  # real ones; the filler follows, in sequences of at most max_length
    masked: Ids  # [P] positions to predict, 0 where unused
    labels: Ids  # [P] original ids, -100 where unused
    order: npt.NDArray[np.int8]  # [N] 0 = right order, 1 = swapped (NSP: random), -100 = unused or no objective


@dataclass(frozen=True)
class PaddedBatch:
    """One sequence per line, padded at the end."""

    tokens: Ids  # [B, S] after masking; pad_id in the padding
    segments: npt.NDArray[np.int8]  # [B, S] 0 = A and padding, 1 = B
    mask: npt.NDArray[np.bool_]  # [B, S] True where there is a token
    masked: Ids  # [P] places to predict in tokens.reshape(-1), 0 where unused
    labels: Ids  # [P] original ids, -100 where unused
    order: npt.NDArray[np.int8]  # [B] 0 = right order, 1 = swapped (NSP: random), -100 = no objective


def assemble_packed(
    examples: Examples, text: Ids, masks: Masks, symbols: Symbols, shapes: Shapes, max_length: int
) -> Batch:
    """Put sequences end to end, then filler: [CLS] A [SEP] B [SEP] [CLS] A [SEP] B [SEP] ... <pad>."""
    lengths = examples.lengths
    ends = np.cumsum(lengths)
    total, size = int(ends[-1]), shapes.tokens
    # The filler is cut too: attention that was promised sequences of max_length gets no longer one.
    starts = np.concatenate([ends - lengths, np.arange(total, size, max_length)])
    bounds = np.append(starts, size)
    tokens = np.full(size, symbols.pad_id, np.int32)
    masked, labels = _place_tokens(tokens, starts[: len(lengths)], examples, text, masks, symbols, shapes)
    halves = np.stack([examples.first_length + 2, lengths - examples.first_length - 2], axis=1)
    segments = np.zeros(size, np.int8)
    segments[:total] = np.repeat(np.tile(np.array([0, 1], np.int8), len(lengths)), halves.ravel())
    order = np.full(shapes.sequences, NO_ORDER, np.int8)
    order[: len(lengths)] = examples.order
    return Batch(
        tokens=tokens,
        segments=segments,
        positions=(np.arange(size) - np.repeat(starts, np.diff(bounds))).astype(np.int16),
        starts=np.append(starts, np.full(shapes.sequences + 1 - len(starts), size)).astype(np.int32),
        num_sequences=len(lengths),
        masked=masked,
        labels=labels,
        order=order,
    )


def assemble_padded(
    examples: Examples, text: Ids, masks: Masks, symbols: Symbols, shapes: Shapes, max_length: int
) -> PaddedBatch:
    """Put each sequence on a line of its own."""
    column = np.arange(max_length)
    tokens = np.full(shapes.tokens, symbols.pad_id, np.int32)
    starts = np.arange(len(examples)) * max_length
    masked, labels = _place_tokens(tokens, starts, examples, text, masks, symbols, shapes)
    real = column < examples.lengths[:, None]
    return PaddedBatch(
        tokens=tokens.reshape(-1, max_length),
        segments=(real & (column >= examples.first_length[:, None] + 2)).astype(np.int8),
        mask=real,
        masked=masked,
        labels=labels,
        order=examples.order,
    )


def _place_tokens(
    tokens: Ids,
    starts: Integers,
    examples: Examples,
    text: Ids,
    masks: Masks,
    symbols: Symbols,
    shapes: Shapes,
) -> tuple[Ids, Ids]:
    """Write the sequences that begin at `starts` into `tokens`; gives the masked positions and their labels."""
    separator = starts + examples.first_length + 1
    tokens[starts] = symbols.cls_id
    tokens[separator] = symbols.sep_id
    tokens[starts + examples.lengths - 1] = symbols.sep_id
    begins = np.stack([starts + 1, separator + 1], axis=1).ravel()
    counts = np.stack([examples.first_length, examples.second_length], axis=1).ravel()
    places = join_ranges(begins, counts)  # [C]
    tokens[places] = text
    predicted = places[masks.places]
    tokens[predicted] = masks.seen
    masked = np.zeros(shapes.predictions, np.int32)
    masked[: len(predicted)] = predicted
    labels = np.full(shapes.predictions, NO_LABEL, np.int32)
    labels[: len(predicted)] = masks.labels
    return masked, labels
