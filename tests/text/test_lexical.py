"""BM25 against the formula written out, word by word."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from litebert.errors import DataError
from litebert.page import FOLDER as PAGE
from litebert.predict.similarity import LEXICAL, shared_words
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


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("the old dog's bone?", ["The old dog sleeps.", "an_old_man 's dog", "x", "don’t stop, it's 3.5 km"]),
        ("naïve café", ["a naïve cafe", "Café!", "cafe\u0301 noir"]),
        ("고양이는 잔다", ["고양이가 잔다", "개가 짖는다 a", "기차가"]),
        ("我喜欢猫", ["他喜欢狗。", "我有猫", "天气 很好 ok"]),
        ("a", ["! ! a", "a a a b"]),
    ],
)
def test_the_page_counts_words_the_same_way(query, texts):
    source = (PAGE / "words.js").read_text(encoding="utf-8")
    assert float(re.search(r"LEXICAL = ([\d.]+);", source).group(1)) == LEXICAL
    if shutil.which("node") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("needs: node")
    asked = f"\nconsole.log(JSON.stringify(sharedWords({json.dumps(query)}, {json.dumps(texts)})));"
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", source + asked], capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(json.loads(done.stdout), shared_words(query, texts), atol=1e-12)
