"""The examples of each step and their arrays: packed without padding, or padded if a kernel needs it.

A batch is a pure function of (seed, step), so nothing has to be saved to resume a run. Shapes: N sequences (rows), T
tokens of a packed batch, B x S of a padded one, L labels. The flat view of a batch, [T] or [B * S], is the same for
both layouts: `rows` maps each place to its sequence, N for filler.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from litebert.finetuning.config import FinetuneConfig
from litebert.finetuning.data import Data
from litebert.tasks.features import Arrays, Feature, Places
from litebert.tasks.task import Task, kind_of

SIZE_STEP = 64  # planned sizes are multiples of this


class TrainingBatches:
    """The batches of a run as functions of the step; once planned, they have few different shapes."""

    def __init__(self, data: Data, config: FinetuneConfig, layout: Layout):
        self.task, self.features, self.layout = data.task, data.train.features, layout
        self.max_tokens, self.pad_id = config.micro_batch_tokens, data.tokenizer.pad_id
        self.units = group_units(data.task, self.features)
        self.order = Order(len(self.units), config.batch, config.seed)
        self.lengths = [[len(self.features[i].ids) for i in unit] for unit in self.units]
        self.shapes: list[Shape] = []

    def step(self, step: int, rank: int = 0, world: int = 1) -> list[Batch]:
        """The micro-batches of a step; with several processes, those of the `rank`-th of `world`.

        Units of equal length are neighbours: on a CPU they attend together.
        """
        units = np.array_split(self.order.step(step), world)[rank]
        cuts = [sorted(units[cut].tolist(), key=lambda unit: sum(self.lengths[unit])) for cut in self._cuts(units)]
        micro = [[self.features[i] for unit in cut for i in self.units[unit]] for cut in cuts]
        return [make_batch(self.task, m, self.layout, self.pad_id, self._shape_of(m)) for m in micro]

    def plan(self, num_steps: int) -> None:
        """Choose a few sizes that fit the batches of a whole run."""
        unit = max(map(len, self.units))
        rows = self.order.batch * unit
        if self.layout == "padded":
            self.shapes = pad_shapes(rows, unit, self.max_tokens, self.task.max_length)
            return
        tokens = np.array([sum(unit) for unit in self.lengths])
        orders = (self.order.step(step) for step in range(num_steps))
        totals = [int(tokens[units[cut]].sum()) for units in orders for cut in self._cuts(units, tokens)]
        self.shapes = plan_shapes(np.array(totals), rows, self.task.max_length)

    def _cuts(self, units: NDArray[np.int64], tokens: NDArray[np.int64] | None = None) -> list[slice]:
        if tokens is not None and tokens[units].sum() <= self.max_tokens:  # the usual case, without a look at each
            return [slice(0, len(units))]
        multiple = SIZE_STEP if self.shapes else 1
        return list(cut_micro_batches([self.lengths[unit] for unit in units], self.max_tokens, self.layout, multiple))

    def _shape_of(self, sequences: list[Feature]) -> Shape | None:
        if not self.shapes:
            return None
        lengths = [len(sequence.ids) for sequence in sequences]
        return fitting_shape(self.shapes, sum(lengths) if self.layout == "packed" else max(lengths))


class Order:
    """The units of each step: epochs shuffled by (seed, epoch), one after the other without a gap."""

    def __init__(self, num_units: int, batch: int, seed: int):
        assert num_units > 0
        self.num_units, self.batch, self.seed = num_units, batch, seed
        self._epoch = -1
        self._shuffled = np.zeros(0, np.int64)

    def step(self, step: int) -> NDArray[np.int64]:
        """The units of a step: of 5 units in batches of 2, step 2 takes the last one and the first of epoch 1."""
        places = np.arange(step * self.batch, (step + 1) * self.batch)
        epochs, inside = np.divmod(places, self.num_units)
        return np.concatenate([self._permutation(int(e))[inside[epochs == e]] for e in np.unique(epochs)])

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        if epoch != self._epoch:
            self._epoch = epoch
            self._shuffled = np.random.default_rng([self.seed, epoch]).permutation(self.num_units)
        return self._shuffled


def group_units(task: Task, features: Sequence[Feature]) -> list[list[int]]:
    """Units that are drawn together: all options of a question, otherwise single sequences."""
    if not kind_of(task).whole_examples:
        return [[number] for number in range(len(features))]
    units: dict[int, list[int]] = {}
    for number, sequence in enumerate(features):
        units.setdefault(sequence.example, []).append(number)
    return list(units.values())


def cut_micro_batches(
    lengths: Sequence[Sequence[int]], max_tokens: int, layout: Layout, multiple: int = 1
) -> Iterator[slice]:
    """Runs of units of at most `max_tokens` each; one unit always fits.

    If padded, every sequence counts as long as the longest, rounded up to a `multiple`.
    """
    begin, total, count, longest = 0, 0, 0, 0
    for number, unit in enumerate(lengths):
        new_total, new_count, new_longest = total + sum(unit), count + len(unit), max(longest, *unit)
        cells = new_total if layout == "packed" else new_count * round_up(new_longest, multiple)
        if cells > max_tokens and number > begin:
            yield slice(begin, number)
            begin, new_total, new_count, new_longest = number, sum(unit), len(unit), max(unit)
        total, count, longest = new_total, new_count, new_longest
    yield slice(begin, len(lengths))


def round_up(number: float, multiple: int) -> int:
    """The next multiple: round_up(65, 64) -> 128."""
    return multiple * math.ceil(number / multiple)


def pad_shapes(num_rows: int, unit: int, max_tokens: int, max_length: int) -> list[Shape]:
    """Padded sizes by length, each with as many rows as the budget has room for (at least one unit's)."""
    sizes = range(SIZE_STEP, round_up(max_length, SIZE_STEP) + 1, SIZE_STEP)
    return [Shape(min(size, max_length), min(num_rows, max(unit, max_tokens // size))) for size in sizes]


def plan_shapes(totals: NDArray[np.int64], num_rows: int, max_length: int) -> list[Shape]:
    """A few packed sizes that most batches of a run fill well, from the tokens of each of its batches."""
    wanted = np.quantile(totals, (0.25, 0.6, 0.95, 1.0), method="higher")
    sizes = sorted({round_up(size, SIZE_STEP) for size in wanted})
    return [Shape(size, num_rows + size // max_length + 1) for size in sizes]


def fitting_shape(shapes: Sequence[Shape], num_tokens: int) -> Shape:
    """The smallest shape that holds this many tokens."""
    return next(shape for shape in shapes if shape.tokens >= num_tokens)


Layout = Literal["packed", "padded"]


@dataclass(frozen=True)
class Shape:
    """Fixed sizes of a batch, so that a GPU sees few different ones; the rest is filler that no loss sees."""

    tokens: int  # packed: T; padded: S
    rows: int  # N


@dataclass(frozen=True)
class Batch:
    """Arrays of some sequences: the encoder's inputs, the flat view, and the targets."""

    inputs: Arrays  # keyword arguments of the model
    targets: Arrays
    max_length: int  # no sequence is longer
    num_rows: int  # N, with unused ones
    num_tokens: int  # without filler
    count: int  # what the loss is the mean over: examples, or tags

    @property
    def shape(self) -> tuple[int, ...]:
        """Batches with equal keys can share buffers."""
        return (*self.inputs["input_ids"].shape, self.num_rows)


def make_batch(
    task: Task, sequences: Sequence[Feature], layout: Layout = "packed", pad_id: int = 0, shape: Shape | None = None
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
    sequences: Sequence[Feature], lengths: NDArray[np.int64], pad_id: int, shape: Shape | None, limit: int
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
    sequences: Sequence[Feature], lengths: NDArray[np.int64], pad_id: int, shape: Shape | None
) -> tuple[Arrays, NDArray[np.int64], NDArray[np.int64], int]:
    size, num_rows = (shape.tokens, shape.rows) if shape else (int(lengths.max()), len(lengths))
    ids, segments = np.full((num_rows, size), pad_id, np.int64), np.zeros((num_rows, size), np.int64)
    real = np.arange(size)[None, :] < np.pad(lengths, (0, num_rows - len(lengths)))[:, None]
    ids[real] = np.concatenate([sequence.ids for sequence in sequences])
    segments[real] = np.concatenate([sequence.segments for sequence in sequences])
    rows = np.where(real, np.arange(num_rows)[:, None], num_rows).reshape(-1)
    inputs = {"input_ids": ids, "segment_ids": segments, "attention_mask": real.astype(np.int64)}
    return inputs, rows, np.arange(len(lengths)) * size, num_rows
