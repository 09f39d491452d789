"""The config of a fine-tuning run (typed, complete, saved with the run), its presets, and how to choose them.

    finetune_config({"task": "sst-2", "data": {"folder": "glue/SST-2"}, "preset": "v2"})     # defaults < preset < these
    config_from({"task": "sst-2", "epochs": 3}, "run.yaml", ["optim.lr=2e-5"])      # preset < file < flags < settings
    find_preset("v2", "race")        -> {"optim": {"lr": 1e-05, ...}, "batch": 32, ...}     the row of the task
    find_preset("v2/sst-2", "mine")  -> the row of SST-2 for a task of your own

In YAML, `preset: v2` starts from named settings. Presets are plain data that you can print, copy and change.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from litebert.config import build, check_numbers, given, merge, override, read_yaml
from litebert.errors import ConfigError, did_you_mean
from litebert.model.config import AdapterConfig, load_config
from litebert.tasks.kinds import KINDS
from litebert.tasks.read import canonical_name, find_task
from litebert.train.config import DeviceConfig, GuardConfig, LogConfig, OptimConfig
from litebert.train.schedule import ExitLoss, LearningRate, check_weights

AUTO = "auto"  # the preset that fits the model and the machine


@dataclass(frozen=True)
class DataConfig:
    """Where the examples are: a folder (also hub:owner/name), or your own files."""

    folder: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    #: Columns of your own files by role, {text: review, label: stars}; the rest is guessed and reported.
    columns: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    #: Write predictions for the test split at the end; null = where a test file was named (public ones can be large).
    predict_test: bool | None = None
    #: At most this many examples of the training and of each dev split (0: all), for a quick look.
    limit: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, ">= 0", "limit")


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
    #: Sizes at which truncated vectors should work too (Matryoshka), [64, 128, 256].
    sizes: tuple[int, ...] = ()
    #: Make training pairs from plain text instead of reading them: each sentence with itself under other dropout
    #: (SimCSE), with the next one, or each document's first line (its title) with its paragraphs.
    pairs: Literal["none", "sentences", "adjacent", "titles"] = "none"
    #: How many of them, drawn evenly from the whole text.
    num_pairs: int = 100_000

    def __post_init__(self) -> None:
        check_numbers(self, "> 0 and < inf", "temperature")
        check_numbers(self, ">= 2", "num_pairs")
        if any(size < 1 for size in self.sizes):
            raise ConfigError(f"sizes: must be >= 1, got {min(self.sizes)}")
        if self.pairs != "none" and self.loss in ("cosent", "cosine"):
            raise ConfigError(f"loss: {self.loss} needs scores, and pairs made from text have none; use ranking")


@dataclass(frozen=True)
class FinetuneConfig:
    """One fine-tuning run."""

    RENAMED: ClassVar[Mapping[str, str]] = {"recipe": "preset"}  # keys of configs from before 0.2

    #: A known task (sst-2, squad-2.0, race, ...) or the kind of your own (classification, regression, ...).
    task: str = "classification"
    data: DataConfig = field(default_factory=DataConfig)
    #: A model folder, a Hub name, or "default"; also one that was fine-tuned on another task.
    model: str = "default"
    #: The head is new, unless the model already has one for the same labels.
    head: Literal["new", "keep"] = "new"
    #: Fit a linear head on features of the frozen encoder instead of training; optim has no effect then.
    head_only: bool = False
    #: Train a low-rank adapter and the head instead of the whole model: {rank: 8}; null = the whole model.
    adapter: AdapterConfig | None = None
    #: A handful of labels: the encoder learns which examples share a label, then a linear head is fitted (SetFit).
    few: bool = False
    similarity: SimilarityConfig = field(default_factory=SimilarityConfig)
    #: Depths after which the model learns to answer, the last its full depth: [3, 6, 9, 12]; empty = that alone.
    exits: tuple[int, ...] = ()
    #: Every exit in every step (sum), or one exit per step, which costs less (random).
    exit_loss: ExitLoss = "sum"
    #: How much each exit counts (sum), or how often it is drawn (random); empty = in proportion to its depth.
    exit_weights: tuple[float, ...] = ()
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
    #: Stop after this many evaluations without improvement (0: never); the best model is always kept.
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
        check_numbers(self, f"between 1 and {1 << 20:,}", "batch")
        check_numbers(self, f"between 1 and {1 << 31:,}", "micro_batch_tokens")
        check_numbers(self, ">= 0", "seed", "patience")
        check_numbers(self, ">= 1", "steps", "stride")
        check_numbers(self, "> 0 and < inf", "epochs")
        check_numbers(self, ">= 0 and < 1", "dropout", "classifier_dropout")
        if self.adapter is not None and (self.optim.freeze != "none" or self.optim.block_decay != 1):
            raise ConfigError("adapter: freezes the encoder itself; leave out optim.freeze and optim.block_decay")
        self.learning_rate(self.steps or max(1, self.optim.warmup_steps or 1))
        if self.head_only and self.head == "keep":
            raise ConfigError("head_only: fits a new head, so head must be new, not keep")
        if self.head_only and self.adapter is not None:
            raise ConfigError("adapter: head_only trains a head alone; leave out one of the two")
        check_weights(self.exits, self.exit_weights)
        if self.exits and (self.head_only or self.few or self.adapter is not None):
            raise ConfigError("exits: need the whole model to learn; leave out head_only, few and adapter")
        if self.few and (self.head_only or self.head == "keep"):
            raise ConfigError("few: trains the encoder and fits a new head; leave out head_only and head: keep")

    def num_steps(self, num_units: int) -> int:
        """Steps of the run on this many training examples."""
        if self.head_only:
            return 0
        return self.steps or max(1, math.ceil(self.epochs * num_units / self.batch))

    def learning_rate(self, num_steps: int) -> LearningRate:
        """The learning-rate schedule of a run of this many steps."""
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
    """A run's config from plain data; `auto` is the preset to use if none is named."""
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
    """The plain data of a YAML file (if given) with `key=value` settings on top, and its source for messages."""
    data, where = (read_yaml(file), f"{file}: ") if file is not None else ({}, "")
    return override(data, settings), where


def with_seed(config: FinetuneConfig, seed: int, lr: float | None = None) -> FinetuneConfig:
    """The same run with another seed (and learning rate)."""
    optim = config.optim if lr is None else dataclasses.replace(config.optim, lr=lr)
    return dataclasses.replace(config, seed=seed, optim=optim)


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


# Table 14: learning rate, batch, ALBERT dropout, classifier dropout, steps, warm-up steps, maximum length.
_TABLE_14: dict[str, tuple[float, int, float, float, int, int, int]] = {
    "cola": (1e-5, 16, 0.0, 0.1, 5336, 320, 512),
    "sts-b": (2e-5, 16, 0.0, 0.1, 3598, 214, 512),
    "sst-2": (1e-5, 32, 0.0, 0.1, 20935, 1256, 512),
    "mnli": (3e-5, 128, 0.0, 0.1, 10000, 1000, 512),
    "qnli": (1e-5, 32, 0.0, 0.1, 33112, 1986, 512),
    "qqp": (5e-5, 128, 0.1, 0.1, 14000, 1000, 512),
    "rte": (3e-5, 32, 0.1, 0.1, 800, 200, 512),
    "mrpc": (2e-5, 32, 0.0, 0.1, 800, 200, 512),
    "wnli": (2e-5, 16, 0.1, 0.1, 2000, 250, 512),
    "squad-1.1": (5e-5, 48, 0.0, 0.1, 3649, 365, 384),
    "squad-2.0": (3e-5, 48, 0.0, 0.1, 8144, 814, 512),
    "race": (2e-5, 32, 0.1, 0.1, 12000, 1000, 512),
}
# The README: RACE's setting of v1 diverges on v2; everything else is the same.
_V2_CHANGES: dict[str, dict[str, Any]] = {"race": {"optim": {"lr": 1e-5}, "dropout": 0.0}}
# run_glue.sh evaluates every 100 steps (QNLI: 200) and keeps the best on dev.
_EVALUATE_EVERY = {"qnli": 200, "squad-1.1": 500, "squad-2.0": 500, "race": 500}
# Footnote 4: these start from a model that was fine-tuned on MNLI.
FROM_MNLI = ("rte", "sts-b", "mrpc")


def _row(task: str) -> dict[str, Any]:
    lr, batch, dropout, classifier_dropout, steps, warmup, max_length = _TABLE_14[task]
    return {
        "optim": {
            "name": "adamw",
            "lr": lr,
            "warmup_steps": warmup,
            # As released: the rate counts from step 0, and Adam has no bias correction.
            "style": "google",
            "bias_correction": False,
        },
        "batch": batch,
        "steps": steps,
        "dropout": dropout,
        "classifier_dropout": classifier_dropout,
        "max_length": max_length,
        "log": {"evaluate_every": _EVALUATE_EVERY.get(task, 100)},
    }


_GENERAL: dict[str, dict[str, Any]] = {
    # A model of the released sizes on a GPU, data of any kind.
    "base": {"optim": {"lr": 2e-5}, "batch": 32, "epochs": 3.0},
    # Small models have seen little text: they need larger steps and more of them.
    "small": {"optim": {"lr": 1e-4}, "batch": 32, "epochs": 5.0},
    # The same for a laptop: shorter inputs, fewer evaluations.
    "cpu": {
        "optim": {"lr": 1e-4},
        "batch": 16,
        "epochs": 3.0,
        "max_length": 128,
        "micro_batch_tokens": 2048,
        "log": {"num_evaluations": 4},
    },
    # The encoder stays as it is, only the head learns: quick, weaker, and nothing to diverge.
    "frozen": {"optim": {"lr": 1e-3, "freeze": "encoder"}, "batch": 64, "epochs": 10.0},
}


# On top of any preset where an adapter is trained: it starts at zero and has few parameters, so it takes larger steps.
ADAPTER: dict[str, Any] = {"optim": {"lr": 5e-4}}
# Similarity: a text is contrasted with the other examples of its batch, so batches are larger.
COMPARISON: dict[str, Any] = {"batch": 64, "optim": {"lr": 5e-5}}
# A handful of labels: enough passes that every example is paired with every other several times.
FEW: dict[str, Any] = {"batch": 32, "steps": 100, "optim": {"lr": 3e-5}}


def _all() -> dict[str, dict[str, Any]]:
    presets = dict(_GENERAL)
    for task in _TABLE_14:
        presets[f"v1/{task}"] = _row(task)
        presets[f"v2/{task}"] = merge(_row(task), _V2_CHANGES.get(task, {}))
    return presets


PRESETS: dict[str, dict[str, Any]] = _all()
SMALL_HIDDEN = 512  # models narrower than this are "small"


def find_preset(name: str, task: str) -> dict[str, Any]:
    """The settings of a preset; `v1` and `v2` alone mean the row of the task."""
    if name in ("v1", "v2"):
        task = "race" if task.startswith("race-") else task  # middle and high were trained together
        if f"{name}/{task}" not in PRESETS:
            rows = ", ".join(_TABLE_14)
            raise ConfigError(
                f"preset: Table 14 of the paper has no row for the task {task!r}; "
                f"borrow one by its name, for example {name}/sst-2 (rows: {rows}), or use base, small or cpu"
            )
        name = f"{name}/{task}"
    if name not in PRESETS:
        known = [AUTO, "v1", "v2", *PRESETS]
        raise ConfigError(f"preset: no preset {name!r}{did_you_mean(name, known) or '.'} Known: {', '.join(known)}")
    return PRESETS[name]


def pick_preset(hidden_size: int, on_gpu: bool) -> str:
    """The preset that `auto` means: "small" for narrow models, "cpu" without a GPU, else "base"."""
    if not on_gpu:
        return "cpu"
    return "small" if hidden_size < SMALL_HIDDEN else "base"
