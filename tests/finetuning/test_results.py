"""Lines of predictions: right answers, predictions, and how wrong they are, in cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from litebert.finetuning.results import describe
from litebert.tasks.decode import Prediction
from litebert.tasks.spans import Answers, Span
from litebert.tasks.task import ChoiceExample, QuestionExample, TagExample, Task, TextExample, kind_of

LABELS = ("neg", "pos")


def test_a_class():
    task = Task("t", "classification", labels=LABELS, metrics=("accuracy",))
    line = describe(task, TextExample("7", "dull", "film", 0, "f:1"), Prediction(1, np.array([0.2, 0.8])))
    assert line == {
        "id": "7",
        "text": "dull",
        "pair": "film",
        "gold": "neg",
        "prediction": "pos",
        "probability": 0.8,
        "badness": pytest.approx(-math.log(0.2), abs=1e-5),
    }
    assert kind_of(task).is_wrong(line)


def test_without_a_label_nothing_is_said_about_right_and_wrong():
    task = Task("t", "classification", labels=LABELS, metrics=("accuracy",))
    line = describe(task, TextExample("7", "dull", None, None, "f:1"), Prediction(1, np.array([0.2, 0.8])))
    assert set(line) == {"id", "text", "prediction", "probability"}


def test_a_number():
    task = Task("t", "regression", metrics=("pearson",))
    line = describe(task, TextExample("7", "dull", None, 2.5, "f:1"), Prediction(1.0))
    assert (line["gold"], line["prediction"], line["badness"]) == (2.5, 1.0, 1.5)
    assert "probability" not in line


def test_several_labels():
    task = Task("t", "multi-label", labels=LABELS, metrics=("micro_f1",))
    line = describe(task, TextExample("7", "dull", None, (0, 1), "f:1"), Prediction((1,), np.array([0.4, 0.9])))
    assert (line["gold"], line["prediction"], line["probability"]) == (["neg", "pos"], ["pos"], 0.6)
    assert line["badness"] == pytest.approx(-(math.log(0.4) + math.log(0.9)) / 2, abs=1e-5)


def test_tags():
    task = Task("t", "token-classification", labels=("O", "B-PER"), metrics=("accuracy",))
    probabilities = np.array([[0.9, 0.1], [0.7, 0.3]])
    line = describe(task, TagExample("7", ("hi", "anna"), (0, 1), "f:1"), Prediction((0, 0), probabilities))
    assert (line["gold"], line["prediction"], line["probability"]) == (["O", "B-PER"], ["O", "O"], 0.7)
    assert line["badness"] == pytest.approx(-math.log(0.9) - math.log(0.3), abs=1e-5)


def test_an_option():
    task = Task("t", "multiple-choice", metrics=("accuracy",))
    example = ChoiceExample("7", "a passage", "which?", ("one", "two"), 1, "f:1")
    line = describe(task, example, Prediction(1, np.array([0.3, 0.7])))
    assert (line["gold"], line["prediction"], line["options"]) == ("two", "two", ["one", "two"])
    assert not kind_of(task).is_wrong(line)


def test_an_answer_and_its_silence():
    task = Task("t", "question-answering", metrics=("f1",), answerable_head=True)
    example = QuestionExample("7", "where?", "in rome", ("rome",), (3,), False, "f:1")
    answers = Answers((Span("in rome", 0, 7, 1.0),), -2.0)
    line = describe(task, example, Prediction("in rome", answers=answers))
    assert (line["gold"], line["prediction"], line["no_answer_score"]) == (["rome"], "in rome", -2.0)
    assert line["badness"] == pytest.approx((1 - 2 / 3) * 2, abs=1e-5)  # F1 2/3, and quite sure of it
    assert kind_of(task).is_wrong(line)
    silent = describe(task, example, Prediction("", answers=answers))
    assert silent["badness"] > line["badness"]
