"""The guard against NaN and loss spikes: looks at each step's loss and says what to do with the step.

    verdict = guard.judge(step, loss, gradient_norm)      # before the optimiser's step
    verdict.action   -> "ok": take the step; "skip": drop the gradients and go on;
                        "rollback": load the last checkpoint, then guard.rewind(its guard state);
                        "stop": end the run, `verdict.reason` says why and what to try

A batch is a function of (seed, step), so the same batch comes again after a rollback: leave out the steps for which
`is_bad` holds. The guard never reads a clock or a device; its state is plain data.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from litebert.train.config import GuardConfig

ADVICE = "Lower the learning rate or lengthen the warm-up."


@dataclass(frozen=True)
class Verdict:
    """What to do with a step, and why."""

    action: Literal["ok", "skip", "rollback", "stop"]
    reason: str = ""


class Guard:
    """Judges one step after the other; see the module's docstring."""

    def __init__(self, config: GuardConfig | None = None, advice: str = ADVICE):
        self.config = config or GuardConfig()
        self._advice = advice  # at the end of every reason to stop
        self.num_skipped = 0
        self.num_rollbacks = 0
        self.bad_steps: set[int] = set()
        self._skips_in_a_row = 0
        self._losses: deque[float] = deque(maxlen=self.config.window)
        self._norms: deque[float] = deque(maxlen=self.config.window)

    def judge(self, step: int, loss: float, gradient_norm: float | None = None) -> Verdict:
        """What to do with `step`, given its loss and its gradient's norm before clipping."""
        norm = gradient_norm if gradient_norm is not None else 0.0
        if not (math.isfinite(loss) and math.isfinite(norm)):
            what = f"loss {loss}" if not math.isfinite(loss) else f"gradient norm {norm}"
            return self._act(self.config.on_nan, step, f"{what} at step {step}")
        if self.config.on_spike != "ignore":
            for name, value, past, factor in (
                ("loss", loss, self._losses, self.config.spike_factor),
                ("gradient norm", norm, self._norms, self.config.gradient_factor),
            ):
                if factor and len(past) >= self.config.min_history and value > factor * median(past):
                    usual = f"{value:.4g} at step {step}, the median is {median(past):.4g}"
                    return self._act(self.config.on_spike, step, f"{name} {usual}")
        self._losses.append(loss)
        if gradient_norm is not None:
            self._norms.append(norm)
        self._skips_in_a_row = 0
        return Verdict("ok")

    def is_bad(self, step: int) -> bool:
        """Whether the run was rolled back because of this step's batch: leave it out."""
        return step in self.bad_steps

    def forget(self) -> None:
        """Clear the history where a jump is expected: another depth, length or objective."""
        self._losses.clear()
        self._norms.clear()

    def state(self) -> dict[str, Any]:
        """Everything the next verdict depends on, ready for JSON."""
        return {
            "losses": list(self._losses),
            "norms": list(self._norms),
            "skips_in_a_row": self._skips_in_a_row,
            "num_skipped": self.num_skipped,
            "num_rollbacks": self.num_rollbacks,
            "bad_steps": sorted(self.bad_steps),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state: for a resumed run."""
        self._losses = deque(state["losses"], maxlen=self.config.window)
        self._norms = deque(state["norms"], maxlen=self.config.window)
        self._skips_in_a_row = state["skips_in_a_row"]
        self.num_skipped = state["num_skipped"]
        self.num_rollbacks = state["num_rollbacks"]
        self.bad_steps = set(state["bad_steps"])

    def rewind(self, state: Mapping[str, Any]) -> None:
        """Go back to a checkpoint's history, but remember the rollbacks, or they would never end."""
        num_rollbacks, bad_steps = self.num_rollbacks, self.bad_steps
        self.restore(state)
        self.num_rollbacks = max(self.num_rollbacks, num_rollbacks)
        self.bad_steps |= bad_steps

    def _act(self, action: Literal["skip", "rollback", "stop"], step: int, reason: str) -> Verdict:
        if action == "skip":
            if self._skips_in_a_row >= self.config.max_skips:
                count = self._skips_in_a_row
                return Verdict("stop", f"{reason}, after {count} skipped steps in a row. {self._advice}")
            self._skips_in_a_row += 1
            self.num_skipped += 1
            return Verdict("skip", reason)
        if action == "rollback":
            if self.num_rollbacks >= self.config.max_rollbacks:
                return Verdict("stop", f"{reason}, after {self.num_rollbacks} rollbacks. {self._advice}")
            self.num_rollbacks += 1
            self.bad_steps.add(step)
            return Verdict("rollback", reason)
        return Verdict("stop", f"{reason}. {self._advice}")
