"""The encoder for inference computes the plain encoder's numbers, for every kind of encoder; its input as one array."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import packed, small_model

from litebert.predict.fused import FusedEncoder, Product, can_pack, gelu_tanh, lay_out

KINDS = {
    "all": {},
    "attention": {"sharing": "attention"},
    "ffn": {"sharing": "ffn"},
    "none": {"sharing": "none"},
    "groups": {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    "wide": {"embedding_size": 24},
    "erf": {"hidden_act": "gelu"},
    "relu": {"hidden_act": "relu"},
    "bert": {"model_type": "bert", "embedding_size": 24, "sharing": "none", "hidden_act": "gelu"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packs_weights", [True, False])
@torch.inference_mode()
def test_same_numbers_as_the_plain_encoder(kind, packs_weights, monkeypatch):
    if not packs_weights:  # as on a machine without MKL
        monkeypatch.setattr("litebert.predict.fused.can_pack", lambda: False)
    encoder = small_model("encoder", **KINDS[kind]).encoder
    batch = packed([9, 9, 9, 4, 4, 17, 1], torch.Generator().manual_seed(1))
    expected = encoder(**batch)
    fused = FusedEncoder(encoder)
    output = fused(**batch)
    torch.testing.assert_close(output.hidden, expected.hidden, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(output.pooled, expected.pooled, rtol=1e-4, atol=1e-5)
    places = torch.tensor([3, 30])
    torch.testing.assert_close(fused(**batch, positions=places).hidden, output.hidden[places])
    assert fused.hidden.shape == expected.hidden.shape
    few = fused(**batch, positions=places, only_asked=True)
    torch.testing.assert_close(few.hidden, output.hidden[places], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(few.pooled, output.pooled, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fused(**batch, only_asked=True).pooled, output.pooled, rtol=1e-4, atol=1e-5)
    # The plain encoder, whose projections are views now, still works: attention maps come from it.
    torch.testing.assert_close(encoder(**batch).hidden, expected.hidden)


def test_packed_weights_are_tried_before_they_are_trusted(monkeypatch):
    assert can_pack.__wrapped__() == torch.backends.mkl.is_available()
    monkeypatch.setattr(torch.ops.mkl, "_mkl_linear", lambda x, packed, weight, bias, rows: x @ weight.T)  # no bias
    assert can_pack.__wrapped__() is False
    monkeypatch.setattr(torch.ops.mkl, "_mkl_linear", None)  # as in a torch that dropped them
    assert can_pack.__wrapped__() is False


@torch.inference_mode()
def test_gelu_by_sigmoid_is_gelu_by_tanh():
    for shape in ((1, 7), (200, 3072), (3, 300_000)):  # less than a part, several parts, rows longer than a part
        x = 4 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
        x[0, :6] = torch.tensor([0.0, -0.0, 100.0, -100.0, 1e30, -1e30])
        expected = torch.nn.functional.gelu(x.double(), approximate="tanh").float()
        torch.testing.assert_close(gelu_tanh(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
@torch.inference_mode()
def test_weights_are_packed_once_for_any_number_of_rows(threads):
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for width, depth in ((12, 8), (2304, 768), (96, 3072)):
            weight, bias = torch.randn(width, depth) / depth**0.5, torch.randn(width)
            product = Product(weight, bias, "relu")
            assert (product.packed is not None) == can_pack()
            for size in (1, 2, 5, 16, 31, 100, 128, 129, 300, 1000):
                x = torch.randn(size, depth)
                expected = (x.double() @ weight.double().T + bias).relu().float()
                torch.testing.assert_close(product(x), expected, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_num_threads(before)


# ---------------------------------------------------------------------------------------------------------------------
# A batch as one array: what stands where, with places to spare and without

IDS = [np.array([2, 7, 3]), np.array([2, 3])]
SEGMENTS = [np.array([0, 0, 1], np.int8), np.array([0, 1], np.int8)]


def test_what_stands_where():
    for room in ((5, 2), (8, 4)):
        table = lay_out(IDS, SEGMENTS, room)
        assert (table.used, table.longest, table.whole.dtype) == ((5, 2), 3, torch.int32)
        spare = [0] * (room[0] - 5)
        assert table.ids.tolist() == [2, 7, 3, 2, 3, *spare]
        assert table.segments.tolist() == [0, 0, 1, 0, 1, *spare]
        assert table.positions.tolist() == [0, 1, 2, 0, 1, *spare]
        assert table.starts.tolist() == [0, 3, 5, *[5] * (room[1] - 2)]
        inputs = table.inputs()
        assert inputs.pop("max_length") == 3
        assert {name: tensor.tolist() for name, tensor in inputs.items()} == {
            "input_ids": [2, 7, 3, 2, 3],
            "segment_ids": [0, 0, 1, 0, 1],
            "position_ids": [0, 1, 2, 0, 1],
            "starts": [0, 3, 5],
        }
        assert all(tensor.data_ptr() >= table.whole.data_ptr() for tensor in inputs.values())  # views, no copies
