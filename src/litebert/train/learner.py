"""What differs between pretraining and fine-tuning: the part of a run that the training loop calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor

from litebert.model.heads import Model
from litebert.train.checkpoint import Checkpoint
from litebert.train.guard import ADVICE
from litebert.train.log import StepTotals
from litebert.train.optimizer import AdamW


class StepBatches(NamedTuple):
    """One process's part of a global batch, and what there is to count in it."""

    inputs: list[Any]  # micro-batches on the device
    counts: tuple[int, ...]  # what each loss is the mean over
    tokens: int


class Change(NamedTuple):
    """A new part of the run begins: the message about it, and whether its batches differ."""

    message: str
    batches: bool


class Evaluation(NamedTuple):
    """Scores for the log, the same in words, and warnings."""

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
    graphs: Literal["auto", "on", "off"] = "off"  # whether steps are recorded; auto: if a trial finds that it pays
    check_graphs = True
    advice = ADVICE  # for a run whose loss is not finite
    notes: Sequence[tuple[str, str]] = ()  # shown at the start, each with a style

    def prepare(self, step: int) -> None:  # noqa: B027 (a learner may need none of these)
        """Called before the first step, once the weights are loaded."""

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
        """Begin the stage that starts at `share` of the run (another depth or length); None if nothing changes."""
        return None

    def satisfied(self) -> bool:
        """Whether the run may end early."""
        return False

    # -- reports, evaluation, checkpoints ------------------------------------------------------------------------------

    @abstractmethod
    def report(self, steps: Sequence[StepTotals], seconds: float) -> dict[str, float]:
        """Means over some steps, for the log."""

    @abstractmethod
    def evaluate(self, step: int) -> Evaluation | None:
        """Scores on held-out data; None if there is none. The model is left in training mode."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a checkpoint holds besides weights, as plain data."""

    def weights(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint."""
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    @abstractmethod
    def restore(self, saved: Checkpoint) -> None:
        """Restore `weights` and `state`; a checkpoint of other data is an error."""

    @abstractmethod
    def facts(self, step: int) -> dict[str, Any]:
        """What run.json says about the run after `step` steps."""

    def hardware(self) -> dict[str, Any]:
        """What else run.json says about the machine."""
        return {}
