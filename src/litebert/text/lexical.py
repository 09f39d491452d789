"""Texts by their words, in any script: words and their counts, and BM25.

split_words("Don't stop, 走吧")  -> ["don't", "stop", ",", "走", "吧"]
WordSearch(texts).scores(["how do plants grow?"])  -> [N, M], between 0 and 1

Shapes: N queries, M texts to search, V words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError
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


CHARACTERS = (1, 3)  # n-grams of characters
WORDS = {"bow": (1, 1), "tfidf": (1, 1), "ngram": (1, 2)}  # n-grams of words


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


K1, B = 1.2, 0.75  # as in Lucene: how soon a repeated word stops counting, how much long texts lose


class WordSearch:
    """BM25 over some texts, whose words it has counted."""

    def __init__(self, texts: Sequence[str]):
        self.counter = make_vectorizer("bow", choose_analysis(texts))
        try:
            counts = self.counter.fit_transform(texts).tocsr().astype(float)  # [M, V]
        except ValueError:  # scikit-learn's "empty vocabulary"
            raise DataError("the texts contain no words") from None
        parts = [part for _, part in getattr(self.counter, "transformer_list", [("words", self.counter)])]
        self.splitters = [part.build_analyzer() for part in parts]
        lengths = np.asarray(counts.sum(1)).ravel()
        documents = np.bincount(counts.indices, minlength=counts.shape[1])
        self.rarity = np.log(1 + (len(texts) - documents + 0.5) / (documents + 0.5))  # [V]
        self.rarest = float(np.log(1 + (len(texts) + 0.5) / 0.5))
        rows = np.repeat(np.arange(len(texts)), np.diff(counts.indptr))
        damping = K1 * (1 - B + B * lengths[rows] / max(lengths.mean(), 1e-9))
        counts.data = self.rarity[counts.indices] * counts.data * (K1 + 1) / (counts.data + damping)
        self.weights = counts.T.tocsr()  # [V, M]

    def count(self, queries: Sequence[str]) -> Any:
        """How often each known word is in each query: [N, V], sparse."""
        return self.counter.transform(queries).tocsr()

    def sums(self, asked: Any) -> NDArray[np.float64]:
        """BM25 of counted queries [N, V] with every text: [N, M]."""
        return np.asarray((asked @ self.weights).toarray())

    def scores(self, queries: Sequence[str]) -> NDArray[np.float64]:
        """BM25 as a share of what a text with nothing but the query's words could reach, 0 to 1: [N, M].

        Words that no text has are the rarest of all and match nothing.
        """
        asked = self.count(queries)
        known = np.asarray(asked.sum(1)).ravel()
        strange = np.array([sum(len(split(query)) for split in self.splitters) for query in queries]) - known
        most = (K1 + 1) * (asked @ self.rarity + strange * self.rarest)  # [N]
        shares: NDArray[np.float64] = self.sums(asked) / np.maximum(most, 1e-9)[:, None]
        return shares
