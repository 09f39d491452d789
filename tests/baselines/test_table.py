"""The whole table: which methods, on which examples, with which scores."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
from toy_tasks import KINDS as TASK_KINDS
from toy_tasks import make_files

from litebert.baselines.table import methods_of, rows_of, score_baselines, show_score
from litebert.errors import ConfigError, DataError, MissingExtraError
from litebert.tasks.metrics import Metric, score
from litebert.tasks.read import read_task

COUNTED = ("bow", "tfidf", "ngram")


@pytest.fixture
def toy(tmp_path):
    def read(kind="classification", **options):
        return read_task(kind, **make_files(tmp_path / kind, kind, **options))

    return read


@pytest.fixture
def no_gensim(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "gensim" else find(name, *rest)
    )


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_counting_beats_the_majority_where_words_tell(toy, kind):
    data = toy(kind, train=60, dev=30)
    table = score_baselines(data, [name for name in methods_of(kind).kinds if name in COUNTED], resamples=50)
    assert [method.name for method in table.methods] == [
        "majority",
        *(n for n in COUNTED if n in methods_of(kind).kinds),
    ]
    assert table.examples == {"train": 60, "dev": 30, "test": 30}
    metric = data.task.metrics[0]
    majority, *others = (method.scores["dev"][metric] for method in table.methods)
    if kind != "multiple-choice":  # there the right option does not stand in the passage
        assert max(other.value for other in others) > majority.value + 0.1
    for method in table.methods:
        assert list(method.scores) == ["dev", "test"]
        assert all(m.low <= m.value <= m.high for m in method.scores["dev"].values() if m.value == m.value)


def test_scores_are_those_of_the_task(toy):
    data = toy()
    [majority] = score_baselines(data, []).methods
    usual = max((0, 1), key=lambda label: sum(e.label == label for e in data.train))
    assert majority.scores["dev"] == score(data.task, data.dev["dev"], [usual] * 12)


def test_the_same_seed_gives_the_same_table(toy):
    data = toy(train=40)
    first, again, other = (score_baselines(data, ["bow", "word2vec"], max_train=20, seed=seed) for seed in (1, 1, 2))
    assert [method.scores for method in first.methods] == [method.scores for method in again.methods]
    assert [method.scores for method in first.methods] != [method.scores for method in other.methods]
    assert first.examples["train"] == 20
    assert any("20 of 40" in note for note in first.notes)


def test_what_cannot_be_is_said(toy):
    data = toy()
    with pytest.raises(ConfigError, match=r"'bwo' is not one of.*did you mean 'bow'"):
        score_baselines(data, ["bwo"])
    with pytest.raises(ConfigError, match="tfidf does not apply to token-classification; choose from bow, ngram"):
        score_baselines(toy("token-classification"), ["tfidf"])
    with pytest.raises(ConfigError, match="max_train: must be >= 0"):
        score_baselines(data, ["bow"], max_train=-1)
    with pytest.raises(DataError, match="no labelled examples"):
        score_baselines(replace(data, dev={}, test={}), ["bow"])
    with pytest.raises(DataError, match="no training examples"):
        score_baselines(replace(data, train=[]), ["bow"])
    unlabelled = [replace(example, label=None) for example in data.train]
    with pytest.raises(DataError, match=r"train\.csv:2: training example without a label"):
        score_baselines(replace(data, train=unlabelled), ["bow"])
    table = score_baselines(replace(data, test={"test": unlabelled}), ["bow"], resamples=0)
    assert "test: no labels, not scored" in table.notes
    assert "test" not in table.examples


def test_a_missing_extra_is_named_before_any_work(toy, no_gensim):
    with pytest.raises(MissingExtraError, match=r"fasttext needs .*litebert\[baselines\]"):
        score_baselines(toy(), ["bow", "fasttext"], on_start=lambda kind: pytest.fail("work has begun"))
    table = score_baselines(toy(), ["all"], resamples=0)
    assert [method.name for method in table.methods] == ["majority", "bow", "tfidf", "ngram"]
    assert any("left out" in note and 'pip install "litebert[baselines]"' in note for note in table.notes)


def test_questions_without_an_answer(toy):
    table = score_baselines(toy("question-answering", seed=1), ["bow"], resamples=0)
    majority, bow = (method.scores["dev"] for method in table.methods)
    assert majority["unanswerable_accuracy"].value == 1
    assert bow["unanswerable_accuracy"].value == 0
    assert bow["answerable_f1"].value > majority["answerable_f1"].value == 0
    assert any("always answer" in note for note in table.notes)


def test_rows(toy):
    header, rows = rows_of(score_baselines(toy(), ["bow"], resamples=0))
    assert header == ["method", "split", "accuracy", "macro f1", "s"]
    assert [row[:2] for row in rows] == [["majority", "dev"], ["bow", "dev"], ["majority", "test"], ["bow", "test"]]
    assert show_score(Metric(0.8034, 0.776, 0.829)) == "80.3 (77.6 – 82.9)"
    assert show_score(Metric(0.5), "rmse") == "0.500"
    assert show_score(None) == "–"
