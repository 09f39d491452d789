"""The layers written by hand against autograd through the reference model, in float64."""

from __future__ import annotations

import dataclasses
import weakref

import pytest
import torch

from litebert.model.adapter import add_adapter
from litebert.model.config import ADAPTER_TARGETS, AdapterConfig, ModelConfig
from litebert.model.encoder import Encoder
from litebert.model.fast import plain_ops
from litebert.model.fast.fp8_ops import Fp8Ops
from litebert.model.fast.layers import Asked, FastLayers
from litebert.model.heads import ClassificationModel, PretrainingModel
from litebert.train.optimizer import freeze

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


def loss_of(output, positions):
    """A loss that looks at every output that counts, each with a weight of its own."""
    words = output.masked_lm.log_softmax(-1)[:, 3]
    words = words * torch.linspace(1, 2, len(words), dtype=words.dtype)
    if positions is not None:
        words = words[USED]
    return words.sum() + output.sentence[:4].square().sum()


def loss_and_gradients(model, positions):
    """Of one output."""
    return gradients_of(model, loss_of(model(**make_inputs(), positions=positions), positions))


def gradients_of(model, loss):
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
    exact, coarse = (gradients_through(ops, eight_bit_model()) for ops in (plain_ops, Fp8Ops(plain_ops)))
    assert coarse.isfinite().all()
    assert torch.nn.functional.cosine_similarity(exact, coarse, dim=0) > 0.97
    assert not torch.equal(exact, coarse)


def eight_bit_model():
    """Of sides in multiples of 16, as 8-bit products need them."""
    return make_model(hidden_size=64, intermediate_size=128, num_hidden_layers=3, initializer_range=0.1).float()


def gradients_through(ops, model, dtype=torch.float32):
    """The encoder's, as one vector."""
    batch = dict(make_inputs(), positions=POSITIONS)
    pad = 48 - 40  # tokens in a multiple of 16, so that the layers' products are 8-bit ones
    batch["input_ids"] = torch.cat([batch["input_ids"], torch.full((pad,), 7)])
    batch["segment_ids"] = torch.cat([batch["segment_ids"], torch.zeros(pad, dtype=torch.long)])
    batch["position_ids"] = torch.cat([batch["position_ids"], torch.arange(pad)])
    batch["starts"] = torch.tensor([0, 7, 20, 21, 40, 48], dtype=torch.int32)
    model.encoder.fast_layers = FastLayers(model.encoder, dtype, ops)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = model(**batch)
    model.zero_grad()
    (output.masked_lm.float().log_softmax(-1)[:, 3][USED].sum() * 1e-6).backward()  # as small as real gradients are
    return torch.cat([p.grad.flatten() for p in model.encoder.parameters() if p.grad is not None])


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


# ---------------------------------------------------------------------------------------------------------------------
# Several exits


def losses_at_exits(model, depths, positions):
    inputs = make_inputs()
    exits = model.at_exits(depths=depths, positions=positions, **inputs)
    return [loss_of(model(inputs["input_ids"], at=exit), positions) for exit in exits]


def at_exits(model, shares, positions):
    """Losses and gradients of the exits {depth: share}; None: nothing comes of it."""
    losses = losses_at_exits(model, tuple(shares), positions)
    weighed = [share * loss for share, loss in zip(shares.values(), losses, strict=True) if share is not None]
    return torch.stack(losses).detach(), gradients_of(model, sum(weighed))[1]


def assert_same_exits(model, shares, positions, **settings):
    model.encoder.fast_layers = None
    losses, expected = at_exits(model, shares, positions)
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64, **settings)
    fast_losses, found = at_exits(model, shares, positions)
    with torch.no_grad():
        evaluated = torch.stack(losses_at_exits(model, tuple(shares), positions))
    for each in (fast_losses, evaluated):
        torch.testing.assert_close(each, losses, rtol=1e-12, atol=0)
    assert_close(found, expected)
    return found


BOTH = pytest.mark.parametrize("positions", [None, POSITIONS], ids=["all tokens", "asked"])


@BOTH
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(
    "changes",
    [{}, {"sharing": "none"}, {"sharing": "ffn"}, {"num_hidden_groups": 2}, {"inner_group_num": 2}],
    ids=lambda changes: "-".join(map(str, changes.values())) or "all",
)
def test_exits_have_the_values_and_gradients_of_the_plain_layers(changes, recompute, positions):
    model = make_model(**changes)
    for shares in ({2: 0.3, 4: 0.7}, {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}):
        assert_same_exits(model, shares, positions, recompute=recompute)


@BOTH
@pytest.mark.parametrize("sharing", ["all", "none"])
@pytest.mark.parametrize(
    "shares",
    [
        {1: 0.5, 3: 0.0, 4: 0.5},
        {2: 0.5, 4: 0.0},
        {1: 0.5, 3: None, 4: 0.5},
        {1: 0.4, 2: 0.6, 4: None},  # nothing above the second learns
        {1: None, 2: None, 4: 1.0},
        {1: 0.4, 2: 0.6},  # a pass that ends early
        {4: 0.5, 1: 0.5},  # in any order
    ],
    ids=str,
)
def test_exits_that_nothing_comes_of(shares, sharing, positions):
    """What only they could teach has no gradients rather than zeros."""
    model = make_model(sharing=sharing)
    found = assert_same_exits(model, shares, positions)
    deepest = max(depth for depth, share in shares.items() if share is not None)
    taught = {name.split(".")[2] for name in found if ".ffn." in name}
    assert taught == ({str(number) for number in range(deepest)} if sharing == "none" else {"0"})
    assert_same_exits(model, shares, positions, recompute=True)


@BOTH
@pytest.mark.parametrize("what", ["embeddings", "encoder", "all but ffn.2"])
def test_exits_and_what_is_frozen(what, positions):
    model = make_model(sharing="none")
    if what == "all but ffn.2":  # the first two exits have nothing to learn
        model.encoder.requires_grad_(False)
        model.encoder.ffn[2].requires_grad_(True)
    else:
        freeze(model, what)
    assert_same_exits(model, {1: 0.2, 2: 0.3, 4: 0.5}, positions)
    assert_same_exits(model, {1: 0.2, 2: 0.3, 4: None}, positions)


@BOTH
@pytest.mark.parametrize("per_application", [True, False])
def test_exits_of_a_model_with_adapters(per_application, positions):
    model = adapt(make_model(), rank=4, per_application=per_application)
    assert_same_exits(model, {1: 0.2, 3: 0.3, 4: 0.5}, positions)


@BOTH
def test_exits_of_a_stage_of_a_depth_schedule(positions):
    model = make_model()
    model.encoder.set_depth(3)
    assert_same_exits(model, {1: 0.4, 3: 0.6}, positions)


@BOTH
def test_exits_need_no_product_more(positions):
    counted = []
    for shares in ({4: 1.0}, {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}):
        model = make_model()
        model.encoder.fast_layers = FastLayers(model.encoder, torch.float64, ops := Counting())
        at_exits(model, shares, positions)
        counted.append((ops.to_weights, ops.to_inputs, ops.sums, ops.forward))
    assert counted[0] == counted[1]


def test_exits_without_a_backward_pass_are_let_go(monkeypatch):
    """Their states are inputs of the next layer, which the graph keeps: it must not keep itself."""
    kept = []

    def watch(self, *arguments):
        states, saved = forward(self, *arguments)
        kept.extend(weakref.ref(part) for pair in saved for part in pair)
        return states, saved

    forward = FastLayers.forward
    monkeypatch.setattr(FastLayers, "forward", watch)
    model = make_model()
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    exits = model.at_exits(depths=(1, 2, 4), **make_inputs())
    assert len([part for part in kept if part() is not None]) == 8
    del exits
    assert not any(part() for part in kept)


# ---------------------------------------------------------------------------------------------------------------------
# Adapters, and whatever else is frozen


def adapt(model, **settings):
    """Add an adapter as it is after some training: B is not zero any more."""
    add_adapter(model, AdapterConfig(**{"rank": 3, **settings}))
    for name, parameter in model.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def assert_same_as_plain(model, positions=None, **settings):
    """Loss and gradients of the fast layers are those of the plain ones."""
    model.encoder.fast_layers = None
    loss, expected = loss_and_gradients(model, positions)
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64, **settings)
    fast_loss, found = loss_and_gradients(model, positions)
    assert fast_loss == pytest.approx(loss, rel=1e-12)
    assert_close(found, expected)
    return found


@pytest.mark.parametrize("positions", [None, POSITIONS], ids=["all tokens", "asked"])
@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({}, {}),
        ({}, {"targets": ADAPTER_TARGETS}),
        ({}, {"targets": ("query",)}),
        ({}, {"targets": ("key", "ffn_output")}),
        ({}, {"targets": ("attention_output",)}),
        ({}, {"targets": ("ffn_input",)}),
        ({}, {"rank": 20, "alpha": 7.0}),
        ({}, {"per_application": True, "rank": 8}),
        ({"num_hidden_layers": 1}, {}),
        ({"sharing": "none"}, {}),
        ({"sharing": "ffn"}, {"per_application": True, "rank": 4}),
        ({"num_hidden_groups": 2}, {"targets": ADAPTER_TARGETS}),
        ({"hidden_act": "gelu"}, {}),
    ],
    ids=str,
)
def test_adapters_have_the_values_and_gradients_of_the_plain_layers(changes, settings, positions):
    model = adapt(make_model(**changes), **settings)
    assert FastLayers.fits(model.encoder)
    found = assert_same_as_plain(model, positions)
    of_adapters = [gradient for name, gradient in found.items() if ".lora_" in name]
    assert of_adapters
    assert all(gradient.abs().max() > 1e-6 for gradient in of_adapters)
    assert not any(name.startswith("encoder.") and ".lora_" not in name for name in found)


@pytest.mark.parametrize("per_application", [True, False])
def test_adapters_when_layers_are_recomputed(per_application):
    model = adapt(make_model(), rank=4, per_application=per_application)
    assert_same_as_plain(model, POSITIONS, recompute=True)


@pytest.mark.parametrize("per_application", [True, False])
def test_adapters_at_another_depth(per_application):
    """Applications that are left out have no gradients rather than zeros, which would let weights decay."""
    model = adapt(make_model(), rank=4, per_application=per_application)
    model.set_depth(2)
    found = assert_same_as_plain(model, POSITIONS)
    assert ("encoder.attention.3.query.lora_a" in dict(model.named_parameters())) == per_application
    assert not any(".3." in name for name in found)


@pytest.mark.parametrize("per_application", [True, False])
def test_adapters_learn_the_same_in_a_few_steps(per_application):
    results = []
    for fast in (True, False):
        model = adapt(make_model(), rank=4, per_application=per_application)
        if fast:
            model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
        learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
        before = {name: p.detach().clone() for name, p in learning.items()}
        optimizer = torch.optim.SGD(learning.values(), lr=0.01)
        for _ in range(3):
            loss_and_gradients(model, POSITIONS)
            optimizer.step()
        results.append(learning)
    for name, parameter in results[0].items():
        torch.testing.assert_close(parameter, results[1][name], rtol=1e-8, atol=1e-10, msg=name)
        assert not torch.equal(parameter, before[name]), name


@pytest.mark.parametrize("thawed", ["attention.0.norm", "attention.0.key", "ffn.0.output.bias", "embeddings"])
def test_adapters_beside_something_else_that_learns(thawed):
    model = adapt(make_model(), targets=("query", "value", "ffn_input"))
    for name, parameter in model.encoder.named_parameters():
        if name.startswith(thawed):
            parameter.requires_grad_(True)
    found = assert_same_as_plain(model, POSITIONS)
    assert any(name.startswith(f"encoder.{thawed}") for name in found)


@pytest.mark.parametrize("sharing", ["all", "none"])
@pytest.mark.parametrize("what", ["embeddings", "encoder"])
def test_what_a_run_freezes(what, sharing):
    model = make_model(sharing=sharing)
    freeze(model, what)
    assert_same_as_plain(model, POSITIONS)


class Counting:
    """The plain operations; counts those that frozen weights need none of."""

    def __init__(self):
        self.to_weights, self.to_inputs, self.forward, self.sums = 0, 0, 0, []

    def __getattr__(self, name):
        return getattr(plain_ops, name)

    def add_weight_gradient(self, *arguments):
        self.to_weights += 1
        plain_ops.add_weight_gradient(*arguments)

    def linear(self, *arguments):
        self.forward += 1
        return plain_ops.linear(*arguments)

    def linear_backward(self, *arguments):
        self.to_inputs += 1
        return plain_ops.linear_backward(*arguments)

    def VectorSums(self, count, *more):
        self.sums.append(count)
        return plain_ops.VectorSums(count, *more)


def count_operations(model):
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float64, ops := Counting())
    loss_and_gradients(model, None)
    return ops


def test_no_gradient_is_made_for_what_is_frozen():
    whole = count_operations(make_model())
    assert (whole.to_weights, whole.to_inputs, sorted(whole.sums)) == (4 * 4, 4 * 4, [1, 3, 3, 3])
    # No bias's or norm's sums, only thin ones: A and B of queries to values together, and of both products of the FFN.
    adapted = count_operations(adapt(make_model()))
    assert adapted.to_weights == 0
    assert sorted(adapted.sums) == [32, 32, 32, 48, 48, 96]
    assert adapted.to_inputs == 4 * 4 - 1  # nothing learns below the first attention
    assert count_operations(adapt(make_model(), targets=("ffn_output",))).to_inputs == 3 * 4 + 1

    upper = make_model(sharing="none")
    upper.requires_grad_(False)
    upper.encoder.ffn[2].requires_grad_(True)
    operations = count_operations(upper)
    assert (operations.to_weights, operations.to_inputs) == (2, 4 + 1)

    features = make_model()
    freeze(features, "encoder")
    operations = count_operations(features)
    assert (operations.to_weights, operations.to_inputs, operations.sums) == (0, 0, [])


def bytes_kept(model):
    """What the fast layers keep for a backward pass."""
    layers = FastLayers(model.encoder, torch.float64)
    layers._refresh()
    reach = layers.reach(model.encoder.embeddings.word.weight.requires_grad)
    hidden = torch.randn(40, model.config.hidden_size, dtype=torch.float64)
    _, saved = layers.forward(hidden, STARTS, 19, None, [len(model.encoder.plan)], reach)
    parts = [part for pair in saved for part in pair]
    tensors = [getattr(part, field.name) for part in parts for field in dataclasses.fields(part)]
    storages = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_an_adapter_keeps_half_of_what_full_training_keeps():
    shape = dict(hidden_size=128, intermediate_size=512)
    whole = bytes_kept(make_model(**shape))
    assert bytes_kept(adapt(make_model(**shape))) < 0.6 * whole
    assert bytes_kept(adapt(make_model(**shape), rank=4, per_application=True)) < 0.6 * whole


def test_nothing_is_kept_below_what_learns():
    model = make_model(sharing="none")
    model.requires_grad_(False)
    assert bytes_kept(model) == 0
    model.encoder.ffn[3].requires_grad_(True)
    highest = bytes_kept(model)
    model.encoder.ffn[0].requires_grad_(True)
    assert 0 < 3.9 * highest < bytes_kept(model)


def test_a_frozen_adapter_does_not_learn():
    model = adapt(make_model())
    assert FastLayers(model.encoder, torch.float64).reach(False) is not None
    model.encoder.requires_grad_(False)
    assert FastLayers(model.encoder, torch.float64).reach(False) is None
    model.encoder.ffn[0].output.lora_a.requires_grad_(True)
    found = assert_same_as_plain(model)
    assert [name for name in found if name.startswith("encoder.")] == ["encoder.ffn.0.output.lora_a"]


def test_an_adapter_with_dropout_goes_the_plain_way():
    assert not FastLayers.fits(adapt(make_model(), dropout=0.1).encoder)


def test_evaluation_sees_the_adapters_as_they_are():
    model = adapt(make_model())
    layers = FastLayers(model.encoder, torch.float64)
    for _ in range(2):
        outputs = []
        for model.encoder.fast_layers in (layers, None):
            with torch.inference_mode():
                outputs.append(model(**make_inputs()).masked_lm)
        torch.testing.assert_close(*outputs)
        with torch.no_grad():
            model.encoder.ffn[0].input.lora_b.mul_(2)


@pytest.mark.parametrize("settings", [{}, {"per_application": True}], ids=["one", "per application"])
@pytest.mark.parametrize(
    ("ops", "dtype", "near"),
    [(Fp8Ops(plain_ops), torch.float32, 0.95), (plain_ops, torch.bfloat16, 0.995)],
    ids=["8 bits", "bf16"],
)
def test_adapters_in_low_precision_come_close(ops, dtype, near, settings):
    exact = gradients_through(plain_ops, adapt(eight_bit_model(), **settings))
    coarse = gradients_through(ops, adapt(eight_bit_model(), **settings), dtype)
    assert torch.nn.functional.cosine_similarity(exact, coarse, dim=0) > near
    assert not torch.equal(exact, coarse)
