"""Small random models of every head, with a vocabulary: their numbers must agree, not be good."""

from __future__ import annotations

import functools

import numpy as np
import torch
from small_vocabularies import english

from litebert.model.config import ModelConfig
from litebert.model.heads import MODELS, Model
from litebert.predict.predictor import Predictor
from litebert.predict.torch_runtime import TorchRuntime
from litebert.tasks.task import Task
from litebert.train.device import DeviceConfig, open_device

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def small_config(**changes) -> ModelConfig:
    """Two applications of one layer; weights far from zero, so that every part shows in the output."""
    values = dict(
        vocab_size=english().vocab_size,
        embedding_size=12,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=48,
        initializer_range=0.3,
    )
    return ModelConfig(**{**values, **changes})


def small_model(head: str, seed: int = 0, **changes) -> Model:
    """A random model; the same for the same arguments. Also biases and norms are not what they begin with."""
    torch.manual_seed(seed)
    model = MODELS[head](small_config(**changes)).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape)
    return model


@functools.cache
def cpu():
    return open_device(DeviceConfig(device="cpu", threads=1))


def runtime_of(head: str, max_tokens: int = 8192, **changes) -> TorchRuntime:
    return TorchRuntime(small_model(head, **changes), cpu(), max_tokens)


def predictor_of(head: str, task: Task | None = None, max_tokens: int = 8192, **changes) -> Predictor:
    return Predictor.of(runtime_of(head, max_tokens, **changes), english(), task, name=f"small-{head}")


def packed(lengths, generator):
    """Random sequences of these lengths as the encoder's packed input."""
    total = sum(lengths)
    return {
        "input_ids": torch.randint(5, 100, (total,), generator=generator),
        "segment_ids": torch.randint(0, 2, (total,), generator=generator),
        "position_ids": torch.cat([torch.arange(length) for length in lengths]),
        "starts": torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32),
        "max_length": max(lengths),
    }
