"""Minimal pairs: pseudo-log-likelihoods against transformers, one masking at a time; BLiMP's counting rules."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tiny_shape import tiny_shape

from litebert.errors import ConfigError, InputError
from litebert.model.heads import MaskedLMModel
from litebert.model.hub import save_model
from litebert.pretraining.minimal_pairs import (
    MinimalPair,
    pseudo_log_likelihoods,
    read_pairs,
    score_pairs,
)
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import DeviceConfig, open_device

SENTENCES = ["the dog barks.", "the dogs bark at the old man.", "rain", "a cat sleeps on the mat.", "the dog bark."]


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return Tokenizer.load(corpus / "tokenizer")


@pytest.fixture(scope="module")
def device():
    return open_device(DeviceConfig(device="cpu", threads=1))


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    model = MaskedLMModel(tiny_shape(vocab_size=tokenizer.vocab_size, max_position_embeddings=32))
    with torch.no_grad():
        for parameter in model.parameters():  # far from uniform guesses
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


@pytest.mark.parametrize("max_tokens", [1, 40, 10_000])
def test_likelihoods_equal_transformers_one_masking_at_a_time(tmp_path, tokenizer, device, model, max_tokens):
    import transformers

    save_model(model, tmp_path)
    theirs = transformers.AlbertForMaskedLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    encoded = [np.array(tokenizer.encode(text), dtype=np.int64) for text in SENTENCES]
    found = pseudo_log_likelihoods(model, tokenizer, encoded, device, max_tokens)
    for value, ids in zip(found, encoded, strict=True):
        whole = torch.tensor([tokenizer.cls_id, *ids, tokenizer.sep_id])
        total = 0.0
        for place in range(1, len(whole) - 1):
            masked = whole.clone()
            masked[place] = tokenizer.mask_id
            with torch.no_grad():
                total += theirs(masked[None]).logits[0, place].log_softmax(-1)[whole[place]].item()
        assert value == pytest.approx(total, abs=1e-4)
    assert np.ptp(found) > 1


def test_pairs_are_counted_as_blimp_counts(tokenizer, device, model):
    values = dict(
        zip(
            SENTENCES,
            pseudo_log_likelihoods(
                model, tokenizer, [np.array(tokenizer.encode(text), dtype=np.int64) for text in SENTENCES], device
            ),
            strict=True,
        )
    )
    worst, *_, best = sorted(SENTENCES, key=values.__getitem__)
    pairs = [
        MinimalPair(best, worst, "easy", "syntax"),
        MinimalPair(best, worst, "easy", "syntax"),
        MinimalPair(worst, best, "easy", "syntax"),
        MinimalPair(best, best, "tie", "syntax"),  # not strictly higher
        MinimalPair(best, worst, "other", "morphology"),
    ]
    scores = score_pairs(model, tokenizer, pairs, device)
    assert scores.phenomena == {"easy": pytest.approx(2 / 3), "other": 1.0, "tie": 0.0}
    assert scores.fields == {"morphology": 1.0, "syntax": pytest.approx(1 / 3)}
    assert scores.counts == {"easy": 3, "other": 1, "tie": 1}
    assert scores.accuracy == pytest.approx((2 / 3 + 1) / 3)  # by phenomenon, not by pair
    assert scores.clipped == 0


def test_long_sentences_are_clipped_and_counted(tokenizer, device, model):
    scores = score_pairs(model, tokenizer, [MinimalPair("the dog barks. " * 30, "the dog.", "long")], device)
    assert scores.clipped == 1


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_files_are_read_with_their_limit(tmp_path):
    row = {"sentence_good": "she sings.", "sentence_bad": "she sing.", "UID": "agreement", "field": "morphology"}
    write(tmp_path / "a.jsonl", [row] * 3)
    write(tmp_path / "b.jsonl", [{"sentence_good": "good", "sentence_bad": "bad"}])
    pairs = read_pairs(tmp_path)
    assert pairs == [MinimalPair("she sings.", "she sing.", "agreement", "morphology")] * 3 + [
        MinimalPair("good", "bad", "b")
    ]
    assert len(read_pairs(tmp_path, limit=1)) == 2
    assert len(read_pairs(tmp_path / "a.jsonl")) == 3


@pytest.mark.parametrize("line", ["{", "[1]", '{"sentence_good": "a"}', '{"sentence_good": 1, "sentence_bad": "b"}'])
def test_bad_lines_are_named(tmp_path, line):
    (tmp_path / "x.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.jsonl, line 1: "):
        read_pairs(tmp_path)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"no \.jsonl files with minimal pairs"):
        read_pairs(tmp_path)


def test_command(cli, tmp_path, tokenizer, model):
    save_model(model, tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    write(tmp_path / "p.jsonl", [{"sentence_good": "the dog barks.", "sentence_bad": "the dog bark.", "UID": "u"}])
    shown = cli("evaluate", tmp_path / "model", "--blimp", tmp_path / "p.jsonl", "--device", "cpu")
    assert shown.code == 0
    assert "mean over phenomena" in shown.out
    assert "1 phenomena, 1 pairs" in shown.out
    data = cli("evaluate", tmp_path / "model", "--blimp", tmp_path / "p.jsonl", "--device", "cpu", "--json")
    assert set(json.loads(data.out)) == {"accuracy", "pairs", "fields", "phenomena"}
    refused = cli("evaluate", tmp_path / "model", "--limit", 3)
    assert refused.code == 2
    assert "--blimp" in refused.err
