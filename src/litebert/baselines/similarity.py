"""How near texts are by their words alone: cosines of counts or word vectors, and BM25 for search.

Shapes: N examples, M different texts to find, V words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from litebert.baselines.features import Encoder, choose_analysis, cosine, make_vectorizer
from litebert.errors import DataError
from litebert.tasks.examples import SimilarityExample
from litebert.tasks.kinds.similarity import numbered, search_ranks

K1, B = 1.2, 0.75  # as in Lucene: how soon a repeated word stops counting, how much long texts lose


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
    counter = make_vectorizer("bow", choose_analysis(texts))
    try:
        counts = counter.fit_transform(texts).tocsr().astype(float)  # [M, V]
    except ValueError:  # scikit-learn's "empty vocabulary"
        raise DataError("the texts contain no words") from None
    asked = counter.transform([example.texts[0] for example in examples]).tocsr()
    lengths = np.asarray(counts.sum(1)).ravel()
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    rarity = np.log(1 + (len(texts) - documents + 0.5) / (documents + 0.5))
    rows = np.repeat(np.arange(len(texts)), np.diff(counts.indptr))
    damping = K1 * (1 - B + B * lengths[rows] / max(lengths.mean(), 1e-9))
    counts.data = rarity[counts.indices] * counts.data * (K1 + 1) / (counts.data + damping)
    weights = counts.T.tocsr()
    return [float(rank) for rank in search_ranks(lambda part: (asked[part] @ weights).toarray(), places)]


def _search(examples: Sequence[SimilarityExample], asked: Any, found: Any) -> list[float]:
    from sklearn.preprocessing import normalize

    places, first = numbered([example.texts[1] for example in examples])
    asked, found = normalize(asked), normalize(found[first])

    def scores_of(part: slice) -> Any:
        scores = asked[part] @ found.T
        return scores.toarray() if hasattr(scores, "toarray") else scores

    return [float(rank) for rank in search_ranks(scores_of, places)]
