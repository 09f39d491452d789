"""Adapters against the real PEFT on the real transformers, both ways; merging; what learns."""

from __future__ import annotations

import json

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from litebert.errors import CheckpointError, ConfigError
from litebert.model.adapter import (
    AdaptedLinear,
    AdapterConfig,
    add_adapter,
    load_adapter,
    merge_adapter,
    save_adapter,
)
from litebert.model.config import ADAPTER_TARGETS, ModelConfig
from litebert.model.heads import MODELS
from litebert.model.hub import load_model, save_model

SHAPE = dict(vocab_size=50, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40)
IDS = torch.arange(14).view(2, 7) + 5
AUTO = {
    "classification": transformers.AutoModelForSequenceClassification,
    "token-classification": transformers.AutoModelForTokenClassification,
    "span": transformers.AutoModelForQuestionAnswering,
    "encoder": transformers.AutoModel,
}
SAVED = {"classification": ["classifier"], "token-classification": ["classifier"], "span": ["qa_outputs"]}


def make(head: str, kind: str = "albert"):
    torch.manual_seed(0)
    labels = {"labels": ("a", "b", "c")} if "classification" in head else {}
    sizes = {"model_type": "bert", "sharing": "none", "embedding_size": 24} if kind == "bert" else {"embedding_size": 8}
    model = MODELS[head](ModelConfig(**SHAPE, **sizes, **labels, max_position_embeddings=16, initializer_range=0.2))
    return model.eval()


def randomize(model) -> None:
    """As after some training: B is not zero any more."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, AdaptedLinear):
            torch.nn.init.normal_(module.lora_b, std=0.3)


def outputs(model) -> list[torch.Tensor]:
    with torch.no_grad():
        found = model(IDS)
    if isinstance(found, torch.Tensor):
        return [found]
    return [part for part in found if part is not None]


def theirs(model) -> list[torch.Tensor]:
    with torch.no_grad():
        return [part for part in model(input_ids=IDS).to_tuple() if part is not None]


@pytest.mark.parametrize("kind", ["albert", "bert"])
@pytest.mark.parametrize("head", AUTO)
def test_peft_opens_ours_with_equal_outputs(tmp_path, head, kind):
    model = make(head, kind)
    save_model(model, tmp_path / "base")
    before = outputs(model)
    add_adapter(model, AdapterConfig(rank=4, alpha=6))
    for now, was in zip(outputs(model), before, strict=True):
        assert torch.equal(now, was)  # B starts at zero
    randomize(model)
    if "classification" in head:
        torch.nn.init.normal_(model.classifier.weight)  # the head of the adapter, not the base model's
    save_adapter(model, tmp_path / "adapter", base=str(tmp_path / "base"))
    base = AUTO[head].from_pretrained(tmp_path / "base")
    opened = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    for ours, other in zip(outputs(model), theirs(opened), strict=True):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-5)
    assert (outputs(model)[0] - before[0]).abs().max() > 0.1


def train_by_peft(folder, head, spread, **settings):
    """An adapter of the model in folder/base as if PEFT had trained it, saved in folder/adapter."""
    config = peft.LoraConfig(**settings, modules_to_save=SAVED.get(head))
    model = peft.get_peft_model(AUTO[head].from_pretrained(folder / "base"), config).eval()
    torch.manual_seed(2)
    for name, parameter in model.named_parameters():
        if "lora_B" in name or "modules_to_save" in name:
            torch.nn.init.normal_(parameter, std=spread)
    model.save_pretrained(folder / "adapter")
    return model


@pytest.mark.parametrize("head", AUTO)
def test_ours_opens_pefts_with_equal_outputs(tmp_path, head):
    save_model(make(head), tmp_path / "base")
    other = train_by_peft(tmp_path, head, 0.3, r=3, lora_alpha=5, target_modules=["key", "ffn", "dense"])
    model = load_model(tmp_path / "base", head).eval()
    settings = load_adapter(model, tmp_path / "adapter")
    for ours, expected in zip(outputs(model), theirs(other), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    assert settings == AdapterConfig(3, 5.0, 0.0, ("attention_output", "key", "ffn_input"))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("head", AUTO)
def test_rank_stabilised_adapters_are_those_of_peft(tmp_path, head, merged):
    """rsLoRA: alpha / sqrt(rank), here 16 / sqrt(3); then what we save of it, in PEFT again."""
    save_model(make(head), tmp_path / "base")
    asked = {"r": 3, "lora_alpha": 16, "use_rslora": True, "target_modules": ["query", "ffn"]}
    other = train_by_peft(tmp_path, head, 0.1, **asked)
    model = load_model(tmp_path / "base", head).eval()
    settings = load_adapter(model, tmp_path / "adapter")
    assert settings == AdapterConfig(3, 16.0, targets=("query", "ffn_input"), rslora=True)
    assert settings.scale == 16 / 3**0.5
    save_adapter(model, tmp_path / "ours", base=str(tmp_path / "base"))
    if merged:
        merge_adapter(model)
    expected = theirs(other)
    for ours, theirs_ in zip(outputs(model), expected, strict=True):
        torch.testing.assert_close(ours, theirs_, atol=1e-5, rtol=0)
    again = peft.PeftModel.from_pretrained(AUTO[head].from_pretrained(tmp_path / "base"), tmp_path / "ours").eval()
    for now, was in zip(theirs(again), expected, strict=True):
        torch.testing.assert_close(now, was, atol=1e-5, rtol=0)
    written = json.loads((tmp_path / "ours" / "adapter_config.json").read_text(encoding="utf-8"))
    assert (written["use_rslora"], written["lora_alpha"], written["r"]) == (True, 16.0, 3)


def test_peft_opens_an_rslora_of_ours(tmp_path):
    model = make("classification")
    save_model(model, tmp_path / "base")
    add_adapter(model, AdapterConfig(rank=8, alpha=16, rslora=True))
    randomize(model)
    save_adapter(model, tmp_path / "adapter", base=str(tmp_path / "base"))
    base = AUTO["classification"].from_pretrained(tmp_path / "base")
    opened = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    torch.testing.assert_close(outputs(model)[0], theirs(opened)[0], atol=1e-5, rtol=1e-5)
    scales = [getattr(layer, "scaling", None) for layer in opened.modules()]  # attention has one of another kind
    assert {scale["default"] for scale in scales if isinstance(scale, dict)} == {16 / 8**0.5}


@pytest.mark.parametrize("rslora", [False, True])
def test_the_scale_of_separate_adapters_is_kept(tmp_path, rslora):
    """Rank 6 of 3 applications: 2 each, under the scale of the whole."""
    model = make("classification")
    asked = AdapterConfig(rank=6, alpha=5, per_application=True, rslora=rslora)
    add_adapter(model, asked)
    randomize(model)
    save_adapter(model, tmp_path / "adapter", base="base")
    again = make("classification")
    found = load_adapter(again, tmp_path / "adapter")
    assert (found.rank, found.alpha, found.scale) == pytest.approx((6, 5, asked.scale))
    assert (found.per_application, found.rslora) == (True, rslora)
    for now, was in zip(outputs(again), outputs(model), strict=True):
        torch.testing.assert_close(now, was, atol=1e-5, rtol=1e-5)


def test_pefts_all_linear_opens(tmp_path):
    """It adapts the projection of the embeddings too."""
    save_model(make("encoder"), tmp_path / "base")
    base = transformers.AutoModel.from_pretrained(tmp_path / "base")
    other = peft.get_peft_model(base, peft.LoraConfig(r=3, target_modules="all-linear")).eval()
    torch.manual_seed(2)
    for name, parameter in other.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    other.save_pretrained(tmp_path / "adapter")
    model = load_model(tmp_path / "base", "encoder").eval()
    assert set(load_adapter(model, tmp_path / "adapter").targets) == set(ADAPTER_TARGETS)
    expected = theirs(other)
    for merged in (False, True):
        if merged:
            merge_adapter(model)
        for ours, theirs_ in zip(outputs(model), expected, strict=True):
            torch.testing.assert_close(ours, theirs_, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_modules": ["word_embeddings"]}, "adapts embeddings, which is not supported"),
        ({"target_modules": ["query"], "trainable_token_indices": [1]}, "trainable_token_indices is not supported"),
        ({"target_modules": ["predictions.dense"]}, "adapts masked_lm.dense, which is not supported; merge"),
    ],
)
def test_what_pefts_lora_can_and_ours_cannot_is_named(tmp_path, settings, message):
    save_model(make("masked-lm"), tmp_path / "base")
    base = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "base")
    peft.get_peft_model(base, peft.LoraConfig(r=3, **settings)).save_pretrained(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=message):
        load_adapter(make("masked-lm"), tmp_path / "adapter")


@pytest.mark.parametrize("head", ["classification", "span", "multiple-choice", "answer", "pretraining"])
def test_a_merged_model_is_plain_and_says_the_same(tmp_path, head):
    model = make(head)
    inputs = {"num_choices": 1} if head == "multiple-choice" else {}
    names = set(model.state_dict())
    add_adapter(model, AdapterConfig(rank=2))
    randomize(model)
    with torch.no_grad():
        before = model.encoder(IDS).hidden
    merge_adapter(model)
    assert set(model.state_dict()) == names
    assert all(parameter.requires_grad for parameter in model.parameters())
    with torch.no_grad():
        torch.testing.assert_close(model.encoder(IDS).hidden, before, atol=1e-5, rtol=1e-5)
    save_model(model, tmp_path / "merged")
    again = load_model(tmp_path / "merged", head).eval()
    for now, was in zip(outputs_of(again, inputs), outputs_of(model, inputs), strict=True):
        torch.testing.assert_close(now, was, atol=1e-5, rtol=1e-5)


def outputs_of(model, inputs) -> list[torch.Tensor]:
    with torch.no_grad():
        found = model(IDS, **inputs)
    return [found] if isinstance(found, torch.Tensor) else [part for part in found if part is not None]


def test_heads_that_transformers_lacks_round_trip(tmp_path):
    model = make("answer")
    add_adapter(model, AdapterConfig())
    randomize(model)
    save_adapter(model, tmp_path / "adapter", base="base")
    again = make("answer")
    load_adapter(again, tmp_path / "adapter")
    for now, was in zip(outputs(again), outputs(model), strict=True):
        torch.testing.assert_close(now, was, atol=1e-5, rtol=1e-5)


def test_only_the_adapter_and_the_head_learn():
    model = make("classification")
    add_adapter(model, AdapterConfig())
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name.split(".")[0] for name in learning if ".lora_" not in name} == {"classifier"}
    assert sum(".lora_" in name for name in learning) == 2 * 5
    model.train()
    model(IDS).sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())


def test_an_adapter_of_albert_base_is_small():
    with torch.device("meta"):
        model = MODELS["classification"](ModelConfig(labels=("0", "1")))
    add_adapter(model, AdapterConfig(rank=8))
    learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert learning == 8 * (2 * 1536 + 2 * 3840 + 1536) + 2 * 768 + 2  # query, value, FFN, pooler; the classifier
    assert learning * 4 < 0.5e6


def test_what_is_not_ours_to_compute_is_refused(tmp_path):
    model = make("classification")
    add_adapter(model, AdapterConfig())
    save_adapter(model, tmp_path / "adapter", base="base")
    with pytest.raises(ConfigError, match=r"targets: this model \(span\) has no pooler"):
        add_adapter(make("span"), AdapterConfig(targets=("pooler",)))
    with pytest.raises(ConfigError, match="already has an adapter"):
        add_adapter(model, AdapterConfig())
    with pytest.raises(CheckpointError, match="the model has one already"):
        load_adapter(model, tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    for change, message in (
        ({"peft_type": "IA3"}, "peft_type 'IA3' is not supported"),
        ({"use_dora": True}, "use_dora is not supported"),
        ({"bias": "all"}, "bias 'all' is not supported"),
        ({"r": None}, "not readable as an adapter's settings"),
        ({"r": 0}, "rank: must be >= 1, got 0"),
        ({"r": 4}, "attention.0.query has rank 8, adapter_config.json says 4"),
        ({"lora_alpha": float("inf")}, "alpha: must be > 0 and < inf"),
        ({"base_model_name_or_path": 3}, "its base or its pooling is not a name"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens is not supported"),
    ):
        path.write_text(json.dumps({**data, **change}), encoding="utf-8")
        with pytest.raises(CheckpointError, match=message):
            load_adapter(make("classification"), tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=r"not an adapter folder \(no adapter_config\.json\)"):
        load_adapter(make("classification"), tmp_path)
    for text in ("[1]", "{", "3"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"adapter_config\.json"):
            load_adapter(make("classification"), tmp_path / "adapter")


def test_numbers_that_are_none_are_refused(tmp_path):
    model = make("classification")
    add_adapter(model, AdapterConfig())
    model.classifier.bias.data[0] = torch.nan
    save_adapter(model, tmp_path / "adapter", base="base")
    with pytest.raises(CheckpointError, match=r"classifier\.bias holds NaN or infinity"):
        load_adapter(make("classification"), tmp_path / "adapter")


def test_an_adapter_that_changes_its_base_is_refused(tmp_path):
    """PiSSA takes the adapter's start out of the base's weights: on the base as it is, the answers would be wrong."""
    save_model(make("encoder"), tmp_path / "base")
    base = transformers.AutoModel.from_pretrained(tmp_path / "base")
    config = peft.LoraConfig(r=3, target_modules=["query"], init_lora_weights="pissa")
    peft.get_peft_model(base, config).save_pretrained(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="init_lora_weights 'pissa' is not supported"):
        load_adapter(make("encoder"), tmp_path / "adapter")


def test_an_adapter_of_another_base_is_refused(tmp_path):
    model = make("classification")
    add_adapter(model, AdapterConfig())
    save_adapter(model, tmp_path / "adapter", base="base")
    wider = MODELS["classification"](
        ModelConfig(**{**SHAPE, "hidden_size": 48}, embedding_size=8, labels=("a", "b", "c"))
    )
    with pytest.raises(CheckpointError, match=r"an adapter of another base model: .* train one on this model"):
        load_adapter(wider, tmp_path / "adapter")
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file(load_file(weights), weights)  # without the fingerprint of its base, as PEFT writes it
    with pytest.raises(CheckpointError, match="an adapter for another base model: "):
        load_adapter(wider, tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="has no place in this model"):
        load_adapter(make("classification", "bert"), tmp_path / "adapter")
    other = MODELS["classification"](ModelConfig(**SHAPE, embedding_size=8, labels=("a", "b")))
    with pytest.raises(CheckpointError, match=r"its head has classifier\.bias \(3,\), this model \(2,\)"):
        load_adapter(other, tmp_path / "adapter")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank: must be >= 1, got 0"),
        ({"alpha": -1.0}, "alpha: must be > 0"),
        ({"dropout": 1.0}, "dropout: must be >= 0 and < 1, got 1.0"),
        ({"targets": ("querry",)}, "targets: must name some of query, key"),
        ({"targets": ()}, "targets: must name some of"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        AdapterConfig(**settings)


# ---------------------------------------------------------------------------------------------------------------------
# What training computes and keeps


def plain_copy(model):
    """The same adapted model, whose layers are torch's own operations."""
    for module in model.modules():
        if isinstance(module, AdaptedLinear):
            module.forward = lambda input, m=module: (
                torch.nn.functional.linear(input, m.weight, m.bias) + m.scale * (input @ m.lora_a.T) @ m.lora_b.T
            )
    model.encoder.keeping = None
    return model


def test_gradients_are_those_of_the_plain_formula():
    found = []
    for lean in (True, False):
        model = make("classification")
        torch.manual_seed(2)
        add_adapter(model, AdapterConfig(rank=3))
        randomize(model)
        model = model if lean else plain_copy(model)
        model.train()(IDS).square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert all(".lora_" in name or name.startswith("classifier") for name in found[0])
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], atol=1e-5, rtol=1e-4, msg=name)
        assert gradient.abs().max() > 0, name


def test_frozen_weights_are_rounded_once():
    linear = AdaptedLinear(torch.nn.Linear(8, 6), rank=2, scale=1.0)
    first = linear.rounded(torch.bfloat16)
    assert torch.equal(first[0], linear.weight.bfloat16())
    assert linear.rounded(torch.bfloat16)[0] is first[0]
    assert linear.rounded(torch.float16)[0].dtype == torch.float16
    with torch.no_grad():
        linear.weight.add_(1.0)  # other weights are loaded
    assert torch.equal(linear.rounded(torch.bfloat16)[0], linear.weight.bfloat16())


def test_norms_and_activations_are_not_kept():
    def kept(model) -> int:
        sizes: dict[int, int] = {}
        held = {parameter.data_ptr() for parameter in model.parameters()}

        def pack(tensor):
            if tensor.data_ptr() not in held:
                sizes[tensor.data_ptr()] = tensor.nbytes
            return tensor

        ids = torch.arange(64).view(4, 16) % 50
        if model.encoder.keeping is None:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                model(ids).sum()
            return sum(sizes.values())
        lean = model.encoder.keeping.__self__
        own = lean._pack
        lean._pack = lambda tensor: pack(tensor) if isinstance(own(tensor), torch.Tensor) else own(tensor)
        model(ids).sum()
        return sum(sizes.values())

    whole = make("classification").train()
    adapted = make("classification").train()
    add_adapter(adapted, AdapterConfig(rank=1))
    assert kept(adapted) < 0.75 * kept(whole)


def test_merging_leaves_a_plain_model():
    model = make("encoder")
    add_adapter(model, AdapterConfig(rank=2))
    randomize(model)
    expected = outputs(model)
    merge_adapter(model)
    assert model.encoder.keeping is None
    assert not any(module._forward_hooks for module in model.modules())
    for mine, other in zip(outputs(model), expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)
    model(IDS).hidden.sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "pooler" not in name)


# ---------------------------------------------------------------------------------------------------------------------
# An adapter for each application


def test_each_application_has_its_own(tmp_path):
    model = make("classification")
    start = outputs(model)
    size = sum(p.numel() for p in model.parameters())
    add_adapter(model, AdapterConfig(rank=7, per_application=True))  # of 3 applications: 2 each
    adapted = [module for module in model.modules() if isinstance(module, AdaptedLinear)]
    assert len(adapted) == 3 * 4 + 1
    assert {module.lora_a.shape[0] for module in adapted} == {2}
    assert len({id(module.weight) for module in adapted}) == 5  # the matrices themselves are still shared
    new = sum(p.numel() for name, p in model.named_parameters() if ".lora_" in name)
    assert sum(p.numel() for p in model.parameters()) == size + new
    for mine, other in zip(outputs(model), start, strict=True):
        torch.testing.assert_close(mine, other)
    randomize(model)
    expected = outputs(model)
    save_adapter(model, tmp_path / "adapter", base="base")
    again = make("classification")
    config = load_adapter(again, tmp_path / "adapter")
    assert (config.rank, config.scale, config.per_application) == (6, 2.0, True)
    for mine, other in zip(outputs(again), expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)
    merge_adapter(again)
    for mine, other in zip(outputs(again), expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)
    save_model(again, tmp_path / "merged")
    opened = AUTO["classification"].from_pretrained(tmp_path / "merged").eval()
    for mine, other in zip(theirs(opened), expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_a_rank_that_cannot_be_divided_is_named():
    with pytest.raises(ConfigError, match="rank: must be >= 3, which the applications of the layer share; got 2"):
        add_adapter(make("classification"), AdapterConfig(rank=2, per_application=True))
