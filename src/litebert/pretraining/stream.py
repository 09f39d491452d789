"""Batches made ahead by other processes, in order; a dead worker is an error, never a wait.

A worker is a plain child process that reads a pickled job from its stdin and writes pickled batches to its stdout.
Unlike with `multiprocessing`, the caller's script is not imported again in the child, so it needs no
`if __name__ == "__main__"`; and since a child only ever waits for its pipe, it ends when its parent does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import count
from typing import IO, TYPE_CHECKING, Any

from litebert.errors import DataError, LitebertError

if TYPE_CHECKING:
    from litebert.pretraining.batches import Batch, Batches

HEADER = struct.Struct("<Q")
PIPE_BYTES = 1 << 20  # as large as Linux allows without privileges


class Stream:
    """Micro-batches in order; use it in a `with` block, or call close() when done."""

    def __init__(
        self,
        batches: Batches,
        start: int,
        stop: int | None,
        rank: int,
        world: int,
        micro_batches: int,
        workers: int,
        prefetch: int,
    ):
        self._workers: list[subprocess.Popen[bytes]] = []
        job = (batches, start, stop, rank, world, micro_batches)
        try:
            for _ in range(workers):
                self._workers.append(_start_worker(max(1, prefetch)))
            for number, worker in enumerate(self._workers):  # now that all are starting: a worker reads late
                _send_job(worker, (*job, number, workers))
        except BaseException:
            self.close()
            raise
        self._batches = self._receive() if workers else make_batches(*job)

    @property
    def worker_ids(self) -> list[int]:
        """The process ids of the workers that run."""
        return [worker.pid for worker in self._workers]

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return next(self._batches)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; harmless when called twice."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            worker.wait()
        self._workers = []

    def __del__(self) -> None:
        self.close()

    def _receive(self) -> Iterator[Batch]:
        for number in count():  # micro-batch i comes from worker i modulo workers
            if not self._workers:
                return
            worker = self._workers[number % len(self._workers)]
            assert worker.stdout is not None
            message: tuple[str, Any] = _read(worker.stdout) or ("died", worker.wait())
            kind, content = message
            if kind == "batch":
                yield content
                continue
            self.close()
            if kind == "end":
                return
            if kind == "error":
                raise content
            raise DataError(
                f"a batch worker died ({_describe_exit(content)}); rerun the same command to resume. "
                "If it ran out of memory, lower data.workers (0: the run makes its own batches)"
            )


def make_batches(
    batches: Batches,
    start: int,
    stop: int | None,
    rank: int,
    world: int,
    micro_batches: int,
    number: int = 0,
    workers: int = 1,
) -> Iterator[Batch]:
    """The micro-batches of a stream, or those that worker `number` of `workers` has to make."""
    batches.plan_ahead = True
    for index in count(number, workers):
        step, micro = divmod(index, micro_batches)
        if stop is not None and start + step >= stop:
            return
        yield batches.batch(start + step, rank, world, micro, micro_batches)


def _start_worker(prefetch: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-c", f"from litebert.pretraining.stream import work; work({prefetch})"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    # Ctrl-C, a scheduler's SIGTERM and a closed terminal's SIGHUP reach the whole process group, but the parent handles
    # them and still needs its batches. A signal blocked here stays blocked in the child from its start.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert worker.stdout is not None
    with contextlib.suppress(ImportError, AttributeError, OSError):  # not Linux, or not allowed
        import fcntl

        # Room for whole batches, so that the reader copies one at once instead of taking turns with the writer.
        fcntl.fcntl(worker.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return worker


def _send_job(worker: subprocess.Popen[bytes], job: tuple[Any, ...]) -> None:
    assert worker.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once; the first read will tell
        _write(worker.stdin, job)


def work(prefetch: int) -> None:
    """The worker's main loop: make every n-th micro-batch of a job, a few ahead of the reader."""
    pipe = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may write into the pipe
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(prefetch)

    def make() -> None:
        try:
            for batch in make_batches(*_read(sys.stdin.buffer)):
                ready.put(("batch", batch))
            ready.put(("end", None))
        except LitebertError as error:
            ready.put(("error", error))
        except Exception:
            ready.put(("error", RuntimeError(f"in a batch worker:\n{traceback.format_exc()}")))

    threading.Thread(target=make, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):  # the reader is gone
        while True:
            message = ready.get()
            _write(pipe, message)
            if message[0] != "batch":
                break
    os._exit(0)  # without waiting for the thread


def _write(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(HEADER.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    """The next message, or None if the other side is gone."""
    header = pipe.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    data = pipe.read(size)
    return pickle.loads(data) if len(data) == size else None


def _describe_exit(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
