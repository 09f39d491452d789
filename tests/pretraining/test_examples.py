"""Examples: equal to the slow text, from consecutive sentences, swapped exactly when they say so."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_examples import slow_examples
from small_stores import MemoryStore, random_documents

from litebert.pretraining.chapters import cut_stretches, lay_out
from litebert.pretraining.draws import make_key
from litebert.pretraining.examples import NO_ORDER, count_front_pops, plan_examples, trim_pairs
from litebert.pretraining.recipes import Recipe, named_recipe

recipes = st.builds(
    Recipe,
    objective=st.sampled_from(["sop", "nsp", "none"]),
    max_length=st.sampled_from([8, 16, 64]),
    short_probability=st.sampled_from([0.0, 0.1, 1.0]),
    short_draw=st.sampled_from(["example", "document"]),
    truncation=st.sampled_from(["whole", "trim"]),
    long_sentences=st.just("trim"),
    one_sentence=st.sampled_from(["skip", "single", "nsp"]),
)
documents_of_lengths = st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=12), min_size=1, max_size=6)


def plan(documents, recipe, key, size=1 << 20):
    store = MemoryStore(documents)
    stretches = cut_stretches(store, np.ones(len(documents), bool), size)
    text = lay_out(store, stretches, np.arange(len(stretches.start)), recipe)
    return store, plan_examples(text, recipe, key)


def ranges(examples):
    """The examples as lists of token numbers: (first, second, order)."""
    columns = (examples.first_start, examples.first_length, examples.second_start, examples.second_length)
    return [
        (list(range(a, a + n)), list(range(b, b + m)), order)
        for a, n, b, m, order in zip(*(column.tolist() for column in columns), examples.order.tolist(), strict=True)
    ]


@settings(max_examples=200, deadline=None)
@given(lengths=documents_of_lengths, recipe=recipes, pairs=st.booleans(), key=st.integers(0, 2**64 - 1))
def test_fast_equals_slow(lengths, recipe, pairs, key):
    if pairs and recipe.objective == "none":
        recipe = Recipe(**{**vars(recipe), "pairs_without_objective": True})
    store, examples = plan(lengths, recipe, key)
    documents = []
    for first, last in pairwise(store.document_offsets.tolist()):
        offsets = store.sentence_offsets[first : last + 1].tolist()
        documents.append([list(range(a, b)) for a, b in pairwise(offsets)])
    expected = slow_examples(documents, recipe, key)
    found = ranges(examples)
    for number in range(len(lengths)):
        own = [found[i] for i in np.flatnonzero(examples.document == number)]
        assert own == expected[number]


@pytest.mark.parametrize("name", ["paper", "google"])
def test_pairs_are_consecutive_text_swapped_exactly_when_label_1(name):
    recipe = named_recipe(name, {"max_length": 128})
    documents = random_documents(300, seed=1)
    store, examples = plan(documents, recipe, make_key(1))
    found = ranges(examples)
    assert len(found) > 500
    bounds = set(store.sentence_offsets.tolist())
    document_of = np.searchsorted(store.sentence_offsets[store.document_offsets], np.arange(store.num_tokens), "right")
    for (first, second, order), length in zip(found, examples.lengths.tolist(), strict=True):
        assert len(first) + len(second) + 3 == length <= 128
        same_document = document_of[first[0]] == document_of[second[0]]
        assert len(set(document_of[first])) == len(set(document_of[second])) == 1
        if name == "paper":
            assert same_document
            a, b = (second, first) if order == 1 else (first, second)
            assert a[-1] + 1 == b[0]  # consecutive, cut at the end of a sentence
            assert b[0] in bounds
            whole = a[0] in bounds and b[-1] + 1 in bounds
            assert whole or length == 128  # two sentences too long for one sequence lose their outer ends
        elif order == 0:
            assert same_document
            assert first[-1] < second[0]
        else:
            assert not same_document or second[-1] < first[0]


def test_every_sentence_is_used_once_by_the_paper_but_single_ones():
    documents = [document for document in random_documents(200, seed=2) if len(document) > 1] + [[9], [7]]
    store, examples = plan(documents, named_recipe("paper"), make_key(2))
    used = sorted(token for first, second, _ in ranges(examples) for token in first + second)
    assert used == list(range(store.num_tokens - 16))


def test_swaps_and_short_examples_have_their_shares():
    recipe = named_recipe("paper")
    _, examples = plan(random_documents(3000, seed=3, sentences=100), recipe, make_key(3))
    count = len(examples)
    assert count > 10_000
    assert abs((examples.order == 1).mean() - 0.5) < 4 * math.sqrt(0.25 / count)
    # Without documents that end, only short targets give short examples: 10 %, uniform over the lengths.
    _, examples = plan([[10] * 400] * 1500, recipe, make_key(3))
    short = examples.lengths < 490
    expected = 0.1 * 488 / 508
    ends = 1500 / len(examples)  # a document's last window is short by chance
    assert expected - 0.01 < short.mean() < expected + ends + 0.01


def test_released_habit_draws_the_length_once_per_document():
    recipe = named_recipe("google", {"short_probability": 1.0, "one_sentence": "skip"})
    _, examples = plan([[1] * 2000] * 20, recipe, make_key(4))
    for document in range(20):
        lengths = examples.lengths[examples.document == document]
        assert len(set(lengths[:-1].tolist())) == 1  # all but the last window
    assert len(set(examples.lengths.tolist())) > 10


def test_next_sentence_prediction_takes_half_of_b_from_elsewhere():
    recipe = named_recipe("paper", {"objective": "nsp"})
    documents = random_documents(800, seed=5, sentences=40)
    store, examples = plan(documents, recipe, make_key(5))
    starts = store.sentence_offsets[store.document_offsets]
    first = np.searchsorted(starts, examples.first_start, "right")
    second = np.searchsorted(starts, examples.second_start, "right")
    assert ((first != second) == (examples.order == 1)).all()
    assert (first - 1 == examples.document).all()
    assert abs((examples.order == 1).mean() - 0.5) < 4 * math.sqrt(0.25 / len(examples))
    # What a random B displaced comes again: nothing is lost.
    used = np.zeros(store.num_tokens, bool)
    for a, b, order in ranges(examples):
        used[a] = True
        if order == 0:
            used[b] = True
    lone = sum(sum(document) for document in documents if len(document) == 1)
    assert (~used).sum() <= lone + 0.02 * store.num_tokens


def test_one_sentence_chunks_as_configured():
    documents = [[30], [40], [20, 20]]
    by_rule = {}
    for rule in ("skip", "single", "nsp"):
        _, by_rule[rule] = plan(documents, named_recipe("paper", {"one_sentence": rule}), make_key(6))
    assert by_rule["skip"].document.tolist() == [2]
    assert sorted(by_rule["single"].document.tolist()) == [0, 1, 2]
    single = by_rule["single"].take(np.flatnonzero(by_rule["single"].document < 2))
    assert single.second_length.tolist() == [0, 0]
    assert single.order.tolist() == [NO_ORDER] * 2
    assert single.lengths.tolist() == [32, 42]
    random = by_rule["nsp"].take(np.flatnonzero(by_rule["nsp"].document < 2))
    assert random.order.tolist() == [1, 1]
    assert (random.second_length > 0).all()


def test_one_document_alone_has_no_random_partner():
    _, examples = plan([[30]], named_recipe("google"), make_key(7))
    assert len(examples) == 0


def test_without_objective():
    documents = random_documents(50, seed=8)
    store, examples = plan(documents, named_recipe("paper", {"objective": "none"}), make_key(8))
    assert (examples.second_length == 0).all()
    assert (examples.order == NO_ORDER).all()
    assert examples.lengths.sum() == store.num_tokens + 2 * len(examples)
    _, examples = plan(
        documents, named_recipe("paper", {"objective": "none", "pairs_without_objective": True}), make_key(8)
    )
    assert (examples.second_length > 0).all()
    assert (examples.order == NO_ORDER).all()
    assert (examples.first_start + examples.first_length == examples.second_start).all()


def test_long_sentences_are_split_into_pairs_or_trimmed():
    documents = [[2000], [1200, 8]]
    store, split = plan(documents, named_recipe("paper"), make_key(9))
    used = sorted(token for first, second, _ in ranges(split) for token in first + second)
    assert used == list(range(store.num_tokens))
    bounds = set(store.sentence_offsets.tolist())
    kinds = set()
    for first, second, order in ranges(split):
        begin, cut, end = (first[0], second[0], second[-1] + 1) if order != 1 else (second[0], first[0], first[-1] + 1)
        borders = [place in bounds for place in (begin, cut, end)]
        assert (order >= 0) == (len(set(borders)) == 1)  # a mixture would tell the order
        kinds.add(order >= 0)
    assert kinds == {True, False}
    _, trimmed = plan(
        documents, named_recipe("paper", {"long_sentences": "trim", "short_probability": 0.0}), make_key(9)
    )
    assert trimmed.document.tolist() == [1]
    assert trimmed.lengths.tolist() == [512]


def test_trimming_closed_form_equals_popping():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 60, 500), rng.integers(0, 60, 500)
    for limit in (5, 30, 61):
        fast = trim_pairs(first, second, limit)
        for a, b, pops_a, pops_b in zip(first, second, *fast, strict=True):
            slow_a, slow_b = int(a), int(b)
            while slow_a + slow_b > limit:
                if slow_a > slow_b:
                    slow_a -= 1
                else:
                    slow_b -= 1
            assert (slow_a, slow_b) == (a - pops_a, b - pops_b)


def test_front_pops_are_a_fair_share():
    keys = np.arange(4000, dtype=np.uint64) * np.uint64(977)
    for pops in (1, 64, 65, 1000):
        fronts = count_front_pops(keys, np.full(4000, pops), 0)
        assert 0 <= fronts.min() <= fronts.max() <= pops
        assert abs(fronts.mean() - pops / 2) < 4 * math.sqrt(pops / 4 / 4000)
        assert abs(fronts.var() / (pops / 4) - 1) < 0.15


def test_stretches_of_a_long_document_keep_all_of_it():
    documents = [[7] * 1000, [3, 4], [5000, 5]]
    store = MemoryStore(documents)
    stretches = cut_stretches(store, np.ones(3, bool), 700)
    assert (stretches.tokens <= 1400).all()
    assert stretches.start[0] == 0
    assert (stretches.start[1:] == (stretches.start + stretches.tokens)[:-1]).all()
    assert stretches.tokens.sum() == store.num_tokens
    inside = np.isin(stretches.start, store.sentence_offsets)
    assert inside[stretches.document == 0].all()  # cut at sentence ends where there are any
    text = lay_out(store, stretches, np.arange(len(stretches.start)), named_recipe("paper", {"long_sentences": "trim"}))
    places = text.offsets[:-1] + np.repeat(text.shift, np.diff(text.first))
    assert set(store.sentence_offsets[:-1].tolist()) <= set(places.tolist())
    assert text.offsets[-1] == store.num_tokens


def test_a_cut_at_the_outer_ends_never_tells_the_order():
    """Of pairs with a label, both segments are whole sentences: what is cut off would give the order away."""
    for long_sentences in ("trim", "split"):
        recipe = named_recipe("paper", {"max_length": 32, "long_sentences": long_sentences})
        store, examples = plan(random_documents(300, seed=2), recipe, make_key(3))
        bounds = set(store.sentence_offsets.tolist())
        found = ranges(examples)
        labelled = [(first, second) for first, second, order in found if order >= 0]
        assert len(labelled) > 100
        assert len(labelled) < len(found)
        for pair in labelled:
            borders = [place in bounds for segment in pair for place in (segment[0], segment[-1] + 1)]
            assert all(borders) or not any(borders)
            assert all(borders) or long_sentences == "split"
