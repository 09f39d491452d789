"""Who learns, and how fast: frozen parts, a faster head, slower lower blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litebert.errors import ConfigError
from litebert.finetuning.config import Freeze
from litebert.model.heads import Model
from litebert.train.optimizer import parameter_groups


def freeze(model: Model, what: Freeze, new: Iterable[str] = ()) -> None:
    """Stop parts of the encoder from learning; what is `new` (a pooler that no file brought) always learns."""
    new = set(new)
    for name, parameter in model.named_parameters():
        frozen = name.startswith("encoder.") and what == "encoder"
        frozen |= name.startswith(("encoder.embeddings.", "encoder.projection.")) and what == "embeddings"
        parameter.requires_grad_(not frozen or name in new)


def learning_groups(
    model: Model, weight_decay: float, head_factor: float = 1.0, block_decay: float = 1.0
) -> list[dict[str, Any]]:
    """The optimiser's groups, each with the factor `lr_factor` on the learning rate."""
    blocks = {"attention": len(model.encoder.attention), "ffn": len(model.encoder.ffn)}
    if block_decay != 1 and set(blocks.values()) == {1}:
        raise ConfigError(
            "optim.block_decay: this model has one block, applied at every depth, so there are no lower layers to slow "
            "down; use optim.head_factor or optim.freeze: embeddings (it is for sharing none, groups and BERT)"
        )
    groups: list[dict[str, Any]] = []
    for group in parameter_groups(model, weight_decay):
        by_factor: dict[float, list[Any]] = {}
        for name, parameter in group["params"]:
            factor = _factor(name, blocks, head_factor, block_decay)
            by_factor.setdefault(factor, []).append((name, parameter))
        groups += [{**group, "params": params, "lr_factor": factor} for factor, params in by_factor.items()]
    return groups


def _factor(name: str, blocks: dict[str, int], head_factor: float, block_decay: float) -> float:
    """Head: head_factor. Block b of n: decay ** (n - 1 - b); one that serves all depths: 1. Embeddings: decay ** n."""
    if not name.startswith("encoder."):
        return head_factor
    parts = name.split(".")
    if parts[1] in blocks:
        return float(block_decay ** (blocks[parts[1]] - 1 - int(parts[2])))
    return 1.0 if parts[1] == "pooler" else float(block_decay ** max(blocks.values()))
