"""What the steps between two reports came to, for the log and the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litebert.finetuning.run import Run


class Meter:
    """Averages the steps between two reports."""

    def __init__(self, run: Run):
        self.run = run
        self._reset()

    def _reset(self) -> None:
        self._steps: list[tuple[float, float]] = []
        self._norm, self._examples = 0.0, 0
        self._tokens, self._since = self.run.tokens, self.run.seconds - self.run.evaluating

    def add(self, loss: float, right: float, norm: float, examples: int) -> None:
        """Count one step."""
        self._steps.append((loss, right))
        self._norm, self._examples = norm, self._examples + examples

    def write(self) -> None:
        """Write the means since the last report to the log and the screen."""
        if not self._steps:
            return
        run = self.run
        elapsed = max(run.seconds - run.evaluating - self._since, 1e-9)
        values: dict[str, float] = {"loss": sum(loss for loss, _ in self._steps) / len(self._steps)}
        if run.task.kind not in ("regression", "question-answering"):
            values["train_accuracy"] = sum(right for _, right in self._steps) / len(self._steps)
        values |= {
            "lr": run.optimizer.param_groups[0]["lr"] / run.optimizer.param_groups[0]["lr_factor"],
            "gradient_norm": self._norm,
            "tokens": run.tokens,
            "tokens_per_second": (run.tokens - self._tokens) / elapsed,
            "examples_per_second": self._examples / elapsed,
            "seconds": run.seconds,
        }
        run.log.write(run.step, values)
        run.progress.update(run.step, values)
        self._reset()
