"""A model and a pretraining run that take almost no time, for scripts that test everything but quality and speed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert.config import merge

if TYPE_CHECKING:
    from litebert.model.config import ModelConfig
    from litebert.pretraining.config import RunConfig

SHAPE = {
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}


def tiny_model(vocab_size: int, **more: Any) -> ModelConfig:
    """The shape of a model of a few thousand parameters."""
    from litebert.model.config import ModelConfig

    return ModelConfig(**{**SHAPE, "vocab_size": vocab_size, **more})


def tiny_run(store: Path, tokenizer: Path, **changes: Any) -> RunConfig:
    """A run of such a model over a store; it reports every step and evaluates nothing."""
    from litebert.pretraining.config import run_config

    settings = {
        "model": SHAPE,
        "data": {"stores": [str(store)], "tokenizer": str(tokenizer), "held_out": 10, "workers": 0, "row_tokens": 128},
        "recipe": {"max_length": 64},
        "optim": {"lr": 0.01, "warmup_steps": 2},
        "batch_tokens": 256,
        "micro_batch_tokens": 256,
        "device": {"device": "cpu", "threads": 1},
        "log": {"report_every": 1, "evaluate_every": 0, "checkpoint_every": 0},
    }
    return run_config(merge(settings, changes))
