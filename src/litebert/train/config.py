"""The settings that every run has: optimiser, guard, log and hardware. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litebert.config import check_numbers
from litebert.errors import ConfigError
from litebert.train.schedule import LearningRate

Freeze = Literal["none", "embeddings", "encoder"]


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser, its learning rate, and which parts learn how fast; the defaults are the paper's pretraining."""

    #: Muon orthogonalises the updates of the encoder's matrices and leaves the rest to AdamW (docs/pretraining.md).
    name: Literal["lamb", "adamw", "muon"] = "lamb"
    #: Peak learning rate; null = the paper's 0.00176, scaled with the square root of the batch (LAMB only).
    lr: float | None = None
    #: Warm-up steps; null = 1/40 of a pretraining run, as in the paper, and 1/10 of a fine-tuning run.
    warmup_steps: int | None = None
    end_lr: float = 0.0
    shape: Literal["polynomial", "cosine", "constant"] = "polynomial"
    power: float = 1.0
    #: The last share of the run, in which the rate falls; before that it stays at its peak. 1 = right after warm-up.
    decay_share: float = 1.0
    style: Literal["continuous", "google"] = "continuous"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    #: Muon's momentum.
    momentum: float = 0.95
    #: Muon: the learning rate of what AdamW updates (embeddings, heads, biases, norms), as a multiple of the matrices'.
    adam_factor: float = 1.0
    #: Moving average of the weights, which is evaluated and saved instead of them: its decay per step (0.999, say);
    #: 0 = none.
    average: float = 0.0
    #: Adam's bias correction; off in both of the released optimisers. On, the first steps are smaller.
    bias_correction: bool = False
    #: Global norm that gradients are scaled down to; 0 = never.
    clip: float = 1.0
    #: The heads' learning rate, as a multiple of the encoder's.
    head_factor: float = 1.0
    #: Each lower block's learning rate as a share of the one above; only for models with more than one block.
    block_decay: float = 1.0
    #: What does not learn: none, embeddings, or the whole encoder.
    freeze: Freeze = "none"

    def __post_init__(self) -> None:
        if self.clip < 0:
            raise ConfigError(f"clip: must be >= 0 (0 = no clipping), got {self.clip}")
        check_numbers(self, "> 0", "head_factor", "adam_factor")
        check_numbers(self, ">= 0 and < 1", "average")
        check_numbers(self, "> 0 and <= 1", "block_decay")
        if self.adam_factor != 1 and self.name != "muon":
            raise ConfigError(
                f"adam_factor: only for name: muon; {self.name} has one rate for all parameters (see head_factor)"
            )

    def schedule(self, num_steps: int, lr: float, warmup_steps: int) -> LearningRate:
        """The learning rate over a run; `lr` and `warmup_steps` replace null values."""
        return LearningRate(
            peak=lr if self.lr is None else self.lr,
            num_steps=num_steps,
            warmup_steps=max(1, warmup_steps) if self.warmup_steps is None else self.warmup_steps,
            end=self.end_lr,
            shape=self.shape,
            power=self.power,
            decay_share=self.decay_share,
            style=self.style,
        )


@dataclass(frozen=True)
class GuardConfig:
    """What to do about a loss (or gradient) that is not finite, and about one that jumps."""

    on_nan: Literal["skip", "rollback", "stop"] = "skip"
    on_spike: Literal["ignore", "skip", "rollback", "stop"] = "skip"
    spike_factor: float = 2.0  # a loss above this multiple of the median of the last steps is a spike
    gradient_factor: float | None = None  # the same for the gradient's norm; None: clipping deals with it
    window: int = 100  # the last steps that the median is taken over
    min_history: int = 20  # no verdict on spikes before this many steps
    max_skips: int = 10  # in a row
    max_rollbacks: int = 3  # in all

    def __post_init__(self) -> None:
        check_numbers(self, "> 1", "spike_factor", "gradient_factor")
        check_numbers(self, ">= 0", "max_skips", "max_rollbacks")
        if not 1 <= self.min_history <= self.window:
            raise ConfigError(f"min_history: must be between 1 and window ({self.window}), got {self.min_history}")


@dataclass(frozen=True)
class LogConfig:
    """How often a run reports, evaluates and saves, in steps (0 = never)."""

    report_every: int = 10
    #: Also at the end; null = `num_evaluations` times in the run.
    evaluate_every: int | None = 500
    num_evaluations: int = 10
    #: Held-out rows of an evaluation in pretraining, each of `row_tokens` tokens.
    evaluate_batches: int = 32
    checkpoint_every: int = 500
    #: Also after this many minutes, whatever the step (0 = never).
    checkpoint_minutes: float = 15.0
    #: The newest checkpoints are kept, and those at multiples of `keep_every` steps.
    keep_last: int = 2
    keep_every: int = 0
    tensorboard: bool = False
    #: When a checkpoint cannot be written (a full disk): continue and try again at the next, or stop.
    on_write_error: Literal["continue", "stop"] = "continue"

    def __post_init__(self) -> None:
        check_numbers(
            self, ">= 0", "report_every", "evaluate_every", "checkpoint_every", "checkpoint_minutes", "keep_every"
        )
        check_numbers(self, ">= 1", "num_evaluations")


@dataclass(frozen=True)
class DeviceConfig:
    """The hardware; `auto` means fp32 on a CPU, bf16 and compiled on a GPU that can."""

    device: str = "auto"  # auto, cpu, cuda, cuda:1
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    threads: int = 0  # 0: OMP_NUM_THREADS, or as many as the process may use
    fast_layers: Literal["on", "off"] = "on"  # the layers of model/fast, on a GPU in bf16 and where nothing is dropped
    fp8: bool = False  # 8-bit matrix products in the fast layers: meant for hidden sizes of 2,048 and more
    graphs: Literal["auto", "on", "off"] = "auto"  # steps recorded once and replayed, on a GPU; auto: if it pays
    recompute: bool = False  # keep only each layer's input and recompute the rest in the backward pass: for small GPUs
    deterministic: bool = False  # bit-equal results on a GPU, at some cost; a CPU always gives them

    def __post_init__(self) -> None:
        check_numbers(self, ">= 0", "threads")
