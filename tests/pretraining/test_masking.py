"""Masking: equal to the slow text bit for bit, and right in the large."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_masking import slow_mask
from small_stores import FIRST, MASK, UNK, SmallVocabulary

from litebert.pretraining.draws import draw, make_key
from litebert.pretraining.masking import Symbols, draw_sizes, find_words, join_ranges, mask_text
from litebert.pretraining.recipes import Recipe, named_recipe

VOCABULARY = SmallVocabulary(2000)

recipes = st.builds(
    Recipe,
    masking=st.sampled_from(["ngram", "word", "token"]),
    word_style=st.sampled_from(["spaces", "google"]),
    max_ngram=st.integers(1, 5),
    ngram_draw=st.sampled_from(["span", "start"]),
    ngram_across_separator=st.booleans(),
    mask_rate=st.sampled_from([0.05, 0.15, 0.4, 1.0]),
    max_predictions=st.sampled_from([None, 1, 7, 20]),
    replacement=st.sampled_from(["token", "span"]),
    random_excludes_special=st.booleans(),
)
segment_pairs = st.lists(st.tuples(st.integers(1, 80), st.integers(0, 80)), min_size=1, max_size=5)


def make_text(pairs, seed, unknown=0.02):
    rng = np.random.default_rng(seed)
    segments = np.array(pairs, np.int64)
    text = rng.integers(FIRST, VOCABULARY.vocab_size, segments.sum()).astype(np.int32)
    text[rng.random(len(text)) < unknown] = UNK
    return text, segments


def run_fast(pairs, recipe, seed):
    text, segments = make_text(pairs, seed)
    symbols = Symbols.of(VOCABULARY, recipe)
    lengths = segments.sum(axis=1) + 2 + (segments[:, 1] > 0)
    budgets = np.array([recipe.num_to_predict(int(length)) for length in lengths])
    keys = draw(make_key(seed), np.arange(len(pairs)))
    return text, segments, symbols, budgets, keys, mask_text(text, segments, budgets, keys, recipe, symbols)


@settings(max_examples=150, deadline=None)
@given(pairs=segment_pairs, recipe=recipes, seed=st.integers(0, 2**40))
def test_fast_equals_slow_bit_for_bit(pairs, recipe, seed):
    text, segments, symbols, budgets, keys, masks = run_fast(pairs, recipe, seed)
    expected_masks, expected_spans = {}, []
    start = 0
    for (a, b), budget, key in zip(segments.tolist(), budgets.tolist(), keys.tolist(), strict=True):
        tokens = text[start : start + a + b].tolist()
        masked, spans = slow_mask(
            tokens[:a],
            tokens[a:],
            budget,
            key,
            recipe,
            symbols.special,
            VOCABULARY.word_starts(recipe.word_style),
            symbols.replacements,
            MASK,
        )
        expected_masks |= {start + place: what for place, what in masked.items()}
        expected_spans += [(start + place, n) for place, n in spans]
        start += a + b
    places = masks.places.tolist()
    assert (
        dict(zip(places, zip(masks.labels.tolist(), masks.seen.tolist(), strict=True), strict=True)) == expected_masks
    )
    assert places == sorted(places)
    span_places = masks.places[np.cumsum(masks.span_tokens) - masks.span_tokens].tolist()
    assert list(zip(span_places, masks.span_words.tolist(), strict=True)) == expected_spans


@settings(max_examples=80, deadline=None)
@given(pairs=segment_pairs, recipe=recipes, seed=st.integers(0, 2**40))
def test_budget_kept_specials_never_masked_labels_restore_the_text(pairs, recipe, seed):
    text, segments, symbols, budgets, _, masks = run_fast(pairs, recipe, seed)
    sequence = np.searchsorted(np.cumsum(segments.sum(axis=1)), masks.places, side="right")
    assert (np.bincount(sequence, minlength=len(pairs)) <= budgets).all()
    assert len(set(masks.places.tolist())) == len(masks.places)
    assert not symbols.special[masks.labels].any()
    assert (masks.labels == text[masks.places]).all()
    changed = masks.seen[(masks.seen != masks.labels) & (masks.seen != MASK)]
    if recipe.random_excludes_special:
        assert not symbols.special[changed].any()


@settings(max_examples=80, deadline=None)
@given(pairs=segment_pairs, recipe=recipes, seed=st.integers(0, 2**40))
def test_words_are_masked_whole(pairs, recipe, seed):
    text, segments, symbols, _, _, masks = run_fast(pairs, recipe, seed)
    words = find_words(text, segments, recipe, symbols)
    chosen = np.zeros(len(text), bool)
    chosen[masks.places] = True
    counts = np.add.reduceat(chosen.astype(int), words.bounds[:-1])
    assert np.isin(counts / np.diff(words.bounds), (0, 1)).all()
    assert masks.span_tokens.sum() == len(masks.places)
    limit = recipe.max_ngram if recipe.masking == "ngram" else 1
    assert masks.span_words.max(initial=1) <= limit
    if not recipe.ngram_across_separator:  # no span has tokens of both A and B
        first = np.cumsum(masks.span_tokens) - masks.span_tokens
        ends = np.cumsum(segments)
        begin, stop = masks.places[first], masks.places[first + masks.span_tokens - 1]
        assert (np.searchsorted(ends, begin, side="right") == np.searchsorted(ends, stop, side="right")).all()


def test_words_by_hand():
    recipe = named_recipe("paper")
    symbols = Symbols.of(VOCABULARY, recipe)
    starter = int(np.flatnonzero(symbols.starts_word & ~symbols.special)[0])
    inner = int(np.flatnonzero(~symbols.starts_word & ~symbols.special)[0])
    #                 A: word of 2, word    B: begins inside a word    <unk> splits
    text = np.array([starter, inner, starter, inner, starter, UNK, inner], np.int32)
    words = find_words(text, np.array([[3, 4]]), recipe, symbols)
    assert words.bounds.tolist() == [0, 2, 3, 4, 5, 6, 7]
    assert words.limit.tolist() == [2, 2, 6, 6, 6, 6]
    assert words.widest.tolist() == [4]
    assert list(words.taken) == [0, 0, 0, 0, 1, 0]
    glued = find_words(text, np.array([[3, 4]]), named_recipe("paper", {"ngram_across_separator": True}), symbols)
    assert glued.bounds.tolist() == [0, 2, 4, 5, 6, 7]  # the piece that opens B goes with A's last word, as released
    assert glued.limit.tolist() == [5] * 5


def test_sizes_have_the_shares_of_the_paper():
    sizes = draw_sizes(draw(make_key(1), np.arange(200_000)), 3)
    for n, share in ((1, 6 / 11), (2, 3 / 11), (3, 2 / 11)):
        bound = 4 * math.sqrt(share * (1 - share) / len(sizes))
        assert abs((sizes == n).mean() - share) < bound
    assert set(draw_sizes(draw(make_key(1), np.arange(1000)), 1).tolist()) == {1}


def test_realised_spans_have_the_shares_of_the_paper():
    # Where the budget ends, the last span may be cut short: one of about 280 in sequences as long as these.
    recipe = named_recipe("paper", {"max_length": 4096})
    *_, masks = run_fast([(2000, 2000)] * 60, recipe, 3)
    spans = len(masks.span_words)
    for n, share in ((1, 6 / 11), (2, 3 / 11), (3, 2 / 11)):
        noise = 4 * math.sqrt(share * (1 - share) / spans)
        assert abs((masks.span_words == n).mean() - share) < noise + 1 / 280


def test_the_released_draw_loses_long_spans_to_collisions():
    paper = named_recipe("paper", {"max_length": 4096, "mask_rate": 0.3})
    google = named_recipe("paper", {"max_length": 4096, "mask_rate": 0.3, "ngram_draw": "start"})
    shares = [(run_fast([(2000, 2000)] * 30, recipe, 3)[-1].span_words == 3).mean() for recipe in (paper, google)]
    assert shares[0] > shares[1] + 0.02


@pytest.mark.parametrize("replacement", ["token", "span"])
def test_80_10_10(replacement):
    recipe = named_recipe("paper", {"replacement": replacement})
    *_, masks = run_fast([(250, 250)] * 400, recipe, 4)
    kinds = np.where(masks.seen == MASK, 0, np.where(masks.seen == masks.labels, 2, 1))
    first = np.cumsum(masks.span_tokens) - masks.span_tokens
    if (
        replacement == "span"
    ):  # one draw for a whole span, so its tokens share their fate, random tokens differ by chance
        spans = np.repeat(np.arange(len(first)), masks.span_tokens)
        assert ((kinds == 0) == (kinds[first] == 0)[spans]).all()
        kinds = kinds[first]
    for kind, share in ((0, 0.8), (1, 0.1), (2, 0.1)):
        noise = 4 * math.sqrt(share * (1 - share) / len(kinds))
        # A random token is the right one in 1 of 1995 cases.
        assert abs((kinds == kind).mean() - share) < noise + 1 / 1995


def test_random_tokens_are_uniform_over_the_ordinary_ids():
    recipe = named_recipe("paper", {"replace_with_mask": 0.0, "replace_with_random": 1.0, "mask_rate": 0.5})
    *_, masks = run_fast([(250, 250)] * 400, recipe, 5)
    counts = np.bincount(masks.seen, minlength=VOCABULARY.vocab_size)
    assert counts[:FIRST].sum() == 0
    expected = len(masks.seen) / (VOCABULARY.vocab_size - FIRST)
    chi_squared = ((counts[FIRST:] - expected) ** 2 / expected).sum()
    freedom = VOCABULARY.vocab_size - FIRST - 1
    assert abs(chi_squared - freedom) < 4 * math.sqrt(2 * freedom)


def test_masks_of_a_sequence_do_not_depend_on_its_neighbours():
    recipe = named_recipe("paper")
    pairs = [(40, 30), (100, 50), (9, 1), (200, 210)]
    text, segments, symbols, budgets, keys, together = run_fast(pairs, recipe, 6)
    start = 0
    for i, (a, b) in enumerate(pairs):
        alone = mask_text(
            text[start : start + a + b], segments[i : i + 1], budgets[i : i + 1], keys[i : i + 1], recipe, symbols
        )
        own = (together.places >= start) & (together.places < start + a + b)
        assert (alone.places + start).tolist() == together.places[own].tolist()
        assert alone.seen.tolist() == together.seen[own].tolist()
        start += a + b


def test_join_ranges():
    assert join_ranges(np.array([10, 20, 5]), np.array([2, 3, 0])).tolist() == [10, 11, 20, 21, 22]
    assert join_ranges(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []
