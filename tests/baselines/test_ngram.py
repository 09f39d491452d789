from __future__ import annotations

import random
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.baselines.masks import ConnectiveOrder, NgramModel, _order_features
from litebert.errors import InputError

TEXTS = st.lists(st.lists(st.integers(0, 4), max_size=12), min_size=1, max_size=6).filter(any)


def slow_guess(sequences, left, order):
    """The same by counters: the longest context ever seen, its most frequent follower, the smaller id of equals."""
    followers = defaultdict(Counter)
    for sequence in sequences:
        for end in range(len(sequence)):
            for n in range(min(order, end + 1)):
                followers[tuple(sequence[end - n : end])][sequence[end]] += 1
    for n in range(min(order - 1, len(left)), -1, -1):
        seen = followers.get(tuple(left[len(left) - n :]))
        if seen:
            return min(token for token in seen if seen[token] == max(seen.values()))
    raise AssertionError


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 4), max_size=5), st.integers(1, 3))
def test_guesses_are_those_of_counters(sequences, left, order):
    model = NgramModel.fit([np.array(row, dtype=np.int32) for row in sequences], 5, order)
    assert model.guess(left) == slow_guess(sequences, left, order)


def test_a_trigram_knows_a_cycle_and_a_unigram_does_not():
    text = np.array([1, 2, 1, 3] * 10)
    trigram, unigram = (NgramModel.fit([text], 4, order=order) for order in (3, 1))
    places = range(2, len(text))
    assert all(trigram.guess(text[:place]) == text[place] for place in places)
    assert sum(unigram.guess(text[:place]) == text[place] for place in places) == len(places) / 2


def test_nothing_to_count():
    with pytest.raises(InputError, match="no token"):
        NgramModel.fit([np.array([], dtype=np.int64)], 5)


def pairs_and_labels(num, clue, rng):
    """Pairs of which the second half begins with a clue word, half of them swapped."""
    pairs, labels = [], []
    for number in range(num):
        first, second = f"A cat sat on mat {number}.", f"{clue} a dog came."
        label = rng.randrange(2)
        pairs.append((second, first) if label else (first, second))
        labels.append(label)
    return pairs, labels


def test_connectives_tell_order_where_there_are_some():
    rng = random.Random(0)
    told = ConnectiveOrder.fit(*pairs_and_labels(200, "Then", rng))
    assert told.accuracy(*pairs_and_labels(100, "Then", rng)) == 1.0
    untold = ConnectiveOrder.fit(*pairs_and_labels(200, "There", rng))
    # "on" stands in the first half only, and counts as a connective; without the clues nothing is left.
    bare = [("A cat sat.", "A dog came."), ("A dog came.", "A cat sat.")]
    assert untold.predict(bare).tolist() == [0, 0]


def test_the_regression_has_reached_its_minimum():
    rng = random.Random(1)
    words = ["then", "before", "cat", "dog", "after", "so", "morning"]
    pairs = [tuple(" ".join(rng.choices(words, k=4)) for _ in range(2)) for _ in range(300)]
    labels = [int("then" in first) ^ (rng.random() < 0.3) for first, _ in pairs]
    model = ConnectiveOrder.fit(pairs, labels)
    weights = torch.tensor(model.weights, requires_grad=True)
    features = torch.tensor(_order_features(pairs))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        features @ weights, torch.tensor(labels, dtype=torch.float64), reduction="sum"
    )
    (loss + weights.square().sum() / 2).backward()
    assert weights.grad.abs().max() < 1e-6
