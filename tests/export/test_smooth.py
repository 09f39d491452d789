from __future__ import annotations

import numpy as np
import onnxruntime
import torch
from small_models import small_model

from litebert.export.check import random_requests
from litebert.export.head_graph import build_onnx
from litebert.export.reference import Reference
from litebert.export.smooth import input_peaks, smoothing_factors


def test_factors_change_nothing_but_the_rounding():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(8, 5)).astype(np.float32)
    states = rng.normal(size=(3, 8)).astype(np.float32)
    states[:, 2] *= 40
    factors = smoothing_factors(np.abs(states).max(0), matrix)
    assert factors.argmax() == 2
    np.testing.assert_allclose((states / factors) @ (matrix * factors[:, None]), states @ matrix, rtol=1e-4, atol=1e-4)


def test_a_silent_channel_does_no_harm():
    factors = smoothing_factors(np.array([0, 1, 2], np.float32), np.array([[1], [0], [2]], np.float32))
    assert np.isfinite(factors).all()
    assert (factors > 0).all()


def test_peaks_are_of_every_linear_layer_and_all_its_applications():
    model = small_model("answer", num_hidden_layers=3)
    requests = random_requests(model.config, frozenset({"start_log_prob"}))
    seen = []
    hook = model.encoder.ffn[0].input.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    peaks = input_peaks(Reference(model), requests)
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
    peaks = input_peaks(Reference(model), requests)
    ids = torch.randint(0, model.config.vocab_size, (4, 40), generator=torch.Generator().manual_seed(1))
    feeds = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "segment_ids": ids % 2, "positions": ids[0]}
    with torch.inference_mode():
        expected = model(**feeds).masked_lm.numpy()
    errors = []
    for given in (None, peaks):
        session = onnxruntime.InferenceSession(build_onnx(model, int8=True, peaks=given).SerializeToString())
        actual = session.run(["masked_lm"], {name: value.numpy() for name, value in feeds.items()})[0]
        errors.append(np.linalg.norm(actual - expected))
    assert errors[1] < 0.75 * errors[0]
