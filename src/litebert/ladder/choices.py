"""Multiple choice without learning: the option whose words, with the question's, are most at home in the passage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from litebert.ladder.encoders import Encoder, cosine
from litebert.ladder.words import split_words
from litebert.tasks.examples import ChoiceExample
from litebert.tasks.features import fill_gap


def choose_by_window(splits: Mapping[str, Sequence[ChoiceExample]]) -> tuple[str, dict[str, list[int]]]:
    """The sliding window of Richardson et al. (2013): words of question and option in one stretch of the passage."""

    def score(example: ChoiceExample) -> list[float]:
        passage = split_words(example.passage)
        counts = Counter(passage)
        weights = {word: math.log(1 + 1 / count) for word, count in counts.items()}  # a rare word tells more
        return [window_score(passage, set(split_words(asked)), weights) for asked in _asked([example])]

    return "words of question + option within a sliding window of the passage", _choose(splits, score)


def window_score(passage: Sequence[str], wanted: set[str], weights: Mapping[str, float]) -> float:
    """The best stretch of as many words as are wanted: the sum of the weights of those that are."""
    if not passage or not wanted:
        return 0.0
    hits = np.array([weights[word] if word in wanted else 0.0 for word in passage])
    sums = np.concatenate([[0.0], np.cumsum(hits)])
    size = min(len(wanted), len(passage))
    return float((sums[size:] - sums[:-size]).max())


def choose_by_similarity(
    train: Sequence[ChoiceExample], splits: Mapping[str, Sequence[ChoiceExample]], encoder: Encoder
) -> tuple[str, dict[str, list[int]]]:
    """The option that makes question + option most similar (by cosine) to the passage."""
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
