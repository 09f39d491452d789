"""Intrinsic scores: right counts, right accuracies, for any model and any text."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_run import tiny_config
from tiny_shape import tiny_shape

from litebert.baselines.masks import score_mask_baselines
from litebert.errors import ConfigError
from litebert.model.heads import ClassificationModel, MaskedLMModel, PretrainingModel
from litebert.model.hub import save_model
from litebert.pretraining.batches import Batches
from litebert.pretraining.data import Data, settle
from litebert.pretraining.evaluate import (
    PATIENCE,
    PlateauWatch,
    commonest_share,
    evaluate_batches,
    evaluate_model,
    pair_batches,
)
from litebert.pretraining.recipes import Recipe
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import DeviceConfig, open_device


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return Tokenizer.load(corpus / "tokenizer")


def tiny_model(cls, vocab_size: int, positions: int = 64):
    torch.manual_seed(0)
    return cls(tiny_shape(vocab_size=vocab_size, max_position_embeddings=positions))


def make_batches(corpus, tokenizer, **recipe) -> Batches:
    store = TokenStore.open(corpus / "store", tokenizer)
    return Batches(store, tokenizer, Recipe(max_length=64, **recipe), tokens_per_batch=512, row_tokens=512)


def test_scores_equal_a_plain_count(corpus, tokenizer):
    batches = make_batches(corpus, tokenizer)
    model = tiny_model(PretrainingModel, tokenizer.vocab_size).eval()
    device = open_device(DeviceConfig(device="cpu", threads=1))
    scores = evaluate_batches(model, batches, 2, device)
    right = count = order_right = order_count = 0
    for number in range(2):
        batch = batches.batch(number)
        for i in range(batch.num_sequences):  # one padded sequence at a time
            first, last = batch.starts[i : i + 2].tolist()
            ids = torch.from_numpy(batch.tokens[first:last]).long()[None]
            output = model(ids, segment_ids=torch.from_numpy(batch.segments[first:last]).long()[None])
            for place, label in zip(batch.masked.tolist(), batch.labels.tolist(), strict=True):
                if label >= 0 and first <= place < last:
                    right += int(output.masked_lm[0, place - first].argmax()) == label
                    count += 1
            if batch.order[i] >= 0:
                order_right += int(output.sentence[0].argmax()) == batch.order[i]
                order_count += 1
    assert (scores.mlm_count, scores.sentence_count) == (count, order_count)
    assert scores.mlm_accuracy == pytest.approx(right / count)
    assert scores.sentence_accuracy == pytest.approx(order_right / order_count)


def test_held_out_pairs_are_full_length_whatever_the_recipe_draws(corpus, tokenizer):
    """The paper's development set: no short examples, and no random document for a lone sentence."""
    store = TokenStore.open(corpus / "store", tokenizer)
    for objective in ("sop", "nsp"):
        tokens = [
            pair_batches([store], tokenizer, Recipe(max_length=256, **changes), objective).batch(0).tokens.tolist()
            for changes in ({"short_probability": 0.0}, {"short_probability": 1.0, "one_sentence": "nsp"})
        ]
        assert tokens[0] == tokens[1]
    held_out = []
    for share in (0.0, 1.0):
        recipe = {"short_probability": share, "max_length": 256}
        shape = {"model": {"max_position_embeddings": 256}, "data": {"row_tokens": 256}}
        data = Data(settle(tiny_config(corpus, recipe=recipe, **shape), tokenizer), tokenizer)
        held_out.append(data.evaluation(256).batch(0).tokens.tolist())
        assert data.training(256).recipe.short_probability == share
    assert held_out[0] == held_out[1]


def test_one_command_on_text_or_store(cli, corpus, tokenizer, tmp_path):
    # Long enough for two whole sentences: pairs that had to be cut have no order label.
    save_model(tiny_model(PretrainingModel, tokenizer.vocab_size, positions=256), tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    by_text = cli("evaluate", tmp_path / "model", "--text", corpus / "text.txt", "--tokens", 4000, "--json")
    assert by_text.code == 0, by_text
    by_store = cli("evaluate", tmp_path / "model", "--store", corpus / "store", "--tokens", 4000, "--json")
    scores = json.loads(by_text.out)
    assert scores.keys() == json.loads(by_store.out).keys()
    assert all(0 <= scores[f"{name}_accuracy"] <= 1 and scores[f"{name}_count"] > 10 for name in ("mlm", "sop", "nsp"))
    assert "next sentence" in cli("evaluate", tmp_path / "model", "--text", corpus / "text.txt", "--tokens", 2000).out


def test_a_model_without_a_sentence_head(cli, corpus, tokenizer, tmp_path):
    save_model(tiny_model(MaskedLMModel, tokenizer.vocab_size), tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    result = cli("evaluate", tmp_path / "model", "--store", corpus / "store", "--tokens", 2000)
    assert "sentence order  not scored: needs such a head" in result.out


@pytest.mark.parametrize("several", [True, False], ids=["one document", "one sentence each"])
def test_masked_words_are_scored_on_any_text(corpus, tokenizer, tmp_path, several):
    """One document has no second one to draw from, and a document of one sentence has no order."""
    save_model(tiny_model(PretrainingModel, tokenizer.vocab_size, positions=256), tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    document = (corpus / "text.txt").read_text().split("\n\n")[0].splitlines()
    (tmp_path / "text.txt").write_text(("\n" if several else "\n\n").join(document))
    found = evaluate_model(tmp_path / "model", texts=[tmp_path / "text.txt"], max_length=256)
    assert found.mlm_accuracy is not None
    assert found.mlm_count > 0
    assert (found.sop_accuracy is not None, found.sop_count > 0) == (several, several)
    if several:
        assert (found.nsp_accuracy, found.nsp_count) == (None, 0)


def test_what_cannot_be_scored(corpus, tokenizer, tmp_path):
    save_model(tiny_model(ClassificationModel, tokenizer.vocab_size), tmp_path / "classifier")
    tokenizer.save(tmp_path / "classifier")
    store = corpus / "store"
    with pytest.raises(ConfigError, match="holds a classification model"):
        evaluate_model(tmp_path / "classifier", stores=[store])
    save_model(tiny_model(PretrainingModel, 50), tmp_path / "small")
    with pytest.raises(ConfigError, match="the tokenizer has 300 pieces, the model 50"):
        evaluate_model(tmp_path / "small", stores=[store], tokenizer=corpus / "tokenizer")
    with pytest.raises(ConfigError, match="nothing to score on"):
        evaluate_model(tmp_path / "small")
    save_model(tiny_model(PretrainingModel, tokenizer.vocab_size), tmp_path / "model")
    with pytest.raises(ConfigError, match="length: must be 8 to 64"):
        evaluate_model(tmp_path / "model", stores=[store], tokenizer=corpus / "tokenizer", max_length=512)


def test_baselines_are_between_nothing_and_everything(corpus, tokenizer):
    batches = make_batches(corpus, tokenizer)
    store = TokenStore.open(corpus / "store", tokenizer)
    found = score_mask_baselines([store], batches, batches, tokenizer, 2)
    assert 0 < found.unigram < found.trigram < 1
    assert found.connectives is not None
    assert found.connectives > 0.5  # scored on what it was fitted on
    assert (
        score_mask_baselines([store], batches, make_batches(corpus, tokenizer, objective="none"), tokenizer, 2)[2]
        is None
    )


BEGIN = 100 + PATIENCE  # after a warm-up of 100


@pytest.mark.parametrize(
    ("evaluations", "told"),
    [
        ([(BEGIN, 0.05), (BEGIN + 50, 0.052), (BEGIN + 100, 0.05)], [(BEGIN + 50, BEGIN)]),  # once
        ([(BEGIN - 1, 0.05), (BEGIN, 0.05)], []),  # too early to tell
        ([(BEGIN, 0.05), (BEGIN + 50, 0.08), (BEGIN + 100, 0.05)], []),  # not two in a row
        ([(BEGIN, 0.08), (BEGIN + 50, 0.05), (BEGIN + 100, 0.05)], [(BEGIN + 100, BEGIN + 50)]),  # collapsed later
        ([(BEGIN, 0.3), (BEGIN + 50, 0.4)], []),
    ],
)
def test_it_tells_once_after_two_in_a_row(evaluations, told):
    watch = PlateauWatch(warmup_steps=100)
    found = [(step, watch.look(step, accuracy, floor=0.05)) for step, accuracy in evaluations]
    assert [pair for pair in found if pair[1] is not None] == told


def test_the_share_of_the_commonest_token():
    batches = [SimpleNamespace(labels=np.array(labels)) for labels in ([5, 7, -100, 5], [5, 9, -100])]
    assert commonest_share(batches) == 3 / 5
    assert commonest_share([SimpleNamespace(labels=np.array([-100]))]) == 0.0
