"""Texts -> rows of numbers, one row each: counts, TF-IDF, counts of n-grams, means of word vectors.

Shapes: N texts, D features.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from litebert.errors import DataError
from litebert.ladder.vectors import WordVectors
from litebert.ladder.words import Analysis, choose_analysis, split_words

Matrix = Any  # a scipy.sparse matrix or a numpy array, [N, D]

CHARACTERS = (1, 3)  # n-grams of characters
WORDS = {"bow": (1, 1), "tfidf": (1, 1), "ngram": (1, 2)}  # n-grams of words
LARGE = 5000  # from so many texts on, what only one text has is left out


class Encoder(Protocol):
    """What turns texts into rows, once it has seen the training texts."""

    what: str  # in words, for the table

    def fit(self, texts: Sequence[str]) -> None: ...

    def transform(self, texts: Sequence[str]) -> Matrix: ...


class Counts:
    """Counts of words ("bow"), of words and pairs of words ("ngram"), or TF-IDF ("tfidf"), by scikit-learn."""

    def __init__(self, kind: str):
        self.kind, self.what = kind, ""

    def fit(self, texts: Sequence[str]) -> None:
        """Learn the vocabulary, and how rare its words are."""
        analysis = choose_analysis(texts)
        self.vectorizer = make_vectorizer(self.kind, analysis, min_df=1 if len(texts) < LARGE else 2)
        try:
            self.vectorizer.fit(texts)
        except ValueError:  # scikit-learn's "empty vocabulary"
            raise DataError("the training texts hold no words") from None
        names = {"bow": "counts of", "tfidf": "TF-IDF of", "ngram": "counts of pairs of words and"}
        size = len(self.vectorizer.get_feature_names_out())
        self.what = f"{size:,} {names[self.kind]} {analysis.what}"

    def transform(self, texts: Sequence[str]) -> Matrix:
        """[N, D], sparse."""
        return self.vectorizer.transform(texts)


class MeanVectors:
    """The mean of a text's word vectors ("word2vec", "fasttext"); zeros where no word is known."""

    def __init__(self, kind: str, seed: int, corpus: Iterable[list[str]] | None = None):
        self.kind, self.seed, self.corpus, self.what = kind, seed, corpus, ""

    def fit(self, texts: Sequence[str]) -> None:
        """Train the vectors on these texts, or on the corpus where there is one."""
        corpus = self.corpus if self.corpus is not None else [split_words(text) for text in texts]
        self.vectors = WordVectors.train(self.kind, corpus, self.seed)
        where = "the training texts" if self.corpus is None else "--text"
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


def make_vectorizer(kind: str, analysis: Analysis, min_df: int = 1) -> Any:
    """The scikit-learn vectorizer of a kind; two of them side by side where characters are counted too."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.pipeline import FeatureUnion

    make = TfidfVectorizer if kind == "tfidf" else CountVectorizer
    options: dict[str, Any] = {"min_df": min_df, **({"sublinear_tf": True} if kind == "tfidf" else {})}
    words = make(tokenizer=split_words, token_pattern=None, lowercase=False, ngram_range=WORDS[kind], **options)
    if not analysis.characters:
        return words
    characters = make(analyzer="char_wb", ngram_range=CHARACTERS, **options)
    return FeatureUnion([("words", words), ("characters", characters)])


def cosine(a: Matrix, b: Matrix) -> Any:
    """The cosine of each row of a with the same row of b: [N]; 0 where a row is all zeros."""
    from sklearn.preprocessing import normalize

    a, b = normalize(a), normalize(b)
    product = a.multiply(b) if hasattr(a, "multiply") else a * b
    return np.asarray(product.sum(axis=1)).ravel()
