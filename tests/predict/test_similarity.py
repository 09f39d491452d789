"""similarity and search: cosines of what embed gives, in Python, on the command line and over HTTP."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_models import runtime_of
from small_vocabularies import english

from litebert.errors import InputError
from litebert.predict.predictor import Predictor
from litebert.predict.similarity import LEXICAL, shared_words

TEXTS = ["good morning anna", "the train leaves at noon", "anna lives in oslo", "good morning anna", "word " * 200]


@pytest.fixture(scope="module")
def predictor():
    return Predictor.of(runtime_of("pretraining"), english())


def cosines(predictor, query, texts, **options):
    vectors = predictor.embed([query, *texts], normalize=True, **options).astype(np.float64)
    return vectors[1:] @ vectors[0]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_similarity_is_the_cosine_of_the_embeddings(predictor, pooling):
    expected = cosines(predictor, "anna sings", TEXTS, pooling=pooling)
    found = predictor.similarity(["anna sings"] * len(TEXTS), TEXTS, pooling=pooling)
    np.testing.assert_allclose([each.score for each in found], expected, atol=1e-6)
    assert predictor.similarity("anna", "anna").score == pytest.approx(1, abs=1e-7)
    assert predictor.similarity("anna", "oslo").score == pytest.approx(predictor.similarity("oslo", "anna").score)


def test_search_orders_by_similarity_and_keeps_the_order_of_equal_texts(predictor):
    expected = cosines(predictor, "good morning", TEXTS)
    found = predictor.search("good morning", TEXTS, lexical=0)
    assert sorted(hit.index for hit in found.hits) == list(range(len(TEXTS)))
    assert [hit.index for hit in found.hits] == list(np.argsort(-expected.round(9), kind="stable"))
    np.testing.assert_allclose([hit.score for hit in found.hits], np.sort(expected)[::-1], atol=1e-6)
    assert all(hit.text == TEXTS[hit.index] for hit in found.hits)
    assert predictor.search("good morning", TEXTS, top=2, lexical=0).hits == found.hits[:2]
    assert found.as_row() == {"index": found.hits[0].index, "text": found.hits[0].text, "score": found.hits[0].score}
    both = predictor.search(["good morning", "oslo"], TEXTS, top=1, lexical=0)
    oslo = predictor.search("oslo", TEXTS, top=1, lexical=0)
    for (hit,), (alone,) in zip((each.hits for each in both), (found.hits[:1], oslo.hits), strict=True):
        assert (hit.index, hit.text) == (alone.index, alone.text)
        assert hit.score == pytest.approx(alone.score, abs=1e-6)  # the query shares its pass with others


def test_search_weighs_words_and_vectors(predictor):
    vectors, words = cosines(predictor, "anna left oslo", TEXTS), shared_words("anna left oslo", TEXTS)
    assert words[2] == words.max() > words[0] > 0 == words[1] == words[4]
    for lexical in (0.25, 1):
        found = predictor.search("anna left oslo", TEXTS, lexical=lexical)
        scores = {hit.index: hit.score for hit in found.hits}
        expected = (1 - lexical) * vectors + lexical * words
        np.testing.assert_allclose([scores[i] for i in range(len(TEXTS))], expected, atol=1e-6)
        assert [hit.score for hit in found.hits] == sorted(scores.values(), reverse=True)
    assert (
        predictor.search("anna left oslo", TEXTS).hits
        == predictor.search("anna left oslo", TEXTS, lexical=LEXICAL).hits
    )


def test_words_without_letters_are_words_too(predictor):
    assert shared_words("!", ["good morning !", "good morning"]).argmax() == 0
    assert shared_words("anna", ["\x01"]).tolist() == [0], "no text has a word"


def test_mistakes_name_the_text(predictor):
    with pytest.raises(InputError, match=r"texts\[1\]: is empty"):
        predictor.search("anna", ["a", " "])
    with pytest.raises(InputError, match=r"texts\[1\]: has no text that the vocabulary covers"):
        predictor.search("anna", ["a", "\x01"])
    with pytest.raises(InputError, match="texts: expected a list of 1 or more texts"):
        predictor.search("anna", [])
    with pytest.raises(InputError, match="top: must be a whole number >= 1"):
        predictor.search("anna", ["a"], top=0)
    with pytest.raises(InputError, match="lexical: must be a number >= 0 and <= 1, not 2"):
        predictor.search("anna", ["a"], lexical=2)
    with pytest.raises(InputError, match="b: is empty"):
        predictor.similarity("anna", "")


def test_on_the_command_line(cli, tmp_path):
    (tmp_path / "lines.txt").write_text("the train leaves at noon\n\na warm day\n", encoding="utf-8")
    done = cli("predict", "search", "a warm day", "--file", tmp_path / "lines.txt", "--top", 1, "--json")
    assert json.loads(done.out)["hits"][0] | {"score": 1} == {"index": 1, "text": "a warm day", "score": 1}
    done = cli("predict", "similarity", "a warm day", "a warm day")
    assert "100.0%" in done.out
    assert "a warm day" in cli("predict", "search", "a warm day", "the train", "a warm day").out
    (tmp_path / "blank.txt").write_text("\n \n", encoding="utf-8")
    wrong = cli("predict", "search", "a warm day", "--file", tmp_path / "blank.txt")
    wrong.assert_refused(f"{tmp_path / 'blank.txt'}: no text in it")
