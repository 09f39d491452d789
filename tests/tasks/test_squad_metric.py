"""SQuAD's official scores, worked by hand."""

from __future__ import annotations

import pytest

from litebert.tasks.squad import normalize_answer, score_answer


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("The Eiffel-Tower!", "eiffeltower"),
        ("an  apple\n a day", "apple day"),
        ("theatre", "theatre"),  # an article inside a word stays
        ("U.S.A.", "usa"),
        ("The", ""),
        ("10–12", "10–12"),  # only ASCII punctuation is set aside
        ("«The»", "« »"),
        ("세종대왕은", "세종대왕은"),
    ],
)
def test_normalisation(text, kept):
    assert normalize_answer(text) == kept


@pytest.mark.parametrize(
    ("prediction", "references", "exact", "f1"),
    [
        ("Eiffel Tower", ["Eiffel Tower"], 1, 1),
        ("the eiffel tower.", ["Eiffel Tower"], 1, 1),  # article, case, punctuation
        ("Tower", ["Eiffel Tower"], 0, 2 / 3),  # precision 1, recall 1/2
        ("the big Eiffel Tower", ["Eiffel Tower"], 0, 4 / 5),  # precision 2/3, recall 1
        ("Paris", ["Eiffel Tower"], 0, 0),
        ("New York New", ["New New York"], 0, 1),  # a bag of words: order does not count for F1
        ("York York", ["New York"], 0, 1 / 2),  # but each word counts once: 1 of 2, 1 of 2
        ("Tower", ["Eiffel Tower", "the tower", "Paris"], 1, 1),  # the best of several
        ("in Paris", ["Paris", "in France"], 0, 2 / 3),  # each metric takes its own best
        ("", [], 1, 1),  # no answer, and rightly so
        ("Paris", [], 0, 0),
        ("", ["Paris"], 0, 0),
        ("the", [], 1, 1),  # nothing is left of it, as of no answer
        ("a", ["The", "Paris"], 0, 0),  # a reference of which nothing is left is none
    ],
)
def test_hand_worked_scores(prediction, references, exact, f1):
    assert score_answer(prediction, references) == pytest.approx((exact, f1))
