"""Tags of words: the most frequent tag of a word, also with its neighbours, or a linear model on word vectors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.baselines.features import WordVectors
from litebert.baselines.labels import LinearModel
from litebert.tasks.examples import TagExample
from litebert.tasks.kinds.kind import most_common
from litebert.tasks.task import Task

EDGE = ""  # before the first word and after the last
MAX_WORDS = 100_000  # used to fit the linear model

Context = Callable[[Sequence[str], int], tuple[str, ...]]

# From the most specific context to the least.
CONTEXTS: dict[str, tuple[Context, ...]] = {
    "bow": (lambda words, i: (words[i],), lambda words, i: (words[i].lower(),)),
    "ngram": (
        lambda words, i: (_at(words, i - 1), words[i], _at(words, i + 1)),
        lambda words, i: (_at(words, i - 1), words[i]),
        lambda words, i: (words[i],),
        lambda words, i: (words[i].lower(),),
    ),
}
WHAT = {
    "bow": "the most frequent tag of each word",
    "ngram": "the most frequent tag of each word between its neighbours, backing off to the word",
}


def guess_tags(
    kind: str, train: Sequence[TagExample], splits: Mapping[str, Sequence[TagExample]]
) -> tuple[str, dict[str, list[tuple[int, ...]]]]:
    """By counting ("bow" or "ngram"); a word unseen in training gets the most common tag."""
    contexts = CONTEXTS[kind]
    counts: list[defaultdict[tuple[str, ...], Counter[int]]] = [defaultdict(Counter) for _ in contexts]
    everything: Counter[int] = Counter()
    for words, place, tag in _places(train):
        everything[tag] += 1
        for context, counted in zip(contexts, counts, strict=True):
            counted[context(words, place)][tag] += 1
    known = [{context: most_common(tags) for context, tags in counted.items()} for counted in counts]
    usual: int = most_common(everything)

    def tag_of(words: Sequence[str], place: int) -> int:
        found = (best.get(context(words, place)) for context, best in zip(contexts, known, strict=True))
        return next((tag for tag in found if tag is not None), usual)

    return WHAT[kind], {
        name: [tuple(tag_of(example.words, place) for place in range(len(example.words))) for example in examples]
        for name, examples in splits.items()
    }


def guess_tags_by_vectors(
    task: Task,
    kind: str,
    train: Sequence[TagExample],
    splits: Mapping[str, Sequence[TagExample]],
    seed: int = 0,
    corpus: Iterable[list[str]] | None = None,
) -> tuple[str, dict[str, list[tuple[int, ...]]]]:
    """By logistic regression on the vectors of a word and its neighbours ("word2vec" or "fasttext")."""
    vectors = WordVectors.train(kind, corpus or [_lower(example.words) for example in train], seed)
    model = LinearModel(task, seed)
    places = list(_places(train))
    if len(places) > MAX_WORDS:
        chosen = np.random.default_rng(seed).choice(len(places), MAX_WORDS, replace=False)
        places = [places[i] for i in sorted(chosen.tolist())]
    model.fit(np.stack([_features(words, i, vectors) for words, i, _ in places]), [tag for _, _, tag in places])
    values: dict[str, list[tuple[int, ...]]] = {}
    for name, examples in splits.items():
        rows = [_features(e.words, place, vectors) for e in examples for place in range(len(e.words))]
        found = iter(model.predict(np.stack(rows)))
        values[name] = [tuple(next(found) for _ in example.words) for example in examples]
    what = f"{model.what} on {vectors.size}-wide vectors of a word and its neighbours, fitted on {len(places):,} words"
    return what, values


def _places(examples: Sequence[TagExample]) -> Iterator[tuple[Sequence[str], int, int]]:
    for example in examples:
        for place, tag in enumerate(example.tags or ()):
            yield example.words, place, tag


def _features(words: Sequence[str], place: int, vectors: WordVectors) -> NDArray[Any]:
    """[3 * size]: the word before, the word, the word after; zeros for unknown words."""
    row = np.zeros((3, vectors.size), np.float32)
    for part, near in zip(row, (place - 1, place, place + 1), strict=True):
        found = vectors.find([word] if (word := _at(words, near).lower()) else [])
        if found.size:
            part[:] = found[0]
    return row.ravel()


def _at(words: Sequence[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else EDGE


def _lower(words: Sequence[str]) -> list[str]:
    return [word.lower() for word in words]
