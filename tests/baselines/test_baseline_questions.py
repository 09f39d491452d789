"""Questions: the right sentence, and in it words of the right shape."""

from __future__ import annotations

import pytest

from litebert.baselines.features import make_encoder
from litebert.baselines.overlap import NAME, NUMBER, OTHER, find_stretches, guess_answer, guess_answers, shape_of
from litebert.tasks.task import QuestionExample

CONTEXT = "The tower stands in Paris. It was built in 1889 by Gustave Eiffel. Many people climb it by day."


def question(text, answer, context=CONTEXT):
    return QuestionExample("0", text, context, (answer,), (context.index(answer),), False, "f:0")


TRAIN = [
    question("Where does the tower stand?", "Paris"),
    question("Where stands it?", "Paris"),
    question("When was it built?", "1889"),
    question("When was the tower built?", "1889"),
    question("Who built it?", "Gustave Eiffel"),
    question("What do people do?", "climb"),
    question("What do many do?", "climb"),
]


@pytest.mark.parametrize(("answer", "shape"), [("in 1999", NUMBER), ("Marie Curie", NAME), ("the heart", OTHER)])
def test_shapes(answer, shape):
    assert shape_of(answer) == shape


def test_stretches_leave_out_the_question_and_frequent_words():
    sentence = "Towers were built in 1889 by Gustave Eiffel."
    stretches = find_stretches(sentence, {"who", "built", "it"}, {"were", "in", "by"})
    assert [(sentence[run.begin : run.end], run.shape, run.distance) for run in stretches] == [
        ("Towers", OTHER, 2),  # a capital at the beginning says nothing
        ("1889", NUMBER, 2),
        ("Gustave Eiffel", NAME, 4),
    ]
    assert guess_answer("Who built it", sentence, NAME, {"were", "in", "by"}) == "Gustave Eiffel"
    assert guess_answer("When", sentence, NUMBER, {"were", "in", "by"}) == "1889"
    assert guess_answer("all in", "All in", OTHER, set()) == "All in"  # nothing is left: the sentence


@pytest.mark.parametrize("kind", ["bow", "tfidf", "word2vec", "fasttext"])
def test_answers_come_from_the_most_similar_sentence(kind, monkeypatch):
    monkeypatch.setattr("litebert.baselines.overlap.COMMON", 4)
    dev = [question("When was it built?", "1889"), question("Where does the tower stand?", "Paris")]
    _, values = guess_answers(TRAIN, {"dev": dev}, make_encoder(kind))
    assert all(answer and answer in CONTEXT for answer in values["dev"])
    if kind in ("bow", "tfidf"):
        assert values["dev"] == ["1889", "Paris"]


def test_an_empty_context():
    dev = [QuestionExample("0", "Who?", "", (), (), True, "f:0")]
    assert guess_answers(TRAIN, {"dev": dev}, make_encoder("bow"))[1] == {"dev": [""]}
