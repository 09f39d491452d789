"""Documents -> examples: runs of whole sentences, cut in two at a sentence end, in order or not.

    sentences s0 s1 s2 s3 s4 s5 ...  ->  A = s0 s1 s2, B = s3 s4, order 0     then on from s5
                                         A = s3 s4, B = s0 s1 s2, order 1     half of the time (SOP)

An example is two ranges of token numbers and a label; no token is read here. All stretches of text advance together,
one window each per round, so the work is a few numpy calls per round. `tests/pretraining/slow_examples.py` says the
same thing one sentence at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from litebert.pretraining.draws import Bits, Integers, below, draw, happens, make_key
from litebert.pretraining.recipes import Recipe

NO_ORDER = -100

# Which draw of a window's stream decides what.
SHORT, LENGTH, CUT, RANDOM_B, SWAP, PARTNER, PARTNER_START = range(7)
# Bit i of the stream from here on says whether pop i is from the front; one stream for A, one for B.
POPS_A, POPS_B = 1 << 32, 1 << 33


@dataclass(frozen=True)
class Text:
    """Stretches of documents laid end to end, from which one chapter of an epoch is planned."""

    #: [sentences + 1] where each sentence begins, counted in tokens from the start of the text
    offsets: Integers
    #: [stretches + 1] the first sentence of each stretch
    first: Integers
    #: [stretches] add to a place in the text to get the token's number in the store
    shift: Integers
    #: [sentences] whether it begins, and whether it ends, where a sentence of the store does (and not inside one)
    whole_start: npt.NDArray[np.bool_]
    whole_end: npt.NDArray[np.bool_]
    #: [stretches] the stretch's number in the store, and its document's
    stretch: Integers
    document: Integers


@dataclass(frozen=True)
class Examples:
    """Examples as columns: first segment, second segment (length 0 if there is none), label."""

    first_start: Integers  # [n] token numbers in the store
    first_length: Integers
    second_start: Integers
    second_length: Integers
    order: npt.NDArray[np.int8]  # 0, 1 or NO_ORDER
    document: Integers  # of the text that was next; a random B has another

    def __len__(self) -> int:
        return len(self.order)

    @property
    def lengths(self) -> Integers:
        """Tokens of each sequence with [CLS] and [SEP]."""
        return self.first_length + self.second_length + 2 + (self.second_length > 0)

    def take(self, indices: Integers | slice) -> Examples:
        """Some of the examples, in the given order."""
        return Examples(*(getattr(self, field.name)[indices] for field in fields(self)))

    @staticmethod
    def concatenate(parts: list[Examples]) -> Examples:
        """Several tables as one."""
        names = [field.name for field in fields(Examples)]
        return Examples(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class _Segments(NamedTuple):
    start: Integers  # in the text
    length: Integers
    shift: Integers  # from the text to the store


def plan_examples(text: Text, recipe: Recipe, key: int) -> Examples:
    """Every example of one pass over a text, in a fixed order; `key` encodes (seed, store, epoch)."""
    stretch_keys = draw(make_key(key, 0), text.stretch)
    document_keys = draw(make_key(key, 1), text.document)
    partners = _Partners(text)
    stop = text.first[1:]
    position = text.first[:-1].copy()
    active = np.flatnonzero(position < stop)
    rounds: list[Examples] = []
    while active.size:
        keys = draw(stretch_keys[active], len(rounds))
        target_keys = document_keys[active] if recipe.short_draw == "document" else keys
        target = draw_targets(recipe, target_keys)
        begin, end = position[active], stop[active]
        finish = end_windows(text.offsets, begin, end, target, recipe)
        if recipe.pairs and recipe.truncation == "whole":
            finish = np.maximum(finish, np.minimum(begin + 2, end))
            if recipe.one_sentence == "skip":
                # A last sentence would be skipped if this window took all before it: leave it a neighbour.
                finish -= (end - finish == 1) & (finish - begin >= 3)
        examples, done = _make_examples(text, recipe, keys, active, begin, finish, target, partners)
        rounds.append(examples)
        position[active] = done
        active = active[done < end]
    if not rounds:
        none = np.empty(0, np.int64)
        return Examples(none, none, none, none, none.astype(np.int8), none)
    return Examples.concatenate(rounds)


def draw_targets(recipe: Recipe, keys: Bits) -> Integers:
    """How many tokens of text each window aims at: full length, or now and then a shorter one."""
    full = recipe.max_content
    short = happens(draw(keys, SHORT), recipe.short_probability)
    return np.where(short, 2 + below(draw(keys, LENGTH), full - 1), full)


def end_windows(offsets: Integers, begin: Integers, end: Integers, target: Integers, recipe: Recipe) -> Integers:
    """The sentence at which each window ends: the last that still fits, or the first that reaches the target."""
    goal = offsets[begin] + target
    if recipe.truncation == "whole":
        finish = np.searchsorted(offsets, goal, side="right") - 1
    else:
        finish = np.searchsorted(offsets, goal, side="left")
    return np.clip(finish, begin + 1, end)


def trim_pairs(first: Integers, second: Integers, limit: int) -> tuple[Integers, Integers]:
    """How many tokens each segment loses when the longer one is popped until both fit: 5, 9 -> 0, 5 for 9.

    The longer segment comes down to the other's length; then they take turns, the second one first.
    """
    excess = np.maximum(first + second - limit, 0)
    alone = np.minimum(np.abs(first - second), excess)
    rest = excess - alone
    from_first = np.where(first > second, alone, 0) + rest // 2
    return from_first, excess - from_first


def count_front_pops(keys: Bits, pops: Integers, stream: int) -> Integers:
    """How many of each segment's pops take the front: its first `pops` random bits that are set."""
    words = -(-pops // 64)
    total = int(words.sum())
    if not total:
        return np.zeros(len(pops), np.int64)
    owner = np.repeat(np.arange(len(pops)), words)
    index = np.arange(total) - np.repeat(np.cumsum(words) - words, words)
    bits = draw(keys[owner], index + stream)
    unused = np.maximum(64 - (pops[owner] - 64 * index), 0).astype(np.uint64)
    counts = np.bitwise_count(bits >> unused)
    return np.bincount(owner, counts, len(pops)).astype(np.int64)


def _make_examples(
    text: Text,
    recipe: Recipe,
    keys: Bits,
    active: Integers,
    begin: Integers,
    finish: Integers,
    target: Integers,
    partners: _Partners,
) -> tuple[Examples, Integers]:
    """One example per window (less those to skip), and the sentence from which each stretch goes on."""
    lone = finish - begin == 1
    # `cut` is the first sentence of B; a lone sentence and a single segment have none.
    cut = begin + 1 + below(draw(keys, CUT), np.maximum(finish - begin - 1, 1))
    if not recipe.pairs:
        cut = finish
    start, middle, stop = text.offsets[begin], text.offsets[cut], text.offsets[finish]
    shift = text.shift[active]
    first = _Segments(start, middle - start, shift)
    second = _Segments(middle, stop - middle, shift)
    order = np.full(len(active), 0 if recipe.objective != "none" else NO_ORDER, np.int8)
    keep = np.ones(len(active), bool)
    swap = np.zeros(len(active), bool)
    done = finish
    if recipe.pairs:
        random = lone & (recipe.one_sentence == "nsp")
        if recipe.objective == "nsp":
            random |= ~lone & happens(draw(keys, RANDOM_B), 0.5)
        random &= partners.exist[active]
        keep = ~lone | random | (recipe.one_sentence == "single")
        second = partners.replace(second, random, recipe, keys, active, target - first.length)
        # The sentences that a random B displaced are not lost: the next window begins with them.
        done = np.where(random, cut, finish)
        order[lone & ~random] = NO_ORDER
        if recipe.objective != "none":
            order[random] = 1
        if recipe.objective == "sop":
            swap = ~lone & happens(draw(keys, SWAP), 0.5)
            if recipe.truncation == "whole":
                too_long = first.length + second.length > recipe.max_content
                unlabelled = (too_long | (~lone & _borders_tell(text, begin, cut, finish))) & ~random
                swap &= ~unlabelled
                order[unlabelled] = NO_ORDER
            order[swap] = 1
            first, second = _swapped(first, second, swap)
    examples = Examples(*_trimmed(first, second, swap, recipe, keys), order, text.document[active])
    return (examples if keep.all() else examples.take(np.flatnonzero(keep))), done


def _borders_tell(text: Text, begin: Integers, cut: Integers, finish: Integers) -> npt.NDArray[np.bool_]:
    """Pairs whose cuts reveal the order: some borders are inside a sentence, others at its end.

    Two overlong sentences that lost their ends reveal it too; neither kind of pair gets a label.
    """
    starts = text.whole_start[begin] + 0 + text.whole_start[np.minimum(cut, finish - 1)]
    borders = starts + text.whole_end[finish - 1]
    return (borders > 0) & (borders < 3)


def _swapped(first: _Segments, second: _Segments, swap: npt.NDArray[np.bool_]) -> tuple[_Segments, _Segments]:
    pairs = list(zip(first, second, strict=True))
    return _Segments(*(np.where(swap, b, a) for a, b in pairs)), _Segments(*(np.where(swap, a, b) for a, b in pairs))


def _trimmed(
    first: _Segments, second: _Segments, swap: npt.NDArray[np.bool_], recipe: Recipe, keys: Bits
) -> tuple[Integers, Integers, Integers, Integers]:
    """Start and length of both segments in the store, once they fit a sequence together."""
    from_first, from_second = trim_pairs(first.length, second.length, recipe.max_content)
    if recipe.truncation == "trim":
        front_of_first = count_front_pops(keys, from_first, POPS_A)
        front_of_second = count_front_pops(keys, from_second, POPS_B)
    else:  # only the outer ends of the text, so that A and B stay neighbours
        front_of_first = np.where(swap | (second.length == 0), 0, from_first)
        front_of_second = np.where(swap, from_second, 0)
    return (
        first.start + first.shift + front_of_first,
        first.length - from_first,
        second.start + second.shift + front_of_second,
        second.length - from_second,
    )


class _Partners:
    """Random text from another document, for NSP."""

    def __init__(self, text: Text):
        self.text = text
        self.by_document = np.argsort(text.document, kind="stable")
        documents = text.document[self.by_document]
        self.block = np.searchsorted(documents, text.document)  # [stretches] where its document's block begins
        self.size = np.searchsorted(documents, text.document, side="right") - self.block
        self.exist = self.size < len(documents)

    def replace(
        self,
        second: _Segments,
        random: npt.NDArray[np.bool_],
        recipe: Recipe,
        keys: Bits,
        active: Integers,
        room: Integers,
    ) -> _Segments:
        """Put sentences of another document in B's place where `random` says so, up to `room` tokens."""
        where = np.flatnonzero(random)
        if not where.size:
            return second
        text, own, keys = self.text, active[where], keys[where]
        choice = below(draw(keys, PARTNER), len(self.by_document) - self.size[own])
        choice += np.where(choice >= self.block[own], self.size[own], 0)
        partner = self.by_document[choice]
        first, stop = text.first[partner], text.first[partner + 1]
        begin = first + below(draw(keys, PARTNER_START), stop - first)
        finish = end_windows(text.offsets, begin, stop, np.maximum(room[where], 1), recipe)
        start, length, shift = (column.copy() for column in second)
        start[where] = text.offsets[begin]
        length[where] = text.offsets[finish] - text.offsets[begin]
        shift[where] = text.shift[partner]
        return _Segments(start, length, shift)
