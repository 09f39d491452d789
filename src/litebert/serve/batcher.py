"""Requests that arrive at the same time go through the model together.

One thread per model: it takes what waits, in order of arrival and across abilities, up to a budget of tokens, and waits
a moment for more only where the budget is not reached. What waits is bounded; beyond that a request is refused at once,
with a guess at when to come back. Nothing that was accepted is dropped, unless its own time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from litebert.errors import InputError
from litebert.serve.config import ServeConfig
from litebert.serve.log import log_event
from litebert.serve.metrics import Metrics
from litebert.serve.refusals import Refusal
from litebert.text.language import Language


class Job(Protocol):
    """One validated input of one ability."""

    @property
    def tokens(self) -> int: ...
    @property
    def masks(self) -> int: ...


class Predictor(Protocol):
    """What the server needs of a `litebert.Predictor`."""

    @property
    def name(self) -> str: ...
    @property
    def abilities(self) -> tuple[str, ...]: ...
    def job(self, ability: str, **arguments: Any) -> Any: ...
    def run(self, jobs: Sequence[Any]) -> Sequence[Any]: ...


class FailedJob(Exception):
    """A job on which the model itself failed: a bug of ours, already logged."""


@dataclass(eq=False)
class Ticket:
    """The jobs of one request, and the promise to its handler."""

    jobs: Sequence[Job]
    promise: asyncio.Future[Sequence[Any]]
    started: bool = False
    given_up: bool = False
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = sum(job.tokens for job in self.jobs)


def fitting_batch(predictor: Predictor) -> int:
    """Tokens per batch at which a device is busy: a few hundred for a CPU, thousands for a GPU."""
    device = getattr(getattr(predictor, "runtime", None), "device", None)
    return 8192 if getattr(device, "is_cuda", False) else 512


def runtime_of(predictor: Predictor) -> str:
    """What runs a model, and on what: "onnx fp32, CPU, 2 threads"."""
    return str(getattr(getattr(predictor, "runtime", None), "name", "unknown"))


def language_of_model(predictor: Predictor) -> Language:
    """What a model's vocabulary is mostly made for; "en" where that is not known."""
    tokenizer = getattr(predictor, "tokenizer", None)
    return "en" if tokenizer is None else tokenizer.language


class Batcher:
    """The queue of one model and the thread that empties it."""

    def __init__(self, name: str, predictor: Predictor, settings: ServeConfig, metrics: Metrics):
        self.name, self.predictor = name, predictor
        self._settings, self._metrics = settings, metrics
        self._batch_tokens = settings.batch_tokens or fitting_batch(predictor)
        self._queue: deque[Ticket] = deque()
        self._tokens = 0  # of the queue
        self._preparing = 0  # requests that have a place but are not in the queue yet
        self._changed = threading.Condition()
        self._closing = False
        self._rate = 0.0  # tokens per second, a running mean
        self._thread = threading.Thread(target=self._work, name=f"batcher {name}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        metrics.queue_requests.read(lambda: len(self._queue), model=name)
        metrics.queue_tokens.read(lambda: self._tokens, model=name)

    def start(self, warm_up: Callable[[], object] = lambda: None) -> None:
        """Start the thread; the first thing it does is to warm up."""
        self._loop = asyncio.get_running_loop()
        self._warm_up = warm_up
        self._thread.start()

    async def close(self) -> None:
        """Finish what waits, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place in the queue while a request's jobs are made: one that would not fit is refused before the work."""
        with self._changed:
            if len(self._queue) + self._preparing >= self._settings.queue_requests:
                raise self._full()
            self._preparing += 1
        try:
            yield
        finally:
            with self._changed:
                self._preparing -= 1

    def accept(self, jobs: Sequence[Job]) -> Ticket:
        """Put the jobs of a request into the queue, or refuse them."""
        assert self._loop is not None, "start() comes first"
        ticket = Ticket(jobs, self._loop.create_future())
        with self._changed:
            # An empty queue takes any request: its own size was checked before.
            if self._queue and self._tokens + ticket.tokens > self._settings.queue_tokens:
                raise self._full()
            self._queue.append(ticket)
            self._tokens += ticket.tokens
            self._changed.notify()
        return ticket

    async def wait(self, ticket: Ticket, seconds: float) -> Sequence[Any]:
        """The results of a ticket, or a refusal when its time is over."""
        try:
            return await asyncio.wait_for(ticket.promise, max(seconds, 0))
        except asyncio.CancelledError:  # nobody waits any more: the end of the server's patience at its shutdown
            ticket.given_up = True
            raise
        except TimeoutError:
            ticket.given_up = True
            limit = f"{self._settings.timeout_s:g} s"
            if ticket.started:
                raise Refusal(504, "timeout", f"the model did not finish within {limit}; send less text") from None
            message = f"the request waited longer than {limit} for its turn; try again later"
            raise Refusal(503, "overloaded", message, self._retry_after()) from None

    def _full(self) -> Refusal:
        self._metrics.refused.add(1, model=self.name, reason="queue_full")
        message = f"model {self.name!r} has a full queue; try again later"
        return Refusal(429, "queue_full", message, self._retry_after())

    def _retry_after(self) -> dict[str, str]:
        seconds = self._tokens / self._rate if self._rate else 1.0
        return {"Retry-After": str(min(max(math.ceil(seconds), 1), 60))}

    # The thread's side.

    def _work(self) -> None:
        self._warm_up()
        while batch := self._collect():
            began = time.perf_counter()
            outcomes = self._run(batch)
            self._deliver(batch, outcomes)
            self._count(batch, time.perf_counter() - began)

    def _collect(self) -> list[Ticket]:
        """The next batch; empty when the server is closing and nothing waits."""
        batch: list[Ticket] = []
        room = self._batch_tokens
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            deadline = time.monotonic() + self._settings.batch_wait_ms / 1000
            while True:
                while self._queue and (not batch or self._queue[0].tokens <= room):
                    ticket = self._queue.popleft()
                    self._tokens -= ticket.tokens
                    if not ticket.given_up and not ticket.promise.cancelled():
                        ticket.started = True
                        batch.append(ticket)
                        room -= ticket.tokens
                left = deadline - time.monotonic()
                if self._queue or room <= 0 or self._closing or left <= 0:
                    if batch or (self._closing and not self._queue):
                        return batch
                    # Everything that waited had been given up.
                    self._changed.wait_for(lambda: self._queue or self._closing)
                else:
                    self._changed.wait(left)

    def _run(self, batch: list[Ticket]) -> list[Sequence[Any] | FailedJob]:
        """The results of each ticket; a job that failed by our fault fails its own request, no other."""
        jobs = [job for ticket in batch for job in ticket.jobs]
        try:
            results = list(self.predictor.run(jobs))
            assert len(results) == len(jobs)
        except Exception as error:
            results = [error] * len(jobs)
        outcomes: list[Sequence[Any] | FailedJob] = []
        for ticket in batch:
            own, results = results[: len(ticket.jobs)], results[len(ticket.jobs) :]
            failures = [
                result for result in own if isinstance(result, Exception) and not isinstance(result, InputError)
            ]
            for failure in failures:
                log_event("failed", logging.ERROR, failure, model=self.name, tokens=ticket.tokens)
                self._metrics.failures.add(1, model=self.name)
            outcomes.append(FailedJob() if failures else own)
        return outcomes

    def _deliver(self, batch: list[Ticket], outcomes: list[Sequence[Any] | FailedJob]) -> None:
        def settle() -> None:
            for ticket, outcome in zip(batch, outcomes, strict=True):
                if ticket.promise.done():  # given up
                    continue
                if isinstance(outcome, FailedJob):
                    ticket.promise.set_exception(outcome)
                else:
                    ticket.promise.set_result(outcome)

        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(settle)  # one wake-up for the whole batch

    def _count(self, batch: list[Ticket], seconds: float) -> None:
        tokens = sum(ticket.tokens for ticket in batch)
        rate = tokens / max(seconds, 1e-6)
        self._rate = 0.8 * self._rate + 0.2 * rate if self._rate else rate
        self._metrics.tokens.add(tokens, model=self.name)
        self._metrics.batch_requests.observe(len(batch), model=self.name)
        self._metrics.batch_tokens.observe(tokens, model=self.name)
        self._metrics.batch_seconds.observe(seconds, model=self.name)
