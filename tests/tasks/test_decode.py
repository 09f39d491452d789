"""Raw outputs as predictions of each kind, thresholds, ensembles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import wordpiece

from litebert.tasks.decode import Prediction, average, decode
from litebert.tasks.features import make_features
from litebert.tasks.metrics import score
from litebert.tasks.spans import Answers, Span, best_threshold
from litebert.tasks.task import ChoiceExample, QuestionExample, TagExample, Task, TextExample, kind_of

TEXTS = [TextExample(str(i), "the fox", None, None, f"f:{i}") for i in range(2)]


def run(task, examples, *logits):
    features = make_features(task, examples, wordpiece())
    return decode(task, examples, features, [{"logits": np.array(each, dtype=np.float32)} for each in logits])


def test_classification_takes_the_largest():
    first, second = run(Task("t", "classification", ("a", "b", "c")), TEXTS, [0, 3, 1], [2, 0, 0])
    assert (first.value, second.value) == (1, 0)
    assert first.probabilities == pytest.approx(np.exp([0, 3, 1]) / np.exp([0, 3, 1]).sum())


def test_regression_and_multi_label():
    assert [p.value for p in run(Task("t", "regression"), TEXTS, [4.5], [-1])] == [4.5, -1.0]
    first, second = run(Task("t", "multi-label", ("a", "b")), TEXTS, [0.0, -0.1], [-5, -5])  # 0.5 reaches
    assert (first.value, second.value) == ((0,), ())
    assert second.probabilities == pytest.approx([1 / (1 + np.exp(5))] * 2)


def test_multiple_choice_is_a_softmax_over_options():
    examples = [ChoiceExample(str(i), "the fox", "who?", ("a", "b"), None, f"f:{i}") for i in range(2)]
    first, second = run(Task("t", "multiple-choice", num_choices=2), examples, 1.0, 2.0, [5.0], [4.0])
    assert (first.value, second.value) == (1, 0)
    assert first.probabilities == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e)])


def test_tags_of_words_over_windows():
    words = tuple("the foxes jumped over the lazy dogs running".split())
    examples = [TagExample("0", words, None, "f:1"), TagExample("1", ("fox", "\u200b"), None, "f:2")]
    task = Task("t", "token-classification", ("B-X", "O"), max_length=8)
    features = make_features(task, examples, wordpiece())
    assert len(features) > 2
    # The model says B-X of every second word, and nonsense where no word is decided.
    outputs = []
    for feature in features:
        logits = np.full((len(feature.ids), 2), 9.0)
        for place, word in enumerate(feature.words):
            if word >= 0:
                logits[place] = [1, 0] if word % 2 == 0 else [0, 1]
        outputs.append({"logits": logits})
    first, second = decode(task, examples, features, outputs)
    assert first.value == (0, 1, 0, 1, 0, 1, 0, 1)
    assert second.value == (0, 1)  # the invisible word has no piece: O
    assert first.probabilities.shape == (8, 2)


def questions(*answers):
    return [
        QuestionExample(str(i), "?", "In Rome", (a,) if a else (), (0,) if a else (), not a, "f")
        for i, a in enumerate(answers)
    ]


def answered(text, no_answer):
    return Prediction(text, answers=Answers((Span(text, 0, len(text), 1.0),), no_answer))


def test_questions_with_and_without_an_answer():
    examples = questions("Rome")
    features = make_features(Task("t", "question-answering"), examples, wordpiece())
    size = len(features[0].ids)
    outputs = [{"start": np.eye(size)[size - 2] * 5, "end": np.eye(size)[size - 2] * 5}]
    (prediction,) = decode(Task("t", "question-answering"), examples, features, outputs)
    assert prediction.value == "Rome"
    assert prediction.answers.no_answer == -10
    sure = Task("t", "question-answering", answerable_head=True, null_threshold=-11)
    assert decode(sure, examples, features, outputs)[0].value == ""


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=12))
@settings(max_examples=40)
def test_the_best_threshold_is_the_best_of_all(rows):
    examples = questions(*("Rome" if has else "" for has, _, _ in rows))
    predictions = [answered("Rome" if right else "Paris", float(null)) for _, right, null in rows]
    task = Task("t", "question-answering", metrics=("f1",))

    def f1(threshold):
        return score(task, examples, kind_of(task).at_threshold(predictions, threshold), resamples=0)["f1"].value

    threshold, best = best_threshold(examples, [each.answers for each in predictions])
    assert f1(threshold) == pytest.approx(best)
    assert best == pytest.approx(max(f1(t) for t in np.arange(-4, 4, 0.5)))


def test_an_ensemble_is_the_mean():
    task = Task("t", "classification", ("a", "b"))
    one = [Prediction(0, np.array([0.6, 0.4]))]
    two = [Prediction(1, np.array([0.1, 0.9]))]
    (mean,) = average(task, [one, two])
    assert (mean.value, mean.probabilities.tolist()) == (1, pytest.approx([0.35, 0.65]))
    assert average(Task("t", "regression"), [[Prediction(1.0)], [Prediction(4.0)]])[0].value == 2.5
    tags = Task("t", "token-classification", ("a", "b"))
    votes = [[Prediction((0,), np.array([[0.6, 0.4]]))], [Prediction((1,), np.array([[0.3, 0.7]]))]]
    assert average(tags, votes)[0].value == (1,)


def test_an_ensemble_of_answers_takes_mean_scores():
    task = Task("t", "question-answering", answerable_head=True, null_threshold=1.0)
    one = Answers((Span("Rome", 3, 7, 4.0), Span("In", 0, 2, 1.0)), 0.0)
    two = Answers((Span("In", 0, 2, 5.0), Span("In Rome", 0, 7, 0.0)), 1.0)
    (mean,) = average(task, [[Prediction("Rome", answers=one)], [Prediction("In", answers=two)]])
    # A span that one model lacks has that model's worst score: Rome 4 and 0, In 1 and 5, In Rome 1 and 0.
    assert [(span.text, span.score) for span in mean.answers.spans] == [("In", 3.0), ("Rome", 2.0), ("In Rome", 0.5)]
    assert (mean.value, mean.answers.no_answer) == ("In", 0.5)


def test_each_exit_has_its_own_no_answer_threshold():
    """The window that is furthest below the threshold of its exit decides."""
    example = replace(questions("Rome")[0], context="In Rome " * 20)
    task = Task("t", "question-answering", max_length=30, answerable_head=True, null_threshold=1.0)
    task = replace(task, exit_thresholds={1: -1.0, 2: 3.0})
    features = make_features(task, [example], wordpiece())[:2]
    assert len(features) == 2

    def said(*windows):
        outputs = []
        for null, depth in windows:
            output = {"start_index": np.array([10]), "end_index": np.array([[10]]), "answerable": np.array(null)}
            output |= {"start_log_prob": np.zeros(1), "end_log_prob": np.zeros((1, 1))}
            outputs.append(output if depth is None else {**output, "depth": np.array(depth)})
        (prediction,) = decode(task, [example], features[: len(windows)], outputs)
        return bool(prediction.value), prediction.answers.no_answer, prediction.answers.threshold

    features, whole = features[:1], features
    for depth, limit in ((1, -1.0), (2, 3.0), (3, 1.0), (None, 1.0)):
        assert said((limit + 0.1, depth)) == (False, limit + 0.1, limit)
        assert said((limit - 0.1, depth)) == (True, limit - 0.1, limit)
    features = whole
    assert said((-0.5, 1), (2.0, 2)) == (True, 2.0, 3.0)
    assert said((-0.5, 1), (3.5, 2)) == (False, -0.5, -1.0)
    assert said((-0.5, None), (2.0, None)) == (True, -0.5, 1.0)
