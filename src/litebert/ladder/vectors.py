"""Vectors of words, trained by gensim: word2vec, or fastText, which knows parts of words too.

One thread, so that a seed decides everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError
from litebert.extras import require
from litebert.ladder.words import split_words
from litebert.text.readers import read_documents
from litebert.text.sources import find_sources

SIZE = 100
WINDOW = 5
BUCKETS = 100_000  # of fastText's n-grams: gensim's 2,000,000 would need 800 MB
SEEN = 3_000_000  # words that training sees at least: small texts are read often, large ones MIN_EPOCHS times
MIN_EPOCHS, MAX_EPOCHS = 5, 50


class TextFiles:
    """The lines of text files as lists of words, as often as they are asked for, in flat memory."""

    def __init__(self, paths: Sequence[Path | str]):
        self.sources = [source.path for source in find_sources(paths)]

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.sources:
            for document in read_documents(path):
                yield from map(split_words, document.lines)


class WordVectors:
    """Trained vectors, to be asked for those of some words."""

    def __init__(self, vectors: Any, knows_parts: bool):
        self._vectors, self._knows_parts = vectors, knows_parts
        self.size: int = vectors.vector_size

    @classmethod
    def train(cls, kind: str, corpus: Iterable[list[str]], seed: int = 0) -> WordVectors:
        """Train skip-gram vectors ("word2vec" or "fasttext") on lists of words."""
        models = require("gensim.models", f"--kind {kind}")
        num_words = sum(map(len, corpus))
        if num_words == 0:
            raise DataError("the texts hold no words to learn vectors from")
        options: dict[str, Any] = {
            "vector_size": SIZE,
            "window": WINDOW,
            "sg": 1,
            "min_count": 1 if num_words < 100_000 else 2,
            "epochs": min(MAX_EPOCHS, max(MIN_EPOCHS, SEEN // num_words)),
            "seed": seed + 1,  # 0 is no seed to gensim's generator of windows
            "workers": 1,
        }
        logging.getLogger("gensim").setLevel(logging.ERROR)  # it warns of every small text
        if kind == "fasttext":
            return cls(models.FastText(sentences=corpus, bucket=BUCKETS, **options).wv, True)
        return cls(models.Word2Vec(sentences=corpus, **options).wv, False)

    def __len__(self) -> int:
        return len(self._vectors.key_to_index)

    def find(self, words: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of those words that have one: [n, size]."""
        known = [word for word in words if self._knows_parts or word in self._vectors.key_to_index]
        return np.stack([self._vectors[word] for word in known]) if known else np.zeros((0, self.size), np.float32)
