"""Who learns, and how fast."""

from __future__ import annotations

import pytest

from litebert.errors import ConfigError
from litebert.model.config import ModelConfig
from litebert.model.heads import ClassificationModel
from litebert.train.optimizer import freeze, learning_groups

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
