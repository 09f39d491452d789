"""Tags by counting, with back-off, and from word vectors."""

from __future__ import annotations

from litebert.baselines.labels import guess_tags, guess_tags_by_vectors
from litebert.tasks.task import TagExample, Task

TASK = Task("t", "token-classification", ("O", "X", "Y"), ("accuracy",))


def row(text, tags=None):
    return TagExample("0", tuple(text.split()), None if tags is None else tuple(map(int, tags)), "f:0")


TRAIN = [row("the Bank is here", "0100"), row("the bank is there", "0200"), row("we bank on it", "0000")]
TRAIN += [row("to Bank on", "020"), row("a Bank is", "010")]


def test_the_most_frequent_tag_of_each_word():
    _, values = guess_tags("bow", TRAIN, {"dev": [row("Bank bank unseen BANK is")]})
    # "Bank" X twice, Y once; "bank" O and Y once each, "BANK" as any spelling X and Y twice: the smaller wins.
    assert values["dev"] == [(1, 0, 0, 1, 0)]


def test_neighbours_first_then_fewer():
    _, values = guess_tags("ngram", TRAIN, {"dev": [row("the bank is"), row("to Bank it"), row("on Bank on")]})
    assert values["dev"][0] == (0, 2, 0)  # with both neighbours
    assert values["dev"][1] == (0, 2, 0)  # with the one on the left
    assert values["dev"][2] == (0, 1, 0)  # by itself


def test_vectors_of_a_word_and_its_neighbours(monkeypatch):
    train = [row("we saw anna in rome", "00102"), row("we saw ben in oslo", "00102"), row("anna saw rome", "102")] * 6
    for kind in ("word2vec", "fasttext"):
        what, values = guess_tags_by_vectors(TASK, kind, train, {"dev": [row("we saw anna in oslo")]})
        assert values["dev"] == [(0, 0, 1, 0, 2)]
        assert f"fitted on {13 * 6:,} words" in what
    monkeypatch.setattr("litebert.baselines.labels.MAX_WORDS", 40)
    what, _ = guess_tags_by_vectors(TASK, "word2vec", train, {"dev": [row("we saw anna in oslo")]})
    assert "40 words" in what
