"""For operators: logs as JSON lines on stderr, metrics for Prometheus, traces. None contains user text.

log_event("request", ability="embed", status=200, ms=3.1) -> {"time": "...", "level": "info", "event": "request", ...}

Values are numbers and known names. An exception is logged as its type and the places in the code; its message is left
out, because it may quote user text. The labels of metrics come from fixed sets.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

LOGGER = logging.getLogger("litebert.serve")

PROCESSES_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where several processes write down what they count
LIVE: Literal["livesum"] = "livesum"  # gauges of several processes: the sum over those that live

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (16, 64, 256, 1024, 4096, 16384)


class JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON."""
        moment = time.gmtime(record.created)
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
        }
        if record.name == LOGGER.name:
            line["event"] = record.msg
            line |= getattr(record, "fields", {})
        else:  # from uvicorn: the message's template, without its arguments
            line |= {"event": "server", "message": re.sub(r" ?\[?%[sdr]\]?", "", str(record.msg))}
        if record.exc_info and record.exc_info[1]:
            line |= describe_exception(record.exc_info[1])
        return json.dumps(line)


def log_event(event: str, /, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Write one line."""
    if LOGGER.isEnabledFor(level):
        if error is not None:
            fields |= describe_exception(error)  # not exc_info: other handlers would print the message
        LOGGER.log(level, event, extra={"fields": fields})


def describe_exception(error: BaseException) -> dict[str, Any]:
    """The type and the places of an exception: {"error": "KeyError", "at": ["batcher.py:88 _run", ...]}."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "at": places[-8:]}


def log_to_stderr() -> None:
    """Send our logs and uvicorn's to stderr only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (LOGGER.name, "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.propagate = name == "uvicorn.error"  # to uvicorn's
        logger.setLevel(logging.INFO)


class Traces:
    """An OpenTelemetry span per request, if that package is installed and configured.

    Its SDK decides where spans go: `opentelemetry-instrument litebert serve ...` with OTEL_EXPORTER_OTLP_ENDPOINT.
    """

    def __init__(self) -> None:
        self._trace: Any = None
        if importlib.util.find_spec("opentelemetry") is not None:
            from opentelemetry import propagate, trace

            self._trace, self._propagate = trace, propagate
            self._tracer = trace.get_tracer("litebert.serve")

    def record(self, name: str, seconds: float, status: int, parent: str | None, attributes: dict[str, Any]) -> None:
        """A request that has just ended; `parent` is the client's header `traceparent`."""
        if self._trace is None:
            return
        ended = time.time_ns()
        context = self._propagate.extract({"traceparent": parent} if parent else {})
        span = self._tracer.start_span(
            name,
            context,
            self._trace.SpanKind.SERVER,
            {**attributes, "http.response.status_code": status},
            start_time=ended - int(seconds * 1e9),
        )
        if status >= 500 or not status:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end(ended)


class Metrics:
    """All metrics of the server; labels come from fixed sets, never from clients."""

    def __init__(self) -> None:
        self._registry = to = CollectorRegistry()
        ProcessCollector(registry=to)  # memory, CPU seconds and open files (Linux)

        about = "Requests answered, by endpoint and status."
        self.requests = Counter("litebert_requests_total", about, ["endpoint", "status"], registry=to)
        about = "Seconds from the arrival of a request to its answer."
        self.seconds = Histogram("litebert_request_seconds", about, ["endpoint"], buckets=SECONDS, registry=to)
        about = "Requests refused, by model and reason."
        self.refused = Counter("litebert_refused_total", about, ["model", "reason"], registry=to)
        about = "Tokens processed, by model."
        self.tokens = Counter("litebert_tokens_total", about, ["model"], registry=to)
        about = "Jobs that failed because of a bug; each is logged."
        self.failures = Counter("litebert_failures_total", about, ["model"], registry=to)
        about = "Requests per pass."
        self.batch_requests = Histogram("litebert_batch_requests", about, ["model"], buckets=COUNTS, registry=to)
        about = "Tokens per pass."
        self.batch_tokens = Histogram("litebert_batch_tokens", about, ["model"], buckets=TOKENS, registry=to)
        about = "Seconds per pass."
        self.batch_seconds = Histogram("litebert_batch_seconds", about, ["model"], buckets=SECONDS, registry=to)
        about = "Requests waiting."
        self.queue_requests = Gauge("litebert_queue_requests", about, ["model"], registry=to, multiprocess_mode=LIVE)
        about = "Tokens waiting."
        self.queue_tokens = Gauge("litebert_queue_tokens", about, ["model"], registry=to, multiprocess_mode=LIVE)
        about = "Open connections."
        self.connections = Gauge("litebert_connections", about, registry=to, multiprocess_mode=LIVE)
        about = "Connections of slow or idle clients that were closed, by reason."
        self.closed = Counter("litebert_closed_total", about, ["reason"], registry=to)

        self._watched: list[tuple[Gauge, Callable[[], float]]] = []

    def watch(self, gauge: Gauge, value: Callable[[], float]) -> None:
        """Let a gauge show what a function says."""
        if PROCESSES_FOLDER in os.environ:  # other processes cannot call it: `refresh` writes it down for them
            self._watched.append((gauge, value))
        else:
            gauge.set_function(value)

    def refresh(self) -> None:
        """Write down what the watched gauges show now."""
        for gauge, value in self._watched:
            gauge.set(value())

    def expose(self) -> bytes:
        """All metrics as the text that Prometheus reads, of all processes that answer HTTP together."""
        if PROCESSES_FOLDER not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
