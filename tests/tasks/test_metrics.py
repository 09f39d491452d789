"""Metrics against scikit-learn and scipy, also on every resample of the bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from litebert.errors import InputError
from litebert.tasks.decode import Prediction
from litebert.tasks.metrics import intervals, score
from litebert.tasks.task import ChoiceExample, QuestionExample, TagExample, Task, TextExample, kind_of

CLASSIFICATION = {
    "accuracy": accuracy_score,
    "f1": lambda y, p: f1_score(y == 1, p == 1, zero_division=0),
    "macro_f1": lambda y, p: f1_score(y, p, average="macro", zero_division=0),
    "matthews": matthews_corrcoef,
}
REGRESSION = {
    "pearson": lambda y, p: pearsonr(y, p).statistic,
    "spearman": lambda y, p: spearmanr(y, p).statistic,
    "rmse": lambda y, p: math.sqrt(np.mean((y - p) ** 2)),
}
MULTI_LABEL = {
    "micro_f1": lambda y, p: f1_score(y, p, average="micro", zero_division=0),
    "macro_f1": lambda y, p: f1_score(y, p, average="macro", zero_division=0),
    "exact_match": accuracy_score,
}


def texts(labels):
    return [TextExample(str(i), "a", None, label, f"f:{i}") for i, label in enumerate(labels)]


def draws(num_examples, count=12):
    random = np.random.default_rng(1)
    return random.integers(num_examples, size=(count, num_examples))


def check_resamples(task, examples, values, reference):
    """Weights say how often each example was drawn: the metric must be the reference's on those very examples."""
    drawn = draws(len(examples))
    weights = np.stack([np.bincount(row, minlength=len(examples)) for row in drawn]).astype(float)
    for name, measure in kind_of(task).measures(task, examples, list(values)).items():
        expected = reference(name, np.arange(len(examples)))
        assert score(task, examples, list(values), resamples=0)[name].value == pytest.approx(expected, rel=1e-12)
        assert measure(weights) == pytest.approx([reference(name, row) for row in drawn])


@pytest.mark.parametrize(("classes", "seed"), [(2, 0), (3, 1), (5, 2)])
def test_classification_is_scikit_learns(classes, seed):
    random = np.random.default_rng(seed)
    gold = random.integers(classes, size=40)
    found = np.where(random.random(40) < 0.6, gold, random.integers(classes, size=40))
    task = Task("t", "classification", labels=tuple("abcde"[:classes]), metrics=tuple(CLASSIFICATION))
    check_resamples(task, texts(gold.tolist()), found, lambda name, rows: CLASSIFICATION[name](gold[rows], found[rows]))


@pytest.mark.parametrize("digits", [0, 1, 6])  # few digits: many ties in Spearman's ranks
def test_regression_is_scipys(digits):
    random = np.random.default_rng(digits)
    gold = random.uniform(0, 5, 90).round(digits)
    found = (gold + random.normal(size=90)).round(digits)
    task = Task("t", "regression", metrics=tuple(REGRESSION))
    check_resamples(task, texts(gold.tolist()), found, lambda name, rows: REGRESSION[name](gold[rows], found[rows]))


def test_a_constant_prediction_correlates_with_nothing():
    task = Task("t", "regression", metrics=("pearson", "spearman"))
    scores = score(task, texts([1.0, 2.0, 3.0]), [2.0, 2.0, 2.0])
    assert {metric.value for metric in scores.values()} == {0.0}


def test_multi_label_is_scikit_learns():
    random = np.random.default_rng(0)
    gold, found = random.random((30, 4)) < 0.3, random.random((30, 4)) < 0.3
    gold[:, 3] = found[:, 3] = False  # a label that nobody has counts as 0, as in scikit-learn
    task = Task("t", "multi-label", labels=tuple("abcd"), metrics=tuple(MULTI_LABEL))
    rows = [tuple(np.flatnonzero(row).tolist()) for row in found]
    check_resamples(
        task,
        texts([tuple(np.flatnonzero(row).tolist()) for row in gold]),
        rows,
        lambda name, drawn: MULTI_LABEL[name](gold[drawn], found[drawn]),
    )


def test_tags_by_hand():
    labels = ("O", "B-PER", "I-PER", "B-LOC")
    examples = [
        TagExample("0", ("a", "b", "c", "d"), (1, 2, 0, 3), "f:1"),  # PER 0-2, LOC 3
        TagExample("1", ("a", "b"), (0, 1), "f:2"),  # PER 1
    ]
    found = [(1, 2, 0, 0), (1, 1)]  # PER 0-2 right; PER 0 wrong, PER 1 right
    scores = score(Task("t", "token-classification", labels, ("entity_f1", "accuracy")), examples, found)
    assert scores["entity_f1"].value == pytest.approx(2 * 2 / (3 + 3))
    assert scores["accuracy"].value == pytest.approx(4 / 6)
    with pytest.raises(InputError, match="f:1: 4 words but 1 predicted tags"):
        score(Task("t", "token-classification", labels, ("accuracy",)), examples, [(0,), (0, 0)])


def test_race_is_split_by_level():
    examples = [
        ChoiceExample(str(i), "p", "q", ("a", "b"), 0, f"f:{i}", "middle" if i < 2 else "high") for i in range(5)
    ]
    scores = score(Task("race", "multiple-choice", metrics=("accuracy",)), examples, [0, 1, 0, 0, 1])
    values = {name: metric.value for name, metric in scores.items()}
    assert values == pytest.approx({"accuracy": 3 / 5, "middle_accuracy": 1 / 2, "high_accuracy": 2 / 3})


def question(*answers):
    return QuestionExample("q", "?", "c", answers, (0,) * len(answers), not answers, "f:1")


def test_squad_is_split_by_answerability():
    examples = [question("Rome"), question("the big city", "city"), question(), question()]
    scores = score(Task("s", "question-answering", metrics=("f1", "exact_match")), examples, ["Rome", "big", "", "x"])
    values = {name: metric.value for name, metric in scores.items()}
    assert values == pytest.approx(
        {
            "f1": (1 + 2 / 3 + 1 + 0) / 4,
            "exact_match": 2 / 4,
            "answerable_f1": (1 + 2 / 3) / 2,
            "answerable_exact_match": 1 / 2,
            "unanswerable_accuracy": 1 / 2,
        }
    )
    plain = score(Task("s", "question-answering", metrics=("f1", "exact_match")), examples[:2], ["Rome", "city"])
    assert list(plain) == ["f1", "exact_match"]


def test_the_interval_of_an_accuracy_is_that_of_a_binomial():
    gold = np.zeros(400, dtype=int)
    found = (np.arange(400) < 100).astype(int)  # 300 of 400 right
    task = Task("t", "classification", labels=("a", "b"), metrics=("accuracy",))
    metric = score(task, texts(gold.tolist()), found, resamples=4000)["accuracy"]
    spread = 1.96 * math.sqrt(0.75 * 0.25 / 400)
    assert metric.value == 0.75
    assert metric.low == pytest.approx(0.75 - spread, abs=0.006)
    assert metric.high == pytest.approx(0.75 + spread, abs=0.006)
    assert metric == score(task, texts(gold.tolist()), found, resamples=4000)["accuracy"]
    assert metric != score(task, texts(gold.tolist()), found, resamples=4000, seed=1)["accuracy"]


def test_without_resamples_there_is_no_interval():
    task = Task("t", "classification", labels=("a", "b"), metrics=("accuracy",))
    metric = score(task, texts([0, 1]), [Prediction(0), Prediction(0)], resamples=0)["accuracy"]
    assert (metric.value, metric.low, metric.high) == (0.5, None, None)


def test_resamples_in_which_a_metric_means_nothing_are_left_out():
    assert intervals([lambda weights: np.full(len(weights), np.nan)], 3, 10, 0) == [(None, None)]
    ((low, high),) = intervals([lambda weights: np.where(weights[:, 0] > 0, 0.5, np.nan)], 3, 50, 0)
    assert (low, high) == (0.5, 0.5)


def test_many_examples_are_drawn_in_blocks(monkeypatch):
    sums = []

    def metric(weights):
        sums.append(weights.sum(1))
        return weights[:, 0]

    whole = intervals([metric], 50, 30, 0)
    monkeypatch.setattr("litebert.tasks.metrics._BLOCK", 120)
    blocks = intervals([metric], 50, 30, 0)
    assert whole == blocks
    assert [len(each) for each in sums] == [30, *[2] * 15]
    assert set(np.concatenate(sums)) == {50.0}


def test_what_cannot_be_scored():
    task = Task("t", "classification", labels=("a", "b"), metrics=("accuracy",))
    with pytest.raises(InputError, match="f:1: no label; only labelled"):
        score(task, texts([0, None]), [0, 0])
    with pytest.raises(InputError, match="got 1 for 2 examples"):
        score(task, texts([0, 1]), [0])
    with pytest.raises(InputError, match="got 0 for 0 examples"):
        score(task, [], [])
