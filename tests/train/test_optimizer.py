"""LAMB, AdamW and Muon against plain float64 loops written from the published formulas, and torch's own."""

from __future__ import annotations

import copy
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from litebert.errors import CheckpointError, ConfigError, InputError
from litebert.model.config import ModelConfig
from litebert.model.heads import ClassificationModel
from litebert.train.optimizer import (
    AdamW,
    Lamb,
    Muon,
    clip_gradients,
    freeze,
    learning_groups,
    load_moments,
    moments,
    norms,
    orthogonalize,
    parameter_groups,
)

STEPS = 25
LR, BETA1, BETA2, EPS, DECAY = 0.01, 0.9, 0.999, 1e-6, 0.01
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


class Tiny(nn.Module):
    """One of each role, with transformers' awkward name for the second LayerNorm of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.qkv = nn.Linear(4, 12)
        self.full_layer_layer_norm = nn.LayerNorm(4)
        self.output_bias = nn.Parameter(torch.zeros(7))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.full_layer_layer_norm(self.embedding(ids))
        q, k, v = self.qkv(x).chunk(3, -1)
        return (torch.tanh(q) * k + v) @ self.embedding.weight.T + self.output_bias


def tiny(dtype: torch.dtype, seed: int = 0, device: str = "cpu") -> Tiny:
    torch.manual_seed(seed)
    model = Tiny().to(dtype)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(torch.randn(param.shape, dtype=dtype) * 0.1)
    return model.to(device)


def gradients(model: nn.Module, steps: int = STEPS) -> list[dict[str, list[float]]]:
    """A fixed series of gradients per parameter, as flat lists; one parameter rests in every third step."""
    generator = torch.Generator().manual_seed(1)
    series = []
    for step in range(steps):
        grads = {}
        for name, param in model.named_parameters():
            grad = torch.randn(param.numel(), generator=generator, dtype=torch.float64) * 0.3
            if not (name == "output_bias" and step % 3 == 0):
                grads[name] = grad.tolist()
        series.append(grads)
    return series


def train(model: nn.Module, optimizer: torch.optim.Optimizer, series: list[dict[str, list[float]]]) -> None:
    for grads in series:
        for name, param in model.named_parameters():
            param.grad = (
                torch.tensor(grads[name], dtype=torch.float64).to(param).view_as(param) if name in grads else None
            )
        optimizer.step()


def norm(values: list[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in values))


def reference(model: nn.Module, series: list[dict[str, list[float]]], lamb: bool) -> dict[str, list[float]]:
    """The released update, one number at a time in Python floats."""
    weights = {name: param.detach().double().flatten().tolist() for name, param in model.named_parameters()}
    m = {name: [0.0] * len(weight) for name, weight in weights.items()}
    v = {name: [0.0] * len(weight) for name, weight in weights.items()}
    for grads in series:
        for name, grad in grads.items():
            weight = weights[name]
            exempt = "bias" in name or "layer_norm" in name
            update = []
            for i, g in enumerate(grad):
                m[name][i] = BETA1 * m[name][i] + (1 - BETA1) * g
                v[name][i] = BETA2 * v[name][i] + (1 - BETA2) * g * g
                step = m[name][i] / (math.sqrt(v[name][i]) + EPS)
                update.append(step if exempt else step + DECAY * weight[i])
            ratio = 1.0
            if lamb and not exempt and norm(weight) > 0 and norm(update) > 0:
                ratio = norm(weight) / norm(update)
            for i in range(len(weight)):
                weight[i] -= ratio * LR * update[i]
    return weights


def distance(model: nn.Module, expected: dict[str, list[float]]) -> float:
    return max(
        max(abs(a - b) for a, b in zip(param.flatten().tolist(), expected[name], strict=True))
        for name, param in model.named_parameters()
    )


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
@pytest.mark.parametrize("kind", [Lamb, AdamW])
@pytest.mark.parametrize("device", DEVICES)
def test_released_optimisers_equal_the_reference(kind, dtype, bound, device):
    model = tiny(dtype, device=device)
    series = gradients(model)
    expected = reference(model, series, lamb=kind is Lamb)
    train(model, kind(parameter_groups(model, DECAY), lr=LR, betas=(BETA1, BETA2), eps=EPS), series)
    assert distance(model, expected) < bound
    assert distance(tiny(dtype), expected) > 1e-2  # the weights did move


def test_bias_correction_gives_torchs_adamw():
    ours, theirs = tiny(torch.float64), tiny(torch.float64)
    series = gradients(ours)
    decayed = [theirs.embedding.weight, theirs.qkv.weight]
    exempt = [theirs.qkv.bias, theirs.output_bias, *theirs.full_layer_layer_norm.parameters()]
    groups = [{"params": decayed}, {"params": exempt, "weight_decay": 0.0}]
    train(ours, AdamW(parameter_groups(ours, 0.1), lr=LR, eps=1e-8, bias_correction=True), series)
    train(theirs, torch.optim.AdamW(groups, lr=LR, eps=1e-8, weight_decay=0.1), series)
    for mine, reference_param in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, reference_param, rtol=0, atol=1e-13)


class Shared(nn.Module):
    """An encoder with hidden matrices both wide and tall, applied twice, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict(
            {
                "embeddings": nn.Embedding(7, 3),
                "projection": nn.Linear(3, 4),
                "input": nn.Linear(4, 9),
                "output": nn.Linear(9, 4),
                "norm": nn.LayerNorm(4),
                "pooler": nn.Linear(4, 4),
            }
        )
        self.head = nn.Linear(4, 2)


HIDDEN = ["encoder.projection.weight", "encoder.input.weight", "encoder.output.weight"]


def muon(model: nn.Module, **settings: object) -> Muon:
    return Muon(parameter_groups(model, DECAY, muon=True), **settings)


def muon_reference(weight: np.ndarray, grads: list[np.ndarray], momentum: float) -> np.ndarray:
    """One matrix, one step at a time, in numpy's float64."""
    m = np.zeros_like(weight)
    for grad in grads:
        m = momentum * m + (1 - momentum) * grad
        x = (1 - momentum) * grad + momentum * m
        x = x / (np.sqrt((x * x).sum()) + 1e-7)
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
        weight = weight - LR * (0.2 * math.sqrt(max(weight.shape)) * x + DECAY * weight)
    return weight


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_muon_equals_the_reference_on_hidden_matrices_and_adamw_elsewhere(dtype, bound):
    torch.manual_seed(0)
    ours, adam = Shared().to(dtype), Shared().to(dtype)
    adam.load_state_dict(ours.state_dict())
    series = gradients(ours)
    expected = {
        name: muon_reference(
            ours.get_parameter(name).detach().double().numpy(),
            [np.array(grads[name]).reshape(ours.get_parameter(name).shape) for grads in series],
            0.95,
        )
        for name in HIDDEN
    }
    train(ours, muon(ours, lr=LR), series)
    train(adam, AdamW(parameter_groups(adam, DECAY), lr=LR), series)
    for name, param in ours.named_parameters():
        if name in HIDDEN:
            assert np.abs(param.detach().double().numpy() - expected[name]).max() < bound, name
        else:
            assert torch.equal(param, adam.get_parameter(name)), name


TORCHS_MUON = """
import torch
from litebert.train.optimizer import Muon
torch.manual_seed(0)
start, grads = torch.randn(24, 16), torch.randn(10, 24, 16)
ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
mine = Muon([{"params": [ours], "orthogonal": True}], lr=0.02, weight_decay=0.01)
other = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
for grad in grads:
    ours.grad, theirs.grad = grad.clone(), grad.clone()
    mine.step(), other.step()
print(((ours - theirs).norm() / (ours - start).norm()).item())
"""


def test_muon_agrees_with_torchs_within_bfloat16():
    # In a process of its own: torch's computes in bfloat16, which some CPUs announce and do not have.
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path), "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    done = subprocess.run([sys.executable, "-c", TORCHS_MUON], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.02


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48), (1, 8)])
def test_orthogonalized_matrices_have_singular_values_near_one(shape):
    generator = torch.Generator().manual_seed(2)
    u, _, vt = torch.linalg.svd(torch.randn(shape, generator=generator), full_matrices=False)
    stretched = u @ torch.diag(torch.linspace(0.2, 1, min(shape))) @ vt
    plain, stacked = orthogonalize([stretched])[0], orthogonalize([stretched.mT, stretched])[1]
    values = torch.linalg.svdvals(plain)
    assert 0.65 < values.min() <= values.max() < 1.25
    torch.testing.assert_close(plain, stacked)  # a neighbour in the stack changes nothing


def test_muon_takes_hidden_matrices_only():
    groups = parameter_groups(Shared(), 0.02, muon=True)
    assert [name for name, _ in groups[0]["params"]] == HIDDEN
    assert groups[0]["orthogonal"]
    assert groups[0]["weight_decay"] == 0.02
    assert not any(group.get("orthogonal") for group in groups[1:])
    assert sum(len(group["params"]) for group in groups) == len(list(Shared().parameters()))
    without = parameter_groups(Shared(), 0.02)
    assert not any(group.get("orthogonal") for group in without)


def test_muon_on_the_encoder():
    from litebert.model.config import preset
    from litebert.model.heads import PretrainingModel

    model = PretrainingModel(preset("albert-tiny"))
    names = [name for name, _ in parameter_groups(model, muon=True)[0]["params"]]
    block = [f"encoder.attention.0.{part}.weight" for part in ("query", "key", "value", "output")]
    assert names == ["encoder.projection.weight", *block, "encoder.ffn.0.input.weight", "encoder.ffn.0.output.weight"]


def test_muon_state_round_trip_is_bit_exact():
    torch.manual_seed(0)
    model, other = Shared(), Shared()
    series = gradients(model)
    optimizer = muon(model, lr=LR)
    train(model, optimizer, series[:10])
    other.load_state_dict(model.state_dict())
    resumed = muon(other, lr=LR)
    load_moments(resumed, moments(optimizer))
    assert "encoder.input.weight.v" not in moments(optimizer)  # one moment for a matrix
    train(model, optimizer, series[10:])
    train(other, resumed, series[10:])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    saved = moments(optimizer)
    saved["encoder.input.weight.v"] = saved.pop("encoder.input.weight.m")
    with pytest.raises(CheckpointError, match=r"encoder\.input\.weight lacks m"):
        load_moments(resumed, saved)


def test_lamb_ratio_is_one_where_a_norm_is_zero():
    zero = nn.Parameter(torch.zeros(2, 2))
    still = nn.Parameter(torch.ones(2, 2))
    optimizer = Lamb([zero, still], lr=LR, weight_decay=0.0)
    zero.grad, still.grad = torch.ones(2, 2), torch.zeros(2, 2)
    optimizer.step()
    # m/(sqrt(v)+eps) = .1/(sqrt(.001)+1e-6), unscaled
    torch.testing.assert_close(zero.detach(), torch.full((2, 2), -LR * 0.1 / (math.sqrt(0.001) + 1e-6)))
    assert torch.equal(still.detach(), torch.ones(2, 2))


def test_lamb_does_not_clip_the_ratio():
    big = nn.Parameter(torch.full((4, 4), 1000.0))
    big.grad = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    before = big.detach().clone()
    Lamb([big], lr=LR).step()
    assert (big.detach() - before).norm().item() == pytest.approx(LR * before.norm().item(), rel=1e-4)


def test_parameters_without_gradient_are_left_alone():
    model = tiny(torch.float32)
    before = model.qkv.weight.detach().clone()
    optimizer = Lamb(parameter_groups(model), lr=LR)
    model.embedding.weight.grad = torch.randn_like(model.embedding.weight)
    optimizer.step()
    assert torch.equal(model.qkv.weight, before)
    assert set(moments(optimizer)) == {"embedding.weight.m", "embedding.weight.v"}


@pytest.mark.parametrize("kind", [Lamb, AdamW])
@pytest.mark.parametrize("bias_correction", [False, True])
@pytest.mark.parametrize("form", ["state_dict", "moments"])
@pytest.mark.parametrize("device", DEVICES)
def test_state_round_trip_is_bit_exact(kind, bias_correction, form, device):
    model = tiny(torch.float32, device=device)
    series = gradients(model)
    optimizer = kind(parameter_groups(model), lr=LR, bias_correction=bias_correction)
    train(model, optimizer, series[:10])
    other = tiny(torch.float32, seed=5, device=device)
    other.load_state_dict(model.state_dict())
    resumed = kind(parameter_groups(other), lr=LR, bias_correction=bias_correction)
    if form == "state_dict":
        resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch shares the tensors
    else:
        load_moments(resumed, moments(optimizer))
    assert moments(resumed).keys() == moments(optimizer).keys()
    train(model, optimizer, series[10:])
    train(other, resumed, series[10:])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(moments(optimizer)[key], value) for key, value in moments(resumed).items())


def test_loading_foreign_moments_is_an_error():
    model = tiny(torch.float32)
    optimizer = Lamb(parameter_groups(model))
    train(model, optimizer, gradients(model, 1))
    saved = moments(optimizer)
    with pytest.raises(CheckpointError, match=r"qkw\.weight\.m: the model has no such parameter; did you mean 'qkv"):
        load_moments(optimizer, {"qkw.weight.m": torch.zeros(1)})
    with pytest.raises(CheckpointError, match=re.escape("qkv.weight.v has shape (3,), the parameter (12, 4)")):
        load_moments(optimizer, saved | {"qkv.weight.v": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"qkv\.weight lacks v"):
        load_moments(optimizer, {key: value for key, value in saved.items() if key != "qkv.weight.v"})
    with pytest.raises(InputError, match="parameter_groups"):
        moments(Lamb([nn.Parameter(torch.zeros(2, 2))]))


def released_rule(name: str) -> bool:
    """The released code's exclusion, by TF names: LayerNorm, layer_norm, bias."""
    return any(word in name for word in ("LayerNorm", "layer_norm", "bias"))


@pytest.mark.parametrize("kind", ["albert", "bert"])
def test_roles_on_transformers_models(kind):
    import transformers

    small = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    if kind == "albert":
        config = transformers.AlbertConfig(vocab_size=11, embedding_size=4, **small)
        model = transformers.AlbertForPreTraining(config)
    else:
        model = transformers.BertForPreTraining(transformers.BertConfig(vocab_size=11, **small))
    plain, exempt = parameter_groups(model, weight_decay=0.02)
    assert {name for name, _ in exempt["params"]} == {n for n, _ in model.named_parameters() if released_rule(n)}
    if kind == "albert":  # the name that hand-made lists miss
        assert any(name.endswith("full_layer_layer_norm.weight") for name, _ in exempt["params"])
    assert {name for name, _ in plain["params"]} == {n for n, _ in model.named_parameters() if not released_rule(n)}
    assert (plain["weight_decay"], plain["adapt"]) == (0.02, True)
    assert (exempt["weight_decay"], exempt["adapt"]) == (0.0, False)
    # A tied matrix is one parameter.
    params = [param for group in (plain, exempt) for _, param in group["params"]]
    assert len(params) == len({id(param) for param in params})


def test_the_released_settings_are_the_defaults():
    for optimizer in (Lamb(parameter_groups(tiny(torch.float32))), AdamW(parameter_groups(tiny(torch.float32)))):
        plain, exempt = optimizer.param_groups
        assert (plain["betas"], plain["eps"], plain["bias_correction"]) == ((0.9, 0.999), 1e-6, False)
        assert (plain["weight_decay"], exempt["weight_decay"]) == (0.01, 0.0)


def test_frozen_parameters_are_left_out():
    model = tiny(torch.float32)
    model.embedding.weight.requires_grad_(False)
    names = [name for group in parameter_groups(model) for name, _ in group["params"]]
    assert sorted(names) == sorted(name for name, param in model.named_parameters() if param.requires_grad)
    assert "embedding.weight" not in names


@pytest.mark.parametrize("device", DEVICES)
def test_clip_scales_to_the_global_norm(device):
    model = tiny(torch.float64, device=device)
    series = gradients(model, 1)
    train(model, torch.optim.SGD(model.parameters(), lr=0.0), series)
    before = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    expected = norm([x for values in series[0].values() for x in values])
    total = clip_gradients(model.parameters(), 1.0)
    assert total.item() == pytest.approx(expected, rel=1e-12)
    assert expected > 1
    for name, grad in before.items():
        torch.testing.assert_close(model.get_parameter(name).grad, grad / expected, rtol=1e-12, atol=0)
    after = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    for limit in (2.0, math.inf):  # below the limit, or without one: not a bit changes
        clip_gradients(model.parameters(), limit)
        assert all(torch.equal(model.get_parameter(name).grad, grad) for name, grad in after.items())


@pytest.mark.parametrize("device", DEVICES)
def test_norm_is_exact_for_large_matrices(device):
    # On a CPU torch's own float32 norm is off by more than 1e-3 here.
    constant = torch.full((30000, 128), 0.02, device=device)
    assert norms([constant]).item() == pytest.approx(0.02 * math.sqrt(constant.numel()), rel=1e-6)


def test_mistakes_are_named():
    weight = nn.Parameter(torch.zeros(4, 4))
    with pytest.raises(ConfigError, match=r"optim\.lr: must be >= 0, got -1"):
        Lamb([weight], lr=-1.0)
    with pytest.raises(ConfigError, match=r"optim\.beta2 \(betas\): must be in \[0, 1\), got 1\.0"):
        AdamW([weight], betas=(0.9, 1.0))
    with pytest.raises(ConfigError, match=r"optim\.momentum: must be in \[0, 1\), got 1\.0"):
        Muon([weight], momentum=1.0)
    with pytest.raises(InputError, match=r"float32 master copy, got torch\.bfloat16"):
        Lamb([nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))])


SHAPE = dict(
    vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32
)


def factors(model, **options):
    groups = learning_groups(model, 0.01, **options)
    return {name: group["lr_factor"] for group in groups for name, _ in group["params"]}, groups


def test_every_parameter_is_in_one_group_and_the_head_has_its_factor():
    model = ClassificationModel(ModelConfig(**SHAPE))
    found, groups = factors(model, head_factor=10.0)
    assert sorted(found) == sorted(name for name, _ in model.named_parameters())
    assert {name for name, factor in found.items() if factor == 10.0} == {"classifier.weight", "classifier.bias"}
    # Decay stays as it was: none for biases and norms, whatever their learning rate.
    decay = {name: group["weight_decay"] for group in groups for name, _ in group["params"]}
    assert decay["classifier.weight"] == 0.01
    assert decay["classifier.bias"] == 0.0


def test_lower_blocks_of_an_unshared_model_learn_more_slowly():
    found, _ = factors(ClassificationModel(ModelConfig(**SHAPE, sharing="none")), block_decay=0.5)
    assert [found[f"encoder.ffn.{block}.input.weight"] for block in range(3)] == [0.25, 0.5, 1.0]
    assert found["encoder.embeddings.word.weight"] == 0.125
    assert found["encoder.pooler.weight"] == found["classifier.weight"] == 1.0


def test_a_shared_attention_serves_all_depths_at_the_full_rate():
    found, _ = factors(ClassificationModel(ModelConfig(**SHAPE, sharing="attention")), block_decay=0.5)
    assert found["encoder.attention.0.query.weight"] == 1.0
    assert found["encoder.ffn.0.input.weight"] == 0.25


def test_one_shared_layer_has_no_lower_layers():
    with pytest.raises(ConfigError, match="one block, applied at every depth"):
        learning_groups(ClassificationModel(ModelConfig(**SHAPE)), 0.01, block_decay=0.9)


def test_freezing():
    model = ClassificationModel(ModelConfig(**SHAPE))
    freeze(model, "embeddings")
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {n for n, _ in model.named_parameters() if n.startswith(("encoder.emb", "encoder.proj"))}
    freeze(model, "encoder", new=["encoder.pooler.weight", "encoder.pooler.bias"])
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learning == {"encoder.pooler.weight", "encoder.pooler.bias", "classifier.weight", "classifier.bias"}
    freeze(model, "none")
    assert all(p.requires_grad for p in model.parameters())
