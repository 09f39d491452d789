"""The config of a pretraining run: typed, complete, saved with the run; and the named runs.

    load_run_config("mine.yaml", ["optim.lr=1e-3"])     # defaults < preset < file < settings
    load_run_config("cpu/albert-tiny", ["data.stores=[store]", "data.tokenizer=vocab"])

In YAML, `preset: gpu/albert-base` begins from a named run, `model: {preset: albert-base, ...}` from a named shape and
`recipe: {name: google, ...}` from a named data recipe."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from litebert.config import build, check_numbers, given, merge, override, read_yaml, to_dict
from litebert.errors import ConfigError, did_you_mean
from litebert.model.config import PRESETS, ModelConfig, load_config, plan_of, preset, read_config
from litebert.pretraining.recipes import Recipe, named_recipe
from litebert.train.config import DeviceConfig, GuardConfig, LogConfig, OptimConfig
from litebert.train.schedule import (
    ExitLoss,
    LearningRate,
    RateStage,
    Stage,
    check_stages,
    check_weights,
    sqrt_scaled_lr,
)

PAPER_BATCH_TOKENS = 4096 * 512
MAX_BATCH_TOKENS = 1 << 31
MAX_WORKERS = 1024


@dataclass(frozen=True)
class DataConfig:
    """Where the text is, and what is held out for evaluation."""

    stores: tuple[str, ...] = ()
    tokenizer: str = ""
    #: How many rows come from each store; null = in proportion to their size.
    weights: tuple[float, ...] | None = None
    #: Documents of these stores never trained on: a count, or a share below 1.
    held_out: float = 0.005
    #: Stores to evaluate on instead of held-out documents.
    eval_stores: tuple[str, ...] = ()
    #: Processes that make batches ahead; 0 = in the training process itself.
    workers: int = 1
    #: Tokens of one packed row; null = 4096, or the micro-batch where that is smaller.
    row_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.weights is not None and len(self.weights) != len(self.stores):
            raise ConfigError(f"weights: {len(self.weights)} weights for {len(self.stores)} stores")
        if not 0 <= self.held_out < math.inf:
            raise ConfigError(f"held_out: must be a count of documents or a share below 1, got {self.held_out}")
        check_numbers(self, f"between 0 and {MAX_WORKERS:,}", "workers")


@dataclass(frozen=True)
class DetectionConfig:
    """Replaced-token detection beside masked LM: a small generator fills masks, the model finds what it filled in."""

    #: Share of the tokens to predict that the model reads as the generator's guess rather than a mask; 0 = off.
    share: float = 0.0
    #: What is drawn: each token to predict by itself, or whole sequences, whose other half then is plain masked LM.
    draw: Literal["token", "sequence"] = "token"
    #: How much the mean loss of detection over all tokens counts beside the others.
    weight: float = 20.0
    #: The generator: its own layers, the model's embeddings.
    hidden_size: int = 256
    layers: int = 4
    #: Learning rate of generator and detector, as a multiple of the model's: layers that are applied once bear more.
    lr_factor: float = 4.0
    #: `detection.safetensors` of an earlier run, to go on with its generator and detector; null = new ones.
    init_from: str | None = None

    def __post_init__(self) -> None:
        check_numbers(self, ">= 0 and <= 1", "share")
        check_numbers(self, "> 0", "weight", "lr_factor")
        check_numbers(self, ">= 1", "layers")
        if self.hidden_size < 64 or self.hidden_size % 64:
            raise ConfigError(f"hidden_size: must be a multiple of 64, got {self.hidden_size}")


@dataclass(frozen=True)
class RunConfig:
    """One pretraining run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    recipe: Recipe = field(default_factory=Recipe)
    optim: OptimConfig = field(default_factory=OptimConfig)
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    #: A model folder (or Hub name) to start from: continued pretraining; a shallower model may start a deeper one.
    init_from: str | None = None
    steps: int = 125_000
    #: Wall-clock budget; whichever of steps, minutes and tokens ends first ends the run, and the schedules follow it.
    max_minutes: float | None = None
    #: The same in tokens.
    max_tokens: int | None = None
    #: Tokens of a global batch, over all processes and micro-batches.
    batch_tokens: int = PAPER_BATCH_TOKENS
    #: Tokens that one process takes at a time; the rest of the batch is accumulated.
    micro_batch_tokens: int = 16_384
    #: Applications of the layers over the run; empty = the model's own depth throughout.
    depth: tuple[Stage, ...] = ()
    #: Depths after which the model learns to answer, the last its full depth: [3, 6, 9, 12]; empty = that alone.
    exits: tuple[int, ...] = ()
    #: Every exit in every step (sum), or one exit per step, which costs less (random).
    exit_loss: ExitLoss = "sum"
    #: How much each exit counts (sum), or how often it is drawn (random); empty = in proportion to its depth.
    exit_weights: tuple[float, ...] = ()
    #: Sequence length over the run; empty = recipe.max_length throughout.
    length: tuple[Stage, ...] = ()
    #: How positions beyond the last stage's length start: as a `copy` of the learned ones (p as p mod the old length,
    #: so that they know their neighbours), or `random`, which costs a run most of what it has learned.
    new_positions: Literal["copy", "random"] = "copy"
    #: How the position table starts: `normal` noise, as in the paper, or `sinusoidal`, scaled like it: positions then
    #: know their neighbours from the first step, so that long sequences begin to learn sooner. Learned either way.
    position_init: Literal["normal", "sinusoidal"] = "normal"
    #: `random`: sequences shorter than the table begin anywhere in it, so that a longer stage meets no new positions.
    position_offset: Literal["none", "random"] = "none"
    #: Share of tokens to predict over the run; empty = recipe.mask_rate throughout. Many masks early teach more per
    #: pass, fewer masks late leave more to read (30 to 15 % in GPT-BERT).
    mask_rate: tuple[RateStage, ...] = ()
    #: batch_tokens over the run; empty = constant. Small batches early take more steps for the same tokens.
    batch_ramp: tuple[Stage, ...] = ()
    #: Multiples of the learning rate over the run, such as a lower one for each greater depth; empty = 1 throughout.
    lr_factor: tuple[RateStage, ...] = ()
    seed: int = 0
    device: DeviceConfig = field(default_factory=DeviceConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        check_numbers(self, ">= 1", "steps", "max_tokens", "batch_tokens", "micro_batch_tokens")
        check_numbers(self, f"<= {MAX_BATCH_TOKENS:,}", "batch_tokens", "micro_batch_tokens")
        check_numbers(self, ">= 0", "seed")
        check_numbers(self, "> 0", "max_minutes")
        for name in ("mask_rate", "batch_ramp", "lr_factor"):
            if getattr(self, name):
                check_stages(getattr(self, name), name)
        for rate in self.mask_rate:
            dataclasses.replace(self.recipe, mask_rate=rate.value)
        for ramp in self.batch_ramp:
            if ramp.value % self.row_tokens or ramp.value < self.row_tokens:
                raise ConfigError(f"batch_ramp: {ramp.value} is not a multiple of {self.row_tokens} (row_tokens)")
        if self.batch_ramp and self.batch_ramp[-1].value != self.batch_tokens:
            raise ConfigError(
                f"batch_ramp: ends with {self.batch_ramp[-1].value} tokens, batch_tokens is {self.batch_tokens}; they "
                "must agree"
            )
        for name in ("batch_tokens", "micro_batch_tokens"):
            if getattr(self, name) < self.row_tokens:
                raise ConfigError(f"{name}: {getattr(self, name)} is less than a row of {self.row_tokens} tokens")
            if getattr(self, name) % self.row_tokens:
                raise ConfigError(f"{name}: {getattr(self, name)} is not a multiple of {self.row_tokens} (row_tokens)")
        if self.depth:
            check_stages(self.depth, "depth")
            for stage in self.depth:
                plan_of(self.model, stage.value)
            if self.depth[-1].value != self.model.num_hidden_layers:
                raise ConfigError(
                    f"depth: the last stage has {self.depth[-1].value} applications, the model "
                    f"{self.model.num_hidden_layers} (num_hidden_layers); they must agree"
                )
        self._settle_exits()
        if self.length:
            check_stages(self.length, "length")
            for stage in self.length:
                dataclasses.replace(self.recipe, max_length=stage.value)
        longest = max([self.recipe.max_length, *(stage.value for stage in self.length)])
        if longest > self.model.max_position_embeddings:
            raise ConfigError(
                f"recipe.max_length: {longest} tokens are more than the model's max_position_embeddings "
                f"{self.model.max_position_embeddings}"
            )
        if longest > self.row_tokens:
            raise ConfigError(f"data.row_tokens: {self.row_tokens} cannot hold a sequence of {longest} tokens")
        self.learning_rate()

    def _settle_exits(self) -> None:
        """The exits are the model's: it is saved with them."""
        exits = self.exits or self.model.exits
        check_weights(exits, self.exit_weights)
        if exits and self.depth and self.model.num_hidden_groups > 1:
            raise ConfigError("exits: with a depth schedule, all layers must share their blocks (num_hidden_groups 1)")
        if exits and self.detection.share:
            raise ConfigError("exits: not together with detection.share; choose one")
        object.__setattr__(self, "exits", exits)
        object.__setattr__(self, "model", dataclasses.replace(self.model, exits=exits))

    @property
    def row_tokens(self) -> int:
        """Tokens of one packed row."""
        return self.data.row_tokens or min(4096, self.micro_batch_tokens, self.batch_tokens)

    def learning_rate(self) -> LearningRate:
        """The learning-rate schedule, with null values resolved."""
        optim = self.optim
        if optim.lr is None and optim.name != "lamb":
            raise ConfigError(
                f"optim.lr: needed for {optim.name} (the square-root rule is LAMB's); 1e-3 suits batches of 64k tokens"
            )
        lr = sqrt_scaled_lr(self.batch_tokens, base_batch=PAPER_BATCH_TOKENS)
        return optim.schedule(self.steps, lr, warmup_steps=self.steps // 40)

    def micro_batches(self, world: int, batch_tokens: int | None = None) -> int:
        """How many micro-batches each of `world` processes takes per step."""
        rows = (batch_tokens or self.batch_tokens) // self.row_tokens
        if rows % world:
            raise ConfigError(
                f"batch_tokens: {rows} rows of {self.row_tokens} tokens "
                f"cannot be divided equally among {world} processes"
            )
        each = rows // world
        count = max(1, math.ceil(each * self.row_tokens / self.micro_batch_tokens))
        while each % count:
            count += 1
        return count


# Settings that do not affect what is learned: a run may be resumed with other values.
FREE_ON_RESUME = (
    "log",
    "device",
    "guard",
    "micro_batch_tokens",
    "data.workers",
    "data.stores",
    "data.eval_stores",
    "data.tokenizer",
)


def load_run_config(
    source: Path | str | Mapping[str, Any], settings: Sequence[str] = (), choices: Mapping[str, Any] | None = None
) -> RunConfig:
    """A run's config from a YAML file, a preset's name or plain data; `choices` and then settings go on top."""
    data: Mapping[str, Any]
    where = ""
    if isinstance(source, Mapping):
        data = source
    elif Path(source).suffix in (".yaml", ".yml") or Path(source).is_file():
        data, where = read_yaml(source), f"{source}: "
    elif str(source) in RUN_PRESETS:
        data = {"preset": str(source)}
    else:
        run = Path(source) / "config.yaml"
        hint = f"; did you mean {run}?" if run.is_file() else did_you_mean(str(source), RUN_PRESETS) or "."
        raise ConfigError(f"{source}: not a YAML file or a preset{hint} Presets: {', '.join(RUN_PRESETS)}")
    return run_config(override(merge(data, choices or {}), settings), where)


def choose_config(
    config: RunConfig | Mapping[str, Any] | Path | str | None,
    store: Path | str | Sequence[Path | str] | None = None,
    tokenizer: Path | str | None = None,
    minutes: float | None = None,
    device: str | None = None,
    settings: Sequence[str] = (),
) -> RunConfig:
    """The config of a run, from the arguments of `pretrain`."""
    stores = [store] if isinstance(store, str | Path) else list(store or []) or None
    choices = given(
        {
            "data": {"stores": stores, "tokenizer": tokenizer},
            "max_minutes": minutes,
            "device": {"device": device},
        }
    )
    if isinstance(config, RunConfig):
        return load_run_config(to_dict(config), settings, choices) if choices or settings else config
    return load_run_config(machine_preset(device) if config is None else config, settings, choices)


def machine_preset(device: str | None = None) -> str:
    """The default run for this machine."""
    from litebert.train.device import open_device  # torch takes seconds

    return "gpu/albert-base" if open_device(DeviceConfig(device=device or "auto")).is_cuda else "cpu/albert-tiny"


def run_config(data: Mapping[str, Any] | str, where: str = "") -> RunConfig:
    """A run's config from plain data or the name of a preset, presets resolved."""
    if isinstance(data, str):
        return load_run_config(data)
    data = dict(data)
    name = data.pop("preset", None)
    if name is not None:
        if not isinstance(name, str) or name not in RUN_PRESETS:
            raise ConfigError(f"{where}preset: no run preset {name!r}{did_you_mean(str(name), RUN_PRESETS)}")
        base = RUN_PRESETS[name]
        if isinstance(data.get("model"), Mapping) and "preset" in data["model"]:
            base = {key: value for key, value in base.items() if key not in ("model", "depth")}
        data = merge(base, data)
    if isinstance(data.get("model"), Mapping):
        model = {str(key): value for key, value in data["model"].items()}
        shape = model.pop("preset", None)
        try:
            data["model"] = to_dict(preset(shape, **model)) if shape else model
        except ConfigError as error:
            raise ConfigError(f"{where}model: {error}") from None
    if isinstance(data.get("recipe"), Mapping):
        recipe = dict(data["recipe"])
        try:
            data["recipe"] = to_dict(named_recipe(str(recipe.pop("name", "paper")), recipe))
        except ConfigError as error:
            raise ConfigError(f"{where}recipe: {error}") from None
    return build(RunConfig, data, where)


def find_model_config(name: str) -> ModelConfig:
    """The model config of a preset, a config file, a model folder or a Hub name."""
    if name in PRESETS:
        return preset(name)
    if name in RUN_PRESETS:
        return run_config({"preset": name}).model
    path = Path(name)
    if path.is_file():
        return _read_yaml_config(path) if path.suffix in (".yaml", ".yml") else read_config(path)[0]
    if path.suffix in (".yaml", ".yml", ".json"):
        raise ConfigError(f"{name}: no such config file")
    if path.is_dir() or "/" in name or name == "default":
        return load_config(name)
    return preset(name)  # names the nearest presets


def _read_yaml_config(path: Path) -> ModelConfig:
    """The model in a YAML file: that of a run, or plain model fields, perhaps with `preset:` among them."""
    data, where = read_yaml(path), f"{path}: "
    if "model" in data or data.get("preset") in list(RUN_PRESETS):
        return run_config(data, where).model
    if "preset" not in data:
        return build(ModelConfig, data, where)
    name = data.pop("preset")
    try:
        return preset(name, **{str(key): value for key, value in data.items()})
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


# ---------------------------------------------------------------------------------------------------------------------
# Named runs: the paper's for each of its models, and runs for one GPU and for a laptop. Plain data in the form of the
# YAML file, so that a preset can be printed, copied and changed.

_PAPER_RUN: dict[str, Any] = {
    # Sec. 4.1 and the released flags: LAMB, batch 4096 x 512, 125,000 steps, 3,125 of them warm-up, clip 1.0.
    "recipe": {"name": "paper"},
    "optim": {"name": "lamb", "lr": 0.00176, "warmup_steps": 3125},
    "steps": 125_000,
    "batch_tokens": 4096 * 512,
    "micro_batch_tokens": 32_768,
    "log": {"evaluate_every": 5000, "checkpoint_every": 5000},
}


def _depths(*values: int) -> list[dict[str, float | int]]:
    """Equal thirds, halves, ... of the run at each depth."""
    return [{"until": (i + 1) / len(values), "value": value} for i, value in enumerate(values)]


def _short_run(
    model: str, depths: tuple[int, ...], steps: int, batch_tokens: int, micro_batch_tokens: int, checkpoint_every: int
) -> dict[str, Any]:
    return {
        "model": {"preset": model},
        # The shared stack does not start to learn at full depth in a short run; few applications first do.
        "depth": _depths(*depths),
        "recipe": {"name": "paper", "max_length": 128},
        # beta2 0.98: leaves the plateau sooner than 0.999 (docs/results/pretraining.md).
        "optim": {"name": "adamw", "lr": 1e-3, "beta2": 0.98, "bias_correction": True},
        "steps": steps,
        "batch_tokens": batch_tokens,
        "micro_batch_tokens": micro_batch_tokens,
        "log": {"evaluate_every": 500, "checkpoint_every": checkpoint_every},
    }


def _one_gpu(model: str, depths: tuple[int, ...], micro_batch_tokens: int) -> dict[str, Any]:
    return _short_run(model, depths, 20_000, 65_536, micro_batch_tokens, checkpoint_every=1000)


def _cpu(model: str, depths: tuple[int, ...]) -> dict[str, Any]:
    return _short_run(model, depths, 10_000, 8192, 2048, checkpoint_every=500)


RUN_PRESETS: dict[str, dict[str, Any]] = {
    **{
        f"paper/{name}": {"model": {"preset": name}, **_PAPER_RUN}
        for name in ("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge", "bert-base", "bert-large")
    },
    "gpu/albert-small": _one_gpu("albert-small", (2, 3, 6), 65_536),
    "gpu/albert-base": _one_gpu("albert-base", (3, 6, 12), 32_768),
    "gpu/albert-large": _one_gpu("albert-large", (3, 6, 12, 24), 32_768),
    "cpu/albert-tiny": _cpu("albert-tiny", (1, 2, 4)),
    "cpu/albert-small": _cpu("albert-small", (2, 3, 6)),
}
