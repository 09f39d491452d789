"""Model folders: every damaged, missing or ill-fitting file is refused by name; a failed save loses nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil

import pytest
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from small_vocabularies import english
from tiny_shape import tiny_shape

from litebert.errors import CheckpointError, ConfigError, InputError
from litebert.model import hub
from litebert.model.config import vary
from litebert.model.heads import MODELS, ClassificationModel, EncoderModel, PretrainingModel
from litebert.model.hub import load_model, load_model_and_report, save_model
from litebert.predict.predictor import Predictor

TINY = tiny_shape()


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    save_model(PretrainingModel(TINY), tmp_path / "model")
    return tmp_path / "model"


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("head", MODELS)
def test_round_trip_of_every_head(head, tmp_path):
    labels = ("x", "y", "z") if "classification" in head else ()
    model = MODELS[head](vary(TINY, labels=labels))
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert type(again) is type(model)
    assert again.config == model.config
    assert same(again.state_dict(), model.state_dict())
    assert not again.training


def test_a_name_in_place_of_a_model_or_config_is_told(tmp_path):
    with pytest.raises(InputError, match=r"expected a ModelConfig, such as preset\('albert-base'\), got 'albert-base'"):
        EncoderModel("albert-base")
    with pytest.raises(InputError, match=r"expected a model, such as .* got 'default'"):
        save_model("default", tmp_path)


def test_equal_weights_are_equal_files(tmp_path):
    model = EncoderModel(TINY)
    files = {(save_model(model, tmp_path / str(n)) / "model.safetensors").read_bytes() for n in range(12)}
    assert len(files) == 1
    load_model(tmp_path / "0")


def test_regression_keeps_its_one_output(tmp_path):
    save_model(ClassificationModel(vary(TINY, problem_type="regression")), tmp_path)
    again = load_model(tmp_path)
    assert again.classifier.out_features == 1
    assert again.config.problem_type == "regression"


def test_half_precision_files_load_in_fp32(tmp_path):
    model = PretrainingModel(TINY)
    save_model(model, tmp_path, torch.float16)
    assert load_file(tmp_path / "model.safetensors")["predictions.bias"].dtype == torch.float16
    again = load_model(tmp_path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor.half().float())


def test_pickle_files_are_read_with_weights_only(folder):
    state = load_file(folder / "model.safetensors")
    expected = load_model(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert same(load_model(folder).state_dict(), expected)


class Exploit:
    def __reduce__(self):
        return (eval, ("print('code of the file was run')",))


def test_a_pickle_with_code_in_it_is_refused_and_not_run(folder, capsys):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Exploit()}, folder / "pytorch_model.bin")
    with pytest.raises(
        CheckpointError, match=r"pytorch_model.bin: holds more than tensors \((builtins\.)?eval\)"
    ) as info:
        load_model(folder)
    assert "weights_only" not in str(info.value)  # torch's own advice is to switch the check off
    assert "was run" not in capsys.readouterr().out


@pytest.mark.parametrize("data", [b"", b"garbage" * 100, b"\x80\x02}q\x00."])
def test_no_refusal_of_a_pickle_advises_to_run_it(folder, data):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(data)
    with pytest.raises(CheckpointError) as info:
        load_model(folder)
    assert "weights_only" not in str(info.value)


def shard(folder, parts: int = 2):
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, weight_map = sorted(state), {}
    for part in range(parts):
        file = f"model-0000{part + 1}-of-0000{parts}.safetensors"
        chunk = names[part::parts]
        save_file({name: state[name] for name in chunk}, folder / file)
        weight_map |= dict.fromkeys(chunk, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_sharded_safetensors(folder):
    expected = load_model(folder).state_dict()
    shard(folder)
    assert same(load_model(folder).state_dict(), expected)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"shard 'model-00002-of-00002.safetensors' is not in"):
        load_model(folder)


def test_a_shard_index_cannot_point_outside_the_folder(folder):
    shard(folder)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../elsewhere.safetensors"}}))
    with pytest.raises(CheckpointError, match="not in the folder"):
        load_model(folder)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="no readable weight_map"):
        load_model(folder)


def test_old_names_and_bare_encoders(folder):
    """Files of 2019: gamma and beta, a decoder bias, position ids; and an encoder saved without its prefix."""
    state = load_file(folder / "model.safetensors")
    expected = load_model(folder).state_dict()
    old = {}
    for name, tensor in state.items():
        name = name.replace("albert.embeddings.LayerNorm.weight", "albert.embeddings.LayerNorm.gamma")
        name = name.replace("albert.embeddings.LayerNorm.bias", "albert.embeddings.LayerNorm.beta")
        name = name.replace("predictions.bias", "predictions.decoder.bias")
        old[name] = tensor
    old["albert.embeddings.position_ids"] = torch.arange(16)[None]
    save_file(old, folder / "model.safetensors")
    model, report = load_model_and_report(folder)
    assert same(model.state_dict(), expected)
    assert report.skipped == ["albert.embeddings.position_ids"]
    bare = {name.removeprefix("albert."): tensor for name, tensor in state.items() if name.startswith("albert.")}
    save_file(bare, folder / "model.safetensors")
    encoder = load_model(folder, "encoder")
    assert same(encoder.state_dict(), {n: t for n, t in expected.items() if n.startswith("encoder.")})


@pytest.mark.parametrize("keep", [0, 7, 8, 100, 0.5, 0.99])
def test_truncated_weights(folder, keep):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(CheckpointError, match=r"model.safetensors: damaged"):
        load_model(folder)


def test_truncated_pickle(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"x": torch.zeros(1000)}, folder / "pytorch_model.bin")
    data = (folder / "pytorch_model.bin").read_bytes()
    (folder / "pytorch_model.bin").write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin: damaged"):
        load_model(folder)


def test_wrong_shape_names_the_tensor(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 41}))
    with pytest.raises(CheckpointError, match=r"word_embeddings.weight has shape \[40, 8\], the config says \[41, 8\]"):
        load_model(folder)


def test_missing_encoder_tensor_is_named_whatever_was_asked(folder):
    state = load_file(folder / "model.safetensors")
    del state["albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"]
    save_file(state, folder / "model.safetensors")
    for new_head in (False, True):
        with pytest.raises(CheckpointError, match=r"1 tensors of the encoder are missing, first: encoder.ffn.0.input"):
            load_model(folder, new_head=new_head)


def test_a_head_the_folder_lacks_must_be_asked_for(folder):
    with pytest.raises(CheckpointError, match=r"has no classification head \(missing: classifier.weight"):
        load_model(folder, "classification")
    model, report = load_model_and_report(folder, "classification", new_head=True, labels=("a", "b", "c"))
    assert report.missing == ["classifier.weight", "classifier.bias"]
    assert model.classifier.out_features == 3
    expected = load_model(folder).encoder.state_dict()
    assert same(model.encoder.state_dict(), expected)
    with pytest.raises(ConfigError, match="did you mean 'classification'"):
        load_model(folder, "clasification")


def test_folders_that_are_none(tmp_path, folder):
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"not a model folder \(no config.json\)"):
        load_model(folder)
    with pytest.raises(CheckpointError, match="no such folder"):
        load_model(tmp_path / "nowhere" / "at" / "all")
    with pytest.raises(CheckpointError, match="a file; a model is a folder"):
        load_model(folder / "model.safetensors")


def test_a_folder_without_weights(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        load_model(folder)


def test_a_hub_name_offline_says_so():
    with pytest.raises(CheckpointError, match=r"nobody/nothing: no such folder, and not in the Hub's cache"):
        load_model("nobody/nothing")


def test_an_unknown_architecture_asks_for_the_head(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["AlbertForPoetry"]}))
    with pytest.raises(CheckpointError, match="AlbertForPoetry"):
        load_model(folder)
    assert load_model(folder, "masked-lm").head == "masked-lm"


def test_config_changes_on_loading(folder):
    model = load_model(folder, num_attention_heads=4, hidden_dropout_prob=0.3)
    assert model.encoder.attention[0].num_heads == 4
    assert model.encoder.ffn[0].dropout.p == 0.3


def test_a_failed_save_leaves_the_old_folder_whole(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def no_space(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hub, "save_file", no_space)
    with pytest.raises(OSError, match="No space left"):
        save_model(PretrainingModel(TINY), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_saving_keeps_other_files_but_no_stale_weights(folder):
    (folder / "spiece.model").write_text("vocabulary")
    shutil.copy(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors")
    (folder / "pytorch_model.bin").write_text("old")
    save_model(PretrainingModel(TINY), folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "model.safetensors",
        "spiece.model",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnie/best", "mnie/best: no such folder; did you mean 'mine'?"),
        ("mine/best", "mine/best: no such folder; is the run in mine unfinished?"),
        ("run/model", "run/model: no such folder; model folders here: labels/best"),
        ("my-run", "my-run: no such folder; model folders here: labels/best"),
        ("sites", "sites: no such folder; model folders here: labels/best"),  # "site" is no model
        ("lables", "lables: no such folder; did you mean 'labels'?"),
        ("~/nowhere", "~/nowhere: no such folder"),
        ("..\\nowhere", "..\\nowhere: no such folder"),
        (
            "albert-base",
            "albert-base: no such folder; albert-base is an architecture without weights; released weights: ",
        ),
        ("albert-tiny", "albert-tiny is an architecture without weights"),
        ("mine/models", "mine/models: no such folder; did you mean 'mine/model'?"),
        ("nowhere/at/all", "nowhere/at/all: no such folder"),
    ],
)
def test_a_path_that_is_not_there_is_not_asked_of_the_hub(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "site").mkdir()
    (tmp_path / "labels" / "best").mkdir(parents=True)
    (tmp_path / "labels" / "best" / "config.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda *_, **__: pytest.fail("the Hub was asked"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("the Hub was asked"))
    with pytest.raises(CheckpointError, match=re.escape(message)):
        load_model(name)


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    def fail(*arguments, **options):  # in safetensors' words
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(hub, "save_file", fail)
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_model(PretrainingModel(TINY), tmp_path / "model")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "model"))
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_without_a_pooler_opens_and_is_kept_so(tmp_path, cli):
    save_model(EncoderModel(TINY, pooler=False), tmp_path / "model")
    assert not any("pooler" in name for name in load_file(tmp_path / "model" / "model.safetensors"))
    model, report = load_model_and_report(tmp_path / "model")
    assert not report.missing
    assert model(torch.arange(6).view(2, 3)).pooled is None
    result = cli("convert", tmp_path / "model", tmp_path / "converted")
    assert result.code == 0, result
    assert same(load_model(tmp_path / "converted").state_dict(), model.state_dict())
    with_pooler, report = load_model_and_report(tmp_path / "model", "encoder", new_head=True)
    assert report.missing == ["encoder.pooler.weight", "encoder.pooler.bias"]
    assert with_pooler(torch.arange(6).view(2, 3)).pooled.shape == (2, 16)
    with pytest.raises(CheckpointError, match=r"has no classification head \(missing: encoder.pooler.weight"):
        load_model(tmp_path / "model", "classification")


def test_another_config_file_may_be_named(folder, tmp_path):
    (folder / "config.json").rename(tmp_path / "elsewhere.json")
    assert load_model(folder, config=tmp_path / "elsewhere.json").config == TINY
    with pytest.raises(CheckpointError, match=r"nowhere.json: no such file"):
        load_model(folder, config="nowhere.json")


def flip(path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_model_folder_has_a_checksum_that_sha256sum_reads(folder):
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert (folder / "SHA256SUMS").read_text() == f"{digest}  model.safetensors\n"


@pytest.mark.parametrize("place", [-1, -5000, -10000])
def test_one_flipped_bit_of_the_weights_is_seen(folder, place, cli):
    flip(folder / "model.safetensors", place)
    with pytest.raises(CheckpointError, match=r"model.safetensors: damaged, or changed since it was saved"):
        load_model(folder)
    result = cli("convert", folder, folder.parent / "out")
    assert (result.code, "delete SHA256SUMS if you changed the weights yourself" in result.err) == (2, True)
    (folder / "SHA256SUMS").unlink()
    load_model(folder, allow_nan=True)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"0123  model.safetensors\n"])
def test_a_damaged_checksum_file_is_told(folder, text):
    (folder / "SHA256SUMS").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"SHA256SUMS: damaged: no checksum of model.safetensors; copy"):
        load_model(folder)


def test_weights_that_another_program_wrote_into_the_folder_are_not_ours_to_check(folder):
    transformers.AutoModelForPreTraining.from_pretrained(folder).save_pretrained(folder)
    assert (folder / "SHA256SUMS").is_file()
    assert load_model(folder).config == TINY
    save_model(load_model(folder), folder)
    flip(folder / "model.safetensors", -1)
    with pytest.raises(CheckpointError, match="damaged"):
        load_model(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_numbers_are_refused(tmp_path, value, cli):
    model = PretrainingModel(TINY)
    with torch.no_grad():
        model.encoder.ffn[0].input.weight[3, 2] = value
    save_model(model, tmp_path / "model")
    message = r"model: albert.encoder.*ffn.weight holds NaN or infinity.*use an earlier checkpoint"
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path / "model")
    english().save(tmp_path / "model")
    with pytest.raises(CheckpointError, match=message):
        Predictor(tmp_path / "model", device="cpu")
    for command in (
        ("predict", "embed", "a text", "--model", tmp_path / "model", "--device", "cpu"),
        ("export", tmp_path / "model"),
        ("convert", tmp_path / "model", tmp_path / "out"),
        ("serve", tmp_path / "model", "--device", "cpu"),
    ):
        result = cli(*command)
        assert (result.code, "holds NaN or infinity" in result.err) == (2, True), result
    kept = load_model(tmp_path / "model", allow_nan=True).encoder.ffn[0].input.weight[3, 2]
    assert not kept.isfinite()
