"""Worker processes: each takes parts, scores them and writes them.

On a CPU each has the model itself; beside a GPU they prepare sequences and finish results, and the process that has the
GPU runs the model for all of them.

They are started as programs of their own and not forked: a fork would copy torch's threads and the GPU's state, and
Python's `spawn` would run the caller's script again.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from litebert.bulk.device import Sequences, receive_arrays, send_arrays, split_outputs
from litebert.bulk.folder import Folder, part_name
from litebert.bulk.part import Scored, Work, score_part
from litebert.bulk.reading import Part
from litebert.errors import LitebertError
from litebert.predict.runtime import Outputs, Request
from litebert.text.sources import Source

if TYPE_CHECKING:
    from litebert.model.config import ModelConfig
    from litebert.predict.predictor import Predictor
    from litebert.tasks.task import Task
    from litebert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class SharedModel:
    """What a worker must know of a model that another process runs."""

    name: str
    config: ModelConfig
    head: str
    outputs: frozenset[str]
    any_depth: bool
    tokenizer: Tokenizer
    task: Task | None

    @classmethod
    def of(cls, predictor: Predictor) -> SharedModel:
        """What it must know of this one."""
        runtime = predictor.runtime
        known = (runtime.name, runtime.config, runtime.head, runtime.outputs, runtime.any_depth)
        return cls(*known, predictor.tokenizer, predictor.task)


@dataclass(frozen=True)
class Start:
    """The first message to a worker."""

    work: Work
    out: str
    device: SharedModel | None = None  # None: the worker loads the model itself


class Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, start: Start):
        self._parts, parts = _pair()
        self.device, device = _pair()
        numbers = (parts.fileno(), device.fileno())
        code = f"import sys; sys.path[:] = {sys.path!r}; from litebert.bulk.worker import main; main{numbers}"
        # One thread each: there are as many workers as cores. torch sets its own number.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=numbers, env=environment, stdin=subprocess.DEVNULL
        )
        parts.close()
        device.close()
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
    _end_with(os.getppid())
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
    from litebert.predict.predictor import Predictor

    remote = RemoteRuntime(start.device, device)
    return Predictor.of(remote, start.device.tokenizer, start.device.task, start.work.model)


def _pair() -> tuple[Connection, Connection]:
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed while we compute."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# ---------------------------------------------------------------------------------------------------------------------
# The model in another process


class RemoteRuntime:
    """A runtime whose model is in another process; one call at a time."""

    def __init__(self, device: SharedModel, connection: Connection):
        self.name, self.config, self.head, self.outputs = device.name, device.config, device.head, device.outputs
        self.any_depth = device.any_depth
        self._connection = connection

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        if not requests:
            return []
        send_arrays(self._connection, Sequences.of(requests))
        answer = receive_arrays(self._connection)
        if isinstance(answer, BaseException):
            raise answer
        return split_outputs(answer, len(requests))
