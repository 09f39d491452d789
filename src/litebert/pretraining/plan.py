"""The cost model: predict a run on many GPUs from rates measured on one.

    predict_run(preset("albert-xlarge"), gpus=64, ...)    tokens/s, days, memory and communication

The rates in `rates.json` were measured by `benchmarks/pretrain_rates.py` on one GPU. More GPUs are an extrapolation:
compute divides evenly, and after each step one ring all-reduce of fp32 gradients follows without overlap, since a
shared layer's gradient is complete only when the backward pass ends.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise

from litebert.errors import ConfigError
from litebert.model.config import ModelConfig
from litebert.model.count import count_parameters, forward_flops, training_memory


@dataclass(frozen=True)
class Rate:
    """A measured training rate of one GPU."""

    model: str
    hidden_size: int
    length: int
    tokens_per_second: float
    share_of_ceiling: float


@dataclass(frozen=True)
class Rates:
    """All rates of one GPU, and how they were measured."""

    gpu: str
    ceiling: float  # FLOP/s of a large bf16 product in the same run
    measured: str  # command, versions, date
    rates: tuple[Rate, ...]

    def share(self, hidden_size: int, length: int) -> float:
        """The share of the ceiling at a width, interpolated between the rates measured at the nearest length."""
        nearest = min({rate.length for rate in self.rates}, key=lambda other: abs(other - length))
        points = sorted((math.log(r.hidden_size), r.share_of_ceiling) for r in self.rates if r.length == nearest)
        x = math.log(hidden_size)
        if x <= points[0][0]:
            return points[0][1]
        for (x0, y0), (x1, y1) in pairwise(points):
            if x <= x1:
                return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        return points[-1][1]


def load_rates() -> Rates:
    """The rates that ship with the package."""
    data = json.loads(resources.files("litebert.pretraining").joinpath("rates.json").read_text(encoding="utf-8"))
    return Rates(data["gpu"], data["ceiling"], data["measured"], tuple(Rate(**rate) for rate in data["rates"]))


@dataclass(frozen=True)
class RunEstimate:
    """What the cost model predicts for a run."""

    gpus: int
    tokens_per_second: float
    seconds_per_step: float
    communication_seconds: float  # of each step
    days: float
    gpu_hours: float
    memory_bytes: int  # per GPU


def predict_run(
    config: ModelConfig,
    gpus: int,
    batch_tokens: int,
    steps: int,
    length: int = 512,
    micro_batch_tokens: int = 32_768,
    bandwidth: float = 100e9,
    rates: Rates | None = None,
) -> RunEstimate:
    """Time and memory of a run on `gpus` GPUs whose links carry `bandwidth` bytes/s each."""
    if gpus < 1:
        raise ConfigError(f"gpus: must be >= 1, got {gpus}")
    if batch_tokens < gpus * length:
        sequences = batch_tokens // length
        raise ConfigError(f"gpus: {gpus:,}, but a step has {sequences:,} sequences; each GPU needs at least one")
    rates = rates or load_rates()
    flops = 3 * forward_flops(config, length) * batch_tokens
    compute = flops / (rates.share(config.hidden_size, length) * rates.ceiling * gpus)
    bytes_sent = 2 * (gpus - 1) / gpus * 4 * count_parameters(config).with_heads
    communication = bytes_sent / bandwidth
    step = compute + communication
    micro = min(micro_batch_tokens, batch_tokens // gpus)
    return RunEstimate(
        gpus=gpus,
        tokens_per_second=batch_tokens / step,
        seconds_per_step=step,
        communication_seconds=communication,
        days=step * steps / 86_400,
        gpu_hours=step * steps * gpus / 3600,
        memory_bytes=training_memory(config).total(micro),
    )


def most_gpus(
    config: ModelConfig, batch_tokens: int, length: int = 512, bandwidth: float = 100e9, rates: Rates | None = None
) -> int:
    """The most GPUs worth using: the last power of two that is at least 1.5 times as fast as half as many.

    With each doubling compute halves and communication stays the same, so doubling stops paying; besides, each GPU
    needs at least one sequence.
    """
    count = 1
    speed = predict_run(config, 1, batch_tokens, 1, length, bandwidth=bandwidth, rates=rates).tokens_per_second
    while 2 * count * length <= batch_tokens:
        faster = predict_run(config, 2 * count, batch_tokens, 1, length, bandwidth=bandwidth, rates=rates)
        if faster.tokens_per_second < 1.5 * speed:
            break
        count, speed = 2 * count, faster.tokens_per_second
    return count
