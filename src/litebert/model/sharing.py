"""Sharing, the one mechanism: for each application of a layer, which attention block and which FFN block it uses.

sharing_plan(layers=4, sharing="all")                 -> (0,0) (0,0) (0,0) (0,0)
sharing_plan(layers=4, sharing="attention")           -> (0,0) (0,1) (0,2) (0,3)
sharing_plan(layers=4, sharing="all", num_groups=2)   -> (0,0) (0,0) (1,1) (1,1)
sharing_plan(layers=2, sharing="all", inner=2)        -> (0,0) (1,1) (0,0) (1,1)
"""

from __future__ import annotations

from typing import NamedTuple

from litebert.errors import ConfigError
from litebert.model.config import MAX_LAYERS, ModelConfig, Sharing, group_of


class Application(NamedTuple):
    """One application of a transformer layer: indices of the blocks it uses."""

    attention: int
    ffn: int


def sharing_plan(
    layers: int, sharing: Sharing, num_groups: int = 1, inner: int = 1, rounded_groups: bool = False
) -> tuple[Application, ...]:
    """The blocks of each of the `layers * inner` applications, in order."""
    plan = []
    for layer in range(layers):
        group = group_of(layer, layers, num_groups, rounded_groups)
        for step in range(inner):
            shared, own = group * inner + step, layer * inner + step
            plan.append(
                Application(
                    attention=shared if sharing in ("all", "attention") else own,
                    ffn=shared if sharing in ("all", "ffn") else own,
                )
            )
    return tuple(plan)


def plan_of(config: ModelConfig, layers: int | None = None) -> tuple[Application, ...]:
    """The plan of a config; with `layers`, of a shallower or deeper run of the same blocks (depth schedules)."""
    depth = config.num_hidden_layers if layers is None else layers
    if not 1 <= depth <= MAX_LAYERS:
        raise ConfigError(f"depth: must be between 1 and {MAX_LAYERS:,}, got {depth:,}")
    if config.sharing == "none":
        if depth > config.num_hidden_layers:
            raise ConfigError(
                f"depth: must be <= num_hidden_layers {config.num_hidden_layers}, got {depth}; only shared layers "
                "can be applied more often"
            )
        return sharing_plan(depth, "none", num_groups=depth, inner=config.inner_group_num)
    if depth != config.num_hidden_layers and config.sharing != "all" and depth > config.num_hidden_layers:
        raise ConfigError(
            f"depth: must be <= num_hidden_layers {config.num_hidden_layers} with sharing {config.sharing}, got {depth}"
        )
    if depth < config.num_hidden_groups:
        raise ConfigError(f"depth: must be >= num_hidden_groups {config.num_hidden_groups}, got {depth}")
    return sharing_plan(depth, config.sharing, config.num_hidden_groups, config.inner_group_num, config.rounded_groups)


def num_blocks(config: ModelConfig) -> tuple[int, int]:
    """How many distinct attention and FFN blocks a config has."""
    plan = plan_of(config)
    return len({step.attention for step in plan}), len({step.ffn for step in plan})
