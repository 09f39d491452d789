"""Batches: the model gets exactly the text, from any process, at any time, in any number of parts."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_stores import (
    CLS,
    FIRST,
    MASK,
    PAD,
    SEP,
    MemoryStore,
    SmallVocabulary,
    numbered_vocabulary,
    random_documents,
    same_batch,
)

from litebert.errors import ConfigError, DataError, InputError
from litebert.pretraining import chapters
from litebert.pretraining.batches import Batches, share_row, whole_weights
from litebert.pretraining.recipes import named_recipe

STORE = MemoryStore(random_documents(400, seed=1))
VOCABULARY = numbered_vocabulary(STORE)


def make(store=STORE, recipe="paper", vocabulary=VOCABULARY, overrides=None, **options):
    options = {"tokens_per_batch": 4096, "row_tokens": 512, "seed": 7, **options}
    return Batches(store, vocabulary, named_recipe(recipe, {"max_length": 128, **(overrides or {})}), **options)


def sequences(batch):
    """The real sequences of a packed batch with their text restored: (first, second, order)."""
    tokens = batch.tokens.copy()
    used = batch.labels >= 0
    tokens[batch.masked[used]] = batch.labels[used]
    result = []
    for i in range(batch.num_sequences):
        first, last = batch.starts[i], batch.starts[i + 1]
        own, segments = tokens[first:last], batch.segments[first:last]
        assert own[0] == CLS
        assert own[-1] == SEP
        assert batch.positions[first:last].tolist() == list(range(last - first))
        a, b = own[segments == 0], own[segments == 1]
        assert a[-1] == SEP
        text = np.concatenate([a[1:-1], b[:-1]])
        assert (text >= FIRST).all()
        result.append((a[1:-1].tolist(), b[:-1].tolist(), int(batch.order[i])))
    return result


@pytest.mark.parametrize("recipe", ["paper", "google"])
@pytest.mark.parametrize("step", [0, 5, 123])
def test_the_contract_of_a_batch(recipe, step):
    batches = make(recipe=recipe)
    batch, shapes = batches.batch(step), batches.shapes()
    assert batch.tokens.shape == batch.segments.shape == batch.positions.shape == (shapes.tokens,) == (4096,)
    assert batch.starts.shape == (shapes.sequences + 1,)
    assert batch.order.shape == (shapes.sequences,)
    assert batch.masked.shape == batch.labels.shape == (shapes.predictions,)
    kinds = [array.dtype.name for array in (batch.tokens, batch.segments, batch.positions, batch.starts)]
    assert kinds == ["int32", "int8", "int16", "int32"]
    assert [array.dtype.name for array in (batch.masked, batch.labels, batch.order)] == ["int32", "int32", "int8"]
    # Sequences follow each other without gaps, the filler follows them, and no sequence is too long.
    assert batch.starts[0] == 0
    assert batch.starts[-1] == 4096
    lengths = np.diff(batch.starts)
    assert (lengths >= 0).all()
    assert lengths.max() <= 128
    assert (lengths[: batch.num_sequences] > 0).all()
    filler = batch.starts[batch.num_sequences]
    assert (batch.tokens[filler:] == PAD).all()
    assert (batch.tokens[:filler] != PAD).all()
    assert batch.positions.max() < 128
    # Predictions first, then unused entries; orders likewise.
    used = int((batch.labels >= 0).sum())
    assert (batch.labels[used:] == -100).all()
    assert (batch.masked[used:] == 0).all()
    assert (np.diff(batch.masked[:used]) > 0).all()
    assert (batch.labels[:used] >= FIRST).all()
    assert set(batch.order[: batch.num_sequences].tolist()) <= {0, 1, -100}  # -100: two sentences that were cut
    assert (batch.order[batch.num_sequences :] == -100).all()
    assert filler > 0.95 * 4096


@settings(max_examples=25, deadline=None)
@given(
    step=st.integers(0, 400),
    seed=st.integers(0, 2**31),
    objective=st.sampled_from(["sop", "nsp", "none"]),
    masking=st.sampled_from(["ngram", "word", "token"]),
    max_predictions=st.sampled_from([None, 5]),
)
def test_budgets_labels_and_text(step, seed, objective, masking, max_predictions):
    overrides = {"objective": objective, "masking": masking, "max_predictions": max_predictions}
    batches = make(overrides=overrides, seed=seed)
    batch = batches.batch(step)
    predicted = np.searchsorted(batch.starts, batch.masked[batch.labels >= 0], side="right") - 1
    counts = np.bincount(predicted, minlength=batch.num_sequences)
    lengths = np.diff(batch.starts)[: batch.num_sequences]
    budgets = [batches.recipe.num_to_predict(int(length)) for length in lengths]
    assert (counts[: batch.num_sequences] <= budgets).all()
    # Ids are token numbers, so the restored text says where it comes from.
    for first, second, order in sequences(batch):
        assert np.diff(first).tolist() == [1] * (len(first) - 1)
        assert np.diff(second).tolist() == [1] * max(len(second) - 1, 0)
        if objective == "none":
            assert (second, order) == ([], -100)
        elif objective == "nsp":
            assert (first[-1] + 1 == second[0]) == (order == 0)
        else:
            a, b = (second, first) if order == 1 else (first, second)
            assert a[-1] + 1 == b[0]


def test_any_division_gives_the_same_sequences():
    batches = make()
    whole = [sequences(batches.batch(step)) for step in range(3)]
    masked = [batches.batch(step) for step in range(3)]
    for world, micro_batches in ((2, 1), (4, 2), (1, 8), (8, 1)):
        for step in range(3):
            parts = [
                batches.batch(step, rank, world, micro, micro_batches)
                for rank in range(world)
                for micro in range(micro_batches)
            ]
            assert [s for part in parts for s in sequences(part)] == whole[step]
            # The tokens the model sees are the same too.
            seen = np.concatenate([part.tokens[: part.starts[part.num_sequences]] for part in parts])
            assert seen.tolist() == masked[step].tokens[: masked[step].starts[masked[step].num_sequences]].tolist()


def test_a_step_needs_no_steps_before_it():
    far = 3 * make().steps_per_epoch + 11
    one = make()
    for step in range(4):
        one.batch(step)
    assert same_batch(one.batch(far), make().batch(far))
    assert same_batch(one.batch(2), make().batch(2))


@pytest.mark.parametrize(("recipe", "expected"), [("paper", "b7c13ad13b47dc8b"), ("google", "62af8b4128510eaf")])
def test_batches_stay_the_same_from_version_to_version(recipe, expected):
    # A resumed run must go on with the batches it began with: change this only with a note in the changelog.
    store = MemoryStore([[5 + (7 * i + 3 * j) % 31 for j in range(1 + i * i % 23)] for i in range(300)])
    batch = make(store, recipe, numbered_vocabulary(store)).batch(321)
    content = b"".join(np.asarray(getattr(batch, f.name)).astype("<i8").tobytes() for f in dataclasses.fields(batch))
    assert hashlib.sha256(content).hexdigest()[:16] == expected


def test_seeds_and_epochs_differ():
    batches = make()
    assert not same_batch(batches.batch(0), make(seed=8).batch(0))
    assert not same_batch(batches.batch(0), batches.batch(1))
    epoch = batches.steps_per_epoch
    examples = [
        {(tuple(a), tuple(b)): None for s in range(epoch) for a, b, _ in sequences(batches.batch(k * epoch + s))}
        for k in (0, 1)
    ]
    assert 0 < len(set(examples[0]) & set(examples[1])) < 0.9 * len(examples[0])  # cut differently
    masks = {}
    for step in range(2 * epoch):
        batch = batches.batch(step)
        for i, text in enumerate(sequences(batch)):
            masks.setdefault(str(text), []).append(batch.tokens[batch.starts[i] : batch.starts[i + 1]].tolist())
    again = [seen for seen in masks.values() if len(seen) > 1 and len(seen[0]) > 40]
    assert again
    assert all(one != other for one, other, *_ in again)  # masked afresh


@pytest.mark.parametrize("chapter_tokens", [1 << 26, 20_000])
def test_an_epoch_sees_every_document_about_once(monkeypatch, chapter_tokens):
    monkeypatch.setattr(chapters, "CHAPTER_TOKENS", chapter_tokens)
    batches = make(tokens_per_batch=512)
    assert batches.sources[0].num_chapters == -(-STORE.num_tokens // chapter_tokens)
    for epoch in (0, 1):
        rows = batches.sources[0].rows_per_epoch
        seen = np.zeros(STORE.num_tokens, int)
        for step in range(epoch * rows, (epoch + 1) * rows):
            for first, second, _ in sequences(batches.batch(step)):
                seen[np.array(first + second) - FIRST] += 1
        lone = np.concatenate([np.full(sum(d), len(d) == 1) for d in STORE.documents])
        assert (seen[lone] == 0).all()  # the recipe skips them
        # Rows per chapter are fixed, so a few windows are left out or come twice; the larger the chapter, the fewer.
        assert (seen[~lone] == 1).mean() > (0.9 if chapter_tokens > STORE.num_tokens else 0.8)
        assert 0.95 < seen[~lone].mean() < 1.05


def test_the_next_chapter_is_planned_while_this_one_is_used():
    batches = make(tokens_per_batch=512)
    batches.plan_ahead = True
    source = batches.sources[0]
    planned = []
    original = source._fill_chapter
    source._fill_chapter = lambda number: planned.append(number) or original(number)
    rows = source.rows_per_epoch
    batches.batch(0)
    assert planned == [0]
    batches.batch(rows // 2 + 1)
    ahead = source.chapter(1)  # waits for the background thread, plans nothing itself
    assert planned == [0, 1]
    assert same_batch(batches.batch(rows), make(tokens_per_batch=512).batch(rows))
    assert source.chapter(1) is ahead


def test_rows_mix_documents():
    documents = np.repeat(np.arange(400), [sum(d) for d in STORE.documents])
    batch = make().batch(0)
    first = [documents[a[0] - FIRST] for a, _, _ in sequences(batch)]
    assert len(set(first)) > 0.8 * len(first) * 0.8
    assert np.abs(np.diff(first)).mean() > 50  # neighbours in a row are strangers


def test_a_tiny_store_whose_chapters_may_be_empty():
    """Windows of one sentence find no partner in another document: some epochs have no example of their own."""
    recipe = named_recipe("paper", {"one_sentence": "nsp", "truncation": "trim", "max_length": 8})
    store, vocabulary = MemoryStore([[3, 4]]), SmallVocabulary(20)
    batches = Batches(store, vocabulary, recipe, tokens_per_batch=128, row_tokens=128)
    assert any(not len(batches.sources[0].plan(number)) for number in range(40))
    for number in range(40):
        assert batches.batch(number).tokens.any()


def test_held_out_documents_never_train():
    options = {"tokens_per_batch": 512, "held_out": 0.1}
    train, held_out = make(**options), make(**options, split="held-out")
    assert held_out.sources[0].num_documents == 40
    documents = np.repeat(np.arange(400), [sum(d) for d in STORE.documents])
    seen = []
    for batches in (train, held_out):
        steps = range(2 * batches.sources[0].rows_per_epoch)
        tokens = [t for step in steps for a, b, _ in sequences(batches.batch(step)) for t in a + b]
        seen.append(set(documents[np.array(tokens) - FIRST]))
    assert not seen[0] & seen[1]
    assert len(seen[1]) > 30
    other_seed = make(**{**options, "seed": 99}, split="held-out")
    assert set(other_seed.sources[0].stretches.document) == set(held_out.sources[0].stretches.document)
    assert make(held_out=25, split="held-out").sources[0].num_documents == 25
    for wrong in (400, -1, 1.5):
        with pytest.raises(ConfigError, match="held_out"):
            make(held_out=wrong)


def test_several_stores_share_the_rows_by_weight():
    other = MemoryStore(random_documents(60, seed=2), ids=FIRST + STORE.num_tokens + np.arange(200_000))
    vocabulary = SmallVocabulary(FIRST + STORE.num_tokens + 200_000)
    batches = make([STORE, other], vocabulary=vocabulary, weights=[3, 1])
    counts = np.zeros(2, int)
    for step in range(10):
        for a, _, _ in sequences(batches.batch(step)):
            counts[int(a[0] >= FIRST + STORE.num_tokens)] += len(a)
    assert 0.2 < counts[1] / counts.sum() < 0.3
    # Without weights, both are through at the same time.
    even = make([STORE, other], vocabulary=vocabulary, tokens_per_batch=512)
    rows = [source.rows_per_epoch for source in even.sources]
    assert even.steps_per_epoch == sum(rows)


def test_padded_batches():
    packed = make(tokens_per_batch=32 * 128, row_tokens=32 * 128).batch(3)
    batch, count = packed.padded(128, PAD), packed.num_sequences
    assert batch.tokens.shape == batch.segments.shape == batch.mask.shape == (count, 128)
    assert batch.order.shape == (count,)
    lengths = batch.mask.sum(axis=1)
    assert (lengths == np.diff(packed.starts[: count + 1])).all()
    assert (batch.mask == (np.arange(128) < lengths[:, None])).all()
    assert (batch.tokens[~batch.mask] == PAD).all()
    assert (batch.tokens[:, 0] == CLS).all()
    assert (batch.tokens[np.arange(count), lengths - 1] == SEP).all()
    tokens = batch.tokens.copy()
    used = batch.labels >= 0
    assert batch.mask.reshape(-1)[batch.masked[used]].all()
    assert (batch.tokens.reshape(-1)[batch.masked[used]] == packed.tokens[packed.masked[used]]).all()
    tokens.reshape(-1)[batch.masked[used]] = batch.labels[used]
    for row, segments, length, order in zip(tokens, batch.segments, lengths, batch.order, strict=True):
        a, b = row[:length][segments[:length] == 0][1:-1], row[:length][segments[:length] == 1][:-1]
        first, second = (b, a) if order == 1 else (a, b)
        assert first[-1] + 1 == second[0]
        assert not segments[length:].any()


def test_pickled_batches_are_the_same_without_measuring_again(monkeypatch):
    batches = make()
    copy = pickle.loads(pickle.dumps(batches))
    monkeypatch.setattr(chapters.StoreRows, "_calibrate", None)
    assert same_batch(copy.batch(17), batches.batch(17))


def test_a_tiny_store_still_fills_rows():
    store = MemoryStore([[4, 5, 6]])
    batches = make(store, vocabulary=numbered_vocabulary(store))
    assert batches.steps_per_epoch == 1
    assert sequences(batches.batch(0))


def test_mistakes_are_named():
    with pytest.raises(DataError, match=r"built with another tokenizer \(fingerprint ffff"):
        make(vocabulary=SmallVocabulary(VOCABULARY.vocab_size, fingerprint="e" * 64))
    with pytest.raises(DataError, match="built with another tokenizer"):
        make([STORE, MemoryStore([[5, 5]], fingerprint="e" * 64)])
    with pytest.raises(ConfigError, match="row_tokens: must be >= max_length 128, got 64"):
        make(row_tokens=64)
    with pytest.raises(ConfigError, match="tokens_per_batch: must be a multiple of row_tokens 512, got 1,000"):
        make(tokens_per_batch=1000)
    with pytest.raises(ConfigError, match="8 rows of 512 tokens per batch cannot be divided among 3 ranks"):
        make().batch(0, rank=0, world=3)
    with pytest.raises(InputError, match="rank 2 of 2"):
        make().batch(0, rank=2, world=2)
    with pytest.raises(InputError, match="step -1"):
        make().batch(-1)
    with pytest.raises(DataError, match=r"no examples can be made from 2 documents; .* one_sentence: skip"):
        make(MemoryStore([[5], [6]]))
    with pytest.raises(DataError, match="at least two documents"):
        make(MemoryStore([[5, 6, 7]]), overrides={"objective": "nsp"})
    with pytest.raises(ConfigError, match="at least one"):
        make([])


def test_masks_cover_15_percent():
    batch = make(tokens_per_batch=1 << 16).batch(0)
    real = batch.starts[batch.num_sequences]
    assert abs((batch.labels >= 0).sum() / real - 0.15) < 0.01
    assert abs((batch.tokens == MASK).sum() / (batch.labels >= 0).sum() - 0.8) < 0.02


@given(weights=st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_each_store_gets_its_rows_in_order_and_its_share_at_any_moment(weights):
    rows = 300
    counts = Counter()
    for row in range(rows):
        store, own_row = share_row(row, weights)
        assert own_row == counts[store]  # none skipped, none twice
        counts[store] += 1
        for number, weight in enumerate(weights):
            assert abs(counts[number] - (row + 1) * weight / sum(weights)) < len(weights)


def test_far_rows_are_reached_at_once():
    assert share_row(4 * 10**12, [3, 1]) == (1, 10**12)
    assert share_row(4 * 10**12 + 1, [3, 1]) == (0, 3 * 10**12)


def test_whole_weights():
    assert whole_weights([0.75, 0.25], [1, 1]) == [3, 1]
    assert whole_weights([2, 1, 1], [1, 1, 1]) == [2, 1, 1]
    assert whole_weights(None, [17, 4]) == [17, 4]


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -2.0], [1.0, float("nan")], [1.0, 1e-9]])
def test_impossible_weights(weights):
    with pytest.raises(ConfigError, match="weights"):
        whole_weights(weights, [5, 5])
