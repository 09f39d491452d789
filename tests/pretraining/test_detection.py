"""Replaced-token detection: the model's inputs and labels, and that no trace stays in the model."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_run import make_corpus, tiny_config

from litebert.errors import ConfigError
from litebert.model.hub import load_model
from litebert.pretraining.batches import NO_LABEL
from litebert.pretraining.data import Data
from litebert.pretraining.objective import guess, judge, put, to_device
from litebert.pretraining.run import Pretraining, pretrain
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import open_device
from litebert.train.log import read_metrics
from litebert.train.processes import World

DETECTION = {"detection": {"share": 0.5, "hidden_size": 64, "layers": 1}, "model": {"hidden_dropout_prob": 0.0}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def learner(corpus, **changes) -> Pretraining:
    config = tiny_config(corpus, **{**DETECTION, **changes})
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    model = dataclasses.replace(config.model, vocab_size=tokenizer.vocab_size)
    config = dataclasses.replace(config, model=model)
    return Pretraining(config, Data(config, tokenizer), open_device(config.device), World())


def test_the_model_reads_guesses_at_masked_places_alone(corpus, monkeypatch):
    """Of the masked places about half are guesses; every other token is the batch's own."""
    made = learner(corpus)
    inputs = to_device(made.data.training(64).batch(0), torch.device("cpu"), 64)
    read = []
    encode = made.model.encode
    monkeypatch.setattr(made.model, "encode", lambda ids, **more: (read.append(ids), encode(ids, **more))[1])
    output, totals = made.detection(made.model, inputs)
    tokens = read[0]
    real = inputs.labels != NO_LABEL
    changed = torch.nonzero(tokens != inputs.tokens).flatten().tolist()
    assert changed
    assert set(changed) <= set(inputs.masked[real].tolist())
    as_mask = int((tokens[inputs.masked[real]] == made.data.tokenizer.mask_id).sum())
    assert 0.2 < as_mask / int(real.sum()) < 0.6  # half of the 80 % that a batch shows as masks
    original = inputs.tokens.clone()
    original[inputs.masked[real]] = inputs.labels[real]
    tokenizer = made.data.tokenizer
    readable = (tokens != tokenizer.mask_id) & (tokens != tokenizer.pad_id)
    assert int(totals.judged) == int(readable.sum())
    assert int(totals.replaced) == int((readable & (tokens != original)).sum())
    assert output.masked_lm.shape == (len(inputs.masked), made.config.model.vocab_size)


def test_whole_sequences_may_be_drawn(corpus, monkeypatch):
    """Then each shows guesses in all its places or in none; both kinds are there."""
    made = learner(corpus, detection={**DETECTION["detection"], "draw": "sequence"})
    inputs = to_device(made.data.training(64).batch(0), torch.device("cpu"), 64)
    real = inputs.labels != NO_LABEL
    shown = made.detection._draw(inputs)[real].tolist()
    of = np.searchsorted(inputs.starts.numpy(), inputs.masked[real].numpy(), side="right").tolist()
    by_sequence = [{each for each, place in zip(shown, of, strict=True) if place == number} for number in set(of)]
    assert all(len(found) == 1 for found in by_sequence)
    assert {True} in by_sequence
    assert {False} in by_sequence


def test_the_generator_learns_with_the_models_embeddings(corpus):
    """Its gradients reach the embeddings of the model; it has none of its own, and the detector's do not reach it."""
    made = learner(corpus)
    names = [name for name, _ in made.model.named_parameters()]
    assert not any(name.startswith("detection.encoder.embeddings") for name in names)
    inputs = to_device(made.data.training(64).batch(0), torch.device("cpu"), 64)
    _, totals = made.detection(made.model, inputs)
    words = made.model.encoder.embeddings.word.weight
    totals.generator_loss.backward(retain_graph=True)
    assert words.grad is not None
    assert float(words.grad.abs().sum()) > 0
    generator = made.detection.masked_lm.dense.weight
    generator.grad = None
    totals.loss.backward()
    assert generator.grad is None


def test_a_draw_follows_the_distribution():
    """10,000 draws against the softmax, within five standard errors; loss and hits against torch's own."""
    torch.manual_seed(0)
    logits = torch.tensor([[2.0, 0.0, 1.0, -1.0]]).expand(10_000, 4)
    labels = torch.zeros(10_000, dtype=torch.long)
    labels[-5_000:] = NO_LABEL
    loss, correct, draws = guess(logits, labels)
    shares = np.bincount(draws.numpy(), minlength=4) / 10_000
    expected = logits[0].softmax(0).numpy()
    assert np.all(np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / 10_000))
    assert int(correct) == 5_000
    assert float(loss) == pytest.approx(-5_000 * float(logits[0].log_softmax(0)[0]), rel=1e-5)


def test_what_is_judged():
    """Token by token in plain Python."""
    logits = torch.tensor([3.0, -2.0, 0.5, -0.5, 9.0])
    replaced = torch.tensor([True, True, False, False, False])
    readable = torch.tensor([True, True, True, True, False])
    loss, found, num_replaced, wrong, count = judge(logits, replaced, readable)
    p = torch.sigmoid(logits[:4]).tolist()
    expected = -np.log([p[0], p[1], 1 - p[2], 1 - p[3]]).sum()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert [int(x) for x in (found, num_replaced, wrong, count)] == [1, 2, 1, 4]


def test_unused_places_keep_the_first_token():
    tokens = torch.tensor([7, 8, 9, 10])
    found = put(tokens, torch.tensor([2, 0, 0]), torch.tensor([5, 6, 6]), torch.tensor([True, False, False]))
    assert found.tolist() == [7, 8, 5, 10]


def test_a_run_reports_both_and_its_model_is_a_plain_one(corpus, tmp_path):
    config = tiny_config(corpus, **DETECTION)
    result = pretrain(config, tmp_path / "run", quiet=True)
    reports = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "train"]
    assert reports[-1]["generator_loss"] < reports[0]["generator_loss"]
    assert reports[-1]["detection_loss"] < reports[0]["detection_loss"]
    assert {"replaced_found", "wrongly_found", "generator_accuracy"} <= reports[-1].keys()
    assert not any("detection" in name for name in load_file(result.model / "model.safetensors"))
    plain = pretrain(tiny_config(corpus, model={"hidden_dropout_prob": 0.0}), tmp_path / "plain", quiet=True)
    assert load_model(result.model).num_parameters == load_model(plain.model).num_parameters


def test_generator_and_detector_have_their_own_rate(corpus):
    made = learner(corpus, detection={**DETECTION["detection"], "lr_factor": 3.0}, optim={"name": "muon"})
    factors = {name: group["lr_factor"] for group in made.optimizer.param_groups for name in group["param_names"]}
    assert {factor for name, factor in factors.items() if name.startswith("detection.")} == {3.0}
    assert {factor for name, factor in factors.items() if not name.startswith("detection.")} == {1.0}


def test_a_later_run_goes_on_with_generator_and_detector(corpus, tmp_path):
    first = pretrain(tiny_config(corpus, **DETECTION), tmp_path / "first", quiet=True)
    kept = load_file(tmp_path / "first" / "detection.safetensors")
    assert any(name.startswith("encoder.") for name in kept)
    assert any(name.startswith("detector.") for name in kept)
    assert not any("embeddings" in name for name in kept)
    further = {**DETECTION["detection"], "init_from": str(tmp_path / "first" / "detection.safetensors")}
    made = learner(corpus, init_from=str(first.model), detection=further)
    assert all(torch.equal(kept[name], tensor) for name, tensor in made.detection.state_dict().items())


def test_another_generator_is_refused(corpus, tmp_path):
    pretrain(tiny_config(corpus, **DETECTION), tmp_path / "first", quiet=True)
    kept = str(tmp_path / "first" / "detection.safetensors")
    with pytest.raises(ConfigError, match="another generator"):
        learner(corpus, detection={**DETECTION["detection"], "layers": 2, "init_from": kept})
    with pytest.raises(ConfigError, match="no such file"):
        learner(corpus, detection={**DETECTION["detection"], "init_from": str(tmp_path / "none.safetensors")})
    (tmp_path / "damaged.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match=r"not a detection\.safetensors"):
        learner(corpus, detection={**DETECTION["detection"], "init_from": str(tmp_path / "damaged.safetensors")})


@pytest.mark.parametrize("optimizer", ["lamb", "muon"])
def test_resumed_equals_uninterrupted(corpus, tmp_path, optimizer):
    """Also the draws: they come from seed and step."""
    config = tiny_config(corpus, **DETECTION, optim={"name": optimizer})
    pretrain(config, tmp_path / "whole", quiet=True)
    shorter = pretrain(config, tmp_path / "cut", quiet=True)
    assert shorter.completed
    for step in (8, 6):  # back to the checkpoint of step 3, and on from there
        shutil.rmtree(tmp_path / "cut" / "checkpoints" / f"step-{step:08d}", ignore_errors=True)
    pretrain(config, tmp_path / "cut", quiet=True)
    last = Path("checkpoints") / "step-00000008" / "model.safetensors"
    whole, cut = (load_file(tmp_path / name / last) for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert any(name.startswith("detection.") for name in whole)
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_refused(corpus):
    with pytest.raises(ConfigError, match="not together"):
        tiny_config(corpus, detection={"share": 0.5}, exits=[1, 2])
    with pytest.raises(ConfigError, match="share: must be >= 0"):
        tiny_config(corpus, detection={"share": 1.5})
    with pytest.raises(ConfigError, match="multiple of 64"):
        tiny_config(corpus, detection={"share": 0.5, "hidden_size": 100})
