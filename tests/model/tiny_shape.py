"""The shape of a model of a few thousand parameters."""

from __future__ import annotations

from typing import Any

from litebert.model.config import ModelConfig


def tiny_shape(**changes: Any) -> ModelConfig:
    """Two layers of 16 numbers; what a test is about is in its `changes`."""
    shape = dict(
        vocab_size=40,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    return ModelConfig(**{**shape, **changes})
