"""A store -> rows with random access: epochs of chapters, chapters of rows.

An epoch visits every document once. It is divided into chapters of a few ten million tokens, each a random part of the
whole store; a chapter is planned at once (windows, pairs, rows), so memory does not grow with the store. All chapters
have the same number of tokens, give or take a stretch, and so the same number of rows, which is measured on the first
one and then fixed. Row -> (epoch, chapter, row in it) is thus arithmetic, and seeking plans one chapter.

Long documents are planned in stretches, so that a book is spread over its epoch. Rows are filled
with whole sequences from a shuffled queue:

    pack([9, 4, 7, 3], capacity of 12 tokens)   -> [9, 3], [7, 4]"""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from litebert.errors import ConfigError, DataError
from litebert.pretraining.draws import Bits, Integers, draw, make_key, shuffled
from litebert.pretraining.examples import Examples, Text, plan_examples
from litebert.pretraining.recipes import Recipe

CHAPTER_TOKENS = 1 << 26
# A stretch is this many windows long: a window in 32 ends early because its stretch does.
STRETCH_WINDOWS = 32
# How many sequences of the queue a row looks through to fill its last gap.
AHEAD = 512

Split = Literal["train", "held-out"]


class Store(Protocol):
    """The part of a token store that is needed here; `litebert.text.store.TokenStore` is one."""

    fingerprint: str
    sentence_offsets: Integers  # [sentences + 1] in tokens
    document_offsets: Integers  # [documents + 1] in sentences

    def gather(
        self, starts: npt.ArrayLike, stops: npt.ArrayLike, out: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.int32]:
        """Tokens [start, stop) of every pair, side by side."""


@dataclass(frozen=True)
class Stretches:
    """Pieces of documents of at most some ten thousand tokens; most documents are one piece."""

    start: Integers  # [n] first token, and tokens
    tokens: Integers
    first: Integers  # [n] the first sentence, and sentences
    sentences: Integers
    document: Integers


class Capacity(NamedTuple):
    """What a row holds at most; the same for every row of a run, so that shapes are static."""

    tokens: int
    sequences: int
    predictions: int


class Packing(NamedTuple):
    """Row r holds sequences members[starts[r] : starts[r + 1]]."""

    members: Integers
    starts: Integers


@dataclass(frozen=True)
class Chapter:
    """Planned rows: examples in row order, a key for the masks of each, and where each row begins."""

    examples: Examples
    keys: Bits
    rows: Integers  # [rows + 1]


class Calibration(NamedTuple):
    """What is measured once on the first chapter and then holds for the whole run."""

    rows_per_chapter: int
    capacity: Capacity


def count_held_out(num_documents: int, held_out: int | float) -> int:
    """How many documents are kept for evaluation: a count as it is, a share below 1 rounded up."""
    if not 0 <= held_out < math.inf or (held_out > 1 and held_out != int(held_out)):
        raise ConfigError(f"held_out: must be a count of documents or a share below 1, got {held_out:g}")
    wanted = int(held_out) if held_out >= 1 else math.ceil(held_out * num_documents)
    if wanted >= num_documents and wanted > 0:
        raise ConfigError(f"held_out: {wanted:.12g} documents, but the store has only {num_documents:,}")
    return wanted


def held_out_documents(num_documents: int, held_out: int | float) -> npt.NDArray[np.bool_]:
    """The documents held out for evaluation, chosen by number, independent of the run's seed."""
    wanted = count_held_out(num_documents, held_out)
    chosen = np.zeros(num_documents, bool)
    chosen[shuffled(num_documents, make_key(0))[:wanted]] = True
    return chosen


def cut_stretches(store: Store, documents: npt.NDArray[np.bool_], size: int) -> Stretches:
    """Pieces of about `size` tokens or less, cut at sentence ends; only a longer sentence is cut inside."""
    chosen = np.flatnonzero(documents)
    first, last = store.document_offsets[chosen], store.document_offsets[chosen + 1]
    start, stop = store.sentence_offsets[first], store.sentence_offsets[last]
    pieces = np.maximum(-(-(stop - start) // size), 1)
    owner = np.repeat(np.arange(len(chosen)), pieces)
    index = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = start[owner]
    later = np.flatnonzero(index)  # every piece but a document's first
    if later.size:
        ideal = begin[later] + index[later] * (stop - start)[owner[later]] // pieces[owner[later]]
        snapped = store.sentence_offsets[np.searchsorted(store.sentence_offsets, ideal)]
        begin[later] = np.where(snapped - ideal < size, snapped, ideal)
    end = np.append(begin[1:], 0)
    ends_document = np.append(owner[1:] != owner[:-1], True)
    end[ends_document] = stop[owner[ends_document]]
    first_sentence, last_sentence = first[owner], last[owner]
    inner = np.flatnonzero(pieces[owner] > 1)
    if inner.size:
        first_sentence[inner] = np.searchsorted(store.sentence_offsets, begin[inner], side="right") - 1
        last_sentence[inner] = np.searchsorted(store.sentence_offsets, end[inner])
    kept = np.flatnonzero(end > begin)  # two cuts may have met at one sentence end
    return Stretches(
        begin[kept],
        (end - begin)[kept],
        first_sentence[kept],
        (last_sentence - first_sentence)[kept],
        chosen[owner[kept]],
    )


def lay_out(store: Store, stretches: Stretches, chosen: Integers, recipe: Recipe) -> Text:
    """The chosen stretches end to end, as sentence lengths; long sentences split where the recipe says so."""
    counts = stretches.sentences[chosen]
    starts = np.cumsum(counts) - counts
    sentence = np.arange(int(counts.sum())) + np.repeat(stretches.first[chosen] - starts, counts)
    lengths = store.sentence_offsets[sentence + 1] - store.sentence_offsets[sentence]
    # A stretch may begin and end inside a sentence; its own bounds rule.
    first, last = sentence[starts], sentence[starts + counts - 1]
    begin = stretches.start[chosen]
    lengths[starts] -= begin - store.sentence_offsets[first]
    lengths[starts + counts - 1] -= store.sentence_offsets[last + 1] - (begin + stretches.tokens[chosen])
    whole_start, whole_end = np.ones(len(lengths), bool), np.ones(len(lengths), bool)
    whole_start[starts] = begin == store.sentence_offsets[first]
    whole_end[starts + counts - 1] = begin + stretches.tokens[chosen] == store.sentence_offsets[last + 1]
    first_sentence = np.append(starts, len(lengths))
    if recipe.long_sentences == "split" and lengths.max(initial=0) > recipe.max_content:
        # Halves of a sequence at most, so that two parts make a pair.
        part = recipe.max_content // 2 if recipe.pairs else recipe.max_content
        parts = np.where(lengths > recipe.max_content, -(-lengths // part), 1)
        before = np.cumsum(parts) - parts
        owner = np.repeat(np.arange(len(lengths)), parts)
        index = np.arange(len(owner)) - before[owner]
        ends = (index + 1) * lengths[owner] // parts[owner]
        lengths = ends - index * lengths[owner] // parts[owner]
        whole_start = whole_start[owner] & (index == 0)
        whole_end = whole_end[owner] & (index == parts[owner] - 1)
        first_sentence = np.append(before, len(lengths))[first_sentence]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return Text(
        offsets=offsets,
        first=first_sentence,
        shift=begin - offsets[first_sentence[:-1]],
        whole_start=whole_start,
        whole_end=whole_end,
        stretch=chosen,
        document=stretches.document[chosen],
    )


class StoreRows:
    """The rows of one store: `rows_per_epoch`, and the chapter that holds a given row."""

    def __init__(
        self,
        store: Store,
        number: int,
        recipe: Recipe,
        *,
        row_tokens: int,
        seed: int,
        split: Split = "train",
        held_out: int | float = 0,
        calibration: Calibration | None = None,
    ):
        self.store, self.recipe = store, recipe
        self._key = make_key(seed, number)
        chosen = held_out_documents(len(store.document_offsets) - 1, held_out)
        if split == "train":
            chosen = ~chosen
        self.stretches = cut_stretches(store, chosen, STRETCH_WINDOWS * recipe.max_length)
        self.num_documents = int(chosen.sum())
        self.num_tokens = int(self.stretches.tokens.sum())
        self.num_chapters = max(1, -(-self.num_tokens // CHAPTER_TOKENS))
        self.budgets = np.array([recipe.num_to_predict(n) for n in range(recipe.max_length + 1)])
        self._order: tuple[int, Integers, Integers] | None = None
        self._planned: dict[int, Future[Chapter]] = {}
        self._lock = threading.Lock()
        self.calibration = calibration or self._calibrate(row_tokens)

    @property
    def rows_per_epoch(self) -> int:
        """Rows of one pass over the store."""
        return self.num_chapters * self.calibration.rows_per_chapter

    def find(self, row: int, plan_ahead: bool = False) -> tuple[Chapter, int]:
        """The chapter of a row, and the row's number in it; halfway through, the next chapter is planned."""
        chapter, local = divmod(row, self.calibration.rows_per_chapter)
        if plan_ahead and 2 * local >= self.calibration.rows_per_chapter:
            self.prepare(chapter + 1)
        return self.chapter(chapter), local

    def chapter(self, number: int) -> Chapter:
        """Chapter `number` of the run, counted through all epochs; planned once, the last two are kept."""
        return self._request(number, background=False).result()

    def prepare(self, number: int) -> None:
        """Start planning a chapter in the background, so that its first row does not wait."""
        self._request(number, background=True)

    def plan(self, number: int) -> Examples:
        """The examples of a chapter, before they are put into rows."""
        epoch, chapter = divmod(number, self.num_chapters)
        order, cuts = self._epoch_order(epoch)
        text = lay_out(self.store, self.stretches, order[cuts[chapter] : cuts[chapter + 1]], self.recipe)
        return plan_examples(text, self.recipe, make_key(self._key, epoch))

    def _request(self, number: int, background: bool) -> Future[Chapter]:
        with self._lock:
            planned = self._planned.get(number)
            if planned is not None:
                return planned
            planned = self._planned[number] = Future()
            for old in sorted(self._planned, key=lambda n: abs(n - number))[2:]:
                del self._planned[old]

        def work() -> None:
            try:
                planned.set_result(self._fill_chapter(number))
            except BaseException as error:
                planned.set_exception(error)

        if background:
            threading.Thread(target=work, daemon=True, name=f"chapter {number}").start()
        else:
            work()
        return planned

    def _fill_chapter(self, number: int) -> Chapter:
        examples = self.plan(number)
        if not len(examples):  # a tiny store may have no examples in some epoch: the first chapter has some
            examples = self.plan(0)
        key = make_key(self._key, number, 2)
        examples = examples.take(shuffled(len(examples), key))
        lengths = examples.lengths
        rows_per_chapter, capacity = self.calibration
        packing = pack(lengths, self.budgets[lengths], capacity, rows_per_chapter)
        keys = draw(make_key(key, 3), np.arange(len(packing.members)))
        return Chapter(examples.take(packing.members), keys, packing.starts)

    def _epoch_order(self, epoch: int) -> tuple[Integers, Integers]:
        """The stretches in the order of an epoch, and where its chapters begin in it."""
        known = self._order  # one read: the background thread may replace it
        if known is None or known[0] != epoch:
            order = shuffled(len(self.stretches.start), make_key(self._key, epoch, 4))
            tokens = np.cumsum(self.stretches.tokens[order])
            shares = self.num_tokens * np.arange(1, self.num_chapters) // self.num_chapters
            cuts = np.concatenate([[0], np.searchsorted(tokens, shares), [len(order)]])
            known = self._order = epoch, order, cuts
        return known[1], known[2]

    def _calibrate(self, row_tokens: int) -> Calibration:
        """Measure the first chapter: how many rows it fills, how many sequences and predictions a row needs."""
        lengths = self.plan(0).lengths
        if self.recipe.objective == "nsp" and self.num_documents == 1:
            raise DataError(
                f"{name_store(self.store)}: objective nsp needs at least two documents, and there is only one"
            )
        if not len(lengths):
            hint = "; they have one sentence each, and the recipe has one_sentence: skip"
            why = hint if self.num_tokens and self.recipe.pairs and self.recipe.one_sentence == "skip" else ""
            raise DataError(
                f"{name_store(self.store)}: no examples can be made from {self.num_documents:,} documents{why}"
            )
        rate = row_tokens / float(lengths.sum())
        if row_tokens == self.recipe.max_length:  # one sequence a row: padding instead of packing
            return Calibration(len(lengths), Capacity(row_tokens, 1, int(self.budgets.max())))
        sequences = math.ceil(1.5 * len(lengths) * rate) + 4
        # What sequences * max(1, round(length * mask_rate)) can come to, and what it does come to in the mean.
        bound = math.ceil(row_tokens * self.recipe.mask_rate + sequences / 2)
        usual = math.ceil(1.2 * float(self.budgets[lengths].sum()) * rate) + int(self.budgets.max())
        capacity = Capacity(row_tokens, sequences, max(min(bound, usual), int(self.budgets.max())))
        lengths = lengths[shuffled(len(lengths), make_key(self._key, 0, 2))]
        packing = pack(lengths, self.budgets[lengths], capacity)
        last = int(lengths[packing.members[packing.starts[-2] :]].sum())
        rows = len(packing.starts) - 1 - (last < row_tokens / 2)  # drop a last row that is half empty
        return Calibration(max(rows, 1), capacity)


def name_store(store: Store) -> str:
    """A store's name in messages: its path if it has one."""
    return str(getattr(store, "path", "the store"))


def pack(lengths: Integers, budgets: Integers, capacity: Capacity, num_rows: int | None = None) -> Packing:
    """Fill rows from a queue (the order given); `budgets` are the predictions each sequence may need.

    A row takes the next sequence of the queue as long as it fits, then the longest of the next `AHEAD` ones that fits
    the gap. Short sequences are common enough in real text that only a few tokens are left over.

    Without `num_rows`, every sequence is placed once and the last row may be far from full. With it, exactly that
    many rows are filled: what is left over is dropped, and a queue that runs dry starts again.
    """
    longest = int(lengths.max())
    length_of, budget_of = lengths.tolist(), budgets.tolist()
    waiting: list[list[int]] = [[] for _ in range(longest + 1)]  # by length: numbers in the queue
    lengths_waiting = 0  # bit n is set if waiting[n] may hold something
    placed = bytearray()  # one per number in the queue that has been let in
    members: list[int] = []
    starts = [0]
    head = 0  # the oldest number in the queue that may not be placed yet
    num_sequences = len(length_of)
    for row in count():
        if row == num_rows:
            break
        # Let in as many as the row can hold and `AHEAD` more.
        target = head + AHEAD + capacity.sequences
        if num_rows is None:
            target = min(target, num_sequences)
        for number in range(len(placed), target):
            length = length_of[number % num_sequences]
            waiting[length].append(number)
            lengths_waiting |= 1 << length
            placed.append(0)
        tokens, sequences, predictions = capacity
        while head < len(placed):  # the queue, in order
            if not placed[head]:
                index = head % num_sequences
                length, budget = length_of[index], budget_of[index]
                if length > tokens or not sequences or budget > predictions:
                    break
                placed[head] = 1
                members.append(index)
                tokens, sequences, predictions = tokens - length, sequences - 1, predictions - budget
            head += 1
        while sequences:  # the gap: the longest that fits
            length = (lengths_waiting & ((2 << min(tokens, longest)) - 1)).bit_length() - 1
            if length < 0:
                break
            queue = waiting[length]
            while queue and placed[queue[-1]]:
                queue.pop()
            if not queue:
                lengths_waiting ^= 1 << length
                continue
            index = queue[-1] % num_sequences
            if budget_of[index] > predictions:
                break
            placed[queue.pop()] = 1
            members.append(index)
            tokens, sequences, predictions = tokens - length, sequences - 1, predictions - budget_of[index]
        if len(members) == starts[-1]:
            break
        starts.append(len(members))
    return Packing(np.array(members, np.int64), np.array(starts, np.int64))
