"""Training for several depths: at which exits a step learns, and how much each of them counts.

loss_shares((3, 6, 12))                   -> {3: 1/7, 6: 2/7, 12: 4/7}   by depth, as in PABEE
loss_shares((3, 6, 12), deepest=6)        -> {3: 1/3, 6: 2/3}            in a stage of fewer layers
draw_depth({3: 0.2, 12: 0.8}, seed, step) -> 12                          one exit per step instead of all
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from litebert.errors import ConfigError

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
