"""The config of a fine-tuning run: typed, complete, saved with the run.

    finetune_config({"task": "sst-2", "data": {"folder": "glue/SST-2"}, "preset": "v2"})     # defaults < preset < these

In YAML, `preset: v2` begins from named settings.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from litebert.config import build, merge, override, read_yaml
from litebert.errors import ConfigError
from litebert.finetuning.presets import ADAPTER, AUTO, COMPARISON, FEW, find_preset
from litebert.model.config import AdapterConfig
from litebert.tasks.kinds import KINDS
from litebert.tasks.read import canonical_name
from litebert.train.config import DeviceConfig, LogConfig, OptimConfig
from litebert.train.guard import GuardConfig
from litebert.train.schedule import LearningRate


@dataclass(frozen=True)
class DataConfig:
    """Where the examples are: a folder (also hub:owner/name), or files of one's own."""

    folder: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    #: Column names of one's own files by role, {text: review, label: stars}; the rest is guessed and shown.
    columns: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    #: Write predictions for the test split at the end; null = where a test file was named (public ones can be large).
    predict_test: bool | None = None
    #: Only so many examples of the training and of each dev split (0: all), for a quick look.
    limit: int = 0

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ConfigError(f"limit: must not be negative, got {self.limit}")


@dataclass(frozen=True)
class FinetuneOptim(OptimConfig):
    """The same choices as in pretraining, with the defaults of fine-tuning."""

    name: Literal["lamb", "adamw"] = "adamw"
    lr: float = 2e-5
    bias_correction: bool = True  # smaller first steps, which steadies small data sets


@dataclass(frozen=True)
class FinetuneLog(LogConfig):
    """The same choices as in pretraining, for shorter runs."""

    evaluate_every: int | None = None
    checkpoint_every: int = 0
    checkpoint_minutes: float = 5.0
    keep_last: int = 1
    #: Checkpoints of a finished run are of no more use than its model.
    keep_checkpoints: bool = False


@dataclass(frozen=True)
class FinetuneGuard(GuardConfig):
    """The same choices as in pretraining; a small data set has hard batches, so a loss may jump."""

    on_spike: Literal["ignore", "skip", "rollback", "stop"] = "ignore"


@dataclass(frozen=True)
class SimilarityConfig:
    """What the task `similarity` learns: how vectors are made and compared."""

    #: cosent or cosine for scored pairs, ranking (in-batch negatives) for others; auto = cosent where there are scores.
    loss: Literal["auto", "cosent", "cosine", "ranking"] = "auto"
    #: Cosines are divided by it in ranking and cosent: the smaller, the more the hardest negatives count.
    temperature: float = 0.05
    #: Ranking: also find the first text by the second.
    symmetric: bool = False
    #: A text's vector: the mean of its tokens, or the state of [CLS].
    pooling: Literal["mean", "first"] = "mean"
    #: Whether the saved model gives vectors of length 1.
    normalize: bool = True
    #: Shorter vectors that are to work too: the first so many numbers (Matryoshka), [64, 128, 256].
    sizes: tuple[int, ...] = ()
    #: Make training pairs from plain text instead of reading them: each sentence with itself under other dropout
    #: (SimCSE), with the next one, or each document's first line (its title) with its paragraphs.
    pairs: Literal["none", "sentences", "adjacent", "titles"] = "none"
    #: How many of them, drawn evenly from the whole text.
    num_pairs: int = 100_000

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ConfigError(f"temperature: must be > 0, got {self.temperature:g}")
        if self.num_pairs < 2:
            raise ConfigError(f"num_pairs: must be >= 2, got {self.num_pairs}")
        if any(size < 1 for size in self.sizes):
            raise ConfigError(f"sizes: must be >= 1, got {min(self.sizes)}")
        if self.pairs != "none" and self.loss in ("cosent", "cosine"):
            raise ConfigError(f"loss: {self.loss} needs scores, and pairs made from text have none; use ranking")


@dataclass(frozen=True)
class FinetuneConfig:
    """One fine-tuning run."""

    RENAMED: ClassVar[Mapping[str, str]] = {"recipe": "preset"}  # keys of configs from before 0.2

    #: A known task (sst-2, squad-2.0, race, ...) or the kind of one's own (classification, regression, ...).
    task: str = "classification"
    data: DataConfig = field(default_factory=DataConfig)
    #: A model folder, a Hub name, or "default"; also one that was fine-tuned on another task.
    model: str = "default"
    #: The head is new, or goes on learning where the model has one for the same labels.
    head: Literal["new", "keep"] = "new"
    #: Fit a linear head on features of the frozen encoder instead of training; optim has no effect then.
    head_only: bool = False
    #: Train a low-rank adapter and the head instead of the whole model: {rank: 8}; null = the whole model.
    adapter: AdapterConfig | None = None
    #: A handful of labels: the encoder learns which examples share a label, then a linear head is fitted (SetFit).
    few: bool = False
    similarity: SimilarityConfig = field(default_factory=SimilarityConfig)
    #: Where the other settings came from; they are written out below it.
    preset: str = AUTO
    optim: FinetuneOptim = field(default_factory=FinetuneOptim)
    #: Examples per step (for question answering: windows).
    batch: int = 32
    #: The length of the run: passes over the training data, or steps where they are given.
    epochs: float = 3.0
    steps: int | None = None
    #: The longest input in tokens; null = the task's own, up to what the model takes.
    max_length: int | None = None
    #: Question answering: tokens from the start of one window of a long text to the next; null = windows overlap so far
    #: that every answer of up to 30 tokens is whole in one of them, and move by at most 128.
    stride: int | None = None
    #: Dropout inside the encoder; null = as the model has it.
    dropout: float | None = None
    classifier_dropout: float = 0.1
    #: The score on dev that the best weights are chosen by; null = the first of the task's own.
    metric: str | None = None
    #: Stop after so many evaluations without a better one (0: never); the best is kept in any case.
    patience: int = 0
    #: Tokens that the device takes at a time; the rest of a batch is accumulated.
    micro_batch_tokens: int = 16_384
    #: Questions without an answer: null = as the task says (SQuAD 2.0 has them).
    answerable_head: bool | None = None
    seed: int = 0
    device: DeviceConfig = field(default_factory=DeviceConfig)
    guard: FinetuneGuard = field(default_factory=FinetuneGuard)
    log: FinetuneLog = field(default_factory=FinetuneLog)

    def __post_init__(self) -> None:
        for name, most in (("batch", 1 << 20), ("micro_batch_tokens", 1 << 31)):
            if not 1 <= getattr(self, name) <= most:
                raise ConfigError(f"{name}: must be between 1 and {most:,}, got {getattr(self, name):,}")
        for name in ("seed", "patience"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}: must not be negative, got {getattr(self, name)}")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"steps: must be at least 1, got {self.steps}")
        if self.stride is not None and self.stride < 1:
            raise ConfigError(f"stride: must be at least 1, got {self.stride}")
        if not 0 < self.epochs < math.inf:
            raise ConfigError(f"epochs: must be above 0, got {self.epochs}")
        for name in ("dropout", "classifier_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"{name}: must be at least 0 and below 1, got {value}")
        if self.adapter is not None and (self.optim.freeze != "none" or self.optim.block_decay != 1):
            raise ConfigError("adapter: freezes the encoder itself; leave out optim.freeze and optim.block_decay")
        self.learning_rate(self.steps or max(1, self.optim.warmup_steps or 1))
        if self.head_only and self.head == "keep":
            raise ConfigError("head_only: fits a new head, so head must be new, not keep")
        if self.head_only and self.adapter is not None:
            raise ConfigError("adapter: head_only trains a head alone; leave out one of the two")
        if self.few and (self.head_only or self.head == "keep"):
            raise ConfigError("few: trains the encoder and fits a new head; leave out head_only and head: keep")

    def num_steps(self, num_units: int) -> int:
        """Steps of the run on so many training examples."""
        if self.head_only:
            return 0
        return self.steps or max(1, math.ceil(self.epochs * num_units / self.batch))

    def learning_rate(self, num_steps: int) -> LearningRate:
        """The learning-rate schedule of a run of so many steps."""
        return self.optim.schedule(num_steps, self.optim.lr, warmup_steps=num_steps // 10)


# Settings that change nothing about what is learned, so that a run may be resumed with others.
FREE_ON_RESUME = (
    "log.report_every",
    "log.checkpoint",
    "log.keep",
    "log.tensorboard",
    "log.on_write_error",
    "device",
    "guard",
    "micro_batch_tokens",
)


def finetune_config(data: Mapping[str, Any], auto: str = "base", where: str = "") -> FinetuneConfig:
    """A run's config from plain data; `auto` is the preset to take where none is named."""
    data = {FinetuneConfig.RENAMED.get(key, key): value for key, value in data.items()}
    name = str(data.get("preset") or AUTO)
    name = auto if name == AUTO else name
    task = data["task"] = canonical_name(str(data.get("task", FinetuneConfig.task)))
    preset = find_preset(name, task)
    if is_comparison(task):
        preset = merge(preset, COMPARISON)
    if data.get("few"):
        preset = merge(preset, FEW)
    if data.get("epochs") is not None and data.get("steps") is None:
        preset = {key: value for key, value in preset.items() if key != "steps"}  # the user's own measure counts
        if preset.get("optim", {}).get("warmup_steps") is not None:
            preset = merge(preset, {"optim": {"warmup_steps": None}})
    if data.get("adapter") is not None:
        preset = merge(preset, ADAPTER)
    return build(FinetuneConfig, {**merge(preset, data), "preset": name}, where)


def is_comparison(task: str) -> bool:
    """Whether a task is of a kind that compares the texts of a batch, as similarity does."""
    return task in KINDS and KINDS[task].compares


def read_settings(file: Path | str | None, settings: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The plain data of a YAML file (where one is given) with `key=value` settings on top, and where it is from."""
    data, where = (read_yaml(file), f"{file}: ") if file is not None else ({}, "")
    return override(data, settings), where


def with_seed(config: FinetuneConfig, seed: int, lr: float | None = None) -> FinetuneConfig:
    """The same run with another seed (and learning rate)."""
    optim = config.optim if lr is None else dataclasses.replace(config.optim, lr=lr)
    return dataclasses.replace(config, seed=seed, optim=optim)
