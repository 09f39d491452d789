"""Similarity files in their four forms, their scores, and searches by words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

from litebert.baselines.overlap import search_by_bm25
from litebert.baselines.table import score_baselines
from litebert.errors import DataError
from litebert.tasks.kinds.similarity import numbered, search_ranks
from litebert.tasks.metrics import score
from litebert.tasks.read import read_task
from litebert.tasks.task import SimilarityExample, Task


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


SCORED = [
    {"sentence1": "a plane", "sentence2": "an aircraft", "score": 4.8},
    {"sentence1": "x", "sentence2": "y", "score": 0},
]
PAIRS = [{"question": "who?", "passage": "anna"}, {"question": "where?", "passage": "rome"}]
TRIPLETS = [{"anchor": "a", "positive": "b", "negative": "c"}]


@pytest.mark.parametrize(
    ("rows", "form", "texts", "metric"),
    [
        (SCORED, "scored", ("a plane", "an aircraft"), "spearman"),
        (PAIRS, "pairs", ("who?", "anna"), "recall_at_10"),
        (TRIPLETS, "triplets", ("a", "b", "c"), "accuracy"),
        ([{"query": "q", "positive": "p"}], "pairs", ("q", "p"), "recall_at_10"),
        ([{"premise": "a", "entailment": "b", "contradiction": "c"}], "triplets", ("a", "b", "c"), "accuracy"),
        ([{"query": "q", "document": "d"}], "pairs", ("q", "d"), "recall_at_10"),
        ([{"title": "t", "text": "p"}], "pairs", ("t", "p"), "recall_at_10"),
        ([{"premise": "a", "hypothesis": "b", "score": 1}], "scored", ("a", "b"), "spearman"),
    ],
)
def test_columns_say_what_a_file_holds(tmp_path, rows, form, texts, metric):
    data = read_task("similarity", dev=write(tmp_path / "dev.jsonl", rows))
    [first, *_] = data.dev["dev"]
    assert (first.form, first.texts, data.task.metrics[0]) == (form, texts, metric)
    assert form in data.notes[-1]


def test_each_file_has_its_own_form(tmp_path):
    train = write(tmp_path / "train.jsonl", TRIPLETS)
    dev = write(tmp_path / "dev.jsonl", SCORED)
    test = write(tmp_path / "test.jsonl", [{"sentence1": "a", "sentence2": "b"}])
    data = read_task("similarity", train=train, dev=dev, test=test)
    assert [data.train[0].form, data.dev["dev"][0].form, data.test["test"][0].form] == ["triplets", "scored", "scored"]
    assert not data.test["test"][0].is_labelled  # a score is missing: they are not pairs that belong together
    assert (data.task.metrics, data.task.scale) == (("spearman", "pearson"), (0.0, 4.8))
    named = read_task("similarity", train=dev, columns={"text": "sentence2", "pair": "sentence1"})
    assert named.train[0].texts == ("an aircraft", "a plane")
    with pytest.raises(DataError, match="no column 'nope'"):
        read_task("similarity", train=dev, columns={"text": "nope"})


@pytest.mark.parametrize(
    ("rows", "form", "texts"),
    [
        ([("a", "b"), ("c", "d")], "pairs", ("a", "b")),
        ((["a", "c"], ["b", "d"]), "pairs", ("a", "b")),
        ([("a", "b", 4), ("c", "d", 0.5)], "scored", ("a", "b")),
        ([("a", "b", "x"), ("c", "d", "2")], "triplets", ("a", "b", "x")),
        (["a", "c"], "sentences", ("a",)),
    ],
)
def test_rows_without_names_go_by_their_order(rows, form, texts):
    [first, *_] = read_task("similarity", train=rows).train
    assert (first.form, first.texts) == (form, texts)


def test_a_column_that_is_not_read_is_told(tmp_path):
    rows = write(tmp_path / "train.jsonl", [{"text": "a", "source": "b"}])
    assert "not read: 'source'; to learn from pairs" in read_task("similarity", train=rows).notes[-1]
    with pytest.raises(DataError, match="cannot tell which column is the text"):
        read_task("similarity", train=[("a", 3), ("b", 4)])
    told = "train: 1 of 2 examples lack one of their texts; the first is train:2"
    assert told in read_task("similarity", train=[("a", "b"), ("c", None)]).notes


def test_a_dev_file_that_stands_in_the_training_file(tmp_path):
    file = write(tmp_path / "pairs.jsonl", SCORED)
    told = "2 of 2 examples are also in the training file"
    assert told in read_task("similarity", train=file, dev=file).notes[-1]
    other = write(tmp_path / "other.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 1}])
    assert not any("also in" in note for note in read_task("similarity", train=file, dev=other).notes)


def test_what_cannot_be_read_is_named(tmp_path):
    single = write(tmp_path / "one.jsonl", [{"text": "a"}])
    assert read_task("similarity", train=single).train[0].form == "sentences"
    with pytest.raises(DataError, match=r"one\.jsonl: single texts cannot be scored.*The columns are 'text'"):
        read_task("similarity", train=single, dev=single)
    words = write(tmp_path / "words.jsonl", [{"sentence1": "a", "sentence2": "b", "score": "high"}])
    with pytest.raises(DataError, match=r"words\.jsonl:1: column 'score': expected a number, got 'high'"):
        read_task("similarity", train=words)


def example(number: int, form: str, *texts: str, score: float | None = None) -> SimilarityExample:
    return SimilarityExample(str(number), texts, score, f"f:{number}", form)


def test_scores_are_scipys_and_scikit_learns():
    random = np.random.default_rng(0)
    gold, found = random.integers(0, 6, 40).astype(float), random.normal(size=40)
    scored = [example(n, "scored", "a", "b", score=value) for n, value in enumerate(gold)]
    values = score(Task("t", "similarity", metrics=("pearson",)), scored, found.tolist(), resamples=20)
    assert list(values) == ["pearson", "spearman"]
    assert values["spearman"].value == pytest.approx(spearmanr(gold, found).statistic)

    similarities = random.normal(size=(12, 30))
    places = random.integers(30, size=12)
    ranks = search_ranks(lambda rows: similarities[rows], places)
    pairs = [example(n, "pairs", str(n), str(place)) for n, place in enumerate(places)]
    values = score(Task("t", "similarity", metrics=("recall_at_10",)), pairs, ranks.tolist(), resamples=20)
    relevant = np.eye(30)[places]
    assert values["ndcg_at_10"].value == pytest.approx(ndcg_score(relevant, similarities, k=10))
    best = np.argsort(-similarities, axis=1)
    assert values["recall_at_10"].value == np.mean([place in row[:10] for place, row in zip(places, best, strict=True)])
    assert values["recall_at_1"].value == np.mean(best[:, 0] == places)
    assert values["recall_at_10"].low <= values["recall_at_10"].value <= values["recall_at_10"].high

    triplets = [example(n, "triplets", "a", "b", "c") for n in range(4)]
    found = score(Task("t", "similarity"), triplets, [0.2, -0.1, 0.0, 0.3], resamples=0)
    assert found["accuracy"].value == (1 + 0 + 0.5 + 1) / 4


def test_ties_rank_in_the_middle():
    assert search_ranks(lambda rows: np.zeros((2, 5))[rows], np.array([0, 4])).tolist() == [3.0, 3.0]
    places, first = numbered(["b", "a", "b"])
    assert (places.tolist(), first) == ([0, 1, 0], [0, 1])


def test_bm25_is_its_formula():
    texts = ["the red house on the hill", "a blue house", "the hill is green and the hill is high", "nothing"]
    asked = ["red hill", "blue hill", "hill", "x"]
    examples = [example(n, "pairs", *pair) for n, pair in enumerate(zip(asked, texts, strict=True))]
    ranks = search_by_bm25(examples)

    def bm25(asked: str, text: str) -> float:
        words, total = text.split(), 0.0
        mean = np.mean([len(other.split()) for other in texts])
        for word in asked.split():
            holding = sum(word in other.split() for other in texts)
            rarity = np.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            count = words.count(word)
            total += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(words) / mean))
        return total

    for number, one in enumerate(examples):
        scores = [bm25(one.texts[0], text) for text in texts]
        higher = sum(other > scores[number] + 1e-9 for other in scores)
        equal = sum(abs(other - scores[number]) <= 1e-9 for other in scores) - 1
        assert ranks[number] == 1 + higher + equal / 2


def test_words_are_a_baseline(tmp_path):
    rows = [
        {"sentence1": "a red house", "sentence2": "the red house", "score": 5},
        {"sentence1": "a red house", "sentence2": "a green hill", "score": 1},
        {"sentence1": "we saw a film", "sentence2": "we saw it", "score": 3},
    ]
    data = read_task("similarity", train=write(tmp_path / "a.jsonl", rows), dev=write(tmp_path / "b.jsonl", rows))
    table = score_baselines(data, ["bow", "tfidf"], resamples=0)
    assert [method.name for method in table.methods] == ["majority", "bow", "tfidf"]
    assert table.methods[0].scores["dev"]["spearman"].value == 0
    assert table.methods[2].scores["dev"]["spearman"].value == pytest.approx(1.0)
    found = read_task("similarity", train=write(tmp_path / "a.jsonl", PAIRS), dev=write(tmp_path / "b.jsonl", TRIPLETS))
    assert score_baselines(found, ["tfidf"], resamples=0).methods[0].scores["dev"]["accuracy"].value == 0.5
