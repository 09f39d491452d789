"""Examples as model inputs: unpadded sequences of ids with [CLS] and [SEP], and what is to be predicted from them.

    text_sequence(tokenizer, "a film", "a movie", 128)  -> [CLS] ▁a ▁film [SEP] ▁a ▁movie [SEP], segments 0000 111

One text or pair is one sequence, an option of a question is one, and a long context becomes several windows.
`make_features` does a whole split at once, with the fast batch tokenizer wherever offsets are not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.examples import ChoiceExample, Example, QuestionExample, TagExample, TextExample
from litebert.tasks.task import Task
from litebert.tasks.windows import best_windows, cut_windows, stride_for
from litebert.text.tokenizer import Tokenizer

IGNORE = -100  # the target of a token that has none
Ids = NDArray[np.int32]
Target = int | float | NDArray[np.float32] | NDArray[np.int64] | tuple[int, int, bool]

E = TypeVar("E")

_GAP = re.compile("_+")  # a line drawn of several is one gap


@dataclass(frozen=True, slots=True)
class Sequence:
    """One model input, unpadded, with [CLS] and [SEP]s; `example` is the place of its example in the split.

    The target is a label id (also of the right option, on every option), a number, a 0/1 vector (multi-label),
    tag ids [len] with -100 where a token has none, or (start, end, impossible) token positions of an answer.
    """

    ids: Ids
    segments: NDArray[np.int8]
    example: int = 0
    target: Target | None = None
    cut: int = 0  # tokens of the text that did not fit
    option: int = 0  # multiple choice: the number of the option
    offsets: NDArray[np.int32] | None = None  # [len, 2] characters, into the context or the words joined by spaces
    words: NDArray[np.int32] | None = None  # tags: the word at its first piece where this window decides it, else -1
    inside: NDArray[np.bool_] | None = None  # question answering: a token of the context
    max_context: NDArray[np.bool_] | None = None  # question answering: no other window sees this token better

    @property
    def outside(self) -> NDArray[np.bool_] | None:
        """Where no answer can lie: everything but the context and [CLS], which stands for "no answer"."""
        if self.inside is None:
            return None
        outside = ~self.inside
        outside[0] = False
        return outside


def make_features(task: Task, examples: Many[Example], tokenizer: Tokenizer, num_threads: int = 1) -> list[Sequence]:
    """All sequences of a split, in the order of its examples."""
    if task.kind == "token-classification":
        return [
            sequence
            for number, example in enumerate(_only(TagExample, examples))
            for sequence in _tag_windows(tokenizer, example.words, example.tags, task.max_length, number)
        ]
    if task.kind == "multiple-choice":
        return _choice_features(task, _only(ChoiceExample, examples), tokenizer, num_threads)
    if task.kind == "question-answering":
        return _question_features(task, _only(QuestionExample, examples), tokenizer, num_threads)
    return _text_features(task, _only(TextExample, examples), tokenizer, num_threads)


# ---------------------------------------------------------------------------------------------------------------------
# One text or a pair


def text_sequence(tokenizer: Tokenizer, a: str, b: str | None, max_length: int) -> Sequence:
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]; what does not fit is cut from the tail of the longer text."""
    first, *second = tokenizer.encode_batch([a] if b is None else [a, b])
    return _join(tokenizer, first, second[0] if second else None, max_length)


def _text_features(task: Task, examples: Many[TextExample], tokenizer: Tokenizer, num_threads: int) -> list[Sequence]:
    firsts = tokenizer.encode_batch([example.a for example in examples], num_threads)
    seconds = iter(tokenizer.encode_batch([example.b for example in examples if example.b is not None], num_threads))
    features = []
    for number, (example, first) in enumerate(zip(examples, firsts, strict=True)):
        second = None if example.b is None else next(seconds)
        target: Target | None
        if isinstance(example.label, tuple):
            target = np.zeros(len(task.labels), dtype=np.float32)
            target[list(example.label)] = 1
        else:
            target = example.label
        features.append(_join(tokenizer, first, second, task.max_length, number, target))
    return features


def cut_pair(a: int, b: int, room: int) -> tuple[int, int]:
    """How many tokens of two texts stay if the longer one (b of equals) always loses its last: (5, 9, 10) -> (5, 5)."""
    if a + b <= room:
        return a, b
    half = (room + 1) // 2
    if a < half:
        return a, room - a
    if b < room - half:
        return room - b, b
    return half, room - half


def _join(
    tokenizer: Tokenizer, a: Ids, b: Ids | None, max_length: int, example: int = 0, target: Target | None = None
) -> Sequence:
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
    return Sequence(ids, segments, example, target, lost)


# ---------------------------------------------------------------------------------------------------------------------
# Multiple choice: [CLS] passage [SEP] question + option [SEP], once per option


def choice_sequences(
    tokenizer: Tokenizer, passage: str, question: str, options: Many[str], max_length: int = 512, max_option: int = 128
) -> list[Sequence]:
    """One sequence per option: the tail of question + option is kept, the passage gives way."""
    encoded = tokenizer.encode_batch([passage, *(fill_gap(question, option) for option in options)])
    pairs = enumerate(encoded[1:])
    return [_join_choice(tokenizer, encoded[0], ids, max_length, max_option, number) for number, ids in pairs]


def fill_gap(question: str, option: str) -> str:
    """RACE's rule: ("He is _ .", "old") -> "He is old ."; without a gap the option follows the question.

    As in the released code every gap is filled; unlike there, a run of `_` is one gap.
    """
    if "_" in question:
        return _GAP.sub(lambda _: option, question)
    return f"{question} {option}".strip()


def _choice_features(
    task: Task, examples: Many[ChoiceExample], tokenizer: Tokenizer, num_threads: int
) -> list[Sequence]:
    passages = dict.fromkeys(example.passage for example in examples)  # one passage has several questions
    encoded_passages = dict(zip(passages, tokenizer.encode_batch(list(passages), num_threads), strict=True))
    texts = [fill_gap(example.question, option) for example in examples for option in example.options]
    encoded = iter(tokenizer.encode_batch(texts, num_threads))
    return [
        _join_choice(
            tokenizer,
            encoded_passages[example.passage],
            next(encoded),
            task.max_length,
            task.max_option,
            place,
            number,
            example.label,
        )
        for number, example in enumerate(examples)
        for place in range(len(example.options))
    ]


def _join_choice(
    tokenizer: Tokenizer,
    passage: Ids,
    option: Ids,
    max_length: int,
    max_option: int,
    number: int,
    example: int = 0,
    target: int | None = None,
) -> Sequence:
    # At the paper's 512 the option has its 128; in a shorter model it leaves half of the room to the passage.
    keep = min(max_option, max_length - 3 - min(len(passage), (max_length - 3) // 2))
    kept = option[-keep:]
    sequence = _join(tokenizer, passage[: max_length - 3 - len(kept)], kept, max_length, example, target)
    lost = len(passage) + len(option) + 3 - len(sequence.ids)
    return Sequence(sequence.ids, sequence.segments, example, target, lost, number)


# ---------------------------------------------------------------------------------------------------------------------
# Tags: a word is decided at its first piece


def tag_windows(tokenizer: Tokenizer, words: Many[str], max_length: int) -> list[Sequence]:
    """Words joined by spaces, as one sequence or, where they do not fit, as overlapping windows."""
    return _tag_windows(tokenizer, words, None, max_length, 0)


def _tag_windows(
    tokenizer: Tokenizer, words: Many[str], tags: Many[int] | None, max_length: int, example: int
) -> list[Sequence]:
    ids, offsets = tokenizer.encode_arrays(" ".join(words))
    ends = np.cumsum([len(word) + 1 for word in words])  # of each word with its space, in the joined text
    word_of = np.searchsorted(ends, offsets[:, 0], side="right")
    # The first piece with text in it: a "▁" that stands alone says nothing yet.
    shown = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    first_words, places = np.unique(word_of[shown], return_index=True)
    first = np.full(len(ids), -1, dtype=np.int32)
    first[shown[places]] = first_words

    room = max_length - 2
    windows = cut_windows(len(ids), room, room - room // 4)
    owner = best_windows(windows, len(ids))
    sequences = []
    for number, (start, length) in enumerate(windows):
        here = slice(start, start + length)
        decided = np.full(length + 2, -1, dtype=np.int32)
        decided[1:-1] = np.where(owner[here] == number, first[here], -1)
        target = None
        if tags is not None:
            target = np.full(length + 2, IGNORE, dtype=np.int64)
            target[decided >= 0] = np.array(tags, dtype=np.int64)[decided[decided >= 0]]
        sequences.append(
            Sequence(
                _wrap(tokenizer, ids[here]),
                np.zeros(length + 2, dtype=np.int8),
                example,
                target,
                offsets=_padded(offsets[here], 1, 1),
                words=decided,
            )
        )
    return sequences


# ---------------------------------------------------------------------------------------------------------------------
# Question answering: [CLS] question [SEP] a window of the context [SEP]


def question_windows(task: Task, tokenizer: Tokenizer, question: str, context: str) -> list[Sequence]:
    """The question with each window of its context, as long and as far apart as the task says."""
    question_ids = tokenizer.encode_batch([question])[0]
    return _question_windows(task, tokenizer, question_ids, Context(tokenizer, context), 0)


class Context:
    """A context tokenised once, for all of its questions."""

    def __init__(self, tokenizer: Tokenizer, text: str):
        self.ids, self.offsets = tokenizer.encode_arrays(text)

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """First and last token of the characters start to end (exclusive); None if no token lies there."""
        touching = np.flatnonzero((self.offsets[:, 1] > start) & (self.offsets[:, 0] < end))
        return (int(touching[0]), int(touching[-1])) if len(touching) else None


def _question_features(
    task: Task, examples: Many[QuestionExample], tokenizer: Tokenizer, num_threads: int
) -> list[Sequence]:
    questions = tokenizer.encode_batch([example.question for example in examples], num_threads)
    contexts: dict[str, Context] = {}
    features = []
    for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
        context = contexts.get(example.context)
        if context is None:
            context = contexts[example.context] = Context(tokenizer, example.context)
        answer = None
        labelled = example.impossible
        for text, start in zip(example.answers, example.starts, strict=True):
            if start >= 0 and text and not example.impossible:
                answer = context.tokens_of(start, start + len(text))
                labelled = True
                break
        features += _question_windows(task, tokenizer, question, context, number, answer, labelled)
    return features


def _question_windows(
    task: Task,
    tokenizer: Tokenizer,
    question: Ids,
    context: Context,
    example: int,
    answer: tuple[int, int] | None = None,
    labelled: bool = False,
) -> list[Sequence]:
    # A model too short for the paper's 64 still leaves half of its room to the context.
    question = question[: min(task.max_question, (task.max_length - 3) // 2)]
    before = len(question) + 2  # [CLS] question [SEP]
    room = task.max_length - before - 1
    windows = cut_windows(len(context.ids), room, task.stride or stride_for(room, task.max_answer))
    owner = best_windows(windows, len(context.ids))
    sequences = []
    for number, (start, length) in enumerate(windows):
        here = slice(start, start + length)
        size = before + length + 1
        ids = np.empty(size, dtype=np.int32)
        ids[0] = tokenizer.cls_id
        ids[1 : before - 1] = question
        ids[before - 1] = ids[-1] = tokenizer.sep_id
        ids[before:-1] = context.ids[here]
        segments = np.zeros(size, dtype=np.int8)
        segments[before:] = 1
        inside = np.zeros(size, dtype=np.bool_)
        inside[before:-1] = True
        max_context = np.zeros(size, dtype=np.bool_)
        max_context[before:-1] = owner[here] == number
        target: tuple[int, int, bool] | None = None
        if labelled:
            # A window without the whole answer is trained to point at [CLS], as the authors did (not thrown out).
            target = (0, 0, True)
            if answer is not None and start <= answer[0] and answer[1] < start + length:
                target = (answer[0] - start + before, answer[1] - start + before, False)
        sequences.append(
            Sequence(
                ids,
                segments,
                example,
                target,
                offsets=_padded(context.offsets[here], before, 1),
                inside=inside,
                max_context=max_context,
            )
        )
    return sequences


def _wrap(tokenizer: Tokenizer, ids: Ids) -> Ids:
    return np.concatenate([[tokenizer.cls_id], ids, [tokenizer.sep_id]], dtype=np.int32)


def _padded(offsets: NDArray[np.int32], before: int, after: int) -> NDArray[np.int32]:
    padded = np.zeros((before + len(offsets) + after, 2), dtype=np.int32)  # ten times faster than np.pad
    padded[before : before + len(offsets)] = offsets
    return padded


def _only(kind: type[E], examples: Iterable[Example]) -> list[E]:
    found = list(examples)
    assert all(isinstance(example, kind) for example in found), kind
    return found  # type: ignore[return-value]
