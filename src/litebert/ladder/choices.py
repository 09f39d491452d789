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

_BLANK = "_"  # RACE's gap, which the option fills


def ask(question: str, option: str) -> str:
    """Question and option as one text: ("He is _ .", "ill") -> "He is ill ."."""
    return question.replace(_BLANK, option) if _BLANK in question else f"{question} {option}"


def choose_by_window(splits: Mapping[str, Sequence[ChoiceExample]]) -> tuple[str, dict[str, list[int]]]:
    """The sliding window of Richardson et al. (2013): words of question and option in one stretch of the passage."""

    def score(example: ChoiceExample) -> list[float]:
        passage = split_words(example.passage)
        counts = Counter(passage)
        weights = {word: math.log(1 + 1 / count) for word, count in counts.items()}  # a rare word tells more
        return [window_score(passage, set(split_words(ask(example.question, o))), weights) for o in example.options]

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
    encoder.fit([*dict.fromkeys(e.passage for e in train), *(ask(e.question, o) for e in train for o in e.options)])
    values = {}
    for name, examples in splits.items():
        asked = encoder.transform([ask(e.question, option) for e in examples for option in e.options])
        places = {passage: place for place, passage in enumerate(dict.fromkeys(e.passage for e in examples))}
        passages = encoder.transform(list(places))
        row_of = [places[e.passage] for e in examples for _ in e.options]
        scores = iter(cosine(asked, passages[row_of]).tolist())
        values[name] = [int(np.argmax([next(scores) for _ in e.options])) for e in examples]
    return f"similarity of question + option with the passage, by {encoder.what}", values


def _choose(
    splits: Mapping[str, Sequence[ChoiceExample]], score: Callable[[ChoiceExample], Any]
) -> dict[str, list[int]]:
    return {name: [int(np.argmax(score(example))) for example in examples] for name, examples in splits.items()}
