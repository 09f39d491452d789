"""brightmart/albert_zh's checkpoints, another graph than Google's: every output as plain numpy computes it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from small_vocabularies import WORDPIECES, wordpiece
from tiny_shape import tiny_shape

from litebert.errors import CheckpointError, ConfigError
from litebert.export.model_graph import build_onnx
from litebert.model.config import vary
from litebert.model.count import count_parameters
from litebert.model.fast.layers import FastLayers
from litebert.model.google import load_google
from litebert.model.heads import ClassificationModel, EncoderModel, PretrainingModel
from litebert.model.hub import load_model, load_model_and_report, save_model
from litebert.predict.runtime import Request
from litebert.predict.torch_runtime import TorchRuntime
from litebert.train.device import DeviceConfig, open_device

FOLDER = Path(__file__).parent / "fixtures" / "tf" / "brightmart"
LENGTHS = (12, 9, 5)
CONFIG = tiny_shape(max_position_embeddings=24, project_words_only=True)


def forward(config, weights, ids, segments, mask):
    """The whole graph in float64: last states [B, S, H], pooled [B, H], words [B, S, V], order [B, 2]."""
    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    heads, layer = config["num_attention_heads"], "bert/encoder/layer_shared"

    def dense(x, scope):
        return x @ weights[f"{scope}/kernel"] + weights[f"{scope}/bias"]

    def norm(x, scope):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-12) * weights[f"{scope}/gamma"] + weights[f"{scope}/beta"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def attend(x):
        shape = (*x.shape[:2], heads, -1)
        q, k, v = (dense(x, f"{layer}/attention/self/{part}").reshape(shape) for part in ("query", "key", "value"))
        scores = np.einsum("bqnd,bknd->bnqk", q, k) / math.sqrt(q.shape[-1]) - 10000.0 * (1 - mask[:, None, None, :])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("bnqk,bknd->bqnd", scores / scores.sum(-1, keepdims=True), v).reshape(x.shape)

    words, projection = weights["bert/embeddings/word_embeddings"], weights["bert/embeddings/word_embeddings_2"]
    x = words[ids] @ projection  # the words alone go from E to H, without a bias
    x = x + weights["bert/embeddings/token_type_embeddings"][segments]
    x = norm(x + weights["bert/embeddings/position_embeddings"][: ids.shape[1]], "bert/embeddings/LayerNorm")
    for _ in range(config["num_hidden_layers"]):
        x = norm(x + dense(attend(x), f"{layer}/attention/output/dense"), f"{layer}/attention/output/LayerNorm")
        inner = gelu(dense(x, f"{layer}/intermediate/dense"))
        x = norm(x + dense(inner, f"{layer}/output/dense"), f"{layer}/output/LayerNorm")
    pooled = np.tanh(dense(x[:, 0], "bert/pooler/dense"))
    y = norm(gelu(dense(x, "cls/predictions/transform/dense")), "cls/predictions/transform/LayerNorm")
    logits = y @ projection.T @ words.T + weights["cls/predictions/output_bias"]
    order = pooled @ weights["cls/seq_relationship/output_weights"].T + weights["cls/seq_relationship/output_bias"]
    return x, pooled, logits, order


@pytest.fixture(scope="module")
def inputs():
    """Three sequences of different lengths, padded, with both segments."""
    rng = np.random.default_rng(1)
    columns, lengths = np.arange(12), np.array(LENGTHS)[:, None]
    mask = (columns < lengths).astype(np.int64)
    return rng.integers(0, 50, mask.shape) * mask, (columns >= lengths // 2) * mask, mask


@pytest.fixture(scope="module")
def expected(inputs):
    config = json.loads((FOLDER / "albert_config.json").read_text())
    return [torch.from_numpy(x) for x in forward(config, np.load(FOLDER / "expected.npz"), *inputs)]


def check_outputs(model, inputs, expected):
    ids, segments, mask = (torch.from_numpy(x) for x in inputs)
    given = dict(segment_ids=segments, attention_mask=mask)
    real = mask.bool()
    hidden, pooled, words, order = expected
    encoded, output = model.double().encoder(ids, **given), model(ids, **given)
    for actual, wanted in (
        (encoded.hidden[real], hidden[real]),
        (encoded.pooled, pooled),
        (output.masked_lm[real], words[real]),
        (output.sentence, order),
    ):
        torch.testing.assert_close(actual, wanted, atol=1e-9, rtol=1e-9)


def test_all_31_tensors_compute_what_numpy_computes(inputs, expected):
    model, report = load_google(FOLDER)
    assert (len(report.mapped), report.skipped, report.missing) == (31, [], [])
    assert model.config.project_words_only
    check_outputs(model, inputs, expected)


def test_it_converts_into_a_folder_that_gives_the_same(inputs, expected, cli, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "zh")
    (tmp_path / "zh" / "albert_config.json").rename(tmp_path / "zh" / "albert_config_tiny.json")
    (tmp_path / "zh" / "vocab.txt").write_text("\n".join(WORDPIECES), encoding="utf-8")
    result = cli("convert", tmp_path / "zh", tmp_path / "out")
    assert result.code == 0, result
    assert "mapped   31 tensors" in result.out
    assert "opens in litebert only" in result.out
    model, report = load_model_and_report(tmp_path / "out")
    assert not report.missing
    check_outputs(model, inputs, expected)
    with pytest.raises(ValueError, match="litebert"):  # it has no such ALBERT, and must not guess
        transformers.AutoModel.from_pretrained(tmp_path / "out")
    result = cli("verify", tmp_path / "out")
    assert (result.code, "transformers has no such model" in result.err) == (2, True)
    assert wordpiece().encode("中国人") == type(wordpiece()).load(tmp_path / "out").encode("中国人")


def test_packed_input_and_the_fast_layers(inputs, expected):
    model = load_model(FOLDER).double()
    real = inputs[2].astype(bool)
    packed = dict(
        input_ids=torch.from_numpy(inputs[0][real]),
        segment_ids=torch.from_numpy(inputs[1][real]),
        position_ids=torch.cat([torch.arange(length) for length in LENGTHS]),
        starts=torch.tensor([0, *np.cumsum(LENGTHS)], dtype=torch.int32),
        max_length=max(LENGTHS),
    )
    for fast in (None, FastLayers(model.encoder, torch.float64)):
        model.encoder.fast_layers = fast
        output = model(**packed)
        torch.testing.assert_close(output.masked_lm, expected[2][torch.from_numpy(real)], atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(output.sentence, expected[3], atol=1e-9, rtol=1e-9)


def test_prediction_and_onnx(inputs, expected):
    ids, segments, mask = inputs
    model = load_model(FOLDER)
    session = onnxruntime.InferenceSession(build_onnx(model).SerializeToString())
    feeds = {"input_ids": ids, "segment_ids": segments, "attention_mask": mask, "positions": np.arange(ids.size)}
    words, order = session.run(["masked_lm", "sentence"], feeds)
    real = mask.astype(bool)
    np.testing.assert_allclose(words.reshape(*ids.shape, -1)[real], expected[2].numpy()[real], atol=1e-4)
    np.testing.assert_allclose(order, expected[3].numpy(), atol=1e-4)
    runtime = TorchRuntime(model, open_device(DeviceConfig(device="cpu", threads=1)))
    requests = [
        Request(row[:size].astype(np.int32), kinds[:size].astype(np.int8), frozenset({"masked_lm"}), np.arange(size))
        for row, kinds, size in zip(ids, segments, LENGTHS, strict=True)
    ]
    for row, (output, size) in enumerate(zip(runtime.run(requests), LENGTHS, strict=True)):
        np.testing.assert_allclose(output["masked_lm"], expected[2].numpy()[row, :size], atol=1e-4)


@pytest.mark.parametrize("config", [CONFIG, vary(CONFIG, embedding_size=16), vary(CONFIG, tie_word_embeddings=False)])
def test_parameters_folders_and_training(config, tmp_path):
    model = PretrainingModel(config)
    assert model.num_parameters == count_parameters(config).with_heads
    assert EncoderModel(config).num_parameters == count_parameters(config).total
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.config == config
    ids = torch.arange(20).view(2, 10)
    assert torch.equal(again(ids).masked_lm, model.eval()(ids).masked_lm)
    output = again.train()(ids)
    (output.masked_lm.logsumexp(-1).sum() + output.sentence.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in again.parameters())
    assert isinstance(load_model(tmp_path, "classification", new_head=True), ClassificationModel)


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("postln", "preln", ConfigError, r"albert_config.json: ln_type 'preln' is not supported"),
        (
            '"embedding_size": 8',
            '"embedding_size": 4',
            CheckpointError,
            r"word_embeddings has shape \[50, 8\], the config says \[50, 4\]",
        ),
    ],
    ids=["norms before the blocks", "another shape"],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path, old, new, error, message):
    shutil.copytree(FOLDER, tmp_path / "zh")
    config = tmp_path / "zh" / "albert_config.json"
    config.write_text(config.read_text().replace(old, new))
    with pytest.raises(error, match=message):
        load_google(tmp_path / "zh")


def test_a_projection_is_needed():
    with pytest.raises(ConfigError, match="embedding_projection: must be true with project_words_only"):
        vary(CONFIG, embedding_projection=False)
