"""The names that people guess: from_pretrained, save_pretrained, push_to_hub; and a tokenizer by its model's name."""

from __future__ import annotations

import shutil
from pathlib import Path

import fake_hub
import huggingface_hub
import pytest
import torch
from small_vocabularies import english
from tiny_shape import tiny_shape

import litebert
from litebert import ClassificationModel, EncoderModel, MaskedLMModel, Model, PretrainingModel, Tokenizer
from litebert.errors import CheckpointError, ConfigError
from litebert.remote import push_folder

TINY = tiny_shape(vocab_size=english().vocab_size)
IDS = torch.arange(12).view(2, 6)


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    assert PretrainingModel(TINY).save_pretrained(tmp_path / "model") == tmp_path / "model"
    english().save(tmp_path / "model")
    return tmp_path / "model"


def test_a_model_takes_the_head_of_the_folder_and_a_class_its_own(folder):
    model = Model.from_pretrained(folder)
    assert type(model) is PretrainingModel
    assert type(MaskedLMModel.from_pretrained(folder)) is MaskedLMModel
    assert type(Model.from_pretrained(folder, head="masked-lm")) is MaskedLMModel
    assert torch.equal(EncoderModel.from_pretrained(folder)(IDS).pooled, model.encoder(IDS).pooled)
    assert type(Model.from_pretrained("default", hidden_dropout_prob=0.3)) is PretrainingModel
    with pytest.raises(ConfigError, match="MaskedLMModel has the head 'masked-lm', not 'span'; use Model instead"):
        MaskedLMModel.from_pretrained(folder, head="span")


def test_a_new_classifier_is_asked_for_by_its_number_of_labels(folder):
    with pytest.raises(CheckpointError, match=r"has no classification head .*new_head=True"):
        ClassificationModel.from_pretrained(folder, num_labels=3)
    model = ClassificationModel.from_pretrained(folder, num_labels=3, new_head=True)
    assert model.classifier.out_features == 3
    model.save_pretrained(folder.parent / "classifier", torch.float16)
    again = Model.from_pretrained(folder.parent / "classifier")
    assert (type(again), again.config.labels) == (ClassificationModel, ("LABEL_0", "LABEL_1", "LABEL_2"))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    return fake_hub.use(monkeypatch, tmp_path / "hub")


def test_a_model_and_its_tokenizer_are_pushed(folder, hub):
    model = Model.from_pretrained(folder)
    address = model.push_to_hub("me/mine", tokenizer=english(), private=True, revision="v2", message="new", token="t")
    assert address == "https://hub/me/mine"
    assert hub.calls == [
        ("create", "me/mine", True, True, "t"),
        ("branch", "me/mine", "v2", True),
        ("upload", "me/mine", "v2", "new"),
    ]
    there = Model.from_pretrained(hub.place / "me" / "mine")
    assert torch.equal(there(IDS).masked_lm, model(IDS).masked_lm)
    assert Tokenizer.from_pretrained(hub.place / "me" / "mine").fingerprint == english().fingerprint


def test_a_whole_folder_is_pushed(folder, hub):
    (folder / "README.md").write_text("what it is")
    assert push_folder(folder, "hub:me/mine") == "https://hub/me/mine"
    assert (hub.place / "me" / "mine" / "README.md").read_text() == "what it is"
    with pytest.raises(CheckpointError, match=r"no config.json here, so this is not a model folder"):
        push_folder(folder.parent, "me/mine")


def test_an_upload_that_fails_says_why(folder, monkeypatch):
    model = Model.from_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"me/mine: not uploaded to https?://\S+: .*offline mode is enabled"):
        model.push_to_hub("me/mine")  # the real library; the tests have no network
    with pytest.raises(CheckpointError, match="not a valid Hub name"):
        model.push_to_hub("not a name")

    class Refused(Exception):
        response = type("Response", (), {"status_code": 401})()

    hub = fake_hub.use(monkeypatch, folder)
    monkeypatch.setattr(hub, "create_repo", lambda *_, **__: (_ for _ in ()).throw(Refused("401 Unauthorized")))
    with pytest.raises(CheckpointError, match="401 Unauthorized; log in with `hf auth login`"):
        model.push_to_hub("me/mine")


def test_a_tokenizer_goes_by_every_name_that_load_model_takes(folder, tmp_path, monkeypatch):
    assert (
        Tokenizer.from_pretrained("default").fingerprint == Tokenizer.load(litebert.remote.DEFAULT_FOLDER).fingerprint
    )
    assert Tokenizer.from_pretrained(folder).fingerprint == english().fingerprint
    asked = []

    def fetch(name, revision=None, allow_patterns=()):
        asked.append((name, revision, "model*.safetensors" in allow_patterns))
        return str(folder)

    monkeypatch.setattr("litebert.remote.check_hub", lambda *_: None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    name = "albert/albert-base-v2"
    assert Tokenizer.from_pretrained(name, revision="main").fingerprint == english().fingerprint
    assert asked == [(name, "main", False)]  # without the weights
    google = tmp_path / "google"
    shutil.copytree(Path(__file__).parent / "fixtures" / "tf" / "base", google)
    (google / "30k-clean.model").write_bytes(english().model)
    for source in (google, google / "model.ckpt-best", google / "model.ckpt-best.index"):
        assert Tokenizer.from_pretrained(source).encode("good morning") == english().encode("good morning")
    with pytest.raises(CheckpointError, match="no such folder"):
        Tokenizer.from_pretrained(tmp_path / "nowhere")
