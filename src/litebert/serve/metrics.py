"""Metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (16, 64, 256, 1024, 4096, 16384)


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
        self.queue_requests = Gauge("litebert_queue_requests", about, ["model"], registry=to)
        about = "Tokens waiting."
        self.queue_tokens = Gauge("litebert_queue_tokens", about, ["model"], registry=to)
        self.connections = Gauge("litebert_connections", "Open connections.", registry=to)
        about = "Connections of slow or idle clients that were closed, by reason."
        self.closed = Counter("litebert_closed_total", about, ["reason"], registry=to)

    def expose(self) -> bytes:
        """All metrics as the text that Prometheus reads."""
        return generate_latest(self._registry)
