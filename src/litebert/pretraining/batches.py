"""Token stores -> masked batches, as a pure function of (seed, step).

    batches = Batches([wiki, books], tokenizer, named_recipe("paper"), tokens_per_batch=1 << 19, seed=1)
    batches.batch(1000)                          # the whole global batch of step 1000, at once
    batches.batch(1000, rank=3, world=8)         # one rank's share of the same batch
    with batches.iterate(start=1000) as stream:  # made ahead in another process
        for batch in stream: ...

The unit is the row: `row_tokens` tokens, filled with whole sequences of one store. A global batch is a fixed number
of rows; rank r of W takes its contiguous share, and each micro-batch a contiguous share of that. So every division of
the same rows gives the same sequences with the same masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

import numpy as np

from litebert.errors import ConfigError, DataError, InputError
from litebert.pretraining.assembly import Batch, PaddedBatch, Shapes, assemble_packed, assemble_padded
from litebert.pretraining.chapters import Calibration, Source, Split, Store, name_store
from litebert.pretraining.draws import Bits
from litebert.pretraining.examples import Examples
from litebert.pretraining.masking import Ids, Masks, Symbols, Vocabulary, mask_text
from litebert.pretraining.mixing import share_row, whole_weights
from litebert.pretraining.recipes import Recipe
from litebert.pretraining.stream import Stream

Layout = Literal["packed", "padded"]


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
        layout: Layout = "packed",
        split: Split = "train",
        held_out: int | float = 0,
        calibrations: Sequence[Calibration] | None = None,
    ):
        """Look at the stores' index and plan the first chapter.

        weights: rows from each store (default: as many as it has, so that their epochs end together).
        layout: `packed` gives `Batch`, `padded` gives `PaddedBatch` with one sequence per row.
        held_out: documents (a count, or a share below 1) that `split="train"` leaves to `split="held-out"`.
        calibrations: those of an equal object, to make it again in another process.
        """
        self.stores = list(stores) if isinstance(stores, Sequence) else [stores]
        self.recipe = recipe
        self.symbols = tokenizer if isinstance(tokenizer, Symbols) else Symbols.of(tokenizer, recipe)
        _check_fingerprints(self.stores, self.symbols.fingerprint)
        self.layout = layout
        self.row_tokens = recipe.max_length if layout == "padded" else row_tokens
        if self.row_tokens < recipe.max_length:
            raise ConfigError(f"row_tokens: {row_tokens} cannot hold a sequence of max_length {recipe.max_length}")
        if tokens_per_batch <= 0 or tokens_per_batch % self.row_tokens:
            unit = "max_length" if layout == "padded" else "row_tokens"
            raise ConfigError(f"tokens_per_batch: {tokens_per_batch:,} is not a multiple of {unit} {self.row_tokens:,}")
        self.rows_per_batch = tokens_per_batch // self.row_tokens
        #: Plan the next chapter in the background while this one is in use, so that no batch waits for it.
        self.plan_ahead = False
        self.sources = [
            Source(
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
            "layout": layout,
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
        filler = 0 if self.layout == "padded" else -(-self.row_tokens // self.recipe.max_length)
        return Shapes(
            tokens=rows * self.row_tokens,
            sequences=rows * (max(capacity.sequences for capacity in capacities) + filler),
            predictions=rows * max(capacity.predictions for capacity in capacities),
        )

    def batch(
        self, step: int, rank: int = 0, world: int = 1, micro: int = 0, micro_batches: int = 1
    ) -> Batch | PaddedBatch:
        """Micro-batch `micro` of what `rank` has of the global batch of `step`."""
        examples, stores, keys = self.examples(self.rows(step, rank, world, micro, micro_batches))
        text = self.read(examples, stores)
        masks = self.mask(examples, text, keys)
        assemble = assemble_packed if self.layout == "packed" else assemble_padded
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
        self.rows(start, rank, world, 0, micro_batches)  # complains about what cannot be
        return Stream(self, start, stop, rank, world, micro_batches, workers, prefetch)

    def rows(self, step: int, rank: int = 0, world: int = 1, micro: int = 0, micro_batches: int = 1) -> range:
        """The rows of the run that make up a micro-batch."""
        each = self._rows_each(world, micro_batches)
        if step < 0 or not 0 <= rank < world or not 0 <= micro < micro_batches:
            place = f"step {step}, rank {rank} of {world}, micro-batch {micro} of {micro_batches}"
            raise InputError(f"{place}: there is no such batch; all count from 0")
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
                f"{self.rows_per_batch} rows of {self.row_tokens:,} tokens per batch cannot be shared among "
                f"{world} ranks x {micro_batches} micro-batches; change tokens_per_batch or row_tokens"
            )
        return self.rows_per_batch // parts


def _remake(stores: list[Store], symbols: Symbols, recipe: Recipe, options: dict[str, Any]) -> Batches:
    return Batches(stores, symbols, recipe, **options)


def _check_fingerprints(stores: list[Store], fingerprint: str) -> None:
    if not stores:
        raise ConfigError("stores: at least one is needed")
    for store in stores:
        if store.fingerprint != fingerprint:
            raise DataError(
                f"{name_store(store)}: built with another tokenizer (fingerprint {store.fingerprint[:12]}, "
                f"yours is {fingerprint[:12]}); use that one, or build the store again"
            )
