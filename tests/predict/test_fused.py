"""The encoder for inference gives the numbers of the plain one, for every kind of encoder."""

from __future__ import annotations

import pytest
import torch
from small_models import packed, small_model

from litebert.predict.fused import FusedEncoder, Product, can_pack, few_sizes

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
    if not packs_weights:  # as on a machine without oneDNN
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
    assert can_pack.__wrapped__() == torch.backends.mkldnn.is_available()
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", None)  # as in a torch that dropped them
    assert can_pack.__wrapped__() is False


def test_sizes_are_few_and_waste_little():
    assert [few_sizes(size) for size in (1, 5, 16, 17, 100, 128, 129, 1000)] == [1, 5, 16, 18, 104, 128, 144, 1024]
    for size in range(1, 5000):
        assert size <= few_sizes(size) <= size * 9 / 8
        assert few_sizes(few_sizes(size)) == few_sizes(size)
    assert len({few_sizes(size) for size in range(1, 8193)}) < 100


@torch.inference_mode()
def test_onednn_meets_few_sizes_whatever_comes(monkeypatch):
    """Code for every number of tokens that ever came would fill the memory of a server."""
    assert can_pack()
    met, plain = set(), torch.ops.mkldnn._linear_pointwise

    def watched(x, *rest):
        met.add(len(x))
        return plain(x, *rest)

    weight, bias = torch.randn(12, 8), torch.randn(12)
    product = Product(weight, bias, "relu")
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", watched)
    for size in range(1, 300):
        x = torch.randn(size, 8)
        torch.testing.assert_close(product(x), (x @ weight.T + bias).relu(), rtol=1e-4, atol=1e-5)
    assert met == {few_sizes(size) for size in range(1, 300)}
