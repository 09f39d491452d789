from __future__ import annotations

import collections

import numpy as np
import onnxruntime
import pytest
import torch
from small_models import small_model
from small_vocabularies import english

from litebert.export.check import Reference, random_requests
from litebert.export.model_graph import build_onnx
from litebert.export.quantize import (
    Statistics,
    likely_requests,
    measure,
    pack,
    pack_six,
    quantize_four,
    quantize_six,
    smoothing_factors,
)
from litebert.text.spiece import NORMAL, read_model


def test_factors_change_nothing_but_the_rounding():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(8, 5)).astype(np.float32)
    states = rng.normal(size=(3, 8)).astype(np.float32)
    states[:, 2] *= 40
    factors = smoothing_factors(np.abs(states).max(0), matrix, states)
    assert factors.argmax() == 2
    np.testing.assert_allclose((states / factors) @ (matrix * factors[:, None]), states @ matrix, rtol=1e-4, atol=1e-4)


def test_a_silent_channel_does_no_harm():
    rows = np.array([[0, 1, 2], [0, -1, 1]], np.float32)
    factors = smoothing_factors(np.abs(rows).max(0), np.array([[1], [0], [2]], np.float32), rows)
    assert np.isfinite(factors).all()
    assert (factors > 0).all()


def test_peaks_are_of_every_linear_layer_and_all_its_applications():
    model = small_model("answer", num_hidden_layers=3)
    requests = random_requests(model.config, frozenset({"start_log_prob"}))
    seen = []
    hook = model.encoder.ffn[0].input.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    peaks = measure(Reference(model), requests).peaks
    hook.remove()
    expected = torch.cat([each.flatten(0, -2) for each in seen]).abs().amax(0)
    np.testing.assert_array_equal(peaks["encoder.ffn.0.input"], expected.numpy())
    linears = {name for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}
    assert linears | {"encoder.attention.0.qkv", "end_hidden.token", "end_hidden.start"} == set(peaks)
    assert len(peaks["end_hidden.start"]) == model.config.hidden_size


def test_loud_channels_cost_less_with_smoothing():
    model = small_model(
        "pretraining", hidden_size=96, num_attention_heads=4, num_hidden_layers=4, initializer_range=0.1
    )
    for block in (model.encoder.attention[0], model.encoder.ffn[0]):
        block.norm.weight.data[[3, 50, 77]] *= 20
    requests = random_requests(model.config, frozenset({"hidden"}))
    statistics = measure(Reference(model), requests)
    ids = torch.randint(0, model.config.vocab_size, (4, 40), generator=torch.Generator().manual_seed(1))
    feeds = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "segment_ids": ids % 2, "positions": ids[0]}
    with torch.inference_mode():
        expected = model(**feeds).masked_lm.numpy()
    errors = []
    for given in (None, statistics):
        session = onnxruntime.InferenceSession(build_onnx(model, "int8", given).SerializeToString())
        actual = session.run(["masked_lm"], {name: value.numpy() for name, value in feeds.items()})[0]
        errors.append(np.linalg.norm(actual - expected))
    assert errors[1] < 0.75 * errors[0]


def correlated_rows(count: int, width: int) -> np.ndarray:
    generator = np.random.default_rng(1)
    return generator.normal(size=(count, 6)) @ generator.normal(size=(6, width)) + 0.1 * generator.normal(
        size=(count, width)
    )


def test_four_bits_are_what_they_say():
    matrix = np.random.default_rng(0).normal(size=(96, 7)).astype(np.float32)
    matrix[:, 3] *= 1000
    matrix[:, 5] = 0
    rounded = quantize_four(matrix)
    assert rounded.values.min() >= -8
    assert rounded.values.max() <= 7
    assert rounded.steps.shape == (6, 7)  # blocks of 16 channels
    size = np.repeat(rounded.steps, 16, axis=0) / 8 * rounded.scale
    # The matrix in 8 bits is what the 4 bits stand for, to half of the 8 bits' own step.
    exact = np.maximum(rounded.values * size / rounded.scale, -128)
    assert np.abs(rounded.whole - exact).max() <= 0.5001
    # Within half a step, but for the largest weights of a block, which may be clipped.
    off = np.abs(rounded.whole * rounded.scale - matrix)
    assert (off <= 0.51 * size + 0.5 * rounded.scale).mean() > 0.9
    assert off.max() <= (2.6 * size).max()
    packed = pack(rounded.values)
    assert packed.shape == (48, 7)
    np.testing.assert_array_equal(np.concatenate([packed & 15, packed >> 4]).astype(int) - 8, rounded.values)


def test_six_bits_lie_in_two_planes():
    table = np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32) * np.logspace(-2, 2, 9)[:, None]
    values, scale = quantize_six(table.astype(np.float32))
    assert np.abs(values).max() == 31
    assert (np.abs(values * scale[:, None] - table) <= 0.501 * scale[:, None]).all()
    low, high = pack_six(values)
    assert (low.shape, high.shape) == ((9, 4), (9, 2))
    lows = np.concatenate([low & 15, low >> 4], axis=1).astype(int)
    highs = np.concatenate([(high >> at) & 3 for at in (0, 2, 4, 6)], axis=1)
    np.testing.assert_array_equal(lows + 16 * highs - 32, values)


def test_feedback_makes_errors_good():
    rows = correlated_rows(400, 64)
    matrix = np.random.default_rng(2).normal(size=(64, 20)).astype(np.float32)
    errors = []
    for gram in (None, rows.T @ rows):
        rounded = quantize_four(matrix, gram)
        errors.append(np.linalg.norm(rows @ (rounded.whole * rounded.scale) - rows @ matrix))
    assert errors[1] < 0.4 * errors[0]


def test_drawn_sequences_look_like_text():
    model, tokenizer = small_model("pretraining"), english()
    requests = likely_requests(model.config, tokenizer, frozenset({"hidden"}))
    ids = np.concatenate([request.ids for request in requests])
    assert all(request.ids[0] == tokenizer.cls_id and request.ids[-1] == tokenizer.sep_id for request in requests)
    assert 0.08 < (ids == tokenizer.mask_id).mean() < 0.25
    assert not np.isin(ids, [tokenizer.pad_id, tokenizer.unk_id]).any()
    scores = [piece.score for piece in read_model(tokenizer.model).pieces]
    normal = [number for number, piece in enumerate(read_model(tokenizer.model).pieces) if piece.kind == NORMAL]
    likely, rare = (max(normal, key=lambda n: scores[n]), min(normal, key=lambda n: scores[n]))
    assert (ids == likely).sum() > (ids == rare).sum()
    without = likely_requests(model.config, None, frozenset({"hidden"}))
    assert len({int(number) for request in without for number in request.ids}) > 50


@pytest.mark.parametrize("form", ["q4", "q4i8"])
def test_a_file_in_four_bits_holds_the_rounded_model(form):
    model = small_model("pretraining", hidden_size=96, embedding_size=16, num_attention_heads=4, intermediate_size=128)
    reference, statistics = Reference(model), Statistics()
    requests = random_requests(model.config, frozenset({"masked_lm", "sentence"}))
    rounded: dict = {}
    proto = build_onnx(model, form, statistics, rounded, every_position=True)
    # Query, key and value in one, the attention's output, two of the feed-forward layer, the pooler: each once.
    packed = [tensor for tensor in proto.graph.initializer if tensor.name.endswith(".int4")]
    assert sum(tensor.name.endswith(".int6") for tensor in proto.graph.initializer) == 1
    assert len(packed) == len(rounded) == 5
    kinds = collections.Counter(node.op_type for node in proto.graph.node)
    assert kinds["BitShift"] == 5 + 6  # and for the two planes of the words
    with torch.no_grad():
        for name, layer in reference.model.named_modules():
            key = name.replace(".query", ".qkv").replace(".key", ".qkv").replace(".value", ".qkv")
            if key not in rounded:
                continue
            whole = torch.from_numpy(rounded[key].whole * rounded[key].scale).T
            if key.endswith(".qkv"):
                parts = dict(zip(("query", "key", "value"), whole.chunk(3), strict=True))
                whole = parts[name.rpartition(".")[2]]
                if name.endswith(".query"):
                    whole = whole * (96 // 4) ** 0.5  # the logits' scale lies in the graph's queries
            layer.weight.copy_(whole)
        words, scale = quantize_six(model.encoder.embeddings.word.weight.numpy())
        model.encoder.embeddings.word.weight.copy_(torch.from_numpy(words * scale[:, None]))
    expected = reference.run(requests)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for request, wanted in zip(requests, expected, strict=True):
        ids = request.ids.astype(np.int64)[None]
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "segment_ids": request.segments[None] * 1}
        feeds["segment_ids"] = feeds["segment_ids"].astype(np.int64)
        (actual,) = session.run(["masked_lm"], feeds)
        off = np.linalg.norm(actual[0][request.positions] - wanted["masked_lm"])
        assert off < {"q4": 0.06, "q4i8": 0.15}[form] * np.linalg.norm(wanted["masked_lm"])


def test_in_int8_a_text_has_the_same_numbers_whatever_shares_its_pass():
    model = small_model("classification", labels=("a", "b"))
    session = onnxruntime.InferenceSession(build_onnx(model, "int8").SerializeToString())
    ids = torch.randint(0, model.config.vocab_size, (4, 40), generator=torch.Generator().manual_seed(1)).numpy()
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    together = session.run(["logits"], feeds)[0]
    for row in range(4):
        alone = session.run(["logits"], {name: value[row : row + 1] for name, value in feeds.items()})[0]
        np.testing.assert_allclose(alone[0], together[row], atol=1e-6)
