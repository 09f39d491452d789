"""`metrics.jsonl`, the source of truth of a run: one line per report, on disk at once, exact after a resume.

    {"step": 100, "time": 1767225600.0, "kind": "train", "loss": 6.91, "mlm_accuracy": 0.07, ...}
    {"step": 120, "time": 1767225603.1, "kind": "event", "message": "loss nan at step 120: skipped"}

`step` counts finished steps. Whoever resumes from a checkpoint drops the lines after it first, so the file reads as if
the run had never been interrupted, but for the events that say so ("lasting").
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from litebert.errors import ConfigError, DataError
from litebert.extras import require
from litebert.files import write_atomic
from litebert.parse import parse_json


class MetricsLog:
    """Appends to `metrics.jsonl`, and mirrors numbers to TensorBoard where a folder for it is given.

    A disk that is full does not end the run: lines wait in memory for the next write, and `problem` says why.
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
            raise ConfigError(f"{self.path}: belongs to an earlier run; resume it, or choose another folder")
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
        """Add one line; a number that is not finite becomes null, since JSON has no other word for it."""
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
        """Go on without some lines; the file with them is kept beside."""
        content = self.path.read_bytes()
        aside = self.path.with_name(f"{self.path.name}.damaged")
        write_atomic(aside, content)
        lines = content[:end].split(b"\n")[:-1]
        kept = [line + b"\n" for number, line in enumerate(lines, start=1) if number not in damaged]
        self._file.close()
        write_atomic(self.path, b"".join(kept))
        self._file = self.path.open("ab", buffering=0)
        which = f"line {damaged[0]}" if len(damaged) == 1 else f"{len(damaged)} lines, the first of them {damaged[0]},"
        self.damage = f"{self.path}: {which} damaged and left out; the file as it was is {aside.name}"

    def close(self) -> None:
        """Write what waits, and let go of the files."""
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
            raise DataError(f"{path}, line {number}: not a line of metrics; delete the line to go on")
        found.append(line)
    return found


def _lines(path: Path) -> list[tuple[dict[str, Any] | None, int]]:
    """Each whole line, None where it is damaged, and the offset where it ends."""
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
