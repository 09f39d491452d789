"""What a run brings to the training loop: everything in which pretraining and fine-tuning differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor

from litebert.model.heads import Model
from litebert.train.checkpoint import Checkpoint
from litebert.train.guard import ADVICE
from litebert.train.optimizer import AdamW


class StepBatches(NamedTuple):
    """One process's part of a global batch, and what there is to count in it."""

    inputs: list[Any]  # micro-batches on the device
    counts: tuple[int, ...]  # what each loss is the mean over
    tokens: int


class StepTotals(NamedTuple):
    """What one global batch came to, over all micro-batches and processes."""

    tokens: int
    counts: tuple[float, ...]
    sums: tuple[float, ...]  # those of `Learner.loss`
    norm: float  # of the gradient, before clipping


class Change(NamedTuple):
    """Another part of the run begins: what to say about it, and whether its batches are other ones."""

    message: str
    batches: bool


class Evaluation(NamedTuple):
    """Scores for the log, the same in words, and what a person should know besides."""

    values: dict[str, float]
    text: str
    warnings: Sequence[str] = ()


class Learner(ABC):
    """A model, its data and its objective; the trainer does the rest."""

    model: Model
    optimizer: AdamW
    num_steps: int
    max_seconds: float | None = None  # whichever of steps, seconds and tokens ends first ends the run
    max_tokens: int | None = None
    draws: bool  # whether a step is random (dropout)
    graphs: Literal["auto", "on", "off"] = "off"  # whether steps are recorded; auto: where a trial finds it worth it
    check_graphs = True
    advice = ADVICE  # for a run whose loss is not finite
    notes: Sequence[tuple[str, str]] = ()  # what to tell at the start, each with a style

    def prepare(self, step: int) -> None:  # noqa: B027 (a learner may need none of these)
        """Before the first step, once the weights are there: the fastest way through the model."""

    # -- one step ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def batches(self, step: int) -> Iterator[StepBatches]:
        """This process's part of every batch from `step` on."""

    @abstractmethod
    def loss(self, inputs: Any, counts: Tensor) -> tuple[Tensor, Tensor]:
        """A micro-batch's part of the mean loss, given the counts of the whole batch; and the sums to report."""

    @abstractmethod
    def mean_loss(self, totals: StepTotals) -> float:
        """The loss of a whole batch."""

    @abstractmethod
    def learning_rate(self, step: int, share: float) -> float:
        """The learning rate of a step, when `share` of the run is done."""

    def enter(self, share: float) -> Change | None:
        """Begin what is due when `share` of the run is done (another depth, another length); None where all stays."""
        return None

    def satisfied(self) -> bool:
        """Whether the run may end before its time."""
        return False

    # -- reports, evaluation, checkpoints ------------------------------------------------------------------------------

    @abstractmethod
    def report(self, steps: Sequence[StepTotals], seconds: float) -> dict[str, float]:
        """What some steps came to, for the log."""

    @abstractmethod
    def evaluate(self, step: int) -> Evaluation | None:
        """Scores on what is not trained on; None where there is nothing. The model is left as training wants it."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a checkpoint has to hold besides weights, as plain data."""

    def weights(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint."""
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    @abstractmethod
    def restore(self, saved: Checkpoint) -> None:
        """Put back what `weights` and `state` gave; a checkpoint of other data is an error."""

    @abstractmethod
    def facts(self, step: int) -> dict[str, Any]:
        """What run.json says about the run after `step` steps."""

    def hardware(self) -> dict[str, Any]:
        """What run.json says about the machine besides the usual."""
        return {}
