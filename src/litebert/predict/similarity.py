"""similarity and search: how close texts are in meaning, by the cosine of their vectors, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError
from litebert.predict.ability import Applied, Limits, Result, ability
from litebert.predict.job import Inputs, Steps
from litebert.predict.texts import POOLINGS, mean_vector, trained_pooling, unit_vector
from litebert.tasks.task import Task
from litebert.text.lexical import WordSearch

Cosine = Annotated[float, Limits(-1, 1)]
Pooling = Annotated[
    Literal["mean", "cls"] | None, "The mean of all tokens, or the state of [CLS]; by default as trained, or mean."
]
LEXICAL = 0.6  # chosen on training questions of SQuAD (benchmarks/hybrid_search.py)


@dataclass(frozen=True)
class Similarity(Result):
    """How similar two texts are."""

    score: Annotated[Cosine, "The cosine of the two vectors: 1 for the same text."]
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The score alone."""
        return {"score": self.score}


@dataclass(frozen=True)
class Hit:
    """A text that was found."""

    index: Annotated[int, "Its place in the given texts, from 0."]
    text: str
    score: Annotated[Cosine, "How near it is: (1 - lexical) * cosine + lexical * the share of the query's words."]


@dataclass(frozen=True)
class Found(Result):
    """The texts nearest to a query."""

    hits: Annotated[tuple[Hit, ...], "The nearest first; of equal ones, the first given."]
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The best hit."""
        best = self.hits[0]
        return {"index": best.index, "text": best.text, "score": best.score}


@ability(
    outputs=["mean", "first"],
    examples=[{"a": "a man plays the guitar.", "b": "someone makes music."}],
    also=["similar", "cosine", "sts"],
)
def similarity(
    inputs: Inputs,
    task: Task | None,
    a: Annotated[str, "The first text."],
    b: Annotated[str, "The second text."],
    pooling: Pooling = None,
) -> Steps[Similarity]:
    """Compare two texts by the cosine of their vectors.

    How much the score means depends on the model: only one that was trained for similarity spreads texts well.
    """
    first, second = yield from _vectors(inputs, {"a": a, "b": b}, pooling or trained_pooling(task))
    return Similarity(_cosine(float(first @ second)))


@ability(
    outputs=["mean", "first"],
    examples=[
        {
            "query": "how do plants grow?",
            "texts": ["a seed needs water and light.", "the train leaves at noon.", "roots take up water."],
        }
    ],
    also=["find", "nearest", "rank", "rerank", "retrieve"],
    one_by_one=True,
)
def search(
    inputs: Inputs,
    task: Task | None,
    query: Annotated[str, "What to look for."],
    texts: Annotated[Sequence[str], "The texts to search.", Limits(1, served=1000)],
    top: Annotated[int, "How many texts to return.", Limits(1, served=1000)] = 10,
    pooling: Pooling = None,
    lexical: Annotated[
        float, "How much shared words count (BM25): 0 for the vectors alone, 1 for words alone.", Limits(0, 1)
    ] = LEXICAL,
) -> Steps[Found]:
    """Find the texts nearest to a query: by the cosine of their vectors, and by the words they share with it.

    Words are weighed as BM25 does: rare ones count more. How rare they are is counted in the given texts.
    """
    named = {"query": query} | {f"texts[{number}]": text for number, text in enumerate(texts)}
    query_vector, *vectors = yield from _vectors(inputs, named, pooling or trained_pooling(task))
    scores = (1 - lexical) * (np.stack(vectors) @ query_vector)
    if lexical:
        scores += lexical * shared_words(query, texts)
    best = np.argsort(-scores, kind="stable")[:top]
    return Found(tuple(Hit(int(i), texts[int(i)], _cosine(scores[i])) for i in best))


def shared_words(query: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """BM25 of a query with each text [M], between 0 and 1."""
    try:
        return WordSearch(texts).scores([query])[0]
    except DataError:  # no text has a word, so none shares one
        return np.zeros(len(texts))


def _vectors(inputs: Inputs, texts: dict[str, str], pooling: str) -> Steps[list[NDArray[np.float64]]]:
    """The vector of each text, of length 1; all of them in one step."""
    name = POOLINGS[pooling]
    windows = [inputs.windows(inputs.encode(text, where)) for where, text in texts.items()]
    outputs = yield [inputs.request(window, want=(name,)) for each in windows for window in each]
    ends = np.cumsum([len(each) for each in windows])
    parts = (outputs[end - len(each) : end] for each, end in zip(windows, ends, strict=True))
    return [unit_vector(mean_vector(part, name)) for part in parts]


def _cosine(value: float) -> float:
    return float(np.clip(value, -1.0, 1.0))  # rounding may leave the range
