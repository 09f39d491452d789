"""The layers written by hand against autograd through the reference model, in float64."""

from __future__ import annotations

import pytest
import torch

from litebert.model.config import ModelConfig
from litebert.model.encoder import Encoder
from litebert.model.fast import plain_ops
from litebert.model.fast.fp8_ops import Fp8Ops
from litebert.model.fast.layers import Asked, FastLayers
from litebert.model.heads import ClassificationModel, PretrainingModel

LENGTHS = [7, 13, 1, 19, 0, 0]
STARTS = torch.tensor([0, 7, 20, 21, 40, 40, 40], dtype=torch.int32)
POSITIONS = torch.tensor([30, 2, 5, 9, 39, 12, 0, 0])  # in any order; 0 is an unused place
USED = POSITIONS > 0


def make_model(cls=PretrainingModel, **changes):
    torch.manual_seed(1)
    shape = dict(
        vocab_size=50,
        embedding_size=8,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.3,
    )
    model = cls(ModelConfig(**{**shape, **changes})).double()
    for parameter in model.parameters():
        if parameter.ndim == 1:  # biases of 0 and norms of 1 would hide mistakes
            torch.nn.init.normal_(parameter, 1.0, 0.3)
    return model


def make_inputs():
    generator = torch.Generator().manual_seed(2)
    return dict(
        input_ids=torch.randint(5, 50, (40,), generator=generator),
        segment_ids=torch.randint(0, 2, (40,), generator=generator),
        position_ids=torch.cat([torch.arange(length) for length in LENGTHS]),
        starts=STARTS,
        max_length=19,
    )


def loss_and_gradients(model, positions):
    """Of a loss that looks at every output that counts, each with a weight of its own."""
    output = model(**make_inputs(), positions=positions)
    words = output.masked_lm.log_softmax(-1)[:, 3]
    words = words * torch.linspace(1, 2, len(words), dtype=words.dtype)
    if positions is not None:
        words = words[USED]
    loss = words.sum() + output.sentence[:4].square().sum()
    model.zero_grad()
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        if name.endswith("key.bias"):  # its true gradient is 0
            assert found[name].abs().max() < 1e-10
        else:
            torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.parametrize("positions", [None, POSITIONS], ids=["all tokens", "asked"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sharing": "none"},
        {"sharing": "attention"},
        {"sharing": "ffn"},
        {"num_hidden_groups": 2},
        {"hidden_act": "gelu"},
        {"num_hidden_layers": 1},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())) or "all",
)
def test_values_and_gradients(changes, positions):
    model = make_model(**changes)
    loss, expected = loss_and_gradients(model, positions)
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    fast_loss, found = loss_and_gradients(model, positions)
    assert fast_loss == pytest.approx(loss, rel=1e-12)
    assert_close(found, expected)


@pytest.mark.parametrize("positions", [None, POSITIONS], ids=["all tokens", "asked"])
def test_recomputation_changes_nothing(positions):
    model = make_model()
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    _, expected = loss_and_gradients(model, positions)
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64, recompute=True)
    assert_close(loss_and_gradients(model, positions)[1], expected)


def test_depth_can_change_between_steps():
    model = make_model()
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    model.encoder.set_depth(2)
    _, found = loss_and_gradients(model, POSITIONS)
    model.encoder.fast_layers = None
    assert_close(found, loss_and_gradients(model, POSITIONS)[1])


def test_working_weights_follow_the_parameters():
    model = make_model()
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    with torch.inference_mode():
        before = model(**make_inputs()).masked_lm
    with torch.no_grad():
        model.encoder.attention[0].query.weight.mul_(0.5)
    changed = model(**make_inputs()).masked_lm
    model.encoder.fast_layers = None
    torch.testing.assert_close(changed, model(**make_inputs()).masked_lm)
    assert not torch.allclose(before, changed)


def test_frozen_parameters_get_no_gradient():
    model = make_model()
    model.encoder.ffn[0].requires_grad_(False)
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    _, found = loss_and_gradients(model, POSITIONS)
    assert not any("ffn" in name for name in found)
    model.encoder.fast_layers = None
    assert_close(found, loss_and_gradients(model, POSITIONS)[1])


def test_a_second_backward_is_refused():
    model = make_model()
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    loss = model(**make_inputs()).masked_lm.sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        loss.backward()


def test_other_heads_go_the_same_way():
    model = make_model(ClassificationModel, labels=("a", "b", "c")).eval()
    expected = model(**make_inputs())
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    torch.testing.assert_close(model(**make_inputs())[:4], expected[:4])


def test_what_cannot_go_the_fast_way_goes_the_plain_one():
    model = make_model(hidden_dropout_prob=0.1)

    def refuse(*_):
        raise AssertionError("went the fast way")

    model.encoder.fast_layers = refuse
    model(**make_inputs())  # training with dropout
    states = model.eval().encoder(**make_inputs(), output_hidden_states=True).hidden_states
    assert len(states) == 5
    with pytest.raises(AssertionError, match="went the fast way"):
        model(**make_inputs())
    assert not FastLayers.fits(Encoder(ModelConfig(hidden_act="relu")))
    assert not FastLayers.fits(Encoder(ModelConfig(hidden_size=96, num_attention_heads=4)))
    assert FastLayers.fits(Encoder(ModelConfig()))


def test_rows_asked_for():
    asked = Asked.at(POSITIONS, STARTS, 40)
    used = [0, 2, 5, 7, 9, 12, 20, 21, 30, 39]
    assert asked.rows.tolist() == used + [39] * 4  # two unused places, two unused sequences
    assert asked.starts.tolist() == [0, 3, 6, 7, 10, 10, 10]
    rows = asked.rows[asked.place]
    assert rows[: len(POSITIONS)][USED].tolist() == POSITIONS[USED].tolist()
    assert rows[len(POSITIONS) :][:4].tolist() == STARTS[:4].tolist()


def test_eight_bit_products_come_close():
    """FP8 keeps three or two bits of a number: gradients point the same way, and nothing overflows."""
    model = make_model(hidden_size=64, intermediate_size=128, num_hidden_layers=3, initializer_range=0.1).float()
    batch = dict(make_inputs(), positions=POSITIONS)
    pad = 48 - 40  # tokens in a multiple of 16, so that the layers' products are 8-bit ones
    batch["input_ids"] = torch.cat([batch["input_ids"], torch.full((pad,), 7)])
    batch["segment_ids"] = torch.cat([batch["segment_ids"], torch.zeros(pad, dtype=torch.long)])
    batch["position_ids"] = torch.cat([batch["position_ids"], torch.arange(pad)])
    batch["starts"] = torch.tensor([0, 7, 20, 21, 40, 48], dtype=torch.int32)
    gradients = []
    for ops in (plain_ops, Fp8Ops(plain_ops)):
        model.encoder.fast_layers = FastLayers(model.encoder, torch.float32, ops)
        output = model(**batch)
        model.zero_grad()
        (output.masked_lm.float().log_softmax(-1)[:, 3][USED].sum() * 1e-6).backward()  # as small as real gradients are
        gradients.append(torch.cat([p.grad.flatten() for p in model.encoder.parameters() if p.grad is not None]))
    exact, coarse = gradients
    assert coarse.isfinite().all()
    assert torch.nn.functional.cosine_similarity(exact, coarse, dim=0) > 0.97
    assert not torch.equal(exact, coarse)


def test_eight_bit_weights_are_cut_and_turned():
    ops = Fp8Ops(plain_ops)
    torch.manual_seed(0)
    weight, x, grad = torch.randn(48, 32), torch.randn(16, 32), torch.randn(16, 48)
    prepared = ops.prepare(weight)
    total = torch.zeros(48, 32)
    ops.add_weight_gradient(total, grad, x)
    part = slice(16, 48)
    for found, expected in (
        (ops.linear(x, prepared), x @ weight.T),
        (ops.linear_backward(grad, prepared), grad @ weight),
        (ops.linear(x, ops.cut(prepared, part)), x @ weight[part].T),
        (ops.linear_backward(grad[:, part].contiguous(), ops.cut(prepared, part)), grad[:, part] @ weight[part]),
        (total, grad.T @ x),
    ):
        assert (found - expected).norm() < 0.08 * expected.norm()
    odd = torch.randn(5, 32)  # no multiple of 16: the exact product
    torch.testing.assert_close(ops.linear(odd, prepared), odd @ weight.T)
