"""The majority class, exactly."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor

from litebert.tasks.metrics import score
from litebert.tasks.task import ChoiceExample, QuestionExample, TagExample, Task, TextExample, kind_of


def constant_values(task, train, examples):
    return kind_of(task).constant(task, train, examples)


def texts(labels):
    return [TextExample(str(i), "a", None, label, f"f:{i}") for i, label in enumerate(labels)]


def test_classification():
    task = Task("t", "classification", ("x", "y", "z"), ("accuracy",))
    train, dev = texts([2, 1, 1, 0, 2, 1]), texts([1, 1, 0, 2, 1])
    what, values = constant_values(task, train, dev)
    dummy = DummyClassifier().fit([[0]] * 6, [row.label for row in train])
    assert values == dummy.predict([[0]] * 5).tolist() == [1] * 5
    assert what == "always 'y'"
    assert score(task, dev, values, resamples=0)["accuracy"].value == pytest.approx(3 / 5)


def test_equals_go_to_the_first_label_whatever_the_order_of_the_file():
    task = Task("t", "classification", ("x", "y"))
    assert constant_values(task, texts([1, 0]), texts([0]))[1] == constant_values(task, texts([0, 1]), texts([0]))[1]


def test_regression():
    train = texts([0.5, 2.0, 5.0])
    what, values = constant_values(Task("t", "regression"), train, texts([0.0, 1.0]))
    dummy = DummyRegressor().fit([[0]] * 3, [row.label for row in train])
    np.testing.assert_allclose(values, dummy.predict([[0]] * 2))
    assert "2.50" in what


def test_several_labels():
    task = Task("t", "multi-label", ("x", "y", "z"))
    assert constant_values(task, texts([(0,), (0, 2), (0, 2)]), texts([(1,)])) == ("always 'x', 'z'", [(0, 2)])
    assert constant_values(task, texts([(), (), (1,)]), texts([(1,)])) == ("always no label", [()])


def test_tags_and_choices():
    task = Task("t", "token-classification", ("O", "B-X"))
    train = [TagExample("0", ("a", "b", "c"), (1, 0, 1), "f:0")]
    dev = [TagExample("0", ("a", "b"), (0, 0), "f:0"), TagExample("1", ("a",), (0,), "f:1")]
    assert constant_values(task, train, dev) == ("always 'B-X'", [(1, 1), (1,)])
    choices = [ChoiceExample(str(i), "p", "q", ("a", "b", "c"), label, "f") for i, label in enumerate((2, 2, 0))]
    assert constant_values(Task("t", "multiple-choice"), choices, choices) == ("always option C", [2, 2, 2])
    fewer = [ChoiceExample("0", "p", "q", ("a", "b"), 1, "f")]  # no C: the next most common
    assert constant_values(Task("t", "multiple-choice"), choices, fewer) == ("always option C", [0])


def test_questions():
    ask = QuestionExample("0", "who?", "one two three four", ("two",), (4,), False, "f:0")
    never = QuestionExample("1", "why?", "one two", (), (), True, "f:1")
    task = Task("t", "question-answering", (), ("f1",))
    assert constant_values(task, [ask], [ask, never])[1] == ["one two three", "one two"]
    assert constant_values(task, [ask, never], [ask, never]) == ("never an answer", ["", ""])
    assert score(task, [ask, never], ["", ""], resamples=0)["f1"].value == 0.5
