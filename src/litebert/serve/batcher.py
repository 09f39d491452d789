"""Requests that arrive at the same time go through the model together.

One thread per model: it runs pass after pass over what the queue gives it, and waits a moment for more only where a
pass is not full and nothing has begun. What waits is bounded by what the device can do in the time that a request has;
beyond that a request is refused at once, with a guess at when to come back. Nothing that was accepted is dropped,
unless its own time is over or its client went away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from litebert.errors import InputError
from litebert.serve.config import ServeConfig
from litebert.serve.log import log_event
from litebert.serve.metrics import Metrics
from litebert.serve.queue import OLDEST_SHARE, Job, Part, Queue, Ticket
from litebert.serve.refusals import ClientGone, Refusal
from litebert.text.language import Language

# A pass should not take longer: whoever comes while it runs waits for its end. One sequence is the least, however long.
PASS_S = 0.25
LEAST_TOKENS = 64  # of a pass, however slow the device


class Predictor(Protocol):
    """What the server needs of a `litebert.Predictor`."""

    @property
    def name(self) -> str: ...
    @property
    def abilities(self) -> tuple[str, ...]: ...
    def job(self, ability: str, **arguments: Any) -> Any: ...
    def run(self, jobs: Sequence[Any]) -> Sequence[Any]: ...
    def run_pass(self, parts: Sequence[tuple[Any, int]]) -> None: ...


class FailedJob(Exception):
    """A job on which the model itself failed: a bug of ours, already logged."""


class Speed:
    """Tokens per second of a device, as the last passes went; those with many tokens count for more."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def note(self, tokens: int, seconds: float) -> None:
        """Take a pass into account."""
        self._tokens = 0.8 * self._tokens + tokens
        self._seconds = 0.8 * self._seconds + seconds

    @property
    def rate(self) -> float | None:
        """Tokens per second; None before the first pass."""
        return self._tokens / self._seconds if self._seconds else None


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
        self._queue = Queue()
        self._speed = Speed()
        self._preparing = 0  # requests that have a place but are not in the queue yet
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"batcher {name}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        metrics.queue_requests.labels(model=name).set_function(lambda: self._queue.waiting)
        metrics.queue_tokens.labels(model=name).set_function(lambda: self._queue.tokens)

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
            if self._queue.waiting + self._preparing >= self._settings.queue_requests:
                raise self._full(self._queue.tokens)
            self._preparing += 1
        try:
            yield
        finally:
            with self._changed:
                self._preparing -= 1

    def accept(self, jobs: Sequence[Job], client_is_gone: Callable[[], bool] = lambda: False) -> Ticket:
        """Put the jobs of a request into the queue, or refuse them."""
        assert self._loop is not None, "start() comes first"
        ticket = Ticket(jobs, self._loop.create_future(), client_is_gone)
        with self._changed:
            ahead = self._queue.ahead(ticket.tokens)
            # With nothing ahead any request is tried: its own size was checked before, and speeds are guesses.
            if ahead and ahead + ticket.tokens > self._room():
                raise self._full(ahead)
            self._queue.add(ticket)
            self._changed.notify()
        return ticket

    def _room(self) -> float:
        """Tokens that may wait: what the device can do in the time of a request, less the share of the oldest one."""
        rate = self._speed.rate
        most = self._settings.queue_tokens
        return most if rate is None else min(most, rate * self._settings.timeout_s * (1 - OLDEST_SHARE))

    def _budget(self) -> int:
        """Tokens of a pass."""
        if self._settings.batch_tokens:
            return self._settings.batch_tokens
        rate, most = self._speed.rate, fitting_batch(self.predictor)
        return most if rate is None else min(most, max(LEAST_TOKENS, int(rate * PASS_S)))

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
            raise Refusal(503, "overloaded", message, self._retry_after(self._queue.ahead(ticket.tokens))) from None

    def _full(self, ahead: int) -> Refusal:
        self._metrics.refused.labels(model=self.name, reason="queue_full").inc()
        message = f"model {self.name!r} has a full queue; try again later"
        return Refusal(429, "queue_full", message, self._retry_after(ahead))

    def _retry_after(self, ahead: int) -> dict[str, str]:
        rate = self._speed.rate
        seconds = ahead / rate if rate else 1.0
        return {"Retry-After": str(min(max(math.ceil(seconds), 1), 60))}

    # The thread's side.

    def _work(self) -> None:
        self._warm_up()
        while parts := self._next_pass():
            began = time.perf_counter()
            self._run(parts)
            self._count(parts, time.perf_counter() - began)
            with self._changed:
                finished = self._queue.settle(parts)
            self._deliver([(ticket, self._outcome(ticket)) for ticket in finished])

    def _next_pass(self) -> list[Part]:
        """The next pass; empty when the server is closing and nothing waits."""
        deadline = math.inf
        with self._changed:
            while True:
                self._deliver([(ticket, ClientGone()) for ticket in self._queue.drop()])
                if not self._queue:
                    if self._closing:
                        return []
                    deadline = math.inf
                    self._changed.wait()
                    continue
                deadline = min(deadline, time.monotonic() + self._settings.batch_wait_ms / 1000)
                budget = self._budget()
                begun = self._queue.waiting < len(self._queue)
                if not begun and not self._closing and self._queue.tokens < budget and deadline > time.monotonic():
                    self._changed.wait(deadline - time.monotonic())  # for more to share the pass
                    continue
                return self._queue.take(budget)

    def _run(self, parts: Sequence[Part]) -> None:
        try:
            self.predictor.run_pass([(part.job, part.count) for part in parts])
        except Exception as error:
            for part in parts:
                part.job.result = error

    def _outcome(self, ticket: Ticket) -> Sequence[Any] | FailedJob:
        """The results of a finished request; a job that failed by our fault fails its own request, no other."""
        results = [job.result for job in ticket.jobs]
        failures = [each for each in results if isinstance(each, Exception) and not isinstance(each, InputError)]
        for failure in failures:
            log_event("failed", logging.ERROR, failure, model=self.name, tokens=ticket.tokens)
            self._metrics.failures.labels(model=self.name).inc()
        return FailedJob() if failures else results

    def _deliver(self, outcomes: Sequence[tuple[Ticket, Sequence[Any] | Exception]]) -> None:
        def settle() -> None:
            for ticket, outcome in outcomes:
                if ticket.promise.done():  # given up
                    continue
                if isinstance(outcome, Exception):
                    ticket.promise.set_exception(outcome)
                else:
                    ticket.promise.set_result(outcome)

        assert self._loop is not None
        if outcomes:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(settle)  # one wake-up for all of them

    def _count(self, parts: Sequence[Part], seconds: float) -> None:
        tokens = sum(part.tokens for part in parts)
        self._speed.note(tokens, seconds)
        self._metrics.tokens.labels(model=self.name).inc(tokens)
        self._metrics.batch_requests.labels(model=self.name).observe(len({id(part.ticket) for part in parts}))
        self._metrics.batch_tokens.labels(model=self.name).observe(tokens)
        self._metrics.batch_seconds.labels(model=self.name).observe(seconds)
