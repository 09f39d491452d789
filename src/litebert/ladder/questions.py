"""Questions about a text, the floor: the most similar sentence, and in it words of the right shape near the question's.

The shape of an answer (with a digit, with a capital, neither) is told from the question by a linear model. There is
always an answer: where a text may have none, "never an answer" is the guess to beat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from litebert.ladder.encoders import Encoder, cosine
from litebert.ladder.linear import LinearModel
from litebert.ladder.words import split_words, word_spans
from litebert.tasks.examples import QuestionExample
from litebert.tasks.task import Task
from litebert.text.sentences import sentence_spans

NUMBER, NAME, OTHER = range(3)
SHAPES = Task("shape", "classification", ("number", "name", "other"))
COMMON = 100  # so many most frequent words answer nothing


@dataclass(frozen=True)
class Run:
    """A stretch of words that the question does not hold."""

    begin: int
    end: int
    shape: int
    distance: int  # to the nearest word of the question, in words


def guess_answers(
    train: Sequence[QuestionExample], splits: Mapping[str, Sequence[QuestionExample]], encoder: Encoder, seed: int = 0
) -> tuple[str, dict[str, list[str]]]:
    """What it is in words, and an answer for each question of each split."""
    contexts = list(dict.fromkeys(example.context for example in train))
    common = find_common(contexts)
    answered = [example for example in train if example.answers]
    encoder.fit([*contexts, *(example.question for example in train)])
    shapes = LinearModel(SHAPES, seed)
    shapes.fit(
        encoder.transform([example.question for example in answered]),
        [shape_of(example.answers[0]) for example in answered],
    )
    values = {}
    for name, examples in splits.items():
        wanted = shapes.predict(encoder.transform([example.question for example in examples]))
        sentences = find_sentences(examples, encoder)
        values[name] = [
            guess_answer(example.question, sentence, shape, common)
            for example, sentence, shape in zip(examples, sentences, wanted, strict=True)
        ]
    return f"words of the right shape in the most similar sentence, by {encoder.what}", values


def find_common(texts: Sequence[str]) -> set[str]:
    """The most frequent words of some texts, but for numbers: "the", "of", ..."""
    counts = Counter(word for text in texts for word in split_words(text) if not word[0].isdigit())
    return {word for word, _ in counts.most_common(COMMON)}


def find_sentences(examples: Sequence[QuestionExample], encoder: Encoder) -> list[str]:
    """Of each context the sentence that is most similar to the question."""
    texts: list[str] = []
    rows: list[int] = []
    for row, example in enumerate(examples):
        spans = sentence_spans(example.context) or [(0, len(example.context))]
        texts += [example.context[begin:end] for begin, end in spans]
        rows += [row] * len(spans)
    asked = encoder.transform([example.question for example in examples])
    scores = cosine(encoder.transform(texts), asked[rows])
    best: dict[int, int] = {}
    for place, row in enumerate(rows):
        if row not in best or scores[place] > scores[best[row]]:
            best[row] = place
    return [texts[best[row]] for row in range(len(examples))]


def guess_answer(question: str, sentence: str, shape: int, common: set[str]) -> str:
    """Words of the sentence that the question does not hold, of the wanted shape, nearest to those it does."""
    runs = find_runs(sentence, set(split_words(question)), common)
    if not runs:
        return sentence
    run = min(runs, key=lambda run: (run.shape != shape, run.distance))
    return sentence[run.begin : run.end]


def find_runs(sentence: str, asked: set[str], common: set[str]) -> list[Run]:
    """Longest stretches of a sentence without words of the question, frequent words and punctuation."""
    spans = word_spans(sentence)
    words = [sentence[begin:end].lower() for begin, end in spans]
    telling = np.array([place for place, word in enumerate(words) if word in asked and word not in common])
    is_free = [word[0].isalnum() and word not in asked and word not in common for word in words]
    runs, first = [], 0
    for place, free in enumerate([*is_free, False]):
        if free:
            continue
        if place > first:
            begin, end = spans[first][0], spans[place - 1][1]
            distance = (
                min((int(min(abs(telling - at))) for at in range(first, place)), default=0) if len(telling) else 0
            )
            # The first word of a sentence has a capital whatever it is.
            text = sentence[begin:end] if first else sentence[begin : begin + 1].lower() + sentence[begin + 1 : end]
            runs.append(Run(begin, end, shape_of(text), distance))
        first = place + 1
    return runs


def shape_of(answer: str) -> int:
    """ "in 1999" -> NUMBER, "Marie Curie" -> NAME, "the heart" -> OTHER."""
    if any(map(str.isdigit, answer)):
        return NUMBER
    return NAME if any(map(str.isupper, answer)) else OTHER
