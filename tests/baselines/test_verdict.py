"""A model compared with simple methods: ahead, level or behind, by paired intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy_tasks import KINDS, make_files

from litebert.baselines import table
from litebert.baselines.table import Comparison, cheap_baselines, compare, limit_examples, methods_of, strongest
from litebert.tasks.metrics import Metric, score, score_difference
from litebert.tasks.read import read_task
from litebert.tasks.task import Task, TextExample

TASK = Task("toy", "classification", ("a", "b"), metrics=("accuracy", "macro_f1"))
NUMBERS = Task("toy", "regression", (), metrics=("pearson", "spearman", "rmse"))


def texts(labels):
    return [TextExample(str(i), f"text {i}", None, label, f"f:{i}") for i, label in enumerate(labels)]


def made(low, high, metric="accuracy", value=0.5):
    return Comparison("tfidf", "", metric, Metric(value), Metric((low + high) / 2, low, high))


@pytest.mark.parametrize(
    ("low", "high", "metric", "expected"),
    [
        (0.01, 0.2, "accuracy", "ahead"),
        (-0.2, -0.01, "accuracy", "behind"),
        (-0.01, 0.2, "accuracy", "level"),
        (0.0, 0.0, "accuracy", "level"),
        (0.01, 0.2, "rmse", "behind"),  # of an error, less is better
        (-0.2, -0.01, "rmse", "ahead"),
    ],
)
def test_the_interval_decides(low, high, metric, expected):
    assert made(low, high, metric).verdict == expected


def test_without_an_interval_nothing_is_claimed():
    assert Comparison("tfidf", "", "accuracy", Metric(0.5), Metric(0.3)).verdict == "level"


@pytest.mark.parametrize(
    ("low", "high", "metric", "median", "expected"),
    [
        (0.1, 0.3, "accuracy", 0.6, "ahead"),
        (0.1, 0.3, "accuracy", 0.45, "level"),  # one lucky seed
        (-0.3, -0.1, "accuracy", 0.6, "level"),  # one unlucky seed
        (-0.3, -0.1, "rmse", 0.6, "level"),
        (-0.3, -0.1, "rmse", 0.4, "ahead"),
    ],
)
def test_the_best_of_several_seeds_is_no_better_than_their_median(low, high, metric, median, expected):
    assert made(low, high, metric).verdict_at(median) == expected


def test_differences_are_those_of_the_scores_and_their_intervals_are_paired():
    random = np.random.default_rng(0)
    gold = random.integers(2, size=400)
    weak = np.where(random.random(400) < 0.7, gold, 1 - gold)
    strong = weak.copy()
    wrong = np.flatnonzero(weak != gold)[:12]
    strong[wrong] = gold[wrong]  # right wherever the weak one is, and 12 times more
    examples = texts(gold.tolist())
    found = score_difference(TASK, examples, strong.tolist(), weak.tolist())
    ours, theirs = (score(TASK, examples, side.tolist()) for side in (strong, weak))
    for name, metric in found.items():
        assert metric.value == pytest.approx(ours[name].value - theirs[name].value)
    assert found["accuracy"].value == pytest.approx(12 / 400)
    # Apart, the two intervals overlap; together, one is always ahead.
    assert ours["accuracy"].low < theirs["accuracy"].high
    assert found["accuracy"].low > 0
    # The share of 12 in 400 resampled: a binomial proportion.
    expected = 1.96 * np.sqrt(0.03 * 0.97 / 400)
    assert found["accuracy"].high - found["accuracy"].low == pytest.approx(2 * expected, rel=0.15)
    assert made(0.1, 0.2) == Comparison.from_dict(made(0.1, 0.2).as_dict())


def test_a_regression_model_worse_than_the_mean_is_behind_it():
    random = np.random.default_rng(1)
    gold = random.normal(3, 1, size=200)
    train, dev = texts(random.normal(3, 1, size=300).tolist()), texts(gold.tolist())
    said = (gold + random.normal(0, 3, size=200)).tolist()  # some correlation, far too much spread
    constant, *_ = baselines = cheap_baselines(NUMBERS, train, dev)
    assert constant.name.startswith("always the mean")
    found = {(c.baseline, c.metric): c.verdict for c in compare(NUMBERS, dev, said, baselines)}
    assert found[constant.name, "pearson"] == "ahead"
    assert found[constant.name, "rmse"] == "behind"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_constant_and_a_cheap_method_that_learns(tmp_path, kind):
    data = read_task(kind, **make_files(tmp_path, kind, train=60, dev=30))
    task = replace(data.task, metrics=data.task.metrics or ("f1",))
    (dev,) = data.dev.values()
    constant, cheap = cheap_baselines(task, data.train, dev)
    assert cheap.name == methods_of(kind).cheap_name
    comparisons = compare(task, dev, constant.values, [constant, cheap], resamples=100)
    if kind != "multiple-choice":  # there the right option is not in the passage
        assert strongest(comparisons, task.metrics[0]).baseline == cheap.name
    assert all(c.verdict == "level" for c in comparisons if c.baseline == constant.name)


def test_texts_without_words_leave_the_constant():
    blank = [TextExample("0", " ", None, i, "f:0") for i in (0, 1)]
    assert len(cheap_baselines(TASK, blank, blank)) == 1


def test_large_files_are_sampled_and_that_is_said(monkeypatch):
    train = texts([0, 1] * 50)
    assert limit_examples(TASK, train) == train
    monkeypatch.setattr(table, "MAX_CHARACTERS", 210)
    some = limit_examples(TASK, train)
    assert 25 < len(some) < 35
    assert some == sorted(some, key=lambda example: int(example.id))
    assert some != limit_examples(TASK, train, seed=1)
    _, cheap = cheap_baselines(TASK, train, train)
    assert f"fitted on {len(some)} of 100 training examples" in cheap.what
    korean = [replace(example, a=f"문장 {example.id}") for example in train]
    assert len(limit_examples(TASK, korean)) < len(some) / 2  # characters are counted too, which takes longer
    many = replace(TASK, labels=tuple(map(str, range(500))))
    assert len(limit_examples(many, train)) < len(some) / 5
