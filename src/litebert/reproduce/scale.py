"""Scales: how a row of the paper becomes an affordable run."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml

from litebert.config import build, merge, override, to_dict
from litebert.errors import ConfigError, check_choice
from litebert.model.config import ModelConfig, preset, vary
from litebert.pretraining.config import RunConfig, run_config
from litebert.reproduce.paper import PaperRow

# Wider models need lower rates: beyond this width, the peak falls in proportion. With the square root of the width,
# three shared layers of 1280 and 1920 collapsed in the first 400 steps (docs/results/reproduction.md).
FULL_RATE_WIDTH = 320


@dataclass(frozen=True)
class Scale:
    """What the paper's sizes become, and how the runs are trained and scored."""

    name: str
    about: str
    length: int
    vocabulary: int
    evaluation_tokens: int
    run: Mapping[str, Any]
    #: Settings of fine-tuning, for the downstream columns.
    finetune: Mapping[str, Any] = field(default_factory=dict)
    hidden: Mapping[int, int] = field(default_factory=dict)
    #: The number of layers: of models at their usual depth, and of rows about depth.
    depth: Mapping[int, int] = field(default_factory=dict)
    layers: Mapping[int, int] = field(default_factory=dict)
    embedding: Mapping[int, int] = field(default_factory=dict)
    head_size: int = 64
    dropout: float = 0.0
    #: Lower the peak rate of wide models.
    scale_rates: bool = False
    #: Initial weights of 1 / sqrt(H), with which small models learn sooner; otherwise the paper's 0.02.
    scale_weights: bool = False
    #: Time the paper's shapes, although smaller ones are trained.
    speed_of_paper_shapes: bool = False
    #: Generate a corpus if none is given.
    generated: bool = False
    #: A fixed number of steps; 0 = the row's own, or what the hours allow.
    steps: int = 0
    #: For all runs of a table together; 0 = no limit.
    hours: float = 0.0
    #: Per run, for tables whose rows get equal time and scales without hours; 0 = the rows' own steps.
    minutes: float = 0.0

    def model_of(self, row: PaperRow, vocabulary: int | None = None) -> ModelConfig:
        """The model of a row at this scale."""
        size = preset(row.model)
        hidden = _size(self.hidden, row.hidden or size.hidden_size, "hidden", self.name)
        if row.layers is None:
            layers = _size(self.depth, size.num_hidden_layers, "depth", self.name)
        else:  # Table 12 varies the width with 3 layers, which stay
            layers = row.layers if row.hidden else _size(self.layers, row.layers, "layers", self.name)
        embedding = hidden
        if size.model_type != "bert":
            embedding = _size(self.embedding, row.embedding or size.embedding_size, "embedding", self.name)
        dropout = self.dropout if row.dropout is None else row.dropout
        changes: dict[str, Any] = {
            "vocab_size": vocabulary or self.vocabulary,
            "embedding_size": embedding,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": max(1, hidden // self.head_size),
            "intermediate_size": 4 * hidden,
            "max_position_embeddings": max(self.length, 64),
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout,
            "embedding_projection": None,
        }
        if row.sharing is not None:
            changes["sharing"] = row.sharing
        if self.scale_weights:
            changes["initializer_range"] = round(1 / math.sqrt(hidden), 4)
        return vary(size, **changes)

    def run_of(
        self,
        row: PaperRow,
        *,
        seed: int = 0,
        steps: int | None = None,
        minutes: float | None = None,
        data: Mapping[str, Any] | None = None,
        init_from: str | None = None,
        settings: Sequence[str] = (),
        vocabulary: int | None = None,
    ) -> RunConfig:
        """The run of a row at this scale; `settings` (key=value) come last."""
        model = self.model_of(row, vocabulary)
        recipe = {"objective": row.objective, "max_length": self.length}
        if row.objective == "none":
            recipe["pairs_without_objective"] = True  # the same pairs, without a label
        changes: dict[str, Any] = {
            "model": to_dict(model),
            "recipe": recipe,
            "steps": steps or self.steps or row.steps,
            "max_minutes": minutes,
            "seed": seed,
            "init_from": init_from,
            "data": data or {},
        }
        run = merge(self.run, changes)
        if self.scale_rates and run["optim"].get("lr"):
            factor = min(1.0, FULL_RATE_WIDTH / model.hidden_size)
            run["optim"]["lr"] = round(float(run["optim"]["lr"]) * factor, 6)
        warmup = run["optim"].get("warmup_steps")
        if warmup and warmup > run["steps"] // 4:
            run["optim"]["warmup_steps"] = max(1, run["steps"] // 4)
        return run_config(override(run, settings))


@functools.cache
def load_scales() -> Mapping[str, Scale]:
    """All scales by name."""
    text = resources.files("litebert.reproduce").joinpath("scales.yaml").read_text(encoding="utf-8")
    return {
        name: build(Scale, {**data, "name": name}, f"scales.yaml: {name}")
        for name, data in yaml.safe_load(text).items()
    }


def load_scale(name: str) -> Scale:
    """One scale by name."""
    scales = load_scales()
    check_choice("scale", name, scales)
    return scales[name]


def _size(sizes: Mapping[int, int], paper: int, what: str, scale: str) -> int:
    if not sizes:
        return paper
    if paper not in sizes:
        raise ConfigError(f"scales.yaml: {scale}.{what} does not say what {paper} becomes")
    return sizes[paper]
