"""What is measured of a model, against plain computations of the same."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from litebert.model.config import ModelConfig
from litebert.model.heads import MaskedLMModel, PretrainingModel
from litebert.pretraining.batches import Batches
from litebert.pretraining.evaluate import evaluate_batches, pair_batches
from litebert.pretraining.recipes import Recipe
from litebert.reproduce import measure
from litebert.reproduce.corpus import given_corpus
from litebert.reproduce.measure import layer_distances, mlm_floor, pair_features, probe_pairs, roughness, score_examples
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import DeviceConfig, open_device

RECIPE = Recipe(max_length=64)
SHAPE = dict(hidden_size=16, embedding_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32)


@pytest.fixture(scope="module")
def device():
    return open_device(DeviceConfig(device="cpu", threads=1))


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return Tokenizer.load(corpus.tokenizer)


@pytest.fixture(scope="module")
def held_out(corpus, tokenizer):
    return [TokenStore.open(corpus.held_out_store, tokenizer)]


def make_model(cls, tokenizer, **changes):
    torch.manual_seed(0)
    config = {**SHAPE, "vocab_size": tokenizer.vocab_size, "max_position_embeddings": 64, "initializer_range": 0.3}
    return cls(ModelConfig(**{**config, **changes})).eval()


def test_accuracies_are_those_of_the_evaluation(tokenizer, held_out, device):
    model = make_model(PretrainingModel, tokenizer)
    for objective in ("sop", "nsp"):
        batches = pair_batches(held_out, tokenizer, RECIPE, objective)
        masked, pairs = score_examples(model, batches, 3 * batches.row_tokens, device)
        scores = evaluate_batches(model, batches, 3, device)
        assert (masked.count.sum(), pairs.count.sum()) == (scores.mlm_count, scores.sentence_count)
        assert masked.accuracy == pytest.approx(100 * scores.mlm_accuracy)
        assert pairs.accuracy == pytest.approx(100 * scores.sentence_accuracy)
        assert set(np.unique(pairs.right)) <= {0, 1}


def test_a_model_without_a_sentence_head_has_no_pair_score(tokenizer, held_out, device):
    batches = pair_batches(held_out, tokenizer, RECIPE, "sop")
    masked, pairs = score_examples(make_model(MaskedLMModel, tokenizer), batches, 1024, device)
    assert pairs is None
    assert masked.count.sum() > 0


def test_the_floor_is_the_share_of_the_commonest_masked_token(tokenizer, held_out, device):
    batches = pair_batches(held_out, tokenizer, RECIPE, "sop", seed=1)
    counted = Counter(int(label) for number in range(3) for label in batches.batch(number).labels if label != -100)
    ((commonest, most),) = counted.most_common(1)
    floor = mlm_floor(batches, 3 * batches.row_tokens)
    assert floor == pytest.approx(100 * most / counted.total())
    # A model that gives this answer everywhere scores just that, on the same masks.
    model = make_model(PretrainingModel, tokenizer)
    model.masked_lm.bias.data[commonest] = 1e4
    masked, _ = score_examples(model, batches, 3 * batches.row_tokens, device)
    assert masked.accuracy == pytest.approx(floor)


def test_rows_of_a_seed_see_the_same_examples_and_seeds_see_others(tokenizer, held_out):
    # Whatever a row was trained for: its scores can be compared one by one with the others'.
    recipes = [RECIPE, Recipe(max_length=64, objective="none", pairs_without_objective=True)]
    first, second = (pair_batches(held_out, tokenizer, recipe, "sop", seed=1).batch(0) for recipe in recipes)
    other = pair_batches(held_out, tokenizer, RECIPE, "sop", seed=2).batch(0)
    assert np.array_equal(first.tokens, second.tokens)
    assert not np.array_equal(first.tokens, other.tokens)


def test_distances_of_layers_token_by_token(tokenizer, held_out, device):
    model = make_model(PretrainingModel, tokenizer, sharing="none")
    batches = pair_batches(held_out, tokenizer, RECIPE, "sop")
    layers = layer_distances(model, batches, 1024, device)
    batch = batches.batch(0)
    l2, angles = [[] for _ in range(3)], [[] for _ in range(3)]
    for i in range(batch.num_sequences):
        place = slice(*batch.starts[i : i + 2].tolist())
        ids, segments = (torch.from_numpy(a[place]).long()[None] for a in (batch.tokens, batch.segments))
        with torch.no_grad():
            states = model.encoder(ids, segment_ids=segments, output_hidden_states=True).hidden_states
        for layer in range(3):
            for x, y in zip(states[layer][0].tolist(), states[layer + 1][0].tolist(), strict=True):
                l2[layer].append(math.dist(x, y))
                cosine = sum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))
                angles[layer].append(math.degrees(math.acos(cosine)))
    assert layers.l2 == pytest.approx([np.mean(values) for values in l2], rel=1e-4)
    assert layers.angle == pytest.approx([np.mean(values) for values in angles], rel=1e-4)
    assert layers.metrics["last_l2"] == pytest.approx(layers.l2[-1] / max(layers.l2))


def test_roughness():
    assert roughness([2.0, 2.0, 2.0]) == 0
    assert roughness([1.0, 3.0, 1.0]) == pytest.approx(2 / (5 / 3))
    assert roughness([4.0]) == 0


def test_features_are_means_of_segments(tokenizer, held_out, device):
    model = make_model(PretrainingModel, tokenizer)
    batches = pair_batches(held_out, tokenizer, RECIPE, "sop")
    features, labels = pair_features(model, batches, 1024, device)
    batch = batches.batch(0)
    labelled = [i for i in range(batch.num_sequences) if batch.order[i] >= 0]
    assert labels.tolist() == [int(batch.order[i]) for i in labelled]
    place = slice(*batch.starts[labelled[0] : labelled[0] + 2].tolist())
    ids, segments = (torch.from_numpy(a[place]).long()[None] for a in (batch.tokens, batch.segments))
    with torch.no_grad():
        hidden = model.encoder(ids, segment_ids=segments).hidden[0]
    a, b = (hidden[segments[0] == segment].mean(0) for segment in (0, 1))
    assert features[0] == pytest.approx(torch.cat([a, b, (a - b).abs(), a * b]).numpy(), abs=1e-5)


def test_a_probe_finds_what_is_in_the_features_and_nothing_else(monkeypatch, device):
    rng = np.random.default_rng(0)

    def features(signal):
        labels = rng.integers(0, 2, 600)
        return rng.normal(0, 1, (600, 20)) + signal * labels[:, None], labels

    for signal, low, high in ((1.5, 95, 100), (0.0, 40, 60)):
        monkeypatch.setattr(measure, "pair_features", lambda *_, signal=signal: features(signal))
        scored = probe_pairs(None, None, None, 1000, device)  # type: ignore[arg-type]
        assert low < scored.accuracy <= high
        assert len(scored.right) == 600


def test_documents_kept_aside_are_never_trained_on(corpus, tokenizer, tmp_path):
    # Document i is made of token 50 + i alone, so that a token tells where it comes from.
    documents = [[[50 + number] * 9] * 8 for number in range(100)]
    TokenStore.write(tmp_path / "store", documents, tokenizer.fingerprint, tokenizer.vocab_size)
    given = given_corpus(tmp_path / "corpus", corpus.tokenizer, (tmp_path / "store",), (), 0.2)
    kept = {int(document[0][0]) for document in TokenStore.open(given.held_out_store).documents()}
    assert len(kept) == 20
    store = TokenStore.open(given.base[0])
    training = Batches(store, tokenizer, RECIPE, tokens_per_batch=1024, row_tokens=1024, held_out=given.held_out)
    seen = set()
    for step in range(training.steps_per_epoch + 2):
        batch = training.batch(step)
        tokens = batch.tokens.copy()
        tokens[batch.masked[batch.labels >= 0]] = batch.labels[batch.labels >= 0]
        seen |= set(tokens[tokens >= 50].tolist())
    assert seen == set(range(50, 150)) - kept


def test_each_corpus_has_its_own_documents_kept_aside(corpus, tmp_path):
    first = given_corpus(tmp_path, corpus.tokenizer, corpus.base, (), 0.1)
    second = given_corpus(tmp_path, corpus.tokenizer, corpus.more, (), 0.1)
    assert first.held_out_store != second.held_out_store
    assert given_corpus(tmp_path, corpus.tokenizer, corpus.base, (), 0.1) == first
