"""Multiple choice: the sliding window against a plain search, similarity against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from litebert.baselines.features import make_encoder
from litebert.baselines.overlap import choose_by_similarity, choose_by_window, window_score
from litebert.tasks.kinds.multiple_choice import fill_gap
from litebert.tasks.task import ChoiceExample

PASSAGE = "anna lives in rome . the weather was fine . ben moved to oslo last year ."


def choice(question, *options, passage=PASSAGE):
    return ChoiceExample("0", passage, question, options, 0, "f:0")


@given(st.lists(st.sampled_from("abcdef"), max_size=12), st.sets(st.sampled_from("abcdxy")))
def test_window_is_the_best_of_all_stretches(passage, wanted):
    weights = {word: math.log(1 + 1 / passage.count(word)) for word in passage}
    size = len(wanted)
    stretches = [passage[i : i + size] for i in range(max(1, len(passage) - size + 1))]
    best = max(sum(weights[word] for word in stretch if word in wanted) for stretch in stretches)
    assert window_score(passage, wanted, weights) == pytest.approx(best)


def test_the_option_that_stands_near_the_questions_words():
    _, values = choose_by_window(
        {"dev": [choice("where lives anna", "oslo", "rome"), choice("ben moved to", "oslo", "x")]}
    )
    assert values["dev"] == [1, 0]


def test_similarity_is_the_cosine_of_tf_idf():
    train = [choice("where lives anna", "oslo", "rome"), choice("who moved", "ben", "anna", passage="nobody moved")]
    dev = [choice("_ moved", "ben", "rome", "zoe"), choice("what was fine", "weather", "oslo"), train[1]]
    _, values = choose_by_similarity(train, {"dev": dev}, make_encoder("tfidf"))
    texts = [PASSAGE, "nobody moved"] + [f"{e.question} {o}" for e in train for o in e.options]
    words = TfidfVectorizer(token_pattern=r"(?u)\w+|[^\w\s]", sublinear_tf=True).fit(texts)
    for example, value in zip(dev, values["dev"], strict=True):
        asked = words.transform([fill_gap(example.question, option) for option in example.options])
        assert value == np.argmax(cosine_similarity(asked, words.transform([example.passage])))


def test_word_vectors_and_no_passage():
    train = [choice("where lives anna", "oslo", "rome")] * 3
    _, values = choose_by_similarity(train, {"dev": [choice("x", "y", "z", passage="")]}, make_encoder("word2vec"))
    assert values["dev"] == [0]
