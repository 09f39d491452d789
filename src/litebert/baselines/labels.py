"""Predict labels of texts and tags of words: linear models (scikit-learn) on features, or the most frequent tag."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.baselines.features import Encoder, Matrix, WordVectors, cosine
from litebert.tasks.kinds.kind import most_common
from litebert.tasks.task import TagExample, Task, TextExample, kind_of
from litebert.text.lexical import split_words

STEPS = 1000


class LinearModel:
    """A linear model of a task's labels (or numbers, or sets of labels)."""

    def __init__(self, task: Task, seed: int = 0):
        self.task, self.seed, self.says = task, seed, kind_of(task).says
        self.what = "ridge regression" if self.says == "number" else "logistic regression"

    def fit(self, features: Matrix, labels: Sequence[Any]) -> None:
        """Fit on [N, D] features; dense ones are standardised first."""
        targets = self._targets(labels)
        self.model = self._make(sparse=hasattr(features, "tocsr"), constant=len(np.unique(targets)) == 1)
        with warnings.catch_warnings():
            # A constant label, or a fit that stops at STEPS, still makes a baseline.
            warnings.simplefilter("ignore")
            self.model.fit(features, targets)

    def predict(self, features: Matrix) -> list[Any]:
        """One value per row, in the form of the task's labels."""
        found = self.model.predict(features)
        if self.says == "labels":
            return [tuple(np.flatnonzero(row).tolist()) for row in found]
        if self.says == "number":
            return [float(value) for value in np.clip(found, self.low, self.high)]
        return [int(value) for value in found]

    def _targets(self, labels: Sequence[Any]) -> Any:
        if self.says == "labels":
            targets = np.zeros((len(labels), len(self.task.labels)), dtype=int)
            for row, ids in zip(targets, labels, strict=True):
                row[list(ids)] = 1
            return targets
        if self.says == "number":
            targets = np.array(labels, dtype=float)
            self.low, self.high = targets.min(), targets.max()
            return targets
        return np.array(labels)

    def _make(self, sparse: bool, constant: bool) -> Any:
        from sklearn.dummy import DummyClassifier
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if self.says == "number":
            model: Any = Ridge(random_state=self.seed)
        elif constant and self.says == "label":
            model = DummyClassifier()  # only one label: nothing to learn
        else:
            model = LogisticRegression(max_iter=STEPS, random_state=self.seed)
            if self.says == "labels":
                model = OneVsRestClassifier(model)
        return model if sparse else make_pipeline(StandardScaler(), model)


def guess_labels(
    task: Task,
    train: Sequence[TextExample],
    splits: Mapping[str, Sequence[TextExample]],
    encoder: Encoder,
    seed: int = 0,
) -> tuple[str, dict[str, list[Any]]]:
    """A description of the method, and its prediction for each example of each split."""
    encoder.fit([text for example in train for text in (example.a, example.b) if text is not None])
    model = LinearModel(task, seed)
    model.fit(make_features(train, encoder), [example.label for example in train])
    values = {name: model.predict(make_features(examples, encoder)) for name, examples in splits.items()}
    both = "; both texts, their difference, product and overlap" if train[0].b is not None else ""
    return f"{model.what} on {encoder.what}{both}", values


def make_features(examples: Sequence[TextExample], encoder: Encoder) -> Matrix:
    """[N, D]; for a pair: both texts, their difference, their product and their overlap."""
    a = encoder.transform([example.a for example in examples])
    if examples[0].b is None:
        return a
    b = encoder.transform([example.b or "" for example in examples])
    shared = overlaps(examples, cosine(a, b))
    if not hasattr(a, "tocsr"):
        return np.hstack([a, b, abs(a - b), a * b, shared])
    from scipy.sparse import csr_matrix, hstack

    return hstack([a, b, abs(a - b), a.multiply(b), csr_matrix(shared)], format="csr")


def overlaps(pairs: Sequence[TextExample], similarity: NDArray[Any]) -> NDArray[Any]:
    """[N, 5]: similarity; shared words as a fraction of all, of a, of b; log ratio of the lengths."""
    rows = np.zeros((len(pairs), 5))
    rows[:, 0] = similarity
    for row, pair in zip(rows, pairs, strict=True):
        a, b = set(split_words(pair.a)), set(split_words(pair.b or ""))
        both = len(a & b)
        row[1:] = (
            both / max(1, len(a | b)),
            both / max(1, len(a)),
            both / max(1, len(b)),
            np.log((1 + len(a)) / (1 + len(b))),
        )
    return rows


# -- tags --------------------------------------------------------------------------------------------------------------

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
