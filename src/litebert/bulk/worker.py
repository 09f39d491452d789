"""Worker processes: each takes parts, scores them and writes them.

On a CPU each has its own copy of the model. With a GPU they prepare sequences and finish results, and one process runs
the model for all of them.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from litebert.bulk.folder import Folder, part_name
from litebert.bulk.part import Scored, Work, score_part
from litebert.bulk.reading import Part
from litebert.errors import LitebertError
from litebert.predict.remote import SharedModel, end_with_parent, start_process
from litebert.text.sources import Source

if TYPE_CHECKING:
    from litebert.predict.predictor import Predictor


@dataclass(frozen=True)
class Start:
    """The first message to a worker."""

    work: Work
    out: str
    device: SharedModel | None = None  # None: the worker loads the model itself


class Failure(Exception):
    """An unexpected error in a worker; its traceback went to stderr."""


class Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, start: Start):
        self._process, (self._parts, self.device) = start_process("litebert.bulk.worker", 2)
        self._parts.send(start)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def send(self, source: Source, part: Part) -> None:
        """Give it a part to score and write; EOFError where the process has died."""
        try:
            self._parts.send((source, part))
        except OSError:
            raise EOFError from None

    def answered(self, seconds: float) -> bool:
        """Whether it is done with the part, or dead, within this many seconds."""
        return self._parts.poll(seconds)

    def receive(self) -> Scored:
        """What came of the part; EOFError where the process has died."""
        try:
            answer = self._parts.recv()
        except OSError:
            raise EOFError from None
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Scored)
        return answer

    def close(self) -> None:
        """End it, now."""
        self._parts.close()
        self.device.close()
        self._process.kill()
        self._process.wait()


def main(parts_number: int, device_number: int) -> None:
    """What a worker process does."""
    end_with_parent()
    parts, device = Connection(parts_number), Connection(device_number)
    try:
        start: Start = parts.recv()
        predictor: Predictor | None = None
        folder = Folder(start.out)
        while True:
            source, part = parts.recv()
            try:
                predictor = predictor or _open(start, device)
                data, scored = score_part(start.work, predictor, source, part)
                folder.write(part_name(part.source, part.number), data)
                parts.send(scored)
            except (LitebertError, OSError) as error:
                parts.send(error)
            except MemoryError:
                raise
            except Exception as error:  # not sent itself: it may be of a type that cannot be pickled
                traceback.print_exc()
                parts.send(Failure(f"{type(error).__name__}: {error}"))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):  # the parent is gone, or wants no more
        os._exit(0)


def open_predictor(work: Work) -> Predictor:
    """The model in this process."""
    from litebert.predict.predictor import Predictor

    return Predictor(
        work.model, runtime=work.runtime, device=work.device, threads=work.threads, max_tokens=work.max_tokens
    )


def _open(start: Start, device: Connection) -> Predictor:
    if start.device is None:
        return open_predictor(start.work)
    return start.device.open(device)
