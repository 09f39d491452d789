"""`litebert convert` and `litebert verify` through the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from small_vocabularies import WORDPIECES, english, wordpiece

from litebert.model.config import preset, vary
from litebert.model.heads import AnswerModel, MultipleChoiceModel, PretrainingModel
from litebert.model.hub import load_model, save_model
from litebert.text.tokenizer import Tokenizer

FIXTURES = Path(__file__).parent / "fixtures" / "tf"
TINY = preset(
    "albert-tiny", vocab_size=60, hidden_size=32, embedding_size=16, num_attention_heads=2, intermediate_size=64
)


def test_a_tensorflow_folder_becomes_one_that_transformers_opens(cli, tmp_path):
    source = tmp_path / "google"
    shutil.copytree(FIXTURES / "with_optimizer", source)
    (source / "30k-clean.model").write_bytes(english().model)
    result = cli("convert", source, tmp_path / "out")
    assert result.code == 0, result
    assert "mapped   32 tensors" in result.out
    assert "skipped  65" in result.out
    assert "missing  0" in result.out
    assert (tmp_path / "out" / "spiece.model").read_bytes() == english().model
    text = 'Anna said "good morning" in 2010, – (twice)'
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs(text, add_special_tokens=False)["input_ids"] == english().encode(text)
    theirs, info = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    ids = torch.arange(20).view(2, 10)
    expected = load_model(FIXTURES / "base")(ids)
    torch.testing.assert_close(theirs.eval()(ids).prediction_logits, expected.masked_lm, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("suffix", ["", ".index", ".data-00000-of-00001"])
def test_prefixes_and_files_of_a_bundle(cli, tmp_path, suffix):
    result = cli("convert", f"{FIXTURES / 'base' / 'model.ckpt-best'}{suffix}", tmp_path / "out", "--json")
    assert result.code == 0, result
    assert json.loads(result.out)["head"] == "pretraining"


def test_a_chinese_checkpoint_brings_its_wordpieces(cli, tmp_path):
    """As in albert_base_zh: vocab_chinese.txt instead of a SentencePiece model."""
    shutil.copytree(FIXTURES / "base", tmp_path / "zh")
    (tmp_path / "zh" / "vocab_chinese.txt").write_text("\n".join(WORDPIECES), encoding="utf-8")
    result = cli("convert", tmp_path / "zh", tmp_path / "out")
    assert (result.code, "copied   vocab.txt" in result.out) == (0, True), result
    expected = wordpiece().encode("中国人 hello")
    assert Tokenizer.load(tmp_path / "out").encode("中国人 hello") == expected
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs("中国人 hello", add_special_tokens=False)["input_ids"] == expected


def test_a_vocabulary_that_cannot_be_used_is_told(cli, tmp_path):
    shutil.copytree(FIXTURES / "base", tmp_path / "google")
    (tmp_path / "google" / "30k-clean.model").write_bytes(b"a vocabulary")
    result = cli("convert", tmp_path / "google", tmp_path / "out")
    assert (result.code, "the vocabulary was copied but does not load" in result.out) == (0, True), result


def test_what_a_config_says_wrongly_can_be_corrected(cli, tmp_path):
    """The Hub's xlarge says 16 heads, its v1 the exact gelu, and early v2 files had dropout."""
    wrong = vary(TINY, hidden_act="gelu", hidden_dropout_prob=0.1)
    save_model(PretrainingModel(wrong), tmp_path / "wrong")
    changes = ["--set", "num_attention_heads=4", "--set", "hidden_act=gelu_new", "--set", "hidden_dropout_prob=0"]
    assert cli("convert", tmp_path / "wrong", tmp_path / "right", *changes).code == 0
    before, after = load_model(tmp_path / "wrong"), load_model(tmp_path / "right")
    assert after.config == vary(TINY, num_attention_heads=4)
    for name, tensor in before.state_dict().items():
        assert torch.equal(after.state_dict()[name], tensor), name
    for setting, message in (
        ("num_attention_heds=4", "num_attention_heds: unknown model field; did you mean 'num_attention_heads'"),
        ("num_attention_heads=7", "must divide hidden_size 32, got 7"),
        ("hidden_size=64", "the config says"),
        ("heads", "expected key=value"),
    ):
        result = cli("convert", tmp_path / "wrong", tmp_path / "no", "--set", setting)
        assert (result.code, message in result.err) == (2, True), result
    assert not (tmp_path / "no").exists()


def test_missing_sentence_head_is_reported(cli, tmp_path):
    result = cli("convert", FIXTURES / "hub_module", tmp_path / "out")
    assert "missing  2: sentence.weight, sentence.bias" in result.out
    assert "no sentence head" in result.out


def test_dtype_and_head(cli, tmp_path):
    save_model(PretrainingModel(TINY), tmp_path / "a")
    assert cli("convert", tmp_path / "a", tmp_path / "b", "--dtype", "float16", "--head", "masked-lm").code == 0
    assert json.loads((tmp_path / "b" / "config.json").read_text())["architectures"] == ["AlbertForMaskedLM"]
    assert {tensor.dtype for tensor in load_file(tmp_path / "b" / "model.safetensors").values()} == {torch.float16}
    assert json.loads((tmp_path / "b" / "config.json").read_text())["dtype"] == "float32"  # how it is opened


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere/at/all", "out"], "nowhere/at/all: no such folder"),
        ([FIXTURES / "v1_format", "out"], "V1"),
        ([FIXTURES / "base", "out", "--dtype", "int8"], "'int8' is not one of"),
        ([FIXTURES / "base", "out", "--head", "spam"], "no head 'spam'; did you mean 'span'? Known: encoder"),
        ([FIXTURES / "base", "out", "--head", "xyzzy"], "no head 'xyzzy'. Known: encoder"),
        ([FIXTURES / "base", "out", "--head", "span"], "(new_head=True in Python)"),
    ],
)
def test_mistakes_end_with_one_message_and_code_2(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    cli("convert", *arguments).assert_refused(message)
    assert not (tmp_path / "out").exists()


def test_an_adapter_is_named_as_it_was_given(cli):
    cli("verify", "default:sentiment").assert_refused(
        "error: default:sentiment: not a model folder (no config.json); it"
    )


def test_another_tokenizer_is_not_overwritten_unasked(cli, tmp_path):
    """A folder of `litebert tokenizer train`, named as the target by mistake."""
    shutil.copytree(FIXTURES / "base", tmp_path / "google")
    (tmp_path / "google" / "30k-clean.model").write_bytes(english().model)
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab" / "spiece.model").write_bytes(b"mine")
    cli("convert", tmp_path / "google", tmp_path / "vocab").assert_refused(
        "vocab: already holds another tokenizer; use another folder, or set overwrite"
    )
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "vocab").iterdir()] == [("spiece.model", b"mine")]
    assert cli("convert", tmp_path / "google", tmp_path / "vocab", "--overwrite").code == 0
    assert (tmp_path / "vocab" / "spiece.model").read_bytes() == english().model


def test_the_same_tokenizer_may_be_there_already(cli, tmp_path):
    shutil.copytree(FIXTURES / "base", tmp_path / "google")
    for name in ("google", "out"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "spiece.model").write_bytes(english().model)
    assert cli("convert", tmp_path / "google", tmp_path / "out").code == 0


def test_an_existing_model_is_not_overwritten_unasked(cli, tmp_path):
    save_model(PretrainingModel(TINY), tmp_path / "out")
    result = cli("convert", FIXTURES / "base", tmp_path / "out")
    assert (result.code, "already holds a model; use another folder, or set overwrite" in result.err) == (2, True)
    assert load_model(tmp_path / "out").config == TINY
    assert cli("convert", FIXTURES / "base", tmp_path / "out", "--overwrite").code == 0
    assert load_model(tmp_path / "out").config.vocab_size == 50


@pytest.mark.parametrize("model", [PretrainingModel, MultipleChoiceModel])
def test_verify_agrees(cli, tmp_path, model):
    save_model(model(TINY), tmp_path / "m")
    result = cli("verify", tmp_path / "m", "--length", 32)
    assert result.code == 0, result
    assert "agree" in result.out
    rows = json.loads(cli("verify", tmp_path / "m", "--length", 32, "--json").out)
    assert all(row["difference"] < 1e-5 < row["magnitude"] for row in rows)


def test_verify_sees_a_difference(cli, tmp_path, monkeypatch):
    from litebert.model import convert

    save_model(PretrainingModel(TINY), tmp_path / "m")
    real = convert.load_model

    def changed(*arguments, **options):
        model = real(*arguments, **options)
        with torch.no_grad():
            model.encoder.ffn[0].norm.bias += 0.5
        return model

    monkeypatch.setattr(convert, "load_model", changed)
    result = cli("verify", tmp_path / "m", "--length", 32)
    assert (result.code, "differ" in result.out) == (1, True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_verify_takes_nan_and_infinity_for_a_difference(cli, tmp_path, value):
    model = PretrainingModel(TINY)
    with torch.no_grad():
        model.sentence.bias[0] = value
    save_model(model, tmp_path / "m")
    result = cli("verify", tmp_path / "m")
    assert (result.code, "differ" in result.out, "agree" in result.out) == (1, True, False)
    strict = cli("verify", tmp_path / "m", "--json")
    masked_lm, sentence = json.loads(strict.out, parse_constant=pytest.fail)
    assert (strict.code, sentence["difference"]) == (1, None)
    assert masked_lm["difference"] < 1e-5


def test_verify_takes_what_a_short_model_can_take(cli, tmp_path):
    save_model(PretrainingModel(vary(TINY, max_position_embeddings=24)), tmp_path / "m")
    assert cli("verify", tmp_path / "m").code == 0
    result = cli("verify", tmp_path / "m", "--length", 25)
    assert (result.code, "length: must be between 2 and 24, got 25" in result.err) == (2, True)
    result = cli("verify", tmp_path / "m", "--sequences", 0)
    assert (result.code, "--sequences" in result.err) == (2, True)


@pytest.mark.parametrize("source", [FIXTURES / "base", FIXTURES / "base" / "model.ckpt-best"])
def test_verify_sends_tensorflow_checkpoints_to_convert(cli, source):
    result = cli("verify", source)
    assert (result.code, "litebert convert" in result.err) == (2, True)


def test_verify_refuses_what_transformers_lacks(cli, tmp_path):
    save_model(AnswerModel(TINY), tmp_path / "m")
    result = cli("verify", tmp_path / "m")
    assert (result.code, "no such model to compare with" in result.err) == (2, True)
