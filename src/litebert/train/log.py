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
        by_step = sum(line["step"] <= step for line, _ in found)  # steps only grow: what goes is the tail
        keep = by_step if num_lines is None else min(by_step, num_lines)
        self._waiting.clear()
        os.truncate(self.path, found[keep - 1][1] if keep else 0)
        self.num_lines = keep
        for line, _ in found[keep:]:
            if line.get("lasting"):
                self._append({**line, "step": step})

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
    return [line for line, _ in _lines(Path(path))]


def _lines(path: Path) -> list[tuple[dict[str, Any], int]]:
    """Each whole line, and the offset where it ends."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    result, end = [], 0
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):  # after the last line break: torn, or nothing
        end += len(line) + 1
        try:
            values = json.loads(line)
            values["step"] = int(values["step"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}, line {number}: not a line of metrics; delete the line to go on") from None
        result.append((values, end))
    return result


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
