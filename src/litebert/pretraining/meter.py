"""What the steps between two reports came to, for the log and the screen."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litebert.model.count import forward_flops

if TYPE_CHECKING:
    from litebert.pretraining.run import Run


@dataclass(frozen=True)
class StepTotals:
    """What one global batch came to."""

    tokens: int
    mlm_loss: float
    mlm_correct: float
    mlm_count: float
    sentence_loss: float
    sentence_correct: float
    sentence_count: float

    @property
    def loss(self) -> float:
        """The sum of the two mean losses, unweighted."""
        return self.mlm_loss / max(self.mlm_count, 1) + self.sentence_loss / max(self.sentence_count, 1)


class Meter:
    """Averages the steps between two reports."""

    def __init__(self, run: Run):
        self.run = run
        self._steps: list[tuple[StepTotals, float]] = []
        self._since = run.seconds

    def add(self, totals: StepTotals, norm: float) -> None:
        """Count one step."""
        self._steps.append((totals, norm))

    def write(self) -> None:
        """Write the means since the last report to the log and the screen."""
        if not self._steps:
            return
        run, steps = self.run, self._steps
        elapsed = max(run.seconds - self._since, 1e-9)
        tokens = sum(totals.tokens for totals, _ in steps)
        sums = [sum(getattr(t, f.name) for t, _ in steps) for f in dataclasses.fields(StepTotals)]
        mean = StepTotals(*sums)
        values: dict[str, float] = {
            "loss": sum(totals.loss for totals, _ in steps) / len(steps),
            "mlm_loss": mean.mlm_loss / max(mean.mlm_count, 1),
            "mlm_accuracy": mean.mlm_correct / max(mean.mlm_count, 1),
        }
        if mean.sentence_count:
            values["sentence_loss"] = mean.sentence_loss / mean.sentence_count
            values["sentence_accuracy"] = mean.sentence_correct / mean.sentence_count
        rate = tokens / elapsed
        flops = 3 * forward_flops(run.config.model, run.length, run.depth, run.config.recipe.mask_rate) * rate
        values |= {
            "lr": run.optimizer.param_groups[0]["lr"],
            "gradient_norm": steps[-1][1],
            "tokens": run.tokens,
            "tokens_per_second": rate,
            "depth": run.depth,
            "length": run.length,
            "seconds": run.seconds,
        }
        if run.peak:
            # It was measured at the start; where others used the machine then, it may turn out to be higher.
            run.peak = max(run.peak, flops / run.world.size)
            values["share_of_peak"] = flops / (run.peak * run.world.size)
        if run.log is not None:
            run.log.write(run.step, values)
            if run.log.problem:
                run.progress.note(run.log.problem, "yellow")
        minutes = run.config.max_minutes
        left = None
        if minutes and run.seconds / (60 * minutes) > run.step / run.config.steps:
            left = 60 * minutes - run.seconds
        run.progress.update(run.step, values, left)
        self._steps, self._since = [], run.seconds
