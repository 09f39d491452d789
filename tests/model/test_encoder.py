"""The encoder: dropout where the original has it and nowhere else, init, packed = padded, errors."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_shape import tiny_shape
from torch import nn

from litebert.errors import InputError
from litebert.model import encoder as encoder_module
from litebert.model.config import vary
from litebert.model.encoder import Encoder, attend_in_rows, attend_packed, attend_plainly, attend_varlen
from litebert.model.heads import (
    MODELS,
    AnswerModel,
    ClassificationModel,
    MultipleChoiceModel,
    PretrainingModel,
    SpanModel,
    TokenClassificationModel,
)

TINY = tiny_shape(vocab_size=50, num_hidden_layers=3)
IDS = torch.arange(20).view(2, 10) % 50


def record_dropouts(model: nn.Module, monkeypatch) -> list[tuple[str, float, torch.Size]]:
    """Run in training mode and note each dropout that is really applied: module, rate, shape."""
    calls: list[tuple[str, float, torch.Size]] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(
                lambda m, args, out, name=name: calls.append((name, m.p, args[0].shape)) if m.p else None
            )
    real = encoder_module.F.scaled_dot_product_attention

    def attention(query, key, value, attn_mask=None, dropout_p=0.0):
        if dropout_p:
            calls.append(("probabilities", dropout_p, query.shape))
        return real(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p)

    monkeypatch.setattr(encoder_module.F, "scaled_dot_product_attention", attention)
    model.train()
    model(IDS)
    return calls


def test_each_dropout_site(monkeypatch):
    config = vary(TINY, hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.5)
    calls = record_dropouts(Encoder(config), monkeypatch)
    narrow, wide = torch.Size([2, 10, 8]), torch.Size([2, 10, 16])
    one_layer = [
        ("probabilities", 0.5, torch.Size([2, 2, 10, 8])),
        ("attention.0.dropout", 0.25, wide),
        ("ffn.0.dropout", 0.25, wide),  # the one transformers lost
    ]
    # In E, before the projection; then the three of each application; none after the last layer or in the pooler.
    assert calls == [("embeddings.dropout", 0.25, narrow), *one_layer * 3]


def test_ffn_dropout_drops_the_output_before_the_residual():
    config = vary(TINY, hidden_dropout_prob=0.5)
    block = Encoder(config).ffn[0].train()
    hidden = torch.randn(1, 200, 16)
    dropped: list[torch.Tensor] = []
    block.dropout.register_forward_hook(lambda m, args, out: dropped.append((args[0], out)))
    normed: list[torch.Tensor] = []
    block.norm.register_forward_hook(lambda m, args, out: normed.append(args[0]))
    block(hidden)
    before, after = dropped[0]
    zeros = (after == 0).float().mean()
    assert 0.4 < zeros < 0.6
    torch.testing.assert_close(after[after != 0], 2 * before[after != 0])
    torch.testing.assert_close(normed[0], hidden + after)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (PretrainingModel, []),  # no dropout before the sentence head (transformers adds one)
        (ClassificationModel, ["dropout"]),
        (TokenClassificationModel, ["dropout"]),
        (SpanModel, []),
        (AnswerModel, ["dropout"]),
    ],
)
def test_head_dropouts(model, expected, monkeypatch):
    calls = record_dropouts(model(vary(TINY, classifier_dropout_prob=0.3)), monkeypatch)
    assert [(name, rate) for name, rate, _ in calls] == [(name, 0.3) for name in expected]


def test_multiple_choice_dropout(monkeypatch):
    model = MultipleChoiceModel(vary(TINY, classifier_dropout_prob=0.3)).train()
    seen = []
    model.dropout.register_forward_hook(lambda m, args, out: seen.append(m.p))
    model(IDS.view(1, 2, 10))
    assert seen == [0.3]


def test_no_dropout_without_training():
    model = Encoder(vary(TINY, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)).eval()
    assert torch.equal(model(IDS).hidden, model(IDS).hidden)


@pytest.mark.parametrize("packed", [False, True])
def test_recomputed_layers_give_the_same_gradients_from_less_memory(packed):
    """Dropout included: the second forward pass draws what the first one drew."""
    config = vary(TINY, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3, num_hidden_layers=6)
    torch.manual_seed(0)
    model = Encoder(config).train()
    inputs = {}
    if packed:
        ids, positions, starts = pack([IDS[0], IDS[1, :4]])
        inputs = dict(position_ids=positions, starts=starts)
    gradients, kept = [], []
    for model.recompute in (False, True):
        model.zero_grad()
        sizes: dict[int, int] = {}

        def keep(tensor, sizes=sizes):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model(ids if packed else IDS, **inputs).pooled.sin().sum()
        loss.backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
        kept.append(sum(sizes.values()))
    assert kept[1] < kept[0] / 2
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)
    model.recompute = True
    with torch.no_grad():
        assert not model.eval()(IDS).pooled.requires_grad


def test_initial_weights_are_a_normal_cut_at_two_sigma():
    torch.manual_seed(0)
    model = PretrainingModel(vary(TINY, hidden_size=128, embedding_size=64, vocab_size=2000, intermediate_size=512))
    matrices = {n: p for n, p in model.named_parameters() if p.ndim == 2}
    sample = torch.cat([p.detach().flatten() for p in matrices.values()])
    assert len(sample) > 200_000
    assert float(sample.abs().max()) <= 0.04
    # Standard deviation of a normal cut at two sigma: sqrt(1 - 2 * 2 * pdf(2) / (cdf(2) - cdf(-2))).
    pdf = math.exp(-2) / math.sqrt(2 * math.pi)
    expected = 0.02 * math.sqrt(1 - 4 * pdf / math.erf(2 / math.sqrt(2)))
    assert abs(float(sample.std()) - expected) < 0.01 * expected
    assert float((sample.abs() > 0.0385).float().mean()) > 0  # it is cut there, not narrower
    assert abs(float(sample.mean())) < 2e-4
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            assert torch.equal(parameter, torch.full_like(parameter, float(name.endswith("norm.weight")))), name
    # The pad row is like any other.
    assert float(model.encoder.embeddings.word.weight[0].detach().abs().max()) > 0


@pytest.mark.parametrize("head", MODELS)
def test_every_head_begins_as_released(head):
    """Truncated normal for the matrices, zeros for the biases, ones for the norms: torch's own init is another."""
    torch.manual_seed(0)
    model = MODELS[head](vary(TINY, hidden_size=128, num_attention_heads=2))
    own = {name: p.detach() for name, p in model.named_parameters() if not name.startswith("encoder.")}
    assert own or head == "encoder"
    for name, parameter in own.items():
        if parameter.ndim == 2:
            assert float(parameter.abs().max()) <= 0.04, name
            assert 0.6 * 0.0176 < float(parameter.std()) < 1.4 * 0.0176, name
        else:
            assert torch.equal(parameter, torch.full_like(parameter, float(name.endswith("norm.weight")))), name


def test_the_answer_head_searches_five_ends_of_five_starts():
    found = AnswerModel(TINY).eval()(IDS)
    assert (found.start_index.shape, found.end_index.shape) == ((2, 5), (2, 5, 5))


def test_the_pad_row_is_trained():
    model = Encoder(TINY)
    model(torch.zeros(1, 4, dtype=torch.long)).hidden.sin().sum().backward()
    assert float(model.embeddings.word.weight.grad[0].abs().max()) > 0


def test_projection_exists_only_where_needed():
    assert Encoder(TINY).projection.bias is not None
    assert Encoder(vary(TINY, embedding_size=16)).projection is None


@pytest.mark.parametrize(("name", "reference"), [("gelu_new", "tanh"), ("gelu", "erf")])
def test_gelu_forms(name, reference):
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    cube = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    exact = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    actual = encoder_module.activation(name)(x)
    torch.testing.assert_close(actual, cube if reference == "tanh" else exact)
    assert float((cube - exact).abs().max()) > 1e-5


def pack(rows: list[torch.Tensor]):
    ids = torch.cat(rows)
    positions = torch.cat([torch.arange(len(row)) for row in rows])
    starts = torch.tensor([0, *torch.tensor([len(row) for row in rows]).cumsum(0)], dtype=torch.int32)
    return ids, positions, starts


def test_packed_equals_padded():
    torch.manual_seed(0)
    model = Encoder(TINY).double()
    lengths = (10, 3, 7)
    rows = [torch.randint(0, 50, (n,)) for n in lengths]
    padded, mask = torch.zeros(3, 10, dtype=torch.long), torch.zeros(3, 10)
    for i, row in enumerate(rows):
        padded[i, : len(row)], mask[i, : len(row)] = row, 1
    segments = torch.randint(0, 2, (3, 10))
    expected = model(padded, segment_ids=segments, attention_mask=mask)
    ids, positions, starts = pack(rows)
    packed_segments = segments[mask.bool()]
    # Two unused sequences at the end, as the loader's static shapes have them.
    starts = torch.cat([starts, starts[-1:], starts[-1:]])
    actual = model(ids, segment_ids=packed_segments, position_ids=positions, starts=starts)
    torch.testing.assert_close(actual.hidden, expected.hidden[mask.bool()])
    torch.testing.assert_close(actual.pooled[:3], expected.pooled)
    gradients = []
    for pooled in (expected.pooled, actual.pooled[:3]):
        model.zero_grad()
        pooled.sin().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_packed_attention_dropout_is_applied():
    q = torch.randn(6, 2, 4)
    starts = torch.tensor([0, 4, 6], dtype=torch.int32)
    torch.manual_seed(0)
    plain = attend_packed(starts, 4, 0.0)(q, q, q)
    dropped = attend_packed(starts, 4, 0.5)(q, q, q)
    assert not torch.allclose(plain, dropped)


def test_a_fully_masked_row_stays_finite():
    model = Encoder(TINY).eval()
    assert torch.isfinite(model(IDS, attention_mask=torch.zeros(2, 10)).hidden).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(input_ids=torch.tensor([[1, 50]])), "input_ids holds 50; the model takes 0 to 49"),
        (dict(input_ids=torch.tensor([[-1, 3]])), "input_ids holds -1"),
        (dict(input_ids=torch.ones(1, 17, dtype=torch.long)), "17 tokens, the model takes 16"),
        (dict(input_ids=torch.ones(3, dtype=torch.long)), r"input ids are \[batch, sequence\]"),
        (dict(input_ids=torch.ones(1, 0, dtype=torch.long)), "empty"),
        (dict(input_ids=IDS, segment_ids=torch.full_like(IDS, 2)), "segment_ids holds 2"),
        (dict(input_ids=IDS, position_ids=torch.full_like(IDS, 16)), "position_ids holds 16"),
        (dict(input_ids=torch.ones(4, dtype=torch.long), starts=torch.tensor([0, 4])), "needs position_ids"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Encoder(TINY)(**arguments)


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (torch.tensor([0, 2, 3]), "starts run from 0 to 3; they must run from 0 to the number of packed tokens, 4"),
        (torch.tensor([0, 2, 5]), "starts run from 0 to 5"),
        (torch.tensor([1, 4]), "starts run from 1 to 4"),
        (torch.tensor([0, 3, 2, 4]), "starts must never decrease"),
        (torch.tensor([4]), r"starts must be \[sequences \+ 1\] whole numbers, got \[1\]"),
        (torch.tensor([[0, 4]]), r"got \[1, 2\]"),
        (torch.tensor([0.0, 4.0]), "of torch.float32"),
    ],
)
def test_starts_that_do_not_cut_the_packed_tokens_are_refused(starts, message):
    ids = torch.ones(4, dtype=torch.long)
    with pytest.raises(InputError, match=message):
        Encoder(TINY)(ids, position_ids=torch.zeros_like(ids), starts=starts)


def test_packed_attention_by_way_of_rows():
    """What a GPU does with dropout or in fp32: the same numbers as one sequence after the other."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 11, 2, 4)
    starts = torch.tensor([0, 4, 5, 11, 11], dtype=torch.int32)
    expected = attend_packed(starts, 6, 0.0)(query, key, value)
    torch.testing.assert_close(attend_in_rows(query, key, value, starts, 6, 0.0), expected)
    dropped = attend_in_rows(query, key, value, starts, 6, 0.5)
    assert dropped.isfinite().all()
    assert not torch.allclose(dropped, expected)


def test_attention_by_the_formula():
    query, key, value = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(attend_plainly(query, key, value, 0.0), expected)
    torch.manual_seed(0)
    dropped = [attend_plainly(query, key, value, 0.5) for _ in range(2000)]
    assert not torch.equal(dropped[0], dropped[1])
    torch.testing.assert_close(torch.stack(dropped).mean(0), expected, atol=0.1, rtol=0)


def test_packed_attention_by_the_gpus_kernel_with_heads_of_any_width(monkeypatch):
    """ALBERT-tiny's heads are 26 wide; the kernel takes multiples of 8."""

    def kernel(query, key, value, starts, k_starts, max_q, max_k, *, scale):
        assert query.shape[-1] % 8 == 0
        assert starts is k_starts
        pieces = zip(*(x.split(starts.diff().tolist()) for x in (query, key, value)), strict=True)
        scores = [(torch.einsum("qad,kad->aqk", q, k) * scale, v) for q, k, v in pieces]
        return torch.cat([torch.einsum("aqk,kad->qad", score.softmax(-1), v) for score, v in scores])

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    starts = torch.tensor([0, 4, 5, 11], dtype=torch.int32)
    for width in (26, 32):
        query, key, value = torch.randn(3, 11, 2, width)
        expected = attend_packed(starts, 6, 0.0)(query, key, value)
        torch.testing.assert_close(attend_varlen(query, key, value, starts, 6), expected)
