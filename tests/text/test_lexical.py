"""BM25 beside the formula written out, word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest

from litebert.errors import DataError
from litebert.text.lexical import K1, B, WordSearch, split_words

TEXTS = ["the cat sat on the mat", "the dog sat", "a cat and a dog", "Oslo is far from the sea , the port is near"]
QUERIES = ["the cat", "Where is oslo?", "cat cat dog", "zebra"]


def formula(query: str, text: str) -> float:
    words = [split_words(each) for each in TEXTS]
    own, mean = split_words(text), sum(map(len, words)) / len(words)
    total = 0.0
    for word in split_words(query):
        documents = sum(word in each for each in words)
        rarity = math.log(1 + (len(words) - documents + 0.5) / (documents + 0.5))
        count = own.count(word)
        total += rarity * count * (K1 + 1) / (count + K1 * (1 - B + B * len(own) / mean))
    return total


def test_bm25_is_the_formula():
    search = WordSearch(TEXTS)
    expected = [[formula(query, text) for text in TEXTS] for query in QUERIES]
    np.testing.assert_allclose(search.sums(search.count(QUERIES)), expected)


def test_a_score_is_a_share_of_what_the_query_could_reach():
    scores = WordSearch(TEXTS).scores(QUERIES)
    assert scores.shape == (4, 4)
    assert scores.min() >= 0
    assert scores.max() <= 1
    assert scores[3].tolist() == [0, 0, 0, 0]
    order = np.array([[formula(query, text) for text in TEXTS] for query in QUERIES]).argsort(1, kind="stable")
    assert (scores.argsort(1, kind="stable") == order).all()
    more, less = WordSearch(TEXTS).scores(["cat", "cat zebra zebra zebra"])
    assert 0 < less.max() < more.max() / 2, "words that no text has count as missing"


def test_scripts_without_spaces_are_searched_by_character_grams():
    scores = WordSearch(["고양이가 잔다", "개가 짖는다", "기차가 떠난다"]).scores(["고양이는"])
    assert scores[0].argmax() == 0
    assert (scores <= 1).all()


def test_texts_without_words_are_refused():
    with pytest.raises(DataError, match="the texts contain no words"):
        WordSearch([" ", "\n"])
