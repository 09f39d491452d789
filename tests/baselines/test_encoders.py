"""Features are those that scikit-learn and gensim give when they are called directly."""

from __future__ import annotations

import numpy as np
import pytest
from gensim.models import FastText, Word2Vec
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from litebert.baselines.features import TextFiles, cosine, make_encoder
from litebert.errors import DataError
from litebert.text.lexical import split_words

TEXTS = ["a good film, a very good one", "a dull film", "the plot is thin and dull", "good fun"]
KOREAN = ["영화가 재밌다", "영화는 별로", "정말 재밌는 영화"]


def reference(kind, **options):
    make = TfidfVectorizer if kind == "tfidf" else CountVectorizer
    return make(**options, **({"sublinear_tf": True} if kind == "tfidf" else {}))


@pytest.mark.parametrize(("kind", "grams"), [("bow", (1, 1)), ("tfidf", (1, 1)), ("ngram", (1, 2))])
def test_counts_are_scikit_learns(kind, grams):
    encoder = make_encoder(kind)
    encoder.fit(TEXTS)
    words = reference(kind, token_pattern=r"(?u)\w+|[^\w\s]", ngram_range=grams)
    expected = words.fit(TEXTS).transform(["a good plot, unseen"])
    np.testing.assert_allclose(encoder.transform(["a good plot, unseen"]).toarray(), expected.toarray())
    assert f"{expected.shape[1]:,} " in encoder.what


@pytest.mark.parametrize("kind", ["bow", "tfidf", "ngram"])
def test_korean_gets_characters_too(kind):
    encoder = make_encoder(kind)
    encoder.fit(KOREAN)
    grams = (1, 2) if kind == "ngram" else (1, 1)
    parts = [
        reference(kind, token_pattern=r"(?u)\w+", ngram_range=grams),
        reference(kind, analyzer="char_wb", ngram_range=(1, 3)),
    ]
    expected = hstack([part.fit(KOREAN).transform(["재밌는 영화가"]) for part in parts])
    np.testing.assert_allclose(encoder.transform(["재밌는 영화가"]).toarray(), expected.toarray())
    assert "Korean" in encoder.what


def test_of_many_texts_words_of_one_text_alone_are_left_out(monkeypatch):
    monkeypatch.setattr("litebert.baselines.features.LARGE", 4)
    encoder = make_encoder("bow")
    encoder.fit(TEXTS)
    assert set(encoder.vectorizer.get_feature_names_out()) == {"a", "good", "film", "dull"}


def test_no_words_is_said():
    with pytest.raises(DataError, match="no words"):
        make_encoder("tfidf").fit(["", "  "])
    with pytest.raises(DataError, match="no words"):
        make_encoder("word2vec").fit(["", "  "])


@pytest.mark.parametrize("kind", ["word2vec", "fasttext"])
def test_means_of_gensims_vectors(kind, monkeypatch):
    monkeypatch.setattr("litebert.baselines.features.BUCKETS", 500)
    encoder = make_encoder(kind, seed=4)
    encoder.fit(TEXTS)
    words = [split_words(text) for text in TEXTS]
    shared = dict(sentences=words, vector_size=100, window=5, sg=1, min_count=1, epochs=50, seed=5, workers=1)
    model = Word2Vec(**shared) if kind == "word2vec" else FastText(**shared, bucket=500)
    known = ["good", "film"] + ["filming"] * (kind == "fasttext")  # fastText knows parts of words
    expected = np.mean([model.wv[word] for word in known], axis=0)
    np.testing.assert_allclose(encoder.transform(["good filming film"])[0], expected, rtol=1e-5)
    if kind == "word2vec":
        assert not encoder.transform(["unseen"]).any()


def test_vectors_from_other_text(tmp_path):
    (tmp_path / "a.txt").write_text("zebras graze\nall day\n\nlions sleep\n", encoding="utf-8")
    files = TextFiles([tmp_path / "a.txt"])
    assert list(files) == list(files) == [["zebras", "graze"], ["all", "day"], ["lions", "sleep"]]
    encoder = make_encoder("word2vec", corpus=files)
    encoder.fit(TEXTS)
    assert encoder.transform(["zebras"]).any()
    assert not encoder.transform(["film"]).any()
    assert "the given text" in encoder.what


@pytest.mark.parametrize("wrap", [np.asarray, csr_matrix])
def test_cosine_of_rows(wrap):
    a, b = np.random.default_rng(0).normal(size=(2, 5, 7))
    a[2] = 0
    np.testing.assert_allclose(cosine(wrap(a), wrap(b)), np.diag(cosine_similarity(a, b)), atol=1e-12)
