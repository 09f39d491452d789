"""What a run reports: `metrics.jsonl` for programs, a line on the screen for people; and the means between two reports.

`metrics.jsonl` is the source of truth: one line per report, written at once, exact after a resume.

    {"step": 100, "time": 1767225600.0, "kind": "train", "loss": 6.91, "mlm_accuracy": 0.07, ...}
    {"step": 120, "time": 1767225603.1, "kind": "event", "message": "loss nan at step 120: skipped"}

`step` counts finished steps. A run that resumes from a checkpoint first drops the lines after it, so the file reads as
if the run had never been interrupted, except for the events that say so ("lasting").

On a terminal, a live line; elsewhere a plain line every few seconds:

    step 1,200/5,000  loss 2.914  MLM 41.2%  order 78.0%  3:20 left  38.1k tok/s  44% of peak"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as LiveProgress
from rich.text import Text

from litebert.errors import ConfigError, DataError
from litebert.extras import require
from litebert.files import write_atomic
from litebert.parse import parse_json

if TYPE_CHECKING:
    from litebert.train.trainer import Trainer


class MetricsLog:
    """Appends to `metrics.jsonl`, and mirrors numbers to TensorBoard where a folder for it is given.

    A full disk does not end the run: lines wait in memory for the next write, and `problem` says why.
    """

    def __init__(
        self,
        path: Path | str,
        resume_step: int | None = None,
        tensorboard: Path | str | None = None,
        resume_lines: int | None = None,
    ):
        self.path = Path(path)
        self.problem: str | None = None
        self.damage: str | None = None  # what was wrong with the file of an earlier part of the run
        self.num_lines = 0
        self._waiting: deque[bytes] = deque(maxlen=10_000)
        if resume_step is None and self.path.exists() and self.path.stat().st_size:
            raise ConfigError(f"{self.path}: holds an earlier run's metrics; resume that run, or choose another folder")
        self._board: Any = None
        if tensorboard is not None:
            require("tensorboard", "the TensorBoard log")
            from torch.utils.tensorboard import SummaryWriter

            purge = None if resume_step is None else resume_step + 1
            self._board = SummaryWriter(str(tensorboard), purge_step=purge)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        if resume_step is not None:
            self.rewind(resume_step, resume_lines)

    def write(self, step: int, values: Mapping[str, Any], kind: str = "train") -> None:
        """Add one line; numbers that are not finite become null, since JSON has none."""
        line = {"step": step, "time": time.time(), "kind": kind}
        line |= {name: _plain(value) for name, value in values.items()}
        self._append(line)
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def event(self, step: int, message: str, lasting: bool = False) -> None:
        """Add a line for people: a skipped step, a rollback, a resume; `lasting` ones survive a rewind."""
        self.write(step, {"message": message, **({"lasting": True} if lasting else {})}, kind="event")

    def rewind(self, step: int, num_lines: int | None = None) -> None:
        """Go back to the checkpoint of `step`, which was written after `num_lines` lines: drop what came after it.

        A torn last line goes too. Without the number of lines, those after `step` go.
        """
        found = _lines(self.path)
        early = [number for number, (line, _) in enumerate(found, start=1) if line is not None and line["step"] <= step]
        by_step = early[-1] if early else 0  # steps only grow: what goes is the tail
        keep = by_step if num_lines is None else min(by_step, num_lines)
        self._waiting.clear()
        damaged = [number for number, (line, _) in enumerate(found[:keep], start=1) if line is None]
        if damaged:
            self._leave_out(damaged, found[keep - 1][1])
        else:
            os.truncate(self.path, found[keep - 1][1] if keep else 0)
        self.num_lines = keep - len(damaged)
        for line, _ in found[keep:]:
            if line is not None and line.get("lasting"):
                self._append({**line, "step": step})

    def _leave_out(self, damaged: list[int], end: int) -> None:
        """Drop damaged lines; the original file is kept next to the new one."""
        content = self.path.read_bytes()
        aside = self.path.with_name(f"{self.path.name}.damaged")
        write_atomic(aside, content)
        lines = content[:end].split(b"\n")[:-1]
        kept = [line + b"\n" for number, line in enumerate(lines, start=1) if number not in damaged]
        self._file.close()
        write_atomic(self.path, b"".join(kept))
        self._file = self.path.open("ab", buffering=0)
        which = f"line {damaged[0]}" if len(damaged) == 1 else f"{len(damaged)} lines, the first of them {damaged[0]},"
        self.damage = f"{self.path}: {which} damaged and left out; the original file is kept as {aside.name}"

    def close(self) -> None:
        """Write pending lines and close the files."""
        self._flush()
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        self._waiting.append(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self.num_lines += 1
        self._flush()

    def _flush(self) -> None:
        end = os.fstat(self._file.fileno()).st_size
        try:
            left = memoryview(b"".join(self._waiting))
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            os.truncate(self.path, end)  # without half a line, so that the next try can write them all
            self.problem = f"{self.path}: {error.strerror}"
        else:
            self._waiting.clear()
            self.problem = None


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """All lines of a metrics file; a torn last line is left out, damage elsewhere is an error."""
    found = []
    for number, (line, _) in enumerate(_lines(Path(path)), start=1):
        if line is None:
            raise DataError(f"{path}, line {number}: not a line of metrics; delete the line to continue")
        found.append(line)
    return found


def _lines(path: Path) -> list[tuple[dict[str, Any] | None, int]]:
    """Each complete line (None if damaged) and the offset where it ends."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from None
    result: list[tuple[dict[str, Any] | None, int]] = []
    end = 0
    for line in content.split(b"\n")[:-1]:  # after the last line break: torn, or nothing
        end += len(line) + 1
        result.append((_parse(line), end))
    return result


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        values = parse_json(line.decode("utf-8"), "")
        return {**values, "step": int(values["step"]), "kind": str(values.get("kind", "train"))}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


RATE_SECONDS = 60.0  # the time left follows the speed of the last minute: a deeper stage is slower


def describe(step: int, num_steps: int, values: Mapping[str, float], seconds_left: float | None = None) -> str:
    """One report as text; missing values are left out, the least important come last."""
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
    """Shows a run on the screen, unless `show` is false (all processes but the main one)."""

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
        """Stop showing anything once the terminal is closed; the run still has to save."""
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


class StepTotals(NamedTuple):
    """Totals of one global batch, over all micro-batches and processes."""

    tokens: int
    counts: tuple[float, ...]
    sums: tuple[float, ...]  # those of `Learner.loss`
    norm: float  # of the gradient, before clipping


class Meter:
    """Averages the steps between two reports; a checkpoint between them keeps its `state`."""

    def __init__(self, trainer: Trainer, state: Mapping[str, Any] | None = None):
        state = state or {"steps": [], "seconds": 0.0}
        self.trainer = trainer
        self._steps = [StepTotals(tokens, tuple(c), tuple(s), norm) for tokens, c, s, norm in state["steps"]]
        self._since = self._working() - state["seconds"]

    def _working(self) -> float:
        """A clock that stops while the run evaluates."""
        return time.monotonic() - self.trainer.evaluating

    def add(self, totals: StepTotals) -> None:
        """Count one step."""
        self._steps.append(totals)

    def state(self) -> dict[str, Any]:
        """What has been counted since the last report, as plain data."""
        return {"steps": self._steps, "seconds": self._working() - self._since}

    def write(self) -> None:
        """Write the means since the last report to the log and the screen."""
        if not self._steps:
            return
        trainer, learner, steps = self.trainer, self.trainer.learner, self._steps
        elapsed = max(self._working() - self._since, 1e-9)
        values = {
            "loss": sum(map(learner.mean_loss, steps)) / len(steps),
            **learner.report(steps, elapsed),
            "lr": trainer.lr,
            "gradient_norm": steps[-1].norm,
            "tokens": trainer.tokens,
            "tokens_per_second": sum(step.tokens for step in steps) / elapsed,
            "seconds": trainer.clock(),
        }
        if trainer.log is not None:
            trainer.log.write(trainer.step, values)
            if trainer.log.problem:
                trainer.progress.note(trainer.log.problem, "yellow")
        limit, left = learner.max_seconds, None
        if limit and trainer.seconds / limit > trainer.step / learner.num_steps:
            left = limit - trainer.seconds
        trainer.progress.update(trainer.step, values, left)
        self._steps, self._since = [], self._working()
