"""Multiple choice, question answering and similarity by word overlap alone.

Multiple choice: the option that, with the question, shares most words with the passage. Question answering: in the
sentence most similar to the question, the words nearest to the question's words that have the expected shape (with a
digit, with a capital, neither), which a linear model predicts from the question. It always gives an answer.
Similarity: cosines of counts or word vectors, and BM25 for search.

Shapes: N examples, M different texts to find, V words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from litebert.baselines.features import Encoder, cosine
from litebert.baselines.labels import LinearModel
from litebert.tasks.kinds.multiple_choice import fill_gap
from litebert.tasks.kinds.similarity import numbered, search_ranks
from litebert.tasks.task import ChoiceExample, QuestionExample, SimilarityExample, Task
from litebert.text.lexical import K1, B, WordSearch, split_words, word_spans
from litebert.text.sentences import sentence_spans


def choose_by_window(splits: Mapping[str, Sequence[ChoiceExample]]) -> tuple[str, dict[str, list[int]]]:
    """The sliding window of Richardson et al. (2013): words of question and option close together in the passage."""

    def score(example: ChoiceExample) -> list[float]:
        passage = split_words(example.passage)
        counts = Counter(passage)
        weights = {word: math.log(1 + 1 / count) for word, count in counts.items()}  # a rare word counts more
        return [window_score(passage, set(split_words(asked)), weights) for asked in _asked([example])]

    return "words of question + option within a sliding window of the passage", _choose(splits, score)


def window_score(passage: Sequence[str], wanted: set[str], weights: Mapping[str, float]) -> float:
    """The best window of len(wanted) words: the summed weights of its wanted words."""
    if not passage or not wanted:
        return 0.0
    hits = np.array([weights[word] if word in wanted else 0.0 for word in passage])
    sums = np.concatenate([[0.0], np.cumsum(hits)])
    size = min(len(wanted), len(passage))
    return float((sums[size:] - sums[:-size]).max())


def choose_by_similarity(
    train: Sequence[ChoiceExample], splits: Mapping[str, Sequence[ChoiceExample]], encoder: Encoder
) -> tuple[str, dict[str, list[int]]]:
    """The option for which question + option is most similar (cosine) to the passage."""
    encoder.fit([*dict.fromkeys(e.passage for e in train), *_asked(train)])
    values = {}
    for name, examples in splits.items():
        asked = encoder.transform(_asked(examples))
        places = {passage: place for place, passage in enumerate(dict.fromkeys(e.passage for e in examples))}
        passages = encoder.transform(list(places))
        row_of = [places[e.passage] for e in examples for _ in e.options]
        scores = iter(cosine(asked, passages[row_of]).tolist())
        values[name] = [int(np.argmax([next(scores) for _ in e.options])) for e in examples]
    return f"similarity of question + option with the passage, by {encoder.what}", values


def _asked(examples: Sequence[ChoiceExample]) -> list[str]:
    """Question and option as one text, for every option of every question."""
    return [fill_gap(example.question, option) for example in examples for option in example.options]


def _choose(
    splits: Mapping[str, Sequence[ChoiceExample]], score: Callable[[ChoiceExample], Any]
) -> dict[str, list[int]]:
    return {name: [int(np.argmax(score(example))) for example in examples] for name, examples in splits.items()}


NUMBER, NAME, OTHER = range(3)
SHAPES = Task("shape", "classification", ("number", "name", "other"))
COMMON = 100  # the most frequent words are never an answer


@dataclass(frozen=True)
class Stretch:
    """Consecutive words that are not in the question."""

    begin: int
    end: int
    shape: int
    distance: int  # to the nearest word of the question, in words


def guess_answers(
    train: Sequence[QuestionExample], splits: Mapping[str, Sequence[QuestionExample]], encoder: Encoder, seed: int = 0
) -> tuple[str, dict[str, list[str]]]:
    """A description of the method, and an answer to each question of each split."""
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
    """The most frequent words of some texts, except numbers: "the", "of", ..."""
    counts = Counter(word for text in texts for word in split_words(text) if not word[0].isdigit())
    return {word for word, _ in counts.most_common(COMMON)}


def find_sentences(examples: Sequence[QuestionExample], encoder: Encoder) -> list[str]:
    """The sentence of each context that is most similar to the question."""
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
    """The words of the sentence nearest to the question's words, preferably of the expected shape."""
    stretches = find_stretches(sentence, set(split_words(question)), common)
    if not stretches:
        return sentence
    best = min(stretches, key=lambda stretch: (stretch.shape != shape, stretch.distance))
    return sentence[best.begin : best.end]


def find_stretches(sentence: str, asked: set[str], common: set[str]) -> list[Stretch]:
    """The longest stretches of a sentence without words of the question, frequent words and punctuation."""
    spans = word_spans(sentence)
    words = [sentence[begin:end].lower() for begin, end in spans]
    telling = np.array([place for place, word in enumerate(words) if word in asked and word not in common])
    is_free = [word[0].isalnum() and word not in asked and word not in common for word in words]
    stretches, first = [], 0
    for place, free in enumerate([*is_free, False]):
        if free:
            continue
        if place > first:
            begin, end = spans[first][0], spans[place - 1][1]
            distance = (
                min((int(min(abs(telling - at))) for at in range(first, place)), default=0) if len(telling) else 0
            )
            # The first word of a sentence always has a capital.
            text = sentence[begin:end] if first else sentence[begin : begin + 1].lower() + sentence[begin + 1 : end]
            stretches.append(Stretch(begin, end, shape_of(text), distance))
        first = place + 1
    return stretches


def shape_of(answer: str) -> int:
    """ "in 1999" -> NUMBER, "Marie Curie" -> NAME, "the heart" -> OTHER."""
    if any(map(str.isdigit, answer)):
        return NUMBER
    return NAME if any(map(str.isupper, answer)) else OTHER


# ---------------------------------------------------------------------------------------------------------------------
# Similarity


def guess_similarity(
    kind: str, splits: Mapping[str, Sequence[SimilarityExample]], encoder: Encoder
) -> tuple[str, dict[str, list[float]]]:
    """A description of the method, and its value for each example; "tfidf" searches by BM25.

    No label is used; how rare words are is counted in the split itself.
    """
    values = {}
    what = ""
    for name, examples in splits.items():
        if examples[0].form == "pairs" and kind == "tfidf":
            values[name] = search_by_bm25(examples)
            what = f"BM25 of words (k1 {K1}, b {B})"
            continue
        encoder.fit([text for example in examples for text in example.texts])
        sides = [encoder.transform(list(texts)) for texts in zip(*(e.texts for e in examples), strict=True)]
        what = f"cosine of {encoder.what}"
        if examples[0].form == "pairs":
            values[name] = _search(examples, *sides)
        else:
            near = cosine(sides[0], sides[1])
            values[name] = (near - cosine(sides[0], sides[2]) if len(sides) > 2 else near).tolist()
    return what, values


def search_by_bm25(examples: Sequence[SimilarityExample]) -> list[float]:
    """The rank of each second text among all of them, by BM25 of the first one's words."""
    places, first = numbered([example.texts[1] for example in examples])
    texts = [examples[place].texts[1] for place in first]
    searched = WordSearch(texts)
    asked = searched.count([example.texts[0] for example in examples])
    return [float(rank) for rank in search_ranks(lambda part: searched.sums(asked[part]), places)]


def _search(examples: Sequence[SimilarityExample], asked: Any, found: Any) -> list[float]:
    from sklearn.preprocessing import normalize

    places, first = numbered([example.texts[1] for example in examples])
    asked, found = normalize(asked), normalize(found[first])

    def scores_of(part: slice) -> Any:
        scores = asked[part] @ found.T
        return scores.toarray() if hasattr(scores, "toarray") else scores

    return [float(rank) for rank in search_ranks(scores_of, places)]
