"""Token stores -> masked batches, as a pure function of (seed, step).

    batches = Batches([wiki, books], tokenizer, named_recipe("paper"), tokens_per_batch=1 << 19, seed=1)
    batches.batch(1000)                          # the whole global batch of step 1000, at once
    batches.batch(1000, rank=3, world=8)         # one rank's share of the same batch
    with batches.iterate(start=1000) as stream:  # made ahead in another process
        for batch in stream: ...

The unit is the row: `row_tokens` tokens, filled with whole sequences of one store. A global batch is a fixed number
of rows; rank r of W takes its contiguous share, and each micro-batch a contiguous share of that. So every division of
the same rows gives the same sequences with the same masks.

Legend: B batch, S sequence, T tokens, N sequences at most, P predictions at most, C tokens of text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from litebert.errors import ConfigError, DataError, InputError
from litebert.pretraining.chapters import Calibration, Split, Store, StoreRows, name_store
from litebert.pretraining.draws import Bits, Integers, below, draw
from litebert.pretraining.examples import NO_ORDER, Examples
from litebert.pretraining.masking import Ids, Masks, Symbols, Vocabulary, join_ranges, mask_text
from litebert.pretraining.recipes import Recipe
from litebert.pretraining.stream import Stream

NO_LABEL = NO_ORDER  # one number for "nothing to predict here", which the loss passes over


class Shapes(NamedTuple):
    """The static sizes of a batch: T, N and P."""

    tokens: int
    sequences: int
    predictions: int


@dataclass(frozen=True)
class PaddedBatch:
    """One sequence per line, padded at the end."""

    tokens: Ids  # [B, S] after masking; pad_id in the padding
    segments: npt.NDArray[np.int8]  # [B, S] 0 = A and padding, 1 = B
    mask: npt.NDArray[np.bool_]  # [B, S] True where there is a token
    masked: Ids  # [P] places to predict in tokens.reshape(-1), 0 where unused
    labels: Ids  # [P] original ids, -100 where unused
    order: npt.NDArray[np.int8]  # [B] 0 = right order, 1 = swapped (NSP: random), -100 = no objective


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

    def padded(self, max_length: int, pad_id: int) -> PaddedBatch:
        """The same sequences one per line, for code that takes no packed ones."""
        bounds = self.starts[: self.num_sequences + 1]
        real = np.arange(max_length) < np.diff(bounds)[:, None]  # [B, S]
        tokens, segments = np.full(real.shape, pad_id, np.int32), np.zeros(real.shape, np.int8)
        tokens[real], segments[real] = self.tokens[: bounds[-1]], self.segments[: bounds[-1]]
        places = np.flatnonzero(real).astype(np.int32)  # of each token, in the flat view
        return PaddedBatch(tokens, segments, real, places[self.masked], self.labels, self.order[: len(real)])


class Batches:
    """The batches of a run: any step, rank and micro-batch, from one or more stores of one tokenizer."""

    def __init__(
        self,
        stores: Store | Sequence[Store],
        tokenizer: Vocabulary | Symbols,
        recipe: Recipe,
        *,
        tokens_per_batch: int,
        seed: int = 0,
        weights: Sequence[float] | None = None,
        row_tokens: int = 4096,
        split: Split = "train",
        held_out: int | float = 0,
        calibrations: Sequence[Calibration] | None = None,
    ):
        """Look at the stores' index and plan the first chapter.

        weights: rows from each store (default: as many as it has, so that their epochs end together).
        held_out: documents (a count, or a share below 1) that `split="train"` leaves to `split="held-out"`.
        calibrations: those of an equal object, to make it again in another process.
        """
        self.stores = list(stores) if isinstance(stores, Sequence) else [stores]
        self.recipe = recipe
        self.symbols = tokenizer if isinstance(tokenizer, Symbols) else Symbols.of(tokenizer, recipe)
        _check_fingerprints(self.stores, self.symbols.fingerprint)
        self.row_tokens = row_tokens
        if self.row_tokens < recipe.max_length:
            raise ConfigError(f"row_tokens: must be >= max_length {recipe.max_length}, got {row_tokens}")
        if tokens_per_batch <= 0 or tokens_per_batch % self.row_tokens:
            raise ConfigError(
                f"tokens_per_batch: must be a multiple of row_tokens {row_tokens:,}, got {tokens_per_batch:,}"
            )
        self.rows_per_batch = tokens_per_batch // self.row_tokens
        #: Plan the next chapter in the background while this one is in use, so that no batch waits for it.
        self.plan_ahead = False
        self.sources = [
            StoreRows(
                store,
                number,
                recipe,
                row_tokens=self.row_tokens,
                seed=seed,
                split=split,
                held_out=held_out,
                calibration=calibrations[number] if calibrations else None,
            )
            for number, store in enumerate(self.stores)
        ]
        self._weights = whole_weights(weights, [source.rows_per_epoch for source in self.sources])
        self._options: dict[str, Any] = {
            "tokens_per_batch": tokens_per_batch,
            "seed": seed,
            "weights": weights,
            "row_tokens": row_tokens,
            "split": split,
            "held_out": held_out,
        }

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches until the first of the stores has been seen once; at least 1."""
        total = sum(self._weights)
        rows = min(
            source.rows_per_epoch * total // weight for source, weight in zip(self.sources, self._weights, strict=True)
        )
        return max(1, rows // self.rows_per_batch)

    def shapes(self, world: int = 1, micro_batches: int = 1) -> Shapes:
        """T, N and P of every micro-batch of the run."""
        rows = self._rows_each(world, micro_batches)
        capacities = [source.calibration.capacity for source in self.sources]
        filler = -(-self.row_tokens // self.recipe.max_length)
        return Shapes(
            tokens=rows * self.row_tokens,
            sequences=rows * (max(capacity.sequences for capacity in capacities) + filler),
            predictions=rows * max(capacity.predictions for capacity in capacities),
        )

    def batch(self, step: int, rank: int = 0, world: int = 1, micro: int = 0, micro_batches: int = 1) -> Batch:
        """Micro-batch `micro` of what `rank` has of the global batch of `step`."""
        examples, stores, keys = self.examples(self.rows(step, rank, world, micro, micro_batches))
        text = self.read(examples, stores)
        masks = self.mask(examples, text, keys)
        shapes = self.shapes(world, micro_batches)
        return assemble(examples, text, masks, self.symbols, shapes, self.recipe.max_length)

    def iterate(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        rank: int = 0,
        world: int = 1,
        micro_batches: int = 1,
        workers: int = 1,
        prefetch: int = 4,
    ) -> Stream:
        """The micro-batches of steps start .. stop - 1 in order, made ahead by `workers` processes (0: made here)."""
        self.rows(start, rank, world, 0, micro_batches)  # refuses impossible arguments
        return Stream(self, start, stop, rank, world, micro_batches, workers, prefetch)

    def rows(self, step: int, rank: int = 0, world: int = 1, micro: int = 0, micro_batches: int = 1) -> range:
        """The rows of the run that make up a micro-batch."""
        each = self._rows_each(world, micro_batches)
        if step < 0 or not 0 <= rank < world or not 0 <= micro < micro_batches:
            place = f"step {step}, rank {rank} of {world}, micro-batch {micro} of {micro_batches}"
            raise InputError(f"{place}: no such batch; all count from 0")
        first = step * self.rows_per_batch + (rank * micro_batches + micro) * each
        return range(first, first + each)

    def examples(self, rows: range) -> tuple[Examples, list[int], Bits]:
        """The examples in some rows, the store of each, and the key of its masks."""
        examples: list[Examples] = []
        keys: list[Bits] = []
        stores: list[int] = []
        for row in rows:
            number, row_of_store = share_row(row, self._weights)
            chapter, local = self.sources[number].find(row_of_store, self.plan_ahead)
            first, last = chapter.rows[local : local + 2].tolist()
            examples.append(chapter.examples.take(slice(first, last)))
            keys.append(chapter.keys[first:last])
            stores += [number] * (last - first)
        return Examples.concatenate(examples), stores, np.concatenate(keys)

    def read(self, examples: Examples, stores: list[int]) -> Ids:
        """The text of some examples, side by side without special tokens: A B A B ..."""
        starts = np.stack([examples.first_start, examples.second_start], axis=1)
        lengths = np.stack([examples.first_length, examples.second_length], axis=1)
        ends = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
        text = np.empty(int(ends[-1]), np.int32)
        last = 0
        for number, group in groupby(stores):
            first, last = last, last + len(list(group))
            begin, count = starts[first:last].ravel(), lengths[first:last].ravel()
            self.stores[number].gather(begin, begin + count, text[ends[first] : ends[last]])
        return text

    def mask(self, examples: Examples, text: Ids, keys: Bits) -> Masks:
        """What is to be predicted in the text of some examples."""
        segments = np.stack([examples.first_length, examples.second_length], axis=1)
        budgets = self.sources[0].budgets[examples.lengths]
        return mask_text(text, segments, budgets, keys, self.recipe, self.symbols)

    def __reduce__(self) -> tuple[Any, ...]:
        calibrations = [source.calibration for source in self.sources]
        options = {**self._options, "calibrations": calibrations}
        return _remake, (self.stores, self.symbols, self.recipe, options)

    def _rows_each(self, world: int, micro_batches: int) -> int:
        parts = world * micro_batches
        if parts < 1 or self.rows_per_batch % parts:
            raise ConfigError(
                f"{self.rows_per_batch} rows of {self.row_tokens:,} tokens per batch cannot be divided among "
                f"{world} ranks x {micro_batches} micro-batches; change tokens_per_batch or row_tokens"
            )
        return self.rows_per_batch // parts


def _remake(stores: list[Store], symbols: Symbols, recipe: Recipe, options: dict[str, Any]) -> Batches:
    return Batches(stores, symbols, recipe, **options)


def _check_fingerprints(stores: list[Store], fingerprint: str) -> None:
    if not stores:
        raise ConfigError("stores: must name at least one")
    for store in stores:
        if store.fingerprint != fingerprint:
            raise DataError(
                f"{name_store(store)}: built with another tokenizer (fingerprint {store.fingerprint[:12]}, "
                f"yours is {fingerprint[:12]}); use that tokenizer, or rebuild the store"
            )


def assemble(examples: Examples, text: Ids, masks: Masks, symbols: Symbols, shapes: Shapes, max_length: int) -> Batch:
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


def shift_positions(batch: Batch, room: int, key: int) -> Batch:
    """The same sequences, each up to `room` positions further on.

    The shift depends on the key and the sequence's own tokens, so any division of a global batch gives the same.
    """
    bounds = batch.starts[: batch.num_sequences + 1]
    sums = np.add.reduceat(batch.tokens[: bounds[-1]].astype(np.int64), bounds[:-1])
    positions = batch.positions.copy()
    positions[: bounds[-1]] += np.repeat(below(draw(key, sums), room + 1), np.diff(bounds)).astype(np.int16)
    return dataclasses.replace(batch, positions=positions)


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


def share_row(row: int, weights: Sequence[int]) -> tuple[int, int]:
    """The store of a row, and its number among that store's rows.

    Of the first n rows, floor(n * w / total) belong to the first store; the others are shared out among the other
    stores in the same way. Both counts are closed formulas, so nothing needs to be replayed.
    """
    total = sum(weights)
    for number, weight in enumerate(weights[:-1]):
        before, after = row * weight // total, (row + 1) * weight // total
        if after > before:
            return number, before
        row -= before
        total -= weight
    return len(weights) - 1, row


def whole_weights(weights: Sequence[float] | None, sizes: Sequence[int]) -> list[int]:
    """Weights as whole numbers: [0.75, 0.25] -> [3, 1]; None -> the sizes."""
    if weights is None:
        return list(sizes)
    if len(weights) != len(sizes):
        raise ConfigError(f"weights: {len(weights)} given for {len(sizes)} stores")
    if not all(0 < weight < math.inf for weight in weights):
        raise ConfigError(f"weights: {list(weights)} must all be > 0; leave a store out instead")
    shares = [Fraction(weight).limit_denominator(10_000) for weight in weights]
    if not all(shares):
        raise ConfigError(f"weights: {list(weights)}: one is too small to count")
    scale = math.lcm(*(share.denominator for share in shares))
    return [int(share * scale) for share in shares]
