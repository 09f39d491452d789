"""Texts -> feature vectors: counts of words, TF-IDF, n-grams, mean word vectors.

make_encoder("tfidf").fit(texts), .transform(texts)  -> [N, D]

Shapes: N texts, D features.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError
from litebert.extras import require
from litebert.text.lexical import WORDS, choose_analysis, make_vectorizer, split_words
from litebert.text.readers import read_documents
from litebert.text.sources import find_sources

# -- word vectors ------------------------------------------------------------------------------------------------------

SIZE = 100
WINDOW = 5
BUCKETS = 100_000  # for fastText's n-grams; gensim's default of 2,000,000 needs 800 MB
SEEN = 3_000_000  # words to train on: small texts are repeated up to MAX_EPOCHS times, large ones MIN_EPOCHS times
MIN_EPOCHS, MAX_EPOCHS = 5, 50


class TextFiles:
    """The lines of text files as lists of words, read again on each iteration."""

    def __init__(self, paths: Sequence[Path | str]):
        self.sources = [source.path for source in find_sources(paths)]

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.sources:
            for document in read_documents(path):
                yield from map(split_words, document.lines)


class WordVectors:
    """Word vectors, trained by gensim in one thread (word2vec, or fastText, which also uses parts of words)."""

    def __init__(self, vectors: Any, knows_parts: bool):
        self._vectors, self._knows_parts = vectors, knows_parts
        self.size: int = vectors.vector_size

    @classmethod
    def train(cls, kind: str, corpus: Iterable[list[str]], seed: int = 0) -> WordVectors:
        """Train skip-gram vectors ("word2vec" or "fasttext") on lists of words."""
        models = require("gensim.models", f"the baseline {kind}")
        num_words = sum(map(len, corpus))
        if num_words == 0:
            raise DataError("the texts contain no words to learn vectors from")
        options: dict[str, Any] = {
            "vector_size": SIZE,
            "window": WINDOW,
            "sg": 1,
            "min_count": 1 if num_words < 100_000 else 2,
            "epochs": min(MAX_EPOCHS, max(MIN_EPOCHS, SEEN // num_words)),
            "seed": seed + 1,  # gensim's window generator takes 0 as no seed
            "workers": 1,
        }
        logging.getLogger("gensim").setLevel(logging.ERROR)  # it warns about every small text
        if kind == "fasttext":
            return cls(models.FastText(sentences=corpus, bucket=BUCKETS, **options).wv, True)
        return cls(models.Word2Vec(sentences=corpus, **options).wv, False)

    def __len__(self) -> int:
        return len(self._vectors.key_to_index)

    def find(self, words: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of the known words: [n, size]."""
        known = [word for word in words if self._knows_parts or word in self._vectors.key_to_index]
        return np.stack([self._vectors[word] for word in known]) if known else np.zeros((0, self.size), np.float32)


# -- encoders ----------------------------------------------------------------------------------------------------------

Matrix = Any  # a scipy.sparse matrix or a numpy array, [N, D]

LARGE = 5000  # from this many texts on, features of a single text are dropped


class Encoder(Protocol):
    """Turns texts into feature vectors; fitted on the training texts."""

    what: str  # a description for the table

    def fit(self, texts: Sequence[str]) -> None: ...

    def transform(self, texts: Sequence[str]) -> Matrix: ...


class Counts:
    """Counts of words ("bow"), of words and word pairs ("ngram"), or TF-IDF ("tfidf"), by scikit-learn."""

    def __init__(self, kind: str):
        self.kind, self.what = kind, ""

    def fit(self, texts: Sequence[str]) -> None:
        """Learn the vocabulary and its document frequencies."""
        analysis = choose_analysis(texts)
        self.vectorizer = make_vectorizer(self.kind, analysis, min_df=1 if len(texts) < LARGE else 2)
        try:
            self.vectorizer.fit(texts)
        except ValueError:  # scikit-learn's "empty vocabulary"
            raise DataError("the training texts contain no words") from None
        names = {"bow": "counts of", "tfidf": "TF-IDF of", "ngram": "counts of word pairs and"}
        size = len(self.vectorizer.get_feature_names_out())
        self.what = f"{size:,} {names[self.kind]} {analysis.what}"

    def transform(self, texts: Sequence[str]) -> Matrix:
        """[N, D], sparse."""
        return self.vectorizer.transform(texts)


class MeanVectors:
    """The mean of a text's word vectors ("word2vec", "fasttext"); zeros if no word is known."""

    def __init__(self, kind: str, seed: int, corpus: Iterable[list[str]] | None = None):
        self.kind, self.seed, self.corpus, self.what = kind, seed, corpus, ""

    def fit(self, texts: Sequence[str]) -> None:
        """Train the vectors on the corpus, if there is one, or on these texts."""
        corpus = self.corpus if self.corpus is not None else [split_words(text) for text in texts]
        self.vectors = WordVectors.train(self.kind, corpus, self.seed)
        where = "the training texts" if self.corpus is None else "the given text"
        self.what = f"means of {self.vectors.size}-wide vectors of {len(self.vectors):,} words of {where}"

    def transform(self, texts: Sequence[str]) -> Matrix:
        """[N, D], dense."""
        rows = np.zeros((len(texts), self.vectors.size))
        for row, text in zip(rows, texts, strict=True):
            found = self.vectors.find(split_words(text))
            if found.size:
                row[:] = found.mean(0)
        return rows


def make_encoder(kind: str, seed: int = 0, corpus: Iterable[list[str]] | None = None) -> Encoder:
    """bow, tfidf, ngram, word2vec or fasttext."""
    return Counts(kind) if kind in WORDS else MeanVectors(kind, seed, corpus)


def cosine(a: Matrix, b: Matrix) -> Any:
    """The cosine of each row of a with the same row of b: [N]; 0 if either is all zeros."""
    from sklearn.preprocessing import normalize

    a, b = normalize(a), normalize(b)
    product = a.multiply(b) if hasattr(a, "multiply") else a * b
    return np.asarray(product.sum(axis=1)).ravel()
