"""Parts scored on this machine: reading, tokenising, the model and writing at the same time, in several processes.

On a CPU each worker process has its own copy of the model. With a GPU they prepare sequences and finish results, and
one process runs the model for all of them.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from litebert.bulk.folder import Folder, part_name
from litebert.bulk.part import Scored, Work, score_part
from litebert.bulk.reading import Part
from litebert.errors import LitebertError
from litebert.predict.predictor import Predictor
from litebert.predict.remote import SharedModel, end_with_parent, serve_device, start_process
from litebert.text.sources import Source

TRIES = 3  # of a part whose worker dies

Done = Callable[[Source, Part, Scored], None]
Feed = Iterator[tuple[Source, Part]]


def run_here(work: Work, predictor: Predictor, out: str, feed: Feed, done: Done) -> None:
    """All in this process, one part after another."""
    folder = Folder(out)
    for source, part in feed:
        data, scored = score_part(work, predictor, source, part)
        folder.write(part_name(part.source, part.number), data)
        done(source, part, scored)


def run_workers(work: Work, shared: Predictor | None, out: str, feed: Feed, num_workers: int, done: Done) -> None:
    """Run in worker processes; `shared` runs the model for all of them, None: each loads its own.

    This process reads. At most one part waits for each worker, so memory does not grow with the input. A worker that
    dies is replaced, and its part is scored again.
    """
    start = Start(work, out, None if shared is None else SharedModel.of(shared))
    waiting: queue.Queue[tuple[Source, Part] | None] = queue.Queue(num_workers)
    finished: queue.Queue[tuple[Source, Part, Scored] | BaseException] = queue.Queue()
    stopping = threading.Event()
    threads = [
        threading.Thread(target=_drive, args=(start, shared, waiting, finished, stopping), daemon=True)
        for _ in range(num_workers)
    ]
    for thread in threads:
        thread.start()
    under_way = 0

    def report(block: bool) -> int:
        """Collect finished parts; returns their number."""
        count = 0
        while True:
            try:
                entry = finished.get(block and not count)
            except queue.Empty:
                return count
            if isinstance(entry, BaseException):
                raise entry
            done(*entry)
            count += 1

    try:
        for source, part in feed:
            while True:
                under_way -= report(block=False)
                try:
                    waiting.put((source, part), timeout=0.1)
                    break
                except queue.Full:
                    continue
            under_way += 1
        while under_way:
            under_way -= report(block=True)
    finally:
        stopping.set()
        for _ in threads:
            try:
                waiting.put_nowait(None)
            except queue.Full:
                break
        for thread in threads:
            thread.join()


def _drive(start: Start, device: Predictor | None, waiting: Any, finished: Any, stopping: threading.Event) -> None:
    """One worker from its start to the end of the run."""
    worker: Worker | None = None
    try:
        while not stopping.is_set():
            try:
                entry = waiting.get(timeout=0.2)
            except queue.Empty:
                continue
            if entry is None:
                return
            source, part = entry
            for attempt in range(TRIES):
                worker = worker or _start(start, device)
                try:
                    scored = _score(worker, source, part, stopping)
                    if scored is None:
                        return
                    # Without the rows, which are written and need not wait here.
                    finished.put((source, part.without_rows(), scored))
                    break
                except (EOFError, Failure) as error:
                    worker.close()
                    worker = None
                    if attempt == TRIES - 1:
                        raise LitebertError(_gave_up(source, part, error)) from None
    except BaseException as error:
        finished.put(error)
    finally:
        if worker is not None:
            worker.close()


def _gave_up(source: Source, part: Part, error: Exception) -> str:
    where = f"{source.path}, rows {part.begin + 1:,} to {part.begin + len(part.table):,}"
    what = f"failed {TRIES} times ({error})"
    if not isinstance(error, Failure):
        advice = "is there enough memory? Fewer workers or smaller part_rows need less"
        what = f"the worker process died {TRIES} times; {advice}"
    return f"{where}: {what}. Finished parts are kept: rerun the same command to resume"


def _score(worker: Worker, source: Source, part: Part, stopping: threading.Event) -> Scored | None:
    worker.send(source, part)
    while not worker.answered(0.2):
        if stopping.is_set():
            return None
    return worker.receive()


def _start(start: Start, device: Predictor | None) -> Worker:
    worker = Worker(start)
    if device is not None:
        threading.Thread(target=serve_device, args=(device, worker.device), daemon=True).start()
    return worker


# ---------------------------------------------------------------------------------------------------------------------
# The worker process


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
        self._process, (self._parts, self.device) = start_process("litebert.bulk.local", 2)
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
        """The result of the part; EOFError where the process has died."""
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
                predictor = predictor or (start.device.open(device) if start.device else start.work.open_model())
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
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):  # the parent has died, or is done
        os._exit(0)
