"""Texts -> feature vectors: words in any script, their counts, TF-IDF, n-grams, mean word vectors.

split_words("Don't stop, 走吧")  -> ["don't", "stop", ",", "走", "吧"]
make_encoder("tfidf").fit(texts), .transform(texts)  -> [N, D]

Shapes: N texts, D features.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError
from litebert.extras import require
from litebert.text.readers import read_documents
from litebert.text.sources import find_sources
from litebert.text.words import word_marks

# Scripts without spaces between words (Han, kana, Thai, Lao, Burmese, Khmer): each character counts as a word.
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff"
_LETTER = rf"(?:(?![{_SPACELESS}])[\w{word_marks()}])"
_WORD = re.compile(rf"[{_SPACELESS}]|{_LETTER}+(?:['’]{_LETTER}+)*|[^\w\s]")
_SAMPLE = 2000  # texts used to detect the script
_SHARE = 0.2  # of all letters; texts in other scripts contain some English, too


def split_words(text: str) -> list[str]:
    """Lower-case words and single punctuation marks."""
    return _WORD.findall(text.lower())


def word_spans(text: str) -> list[tuple[int, int]]:
    """The start and end of each of these words in the text, in characters."""
    return [match.span() for match in _WORD.finditer(text)]


@dataclass(frozen=True)
class Analysis:
    """What is counted in a text: words, and in some scripts character n-grams as well."""

    characters: bool
    what: str


def choose_analysis(texts: Sequence[str]) -> Analysis:
    """Choose by the script of a sample of the texts: ["재밌다"] -> words and characters."""
    sample = "".join(texts[:: max(1, len(texts) // _SAMPLE)])
    letters = max(1, sum(map(str.isalpha, sample)))
    if len(re.findall(f"[{_SPACELESS}]", sample)) > _SHARE * letters:
        return Analysis(True, "characters and character n-grams (a script without spaces)")
    if len(re.findall(f"[{_HANGUL}]", sample)) > _SHARE * letters:
        return Analysis(True, "words and character n-grams (Korean words carry particles and endings)")
    return Analysis(False, "words")


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

CHARACTERS = (1, 3)  # n-grams of characters
WORDS = {"bow": (1, 1), "tfidf": (1, 1), "ngram": (1, 2)}  # n-grams of words
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


def make_vectorizer(kind: str, analysis: Analysis, min_df: int = 1) -> Any:
    """The scikit-learn vectorizer of a kind, combined with one for characters if they are counted too."""
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
    """The cosine of each row of a with the same row of b: [N]; 0 if either is all zeros."""
    from sklearn.preprocessing import normalize

    a, b = normalize(a), normalize(b)
    product = a.multiply(b) if hasattr(a, "multiply") else a * b
    return np.asarray(product.sum(axis=1)).ravel()
