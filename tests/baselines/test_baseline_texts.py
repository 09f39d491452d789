"""Texts: the same predictions as scikit-learn's models called directly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from litebert.baselines.features import make_encoder
from litebert.baselines.labels import LinearModel, guess_labels, overlaps
from litebert.tasks.task import Task, TextExample

WORDS = "good bad fine poor film plot story long short".split()
TOKENS = r"(?u)\w+|[^\w\s]"


def make_rows(count, seed, label, pair=False):
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        a, b = (" ".join(draw.choice(WORDS, size=draw.integers(2, 7))) for _ in range(2))
        rows.append(TextExample(str(number), a, b if pair else None, label(a, b), f"f:{number}"))
    return rows


def good(a, b):
    return int(a.count("good") + a.count("fine") > a.count("bad"))


def test_classification_is_logistic_regression():
    train, dev = make_rows(60, 0, good), make_rows(40, 1, good)
    task = Task("t", "classification", ("0", "1"), ("accuracy",))
    what, values = guess_labels(task, train, {"dev": dev}, make_encoder("tfidf"))
    words = TfidfVectorizer(token_pattern=TOKENS, sublinear_tf=True).fit([row.a for row in train])
    model = LogisticRegression(max_iter=1000).fit(words.transform([row.a for row in train]), [r.label for r in train])
    assert values["dev"] == model.predict(words.transform([row.a for row in dev])).tolist()
    assert np.mean(np.array(values["dev"]) == [row.label for row in dev]) > 0.8
    assert what == "logistic regression on 9 TF-IDF of words"


def test_pairs_are_both_texts_difference_product_and_overlap():
    def same(a, b):
        return int(len(set(a.split()) & set(b.split())) > 1)

    train, dev = make_rows(80, 0, same, pair=True), make_rows(40, 1, same, pair=True)
    task = Task("t", "classification", ("0", "1"), ("accuracy",), pair=True)
    _, values = guess_labels(task, train, {"dev": dev}, make_encoder("bow"))
    words = CountVectorizer(token_pattern=TOKENS).fit([text for row in train for text in (row.a, row.b)])

    def features(rows):
        a, b = (words.transform([getattr(row, side) for row in rows]).toarray().astype(float) for side in "ab")
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        sets = [(set(row.a.split()), set(row.b.split())) for row in rows]
        shared = [
            (len(x & y) / len(x | y), len(x & y) / len(x), len(x & y) / len(y), np.log((1 + len(x)) / (1 + len(y))))
            for x, y in sets
        ]
        similarity = (a * b).sum(1, keepdims=True) / lengths[:, None]
        return csr_matrix(np.hstack([a, b, abs(a - b), a * b, similarity, np.array(shared)]))

    model = LogisticRegression(max_iter=1000).fit(features(train), [row.label for row in train])
    assert values["dev"] == model.predict(features(dev)).tolist()


def test_empty_texts_share_nothing():
    rows = overlaps([TextExample("0", "", "", 0, "f:0"), TextExample("1", "a b", "", 0, "f:1")], np.zeros(2))
    np.testing.assert_allclose(rows, [[0, 0, 0, 0, 0], [0, 0, 0, 0, np.log(3)]])


def test_regression_is_ridge_within_the_range_of_training():
    train, dev = make_rows(60, 0, lambda a, b: float(a.count("good"))), make_rows(40, 1, lambda a, b: 0.0)
    dev.append(TextExample("x", "good " * 50, None, 0.0, "f:x"))
    task = Task("t", "regression", (), ("pearson",))
    _, values = guess_labels(task, train, {"dev": dev}, make_encoder("bow"))
    words = CountVectorizer(token_pattern=TOKENS).fit([row.a for row in train])
    model = Ridge().fit(words.transform([row.a for row in train]), [row.label for row in train])
    highest = max(row.label for row in train)
    expected = np.clip(model.predict(words.transform([row.a for row in dev])), 0, highest)
    np.testing.assert_allclose(values["dev"], expected, atol=1e-3)
    assert values["dev"][-1] == highest


def test_several_labels_are_one_model_each():
    def labels(a, b):
        return tuple(i for i, word in enumerate(("good", "film")) if word in a)

    train, dev = make_rows(60, 0, labels), make_rows(40, 1, labels)
    task = Task("t", "multi-label", ("opinion", "film", "never"), ("micro_f1",))
    _, values = guess_labels(task, train, {"dev": dev}, make_encoder("bow"))
    words = CountVectorizer(token_pattern=TOKENS).fit([row.a for row in train])
    for label in (0, 1):
        model = LogisticRegression(max_iter=1000)
        model.fit(words.transform([row.a for row in train]), [label in row.label for row in train])
        expected = model.predict(words.transform([row.a for row in dev]))
        assert [label in value for value in values["dev"]] == expected.tolist()
    assert not any(2 in value for value in values["dev"])


def test_dense_features_are_brought_to_one_scale():
    draw = np.random.default_rng(0)
    features = draw.normal(size=(50, 4)) * [1, 10, 100, 1000]
    labels = (features[:, 0] > 0).astype(int)
    task = Task("t", "classification", ("0", "1"))
    model = LinearModel(task)
    model.fit(features, labels.tolist())
    scaler = StandardScaler().fit(features)
    expected = LogisticRegression(max_iter=1000).fit(scaler.transform(features), labels)
    assert model.predict(features) == expected.predict(scaler.transform(features)).tolist()


def test_one_label_alone_is_said_again():
    model = LinearModel(Task("t", "classification", ("0", "1")))
    model.fit(np.ones((3, 2)), [1, 1, 1])
    assert model.predict(np.zeros((2, 2))) == [1, 1]


@pytest.mark.parametrize("kind", ["word2vec", "fasttext"])
def test_a_seed_decides_everything(kind, monkeypatch):
    monkeypatch.setattr("litebert.baselines.features.BUCKETS", 500)
    train = make_rows(30, 0, good)
    features = []
    for seed in (0, 0, 1):
        encoder = make_encoder(kind, seed)
        encoder.fit([row.a for row in train])
        features.append(encoder.transform([row.a for row in train]))
    np.testing.assert_array_equal(features[0], features[1])
    assert abs(features[0] - features[2]).max() > 1e-4
