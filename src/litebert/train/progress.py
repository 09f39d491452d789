"""What a person sees while a run goes on: a live line on a terminal, plain lines every few seconds elsewhere.

step 1,200/5,000  loss 2.914  MLM 41.2%  order 78.0%  3:20 left  38.1k tok/s  44% of peak
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as LiveProgress
from rich.text import Text

RATE_SECONDS = 60.0  # the time left follows the speed of the last minute: a deeper stage is slower


def describe(step: int, num_steps: int, values: Mapping[str, float], seconds_left: float | None = None) -> str:
    """One report as text; values that are not there are left out, the least important come last."""
    parts = [f"step {step:,}/{num_steps:,}"]
    if "loss" in values:
        parts.append(f"loss {values['loss']:.3f}")
    if "mlm_accuracy" in values:
        parts.append(f"MLM {values['mlm_accuracy']:.1%}")
    if "sentence_accuracy" in values:
        parts.append(f"order {values['sentence_accuracy']:.1%}")
    if seconds_left is not None:
        parts.append(f"{short_time(seconds_left)} left")
    if "tokens_per_second" in values:
        parts.append(f"{short_count(values['tokens_per_second'])} tok/s")
    if "share_of_peak" in values:
        parts.append(f"{values['share_of_peak']:.0%} of peak")
    return "  ".join(parts)


def short_count(number: float) -> str:
    """A number in three digits: 38_123 -> "38.1k", 1_234_567 -> "1.23M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size * 0.9995:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def short_time(seconds: float) -> str:
    """A duration: 200 -> "3:20", 7384 -> "2:03:04", 200_000 -> "2 d 7 h"."""
    total = round(max(seconds, 0.0))
    if total >= 86_400:
        return f"{total // 86_400} d {total % 86_400 // 3600} h"
    hours, minutes, rest = total // 3600, total % 3600 // 60, total % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """Shows a run on the screen; does nothing where `show` is false (all processes but the main one)."""

    def __init__(
        self,
        num_steps: int,
        first_step: int = 0,
        every_seconds: float = 10.0,
        console: Console | None = None,
        show: bool = True,
    ):
        self.num_steps = num_steps
        self.every_seconds = every_seconds
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.show = show
        self._printed_at = -every_seconds
        self._unprinted: str | None = None
        self._times: deque[tuple[float, int]] = deque([(time.monotonic(), first_step)])
        self._live: LiveProgress | None = None
        if show and self.console.is_terminal:
            line = TextColumn("{task.description}", markup=False)
            columns = (BarColumn(bar_width=16), line) if self.console.width >= 120 else (line,)
            self._live = LiveProgress(*columns, console=self.console)
            self._task = self._live.add_task("starting", total=num_steps, completed=first_step)

    def update(self, step: int, values: Mapping[str, float], seconds_left: float | None = None) -> None:
        """Report step `step`; the time left is estimated from the speed unless it is known."""
        if not self.show:
            return
        now = time.monotonic()
        self._times.append((now, step))
        while len(self._times) > 2 and self._times[1][0] < now - RATE_SECONDS:
            self._times.popleft()
        if seconds_left is None:
            (then, before), done = self._times[0], step
            seconds_left = (now - then) / (done - before) * (self.num_steps - step) if done > before else None
        line = describe(step, self.num_steps, values, seconds_left)
        if self._live is not None:
            with self._terminal():
                self._live.update(self._task, completed=step, description=line)
        elif now - self._printed_at >= self.every_seconds:
            self._printed_at, self._unprinted = now, None
            self._print(line)
        else:
            self._unprinted = line

    def note(self, text: str, style: str = "") -> None:
        """A line that stays: a checkpoint written, a step skipped."""
        if self.show:
            self._print(Text(text, style))

    def _print(self, line: str | Text) -> None:
        with self._terminal():
            self.console.print(line)

    @contextlib.contextmanager
    def _terminal(self) -> Iterator[None]:
        """A terminal that was closed shows nothing more; the run has to save all the same."""
        try:
            yield
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.show = False

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with self._terminal():
                self._live.stop()
        elif self._unprinted is not None:
            self._print(self._unprinted)
