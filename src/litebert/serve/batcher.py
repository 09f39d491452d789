"""Dynamic batching: requests that arrive at the same time share forward passes.

Each model has one thread, which runs pass after pass over the sequences that the queue selects. If nothing is in
progress and a pass is not full, it waits a moment for more requests. The queue is limited to what the device can
compute within a request's timeout; a request beyond that is refused immediately, with an estimate of when to retry. An
accepted request is dropped only if it times out or its client disconnects.
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
from litebert.serve.queue import OLDEST_SHARE, Job, Part, Queue, Ticket
from litebert.serve.schemas import ClientGone, Refusal
from litebert.serve.telemetry import Metrics, log_event
from litebert.text.words import Language

# Target duration of a pass, since a new request waits for the current pass to end. A pass has at least one sequence.
PASS_S = 0.25
LEAST_TOKENS = 64  # per pass, however slow the device


class Predictor(Protocol):
    """The part of `litebert.Predictor` that the server uses."""

    @property
    def name(self) -> str: ...
    @property
    def abilities(self) -> tuple[str, ...]: ...
    def job(self, ability: str, **arguments: Any) -> Any: ...
    def run(self, jobs: Sequence[Any]) -> Sequence[Any]: ...
    def run_pass(self, parts: Sequence[tuple[Any, int]]) -> None: ...


class FailedJob(Exception):
    """The model failed on a job: a bug, already logged."""


class Speed:
    """Measured speed of a device: an average over recent passes, weighted by their tokens."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def note(self, tokens: int, seconds: float) -> None:
        """Record a pass."""
        self._tokens = 0.8 * self._tokens + tokens
        self._seconds = 0.8 * self._seconds + seconds

    @property
    def rate(self) -> float | None:
        """Tokens per second; None before the first pass."""
        return self._tokens / self._seconds if self._seconds else None


def fitting_batch(predictor: Predictor) -> int:
    """Tokens per pass that keep a device busy: a few hundred on a CPU, thousands on a GPU."""
    runtime = getattr(predictor, "runtime", None)
    on_gpu = getattr(getattr(runtime, "device", None), "is_cuda", False) or getattr(runtime, "on_gpu", False)
    return 8192 if on_gpu else 512


def runtime_of(predictor: Predictor) -> str:
    """The runtime and device of a model: "onnx fp32, CPU, 2 threads"."""
    return str(getattr(getattr(predictor, "runtime", None), "name", "unknown"))


def language_of_model(predictor: Predictor) -> Language:
    """The main language of a model's vocabulary; "en" if unknown."""
    tokenizer = getattr(predictor, "tokenizer", None)
    return "en" if tokenizer is None else tokenizer.language


class Batcher:
    """The queue of one model, and the thread that works through it."""

    def __init__(self, name: str, predictor: Predictor, settings: ServeConfig, metrics: Metrics):
        self.name, self.predictor = name, predictor
        self._settings, self._metrics = settings, metrics
        self._queue = Queue()
        self._speed = Speed()
        self._preparing = 0  # requests that have a place but are still being encoded
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"batcher {name}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        metrics.watch(metrics.queue_requests.labels(model=name), lambda: self._queue.waiting)
        metrics.watch(metrics.queue_tokens.labels(model=name), lambda: self._queue.tokens)

    def start(self, warm_up: Callable[[], object] = lambda: None) -> None:
        """Start the thread, which warms up first."""
        self._loop = asyncio.get_running_loop()
        self._warm_up = warm_up
        self._thread.start()

    async def close(self) -> None:
        """Finish the queue, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Reserve a place in the queue while a request is encoded, so that a full queue refuses it before that work."""
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
        """Add a request to the queue, or refuse it."""
        assert self._loop is not None, "start() comes first"
        ticket = Ticket(jobs, self._loop.create_future(), client_is_gone)
        with self._changed:
            ahead = self._queue.ahead(ticket.tokens)
            # If nothing is ahead, try the request whatever its size: the measured speed is only an estimate.
            if ahead and ahead + ticket.tokens > self._room():
                raise self._full(ahead)
            self._queue.add(ticket)
            self._changed.notify()
        return ticket

    def _room(self) -> float:
        """Tokens that may wait: what the device computes within timeout_s, minus the share of the oldest request."""
        rate = self._speed.rate
        most = self._settings.queue_tokens
        return most if rate is None else min(most, rate * self._settings.timeout_s * (1 - OLDEST_SHARE))

    def _budget(self) -> int:
        """Tokens per pass."""
        if self._settings.batch_tokens:
            return self._settings.batch_tokens
        rate, most = self._speed.rate, fitting_batch(self.predictor)
        return most if rate is None else min(most, max(LEAST_TOKENS, int(rate * PASS_S)))

    async def wait(self, ticket: Ticket, seconds: float) -> Sequence[Any]:
        """Wait for the results of a ticket; raises a Refusal on timeout."""
        try:
            return await asyncio.wait_for(ticket.promise, max(seconds, 0))
        except asyncio.CancelledError:  # uvicorn cancels handlers that are still waiting after shutdown_s
            ticket.given_up = True
            raise
        except TimeoutError:
            ticket.given_up = True
            limit = f"{self._settings.timeout_s:g} s"
            if ticket.started:
                raise Refusal(504, "timeout", f"the model did not finish within {limit}; send less text") from None
            message = f"the request waited in the queue for more than {limit}; try again later"
            raise Refusal(503, "overloaded", message, self._retry_after(self._queue.ahead(ticket.tokens))) from None

    def _full(self, ahead: int) -> Refusal:
        self._metrics.refused.labels(model=self.name, reason="queue_full").inc()
        message = f"the queue of model {self.name!r} is full; try again later"
        return Refusal(429, "queue_full", message, self._retry_after(ahead))

    def _retry_after(self, ahead: int) -> dict[str, str]:
        rate = self._speed.rate
        seconds = ahead / rate if rate else 1.0
        return {"Retry-After": str(min(max(math.ceil(seconds), 1), 60))}

    # Below: run by the thread.

    def _work(self) -> None:
        self._warm_up()
        while parts := self._next_pass():
            began = time.perf_counter()
            if not self._run_open(parts):
                self._run(parts)
                self._settle(parts, time.perf_counter() - began)

    def _settle(self, parts: Sequence[Part], seconds: float) -> None:
        """Count what was run, and answer the requests that are finished."""
        self._count(parts, seconds)
        with self._changed:
            finished = self._queue.settle(parts)
        self._deliver([(ticket, self._outcome(ticket)) for ticket in finished])

    def _run_open(self, parts: Sequence[Part]) -> bool:
        """Run parts whose texts stop early; waiting ones join at every exit, and results leave as they are there.

        False if the predictor cannot, or not with these. The pass ends when no waiting request could join it.
        """
        run = getattr(self.predictor, "run_open", None)
        if run is None:
            return False
        running = {id(part.job): part for part in parts}
        ready: list[Part] = []
        began = time.perf_counter()

        def answer() -> None:
            nonlocal began
            if ready:
                now = time.perf_counter()
                self._settle(ready, now - began)
                began = now
                ready.clear()

        def join(tokens: int) -> list[tuple[Job, int]]:
            answer()
            with self._changed:
                self._deliver([(ticket, ClientGone()) for ticket in self._queue.drop()])
                taken = self._queue.take(tokens, at_least_one=False) if self._queue.all_stop_early() else []
            running.update({id(part.job): part for part in taken})
            return [(part.job, part.count) for part in taken]

        try:
            started = run(
                [(part.job, part.count) for part in parts],
                join,
                self._budget(),
                lambda job: ready.append(running.pop(id(job))),
            )
        except Exception as error:
            started = True
            for part in running.values():
                part.job.result = error
            ready += running.values()
        answer()
        return bool(started)

    def _next_pass(self) -> list[Part]:
        """Wait for the next pass; empty when the server is closing and the queue is empty."""
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
                    self._changed.wait(deadline - time.monotonic())  # more requests may join this pass
                    continue
                return self._queue.take(budget)

    def _run(self, parts: Sequence[Part]) -> None:
        try:
            self.predictor.run_pass([(part.job, part.count) for part in parts])
        except Exception as error:
            for part in parts:
                part.job.result = error

    def _outcome(self, ticket: Ticket) -> Sequence[Any] | FailedJob:
        """The results of a finished request, or FailedJob if the model failed on one of its jobs."""
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
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(settle)  # one wake-up for all

    def _count(self, parts: Sequence[Part], seconds: float) -> None:
        tokens = sum(part.tokens for part in parts)
        self._speed.note(tokens, seconds)
        self._metrics.tokens.labels(model=self.name).inc(tokens)
        self._metrics.batch_requests.labels(model=self.name).observe(len({id(part.ticket) for part in parts}))
        self._metrics.batch_tokens.labels(model=self.name).observe(tokens)
        self._metrics.batch_seconds.labels(model=self.name).observe(seconds)
