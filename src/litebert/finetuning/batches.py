"""Sequences as the arrays of a batch: packed without padding, or padded where a kernel wants that.

Shapes: N sequences (rows), T tokens of a packed batch, B x S of a padded one, L labels. The flat view of a batch, [T]
or [B * S], is the same for both layouts: `rows` says which sequence each place belongs to, N where it belongs to none.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.features import Arrays, Places, Sequence
from litebert.tasks.task import Task, kind_of

Layout = Literal["packed", "padded"]


@dataclass(frozen=True)
class Shape:
    """Fixed sizes of a batch, so that a GPU sees few different ones; the rest is filler that no loss sees."""

    tokens: int  # packed: T; padded: S
    rows: int  # N


@dataclass(frozen=True)
class Batch:
    """Arrays of some sequences: the encoder's inputs, the flat view, and what is to be predicted."""

    inputs: Arrays  # keyword arguments of the model
    targets: Arrays
    max_length: int  # no sequence is longer
    num_rows: int  # N, with unused ones
    num_tokens: int  # without filler
    count: int  # what the loss is the mean over: examples, or tags

    @property
    def shape(self) -> tuple[int, ...]:
        """What decides whether two batches may use the same buffers."""
        return (*self.inputs["input_ids"].shape, self.num_rows)


def make_batch(
    task: Task, sequences: Many[Sequence], layout: Layout = "packed", pad_id: int = 0, shape: Shape | None = None
) -> Batch:
    """The arrays of some sequences; those without a target are for prediction only."""
    lengths = np.array([len(sequence.ids) for sequence in sequences])
    limit = task.max_length if shape is not None else int(lengths.max())
    if layout == "packed":
        inputs, rows, first, num_rows = _pack(sequences, lengths, pad_id, shape, limit)
    else:
        inputs, rows, first, num_rows = _pad(sequences, lengths, pad_id, shape)
    targets: Arrays = {"rows": rows}
    kind, places = kind_of(task), Places(inputs["input_ids"].shape, first, num_rows)
    inputs |= kind.inputs(task, sequences, places)
    count = 0
    if sequences[0].target is not None:
        made, count = kind.targets(task, sequences, places)
        targets |= made
    return Batch(inputs, targets, limit, num_rows, int(lengths.sum()), count)


def _pack(
    sequences: Many[Sequence], lengths: NDArray[np.int64], pad_id: int, shape: Shape | None, limit: int
) -> tuple[Arrays, NDArray[np.int64], NDArray[np.int64], int]:
    real = int(lengths.sum())
    size = shape.tokens if shape else real
    ends = np.cumsum(lengths)
    starts = np.concatenate([[0], ends])
    if shape is not None:
        # Filler is cut into sequences too, none longer than the real ones may be; unused rows are empty.
        filler = np.arange(real, size, limit)[1:]
        starts = np.concatenate([starts, filler, np.full(shape.rows - len(lengths) - len(filler), size)])
        assert len(starts) == shape.rows + 1, (len(starts), shape)
    num_rows = len(starts) - 1
    ids, segments = np.full(size, pad_id, np.int64), np.zeros(size, np.int64)
    ids[:real] = np.concatenate([sequence.ids for sequence in sequences])
    segments[:real] = np.concatenate([sequence.segments for sequence in sequences])
    positions = np.arange(size) - np.repeat(starts[:-1], np.diff(starts))
    rows = np.full(size, num_rows, np.int64)
    rows[:real] = np.repeat(np.arange(len(lengths)), lengths)
    inputs = {
        "input_ids": ids,
        "segment_ids": segments,
        "position_ids": positions.astype(np.int64),
        "starts": starts.astype(np.int32),
    }
    return inputs, rows, starts[: len(lengths)].astype(np.int64), num_rows


def _pad(
    sequences: Many[Sequence], lengths: NDArray[np.int64], pad_id: int, shape: Shape | None
) -> tuple[Arrays, NDArray[np.int64], NDArray[np.int64], int]:
    size, num_rows = (shape.tokens, shape.rows) if shape else (int(lengths.max()), len(lengths))
    ids, segments = np.full((num_rows, size), pad_id, np.int64), np.zeros((num_rows, size), np.int64)
    real = np.arange(size)[None, :] < np.pad(lengths, (0, num_rows - len(lengths)))[:, None]
    ids[real] = np.concatenate([sequence.ids for sequence in sequences])
    segments[real] = np.concatenate([sequence.segments for sequence in sequences])
    rows = np.where(real, np.arange(num_rows)[:, None], num_rows).reshape(-1)
    inputs = {"input_ids": ids, "segment_ids": segments, "attention_mask": real.astype(np.int64)}
    return inputs, rows, np.arange(len(lengths)) * size, num_rows
