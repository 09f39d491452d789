"""Which tokens are predicted, and what the model sees in their place.

Sec. 4.1 of the paper, after SpanBERT: n-grams of whole words, p(n) proportional to 1/n, until 15 % of the tokens are
chosen; 80 % of those become [MASK], 10 % a random token, 10 % stay. For each sequence:

    go through its words in random order
      draw n and take n words from there; fewer if the budget does not allow n; none if it does not allow one
      skip the word if one of these words is taken already (and try this n elsewhere, or forget it: `ngram_draw`)

Whole words are n = 1, single tokens are words of one token, so the three maskings are one algorithm. It runs for all
sequences of a batch at once. The plain version, equal bit for bit, is `tests/pretraining/slow_masking.py`.

Legend: C tokens of text in the batch (without [CLS] and [SEP]), side by side; W words in it; M tokens masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from litebert.pretraining.draws import Bits, Integers, below, draw
from litebert.pretraining.recipes import Recipe

# Which draws of a sequence's stream decide what: order and n for each word, n for each span, replacement for each token
# or span.
WORDS, SPANS, REPLACEMENTS, RANDOM_TOKENS = 0, 1 << 31, 1 << 32, 1 << 33

ONES = b"\1" * 16  # as long as the longest n-gram

Ids = npt.NDArray[np.int32]


class Vocabulary(Protocol):
    """The part of a tokenizer that is needed here; `litebert.text.tokenizer.Tokenizer` is one."""

    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int

    @property
    def fingerprint(self) -> str:
        """Which vocabulary it is."""

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""

    def word_starts(self, style: str) -> npt.NDArray[np.bool_]:
        """[vocab_size] whether a piece begins a word."""


@dataclass(frozen=True)
class Symbols:
    """A vocabulary as masking sees it: plain arrays, cheap to send to another process."""

    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    fingerprint: str
    special: npt.NDArray[np.bool_]  # [V] never predicted
    starts_word: npt.NDArray[np.bool_]  # [V]
    replacements: Ids  # what a random token is drawn from

    @classmethod
    def of(cls, vocabulary: Vocabulary, recipe: Recipe) -> Symbols:
        """The tables that a recipe needs."""
        special = np.zeros(vocabulary.vocab_size, bool)
        ids = (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id)
        special[list(ids)] = True
        if recipe.masking == "token":
            starts_word = np.ones(vocabulary.vocab_size, bool)
        else:
            starts_word = np.asarray(vocabulary.word_starts(recipe.word_style), bool)
        allowed = ~special if recipe.random_excludes_special else np.ones_like(special)
        return cls(
            pad_id=vocabulary.pad_id,
            cls_id=vocabulary.cls_id,
            sep_id=vocabulary.sep_id,
            mask_id=vocabulary.mask_id,
            fingerprint=vocabulary.fingerprint,
            special=special,
            starts_word=starts_word,
            replacements=np.flatnonzero(allowed).astype(np.int32),
        )


class Masks(NamedTuple):
    """What to predict, in the order of the text."""

    places: Integers  # [M] in the batch's text
    labels: Ids  # [M] the original tokens
    seen: Ids  # [M] what the model sees instead
    span_words: Integers  # [spans] n of each span
    span_tokens: Integers  # [spans] its tokens; they add up to M


class Words(NamedTuple):
    """The words of a batch: word w is text[bounds[w] : bounds[w + 1]]."""

    bounds: Integers  # [W + 1]
    first: Integers  # [sequences + 1] the first word of each sequence
    limit: Integers  # [W] the word at which an n-gram from here must end
    widest: Integers  # [sequences] the most words an n-gram could have
    taken: bytearray  # [W] 1 where nothing may be masked (any more)


def mask_text(text: Ids, segments: Integers, budgets: Integers, keys: Bits, recipe: Recipe, symbols: Symbols) -> Masks:
    """Choose and replace tokens; `segments` [sequences, 2] are the lengths of A and B, in the order of the text."""
    words = find_words(text, segments, recipe, symbols)
    starts, ends = select_spans(words, budgets, keys, recipe)
    begin, stop = words.bounds[starts], words.bounds[ends]
    span_tokens = stop - begin
    spans = np.repeat(np.arange(len(starts)), span_tokens)
    places = join_ranges(begin, span_tokens)
    labels = text[places]
    text_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(segments.sum(axis=1))])
    owner = np.searchsorted(text_starts, begin, side="right")[spans] - 1
    seen = replace_tokens(
        labels, places - text_starts[owner], begin[spans] - text_starts[owner], keys[owner], recipe, symbols
    )
    return Masks(places, labels, seen, ends - starts, span_tokens)


def find_words(text: Ids, segments: Integers, recipe: Recipe, symbols: Symbols) -> Words:
    """Where words begin: at pieces that say so, at the start of a segment, and around special tokens."""
    begins = symbols.starts_word[text]  # [C]
    special = np.flatnonzero(symbols.special[text])  # <unk>, rarely
    begins[special] = True
    begins[special[special + 1 < len(text)] + 1] = True
    segment_ends = np.cumsum(segments)
    text_ends = segment_ends[1::2]
    # A segment cut open at the front may begin inside a word; across separators, that goes with A's last word.
    firsts = np.concatenate([np.zeros(1, np.int64), text_ends if recipe.ngram_across_separator else segment_ends])
    begins[firsts[firsts < len(text)]] = True
    starts = np.flatnonzero(begins)  # [W]
    first = np.searchsorted(starts, np.concatenate([np.zeros(1, np.int64), text_ends]))
    parts = np.searchsorted(starts, firsts)  # first word of each part that an n-gram may not leave
    sizes = np.diff(parts)
    limit = np.repeat(parts[1:], sizes)
    widest = sizes if recipe.ngram_across_separator else sizes.reshape(-1, 2).max(axis=1)
    taken = bytearray(len(starts))
    for word in np.searchsorted(starts, special).tolist():
        taken[word] = 1
    return Words(np.append(starts, len(text)), first, limit, widest, taken)


def select_spans(words: Words, budgets: Integers, keys: Bits, recipe: Recipe) -> tuple[Integers, Integers]:
    """The chosen n-grams as words [start, end), in the order of the text; marks them in `words.taken`.

    Words are tried as starts in random order. As long as all tries of a sequence stay within its budget, they are
    placed at once; only the last few go one by one.
    """
    max_ngram = recipe.max_ngram if recipe.masking == "ngram" else 1
    per_span = recipe.ngram_draw == "span"
    order, bits = shuffle_words(words, keys)
    tries = np.minimum(np.diff(words.first), budgets)  # enough, since a span has one token at least
    sequence = np.repeat(np.arange(len(keys)), tries)
    number = join_ranges(np.zeros_like(tries), tries)
    start = order[words.first[sequence] + number]
    if per_span:
        sizes = draw_sizes(draw(keys[sequence], number + SPANS), max_ngram)
        sizes = np.minimum(sizes, words.widest[sequence])  # more would never find a place
    else:
        sizes = draw_sizes(bits[start], max_ngram)
    end = np.minimum(start + sizes, words.limit[start])
    cost = words.bounds[end] - words.bounds[start]
    spent = np.cumsum(cost)
    before = np.append(0, spent)[np.cumsum(tries) - tries]
    sure = spent - before[sequence] <= budgets[sequence]
    fitting = np.flatnonzero(sure & (end - start == sizes) if per_span else sure)
    placed = fitting[place_spans(start[fitting], end[fitting], np.frombuffer(words.taken, np.uint8))]

    room = budgets - np.bincount(sequence[placed], cost[placed], len(keys)).astype(np.int64)
    tried = np.bincount(sequence, sure, len(keys)).astype(np.int64)
    waiting = np.ones(len(start), bool)  # of each sequence, first n-grams that found no place, then new ones
    waiting[placed] = False
    queues = np.bincount(sequence, waiting, len(keys)).astype(np.int64)
    more = _place_rest(words, order, bits, tried, room, sizes[waiting], queues, max_ngram if not per_span else None)
    spans = np.sort(np.concatenate([start[placed] << 5 | end[placed] - start[placed], more]))
    return spans >> 5, (spans >> 5) + (spans & 31)


def _place_rest(
    words: Words,
    order: Integers,
    bits: Bits,
    tried: Integers,
    room: Integers,
    sizes: Integers,
    queues: Integers,
    max_ngram: int | None,
) -> Integers:
    """Try one word after the other until no room is left, shortening spans that are too long; returns start * 32 + n.

    With `max_ngram`, n belongs to the word that is tried; without, the next size of the sequence's queue is kept until
    it fits somewhere.
    """

    def look_up(start: Integers) -> Iterator[tuple[int, int]]:
        limit = words.limit[start]
        end = limit if max_ngram is None else np.minimum(start + draw_sizes(bits[start], max_ngram), limit)
        return zip(start.tolist(), end.tolist(), strict=True)

    def others(number: int) -> Iterator[tuple[int, int]]:
        yield from look_up(order[begin[number] + likely[number] : words.first[number + 1]])

    begin = words.first[:-1] + tried
    likely = np.minimum(np.where(room > 0, room + 4, 0), words.first[1:] - begin)  # nearly always enough
    candidates = list(look_up(order[join_ranges(begin, likely)]))
    taken, bounds = words.taken, words.bounds.data
    wanted = sizes.tolist()
    found: list[int] = []
    last = next_queue = 0
    for number, (left, count, queue) in enumerate(zip(room.tolist(), likely.tolist(), queues.tolist(), strict=True)):
        first, last = last, last + count
        span, next_queue = next_queue, next_queue + queue
        if not left:
            continue
        for start, end in chain(candidates[first:last], others(number)):
            if max_ngram is None:
                limit, end = end, start + wanted[span]
                if end > limit:
                    continue
            cost = bounds[end] - bounds[start]
            while cost > left:
                end -= 1
                cost = bounds[end] - bounds[start]
            if end == start or taken.find(1, start, end) >= 0:
                continue
            taken[start:end] = ONES[: end - start]
            found.append(start << 5 | end - start)
            span += 1
            left -= cost
            if not left:
                break
    return np.array(found, np.int64)


def place_spans(start: Integers, end: Integers, taken: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which spans find their words free when they are placed in this order; marks them in `taken`.

    A span without an earlier competitor is placed, and spans that overlap it are dropped; a few rounds settle all.
    """
    placed = np.zeros(len(start), bool)
    earliest = np.empty(len(taken), np.int64)  # [W] the first span that wants each word
    waiting = np.arange(len(start))
    while waiting.size:
        sizes = end[waiting] - start[waiting]
        wanted = join_ranges(start[waiting], sizes)
        owner = np.repeat(waiting, sizes)
        earliest[wanted] = len(start)
        np.minimum.at(earliest, wanted, owner)
        begin = np.cumsum(sizes) - sizes
        free = np.add.reduceat(taken[wanted], begin) == 0
        wins = free & np.logical_and.reduceat(earliest[wanted] == owner, begin)
        placed[waiting[wins]] = True
        taken[wanted[np.repeat(wins, sizes)]] = 1
        waiting = waiting[free & ~wins]
    return placed


def shuffle_words(words: Words, keys: Bits) -> tuple[Integers, Bits]:
    """The words of each sequence in random order, and the random bits of each word."""
    sequence = np.repeat(np.arange(len(keys)), np.diff(words.first))  # [W]
    index = np.arange(len(sequence)) - words.first[sequence]
    bits = draw(keys[sequence], index + WORDS)
    # One number per word, so that the sort brings the word along: sequence | 32 random bits | index in it.
    assert len(keys) <= 1 << 20, "sequences are numbered with 20 bits"
    ranked = sequence.astype(np.uint64) << np.uint64(44)
    ranked |= (bits >> np.uint64(32)) << np.uint64(12)
    ranked |= index.astype(np.uint64)
    ranked.sort()
    return (ranked & np.uint64(0xFFF)).astype(np.int64) + words.first[sequence], bits


def draw_sizes(bits: Bits, max_ngram: int) -> Integers:
    """n for each word, p(n) proportional to 1/n, from the lower half of its bits."""
    shares = np.cumsum(1 / np.arange(1, max_ngram + 1))
    limits = np.round(shares[:-1] / shares[-1] * 2**32).astype(np.uint32)
    sizes = np.ones(bits.shape, np.int64)
    for limit in limits:
        sizes += bits.astype(np.uint32) >= limit
    return sizes


def replace_tokens(
    labels: Ids, places: Integers, span_starts: Integers, keys: Bits, recipe: Recipe, symbols: Symbols
) -> Ids:
    """What the model sees: [MASK], a random token, or the token itself; places count from the sequence's start."""
    drawn_for = span_starts if recipe.replacement == "span" else places
    choice = draw(keys, drawn_for + REPLACEMENTS) >> np.uint64(32)
    as_mask = np.uint64(round(recipe.replace_with_mask * 2**32))
    as_random = np.uint64(round((recipe.replace_with_mask + recipe.replace_with_random) * 2**32))
    seen = np.where(choice < as_mask, np.int32(symbols.mask_id), labels)
    random = np.flatnonzero((choice >= as_mask) & (choice < as_random))
    picks = below(draw(keys[random], places[random] + RANDOM_TOKENS), len(symbols.replacements))
    seen[random] = symbols.replacements[picks]
    return seen


def join_ranges(starts: Integers, counts: Integers) -> Integers:
    """[10, 20], [2, 3] -> [10, 11, 20, 21, 22]."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - counts), counts)
