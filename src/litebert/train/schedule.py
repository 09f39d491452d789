"""What changes during a run: the learning rate, the depth, the sequence length, the exit. Pure functions, no state.

learning_rate(0, LearningRate())                   -> 5.632e-07    (the first of 3,125 warm-up steps counts)
learning_rate(0, LearningRate(style="google"))     -> 0.0          (the released code's first step is lost)
value_at((Stage(0.5, 3), Stage(1.0, 12)), 0.7)     -> 12
loss_shares((3, 6, 12))                            -> {3: 1/7, 6: 2/7, 12: 4/7}   exits count by depth, as in PABEE
loss_shares((3, 6, 12), deepest=6)                 -> {3: 1/3, 6: 2/3}            in a stage of fewer layers
draw_depth({3: 0.2, 12: 0.8}, seed, step)          -> 12                          one exit per step instead of all
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, overload

import numpy as np

from litebert.errors import ConfigError


@dataclass(frozen=True)
class LearningRate:
    """The learning rate over a run: linear warm-up to `peak`, then decay to `end` (Sec. 4.1 by default).

    `continuous` decays from the end of warm-up. `google` is the released code: the decay counts from step 0
    also during warm-up, so the rate drops a little when warm-up ends, and step 0 has rate 0.
    """

    peak: float = 0.00176
    num_steps: int = 125_000
    warmup_steps: int = 3_125
    end: float = 0.0
    shape: Literal["polynomial", "cosine", "constant"] = "polynomial"
    power: float = 1.0
    decay_share: float = 1.0  # the last share of the run (after the warm-up) in which the rate falls
    style: Literal["continuous", "google"] = "continuous"

    def __post_init__(self) -> None:
        # Named as in a run's config, with our own name where it differs.
        check(math.isfinite(self.peak) and self.peak > 0, f"optim.lr (peak): must be > 0, got {self.peak}")
        check(
            0 <= self.end <= self.peak,
            f"optim.end_lr (end): must be between 0 and optim.lr {self.peak}, got {self.end}",
        )
        check(self.num_steps >= 1, f"steps (num_steps): must be >= 1, got {self.num_steps}")
        check(self.warmup_steps >= 0, f"optim.warmup_steps: must be >= 0, got {self.warmup_steps}")
        check(self.power > 0, f"optim.power: must be > 0, got {self.power}")
        check(0 < self.decay_share <= 1, f"optim.decay_share: must be > 0 and <= 1, got {self.decay_share}")
        check(
            self.warmup_steps <= self.num_steps,
            f"optim.warmup_steps: must be <= the {self.num_steps} steps of the run, got {self.warmup_steps}; "
            "lower it, or raise steps",
        )


def learning_rate(step: float, schedule: LearningRate) -> float:
    """The learning rate of step `step`, counted from 0.

    A run limited by time passes `run_progress(...) * schedule.num_steps`.
    """
    warmup = schedule.warmup_steps
    if schedule.style == "google":
        return schedule.peak * step / warmup if step < warmup else _decayed(step / schedule.num_steps, schedule)
    if step < warmup:
        return schedule.peak * min(1.0, (step + 1) / warmup)
    length = schedule.num_steps - warmup
    return _decayed((step - warmup) / length if length else 1.0, schedule)


def _decayed(share: float, schedule: LearningRate) -> float:
    left = min(1.0, (1.0 - min(share, 1.0)) / schedule.decay_share)
    if schedule.shape == "constant":
        factor = 1.0
    elif schedule.shape == "cosine":
        factor = 0.5 * (1.0 - math.cos(math.pi * left))
    else:
        factor = left**schedule.power
    return schedule.end + (schedule.peak - schedule.end) * factor


def sqrt_scaled_lr(batch: int, base_lr: float = 0.00176, base_batch: int = 4096) -> float:
    """The paper's rate for another batch size, by the square-root rule of You et al.: 1024 -> 0.00088."""
    check(batch >= 1, f"batch: must be >= 1, got {batch}")
    return base_lr * math.sqrt(batch / base_batch)


@dataclass(frozen=True)
class Stage:
    """One part of a run: `value` (a depth, a length) holds `until` this share of the run is done."""

    until: float
    value: int

    def __post_init__(self) -> None:
        check(0 < self.until <= 1, f"until: must be a share of the run, > 0 and <= 1, got {self.until}")
        check(self.value >= 1, f"value: must be >= 1, got {self.value}")


@dataclass(frozen=True)
class RateStage(Stage):
    """A stage whose value is a share or a factor."""

    value: float  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check(0 < self.until <= 1, f"until: must be a share of the run, > 0 and <= 1, got {self.until}")
        check(0 < self.value < math.inf, f"value: must be > 0, got {self.value}")


def check_stages(stages: Sequence[Stage], name: str) -> None:
    """Stages that cover the run once and in order, or a ConfigError that says which does not."""
    if not stages:
        raise ConfigError(f"{name}: needs at least one stage, for example [{{until: 1.0, value: 12}}]")
    for i, (before, after) in enumerate(pairwise(stages)):
        if after.until <= before.until:
            raise ConfigError(
                f"{name}[{i + 1}].until: must be > {before.until}, the stage before it, got {after.until}"
            )
    if stages[-1].until != 1:
        raise ConfigError(f"{name}[{len(stages) - 1}].until: the last stage must end at 1.0, got {stages[-1].until}")


@overload
def value_at(stages: Sequence[RateStage], progress: float, otherwise: float) -> float: ...
@overload
def value_at(stages: Sequence[Stage], progress: float, otherwise: int | None = ...) -> int: ...
def value_at(stages: Sequence[Stage], progress: float, otherwise: float | None = None) -> float:
    """The value that holds when `progress` of the run is done (`otherwise` where there are no stages).

    1.0 and beyond belong to the last stage.
    """
    if not stages:
        assert otherwise is not None
        return otherwise
    return next((stage.value for stage in stages if progress < stage.until), stages[-1].value)


def run_progress(
    step: int,
    num_steps: int,
    seconds: float = 0.0,
    max_seconds: float | None = None,
    tokens: int = 0,
    max_tokens: int | None = None,
) -> float:
    """The share of a run that is done, by steps, the wall clock or tokens, whichever ends it first."""
    by_steps = step / num_steps
    by_clock = seconds / max_seconds if max_seconds else 0.0
    by_tokens = tokens / max_tokens if max_tokens else 0.0
    return min(1.0, max(by_steps, by_clock, by_tokens))


def check(holds: bool, message: str) -> None:
    """Raise a ConfigError unless the condition holds."""
    if not holds:
        raise ConfigError(message)


# ---------------------------------------------------------------------------------------------------------------------
# Exits: training for several depths

ExitLoss = Literal["sum", "random"]


def loss_shares(exits: Sequence[int], weights: Sequence[float] = (), deepest: int | None = None) -> dict[int, float]:
    """The share of each exit in the loss, in all 1; without `weights`, an exit counts as much as it is deep.

    With `deepest`, only exits up to that depth count, and it takes the place of the last.
    """
    weighted = dict(zip(exits, weights or exits, strict=True))
    if deepest is not None:
        last = weighted.get(deepest, deepest if not weights else weights[-1])
        weighted = {**{depth: weight for depth, weight in weighted.items() if depth < deepest}, deepest: last}
    total = math.fsum(weighted.values())
    return {depth: weight / total for depth, weight in weighted.items()}


def check_weights(exits: Sequence[int], weights: Sequence[float]) -> None:
    """Refuse weights that do not fit the exits."""
    if weights and len(weights) != len(exits):
        raise ConfigError(f"exit_weights: {len(weights)} for {len(exits)} exits; name one for each")
    if any(not 0 < weight < math.inf for weight in weights):
        raise ConfigError(f"exit_weights: must be > 0, got {list(weights)}")


def draw_depth(shares: Mapping[int, float], seed: int, step: int) -> int:
    """The exit of a step, drawn by its share: the same on every process, and after a resume."""
    place = np.random.default_rng([seed, step]).random()
    for depth, share in shares.items():
        place -= share
        if place < 0:
            return depth
    return depth
