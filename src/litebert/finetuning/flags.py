"""From what a person says (flags, a file, settings) to the config of a run, and from a config to words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.config import given, merge, override
from litebert.finetuning.config import FinetuneConfig, finetune_config, read_settings
from litebert.finetuning.presets import pick_preset
from litebert.model.config import load_config
from litebert.tasks.read import find_task


def config_from(
    flags: Mapping[str, Any],
    file: Path | str | Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    lrs: Sequence[float] = (),
) -> FinetuneConfig:
    """The config of a run: preset < YAML file < flags < settings; `auto` picks a preset for the model and machine."""
    data, where = (dict(file), "") if isinstance(file, Mapping) else read_settings(file, [])
    data = {FinetuneConfig.RENAMED.get(key, key): value for key, value in data.items()}
    said = given(flags)
    if "epochs" in said:
        data["steps"] = None  # the measure of the file; the one that was said counts
    data = merge(data, said)
    if lrs:
        data = merge(data, {"optim": {"lr": lrs[0]}})
    data = override(data, settings)
    data["task"] = find_task(str(data.get("task") or FinetuneConfig.task))
    device = finetune_config(data, where=where).device
    hidden_size = load_config(str(data.get("model") or FinetuneConfig.model)).hidden_size
    from litebert.train.device import open_device  # torch takes seconds: after the mistakes

    return finetune_config(data, pick_preset(hidden_size, open_device(device).is_cuda), where)


def describe(config: FinetuneConfig) -> str:
    """A config in one line: "lr 2e-05, batch 32, 3 epochs, from default"."""
    if config.head_only:
        return f"a linear head on the features of {config.model}"
    length = describe_length(config)
    frozen = {"none": "", "embeddings": ", embeddings frozen", "encoder": ", encoder frozen"}[config.optim.freeze]
    return f"lr {config.optim.lr:g}, batch {config.batch}, {length}{frozen}, from {config.model}"


def describe_length(config: FinetuneConfig) -> str:
    """How long a run is: "800 steps", "1 epoch"."""
    if config.steps:
        return f"{config.steps:,} step" + "s" * (config.steps != 1)
    return f"{config.epochs:g} epoch" + "s" * (config.epochs != 1)
