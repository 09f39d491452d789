"""Show what a recipe makes of a store: a few readable examples, and actual against expected shares.

batches = Batches(store, tokenizer, recipe, tokens_per_batch=4096)
pick_examples(batches, tokenizer, 3)   -> [ShownExample(order=1, meaning="swapped: A follows B", segments=...), ...]
measure_masks(batches)                 -> {"ngrams": {"1": {"expected": 0.545, "realised": 0.56}, ...}, ...}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from litebert.pretraining.batches import Batches
from litebert.pretraining.chapters import Store, StoreRows
from litebert.pretraining.draws import Integers
from litebert.pretraining.examples import NO_ORDER, Examples
from litebert.text.tokenizer import Tokenizer

HISTOGRAM_BINS = 8
SAMPLE_TOKENS = 1 << 20

Kind = Literal["text", "mask", "random", "kept"]


@dataclass(frozen=True)
class ShownPiece:
    """One token: the original, what the model sees, and why; ▁ is the space before a word."""

    piece: str
    seen: str
    kind: Kind


@dataclass(frozen=True)
class ShownExample:
    """One example as a person reads it."""

    document: int
    tokens: int
    order: int | None
    meaning: str
    segments: list[list[ShownPiece]]


def pick_examples(batches: Batches, tokenizer: Tokenizer, count: int) -> list[ShownExample]:
    """The first examples of a run, in words."""
    shown: list[ShownExample] = []
    for row in range(count):  # a row holds one example at least
        examples, stores, keys = batches.examples(range(row, row + 1))
        text = batches.read(examples, stores)
        masks = batches.mask(examples, text, keys)
        seen = text.copy()
        seen[masks.places] = masks.seen
        predicted = np.zeros(len(text), bool)
        predicted[masks.places] = True
        pieces = [
            ShownPiece(_spell(tokenizer, a), _spell(tokenizer, b), _kind(a, b, chosen, tokenizer.mask_id))
            for a, b, chosen in zip(text.tolist(), seen.tolist(), predicted.tolist(), strict=True)
        ]
        end = 0
        for i in range(min(len(examples), count - len(shown))):
            begin = end
            middle = begin + int(examples.first_length[i])
            end = middle + int(examples.second_length[i])
            order = int(examples.order[i])
            shown.append(
                ShownExample(
                    document=int(examples.document[i]),
                    tokens=int(examples.lengths[i]),
                    order=None if order == NO_ORDER else order,
                    meaning=explain_order(examples.take(slice(i, i + 1)), batches.stores[stores[i]]),
                    segments=[part for part in (pieces[begin:middle], pieces[middle:end]) if part],
                )
            )
        if len(shown) == count:
            break
    return shown


def explain_order(example: Examples, store: Store) -> str:
    """What an example's label means, from the places of its segments in the store."""
    order, document = int(example.order[0]), int(example.document[0])
    if order == NO_ORDER:
        return "no label, a pair in order" if example.second_length[0] else "no label, a single segment"
    if order == 0:
        return "in order: B follows A"
    first, last = store.sentence_offsets[store.document_offsets[document : document + 2]]
    swapped = first <= example.second_start[0] < last
    return "swapped: A follows B" if swapped else "random: B is from another document"


def measure_store(source: StoreRows) -> dict[str, Any]:
    """Counts, lengths, order and packing of a store's first chapter; needs no vocabulary."""
    store, recipe = source.store, source.recipe
    sentence_offsets, document_offsets = store.sentence_offsets, store.document_offsets
    planned = source.plan(0)
    chapter = source.chapter(0)
    row_tokens = source.calibration.capacity.tokens
    used = np.add.reduceat(chapter.examples.lengths, chapter.rows[:-1])
    text = int(planned.first_length.sum() + planned.second_length.sum())
    return {
        "documents": len(document_offsets) - 1,
        "sentences": len(sentence_offsets) - 1,
        "tokens": int(sentence_offsets[-1]),
        "sentence_tokens": _quantiles(np.diff(sentence_offsets)),
        "document_tokens": _quantiles(np.diff(sentence_offsets[document_offsets])),
        "chapters": source.num_chapters,
        "sequences": len(planned),  # of the first chapter, as is all that follows
        "sequence_tokens": _quantiles(planned.lengths),
        "text_used": round(text * source.num_chapters / source.num_tokens, 5),
        "histogram": _histogram(planned.lengths, recipe.max_length),
        "order": _order_shares(planned.order),
        "row_tokens": row_tokens,
        "rows": len(used),
        "sequences_per_row": round(float(np.diff(chapter.rows).mean()), 2),
        "packing_efficiency": round(float(used.mean()) / row_tokens, 5),
    }


def measure_masks(batches: Batches) -> dict[str, Any]:
    """Actual and expected shares, over the first million tokens or the first epoch."""
    recipe, mask_id = batches.recipe, batches.symbols.mask_id
    rows = min(SAMPLE_TOKENS // batches.row_tokens, sum(source.rows_per_epoch for source in batches.sources))
    words: list[Integers] = []
    kinds = np.zeros(3, np.int64)  # mask, random, kept
    tokens = 0
    for first in range(0, rows, 8):
        examples, stores, keys = batches.examples(range(first, min(first + 8, rows)))
        masks = batches.mask(examples, batches.read(examples, stores), keys)
        as_mask, as_it_was = masks.seen == mask_id, masks.seen == masks.labels
        kinds += as_mask.sum(), (~as_mask & ~as_it_was).sum(), (~as_mask & as_it_was).sum()
        words.append(masks.span_words)
        tokens += int(examples.lengths.sum())
    spans = np.concatenate(words)
    max_ngram = recipe.max_ngram if recipe.masking == "ngram" else 1
    harmonic = sum(1 / n for n in range(1, max_ngram + 1))
    kept = 1 - recipe.replace_with_mask - recipe.replace_with_random
    expected = (recipe.replace_with_mask, recipe.replace_with_random, kept)
    return {
        "sampled_tokens": tokens,
        "predicted": round(int(kinds.sum()) / tokens, 5),
        "spans": len(spans),
        "ngrams": {
            str(n): {
                "expected": round(1 / n / harmonic, 5),
                "realised": round(float((spans == n).mean()), 5),
            }
            for n in range(1, max_ngram + 1)
        },
        "replaced": {
            name: {"expected": round(share, 5), "realised": round(int(count) / max(int(kinds.sum()), 1), 5)}
            for name, share, count in zip(("mask", "random", "kept"), expected, kinds, strict=True)
        },
    }


def _spell(tokenizer: Tokenizer, token: int) -> str:
    """A piece with a ▁ for the space before it, for WordPiece too."""
    piece = tokenizer.piece(token)
    if tokenizer.kind == "sentencepiece":
        return piece
    return piece.removeprefix("##") if piece.startswith("##") else f"▁{piece}"


def _kind(token: int, seen: int, predicted: bool, mask_id: int) -> Kind:
    if not predicted:
        return "text"
    return "mask" if seen == mask_id else "kept" if seen == token else "random"


def _quantiles(lengths: Integers) -> dict[str, int]:
    values = np.quantile(lengths, (0, 0.1, 0.5, 0.9, 1), method="nearest") if len(lengths) else np.zeros(5)
    return dict(zip(("least", "10 %", "median", "90 %", "most"), (int(value) for value in values), strict=True))


def _histogram(lengths: Integers, max_length: int) -> list[dict[str, int]]:
    edges = np.linspace(0, max_length, HISTOGRAM_BINS + 1).astype(int)
    counts = np.histogram(lengths, np.append(edges[:-1] + 1, max_length + 1))[0]
    return [
        {"from": int(low) + 1, "to": int(high), "sequences": int(count)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def _order_shares(order: Any) -> dict[str, float]:
    names = {"0": 0, "1": 1, "none": NO_ORDER}
    return {name: round(float((order == value).mean()), 5) for name, value in names.items()}
