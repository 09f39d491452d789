"""Counters, gauges and histograms in Prometheus' text format (version 0.0.4), without a dependency.

metrics.requests.add(1, ability="embed", status="200")
metrics.expose() -> '# HELP litebert_requests_total ...\n# TYPE litebert_requests_total counter\n...'
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (16, 64, 256, 1024, 4096, 16384)


class Metric:
    """What all kinds have in common: a name, a sentence about it, and one series per set of labels."""

    kind = "untyped"

    def __init__(self, name: str, about: str):
        self.name, self.about, self._lock = name, about, threading.Lock()

    def lines(self) -> Iterator[str]:
        """The metric as lines of the text format."""
        yield f"# HELP {self.name} {self.about}"
        yield f"# TYPE {self.name} {self.kind}"
        with self._lock:
            yield from self.samples()

    def samples(self) -> Iterator[str]:
        """One line per series."""
        raise NotImplementedError


class Counter(Metric):
    """A number that only grows."""

    kind = "counter"

    def __init__(self, name: str, about: str):
        super().__init__(name, about)
        self._values: dict[tuple[tuple[str, str], ...], float] = {}

    def add(self, amount: float = 1, /, **labels: str) -> None:
        """Count something: add(1, status="200")."""
        key = tuple(labels.items())
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def samples(self) -> Iterator[str]:
        for key, value in self._values.items():
            yield f"{self.name}{_labels(key)} {value:g}" if value < 1e6 else f"{self.name}{_labels(key)} {value:.0f}"


class Gauge(Metric):
    """A number that is read when somebody asks."""

    kind = "gauge"

    def __init__(self, name: str, about: str):
        super().__init__(name, about)
        self._readers: dict[tuple[tuple[str, str], ...], Callable[[], float]] = {}

    def read(self, reader: Callable[[], float], /, **labels: str) -> None:
        """Ask `reader` whenever the metrics are read."""
        self._readers[tuple(labels.items())] = reader

    def samples(self) -> Iterator[str]:
        for key, reader in self._readers.items():
            yield f"{self.name}{_labels(key)} {reader():.0f}"


class Histogram(Metric):
    """How often a value fell below each of some bounds, with the sum of all values."""

    kind = "histogram"

    def __init__(self, name: str, about: str, bounds: tuple[float, ...]):
        super().__init__(name, about)
        self._bounds = bounds
        self._series: dict[tuple[tuple[str, str], ...], tuple[list[int], list[float]]] = {}

    def observe(self, value: float, /, **labels: str) -> None:
        """Take a value into account."""
        key = tuple(labels.items())
        with self._lock:
            counts, total = self._series.setdefault(key, ([0] * (len(self._bounds) + 1), [0.0]))
            counts[bisect_left(self._bounds, value)] += 1
            total[0] += value

    def samples(self) -> Iterator[str]:
        for key, (counts, total) in self._series.items():
            seen = 0
            for bound, count in zip([*(f"{bound:g}" for bound in self._bounds), "+Inf"], counts, strict=True):
                seen += count
                yield f"{self.name}_bucket{_labels((*key, ('le', bound)))} {seen}"
            yield f"{self.name}_sum{_labels(key)} {total[0]:.9g}"
            yield f"{self.name}_count{_labels(key)} {seen}"


class Metrics:
    """Everything the server counts; labels come from closed sets, never from what a client sent."""

    def __init__(self) -> None:
        self.requests = Counter("litebert_requests_total", "Requests answered, by endpoint and status.")
        self.seconds = Histogram("litebert_request_seconds", "From the first byte in to the last byte out.", SECONDS)
        self.refused = Counter("litebert_refused_total", "Requests that were not accepted, by model and reason.")
        self.tokens = Counter("litebert_tokens_total", "Tokens that went through a model.")
        self.failures = Counter("litebert_failures_total", "Jobs that failed by our own fault, each one logged.")
        self.batch_requests = Histogram("litebert_batch_requests", "Requests in a batch.", COUNTS)
        self.batch_tokens = Histogram("litebert_batch_tokens", "Tokens in a batch.", TOKENS)
        self.batch_seconds = Histogram("litebert_batch_seconds", "Seconds a batch took.", SECONDS)
        self.queue_requests = Gauge("litebert_queue_requests", "Requests waiting.")
        self.queue_tokens = Gauge("litebert_queue_tokens", "Tokens waiting.")
        self.connections = Gauge("litebert_connections", "Open connections.")
        self.closed = Counter(
            "litebert_closed_total", "Connections that were closed on slow or idle clients, by reason."
        )
        self.memory = Gauge("litebert_resident_bytes", "Memory of the server's process.")
        if _STATM.exists():
            self.memory.read(resident_bytes)

    def expose(self) -> str:
        """All metrics as the text that Prometheus reads."""
        metrics = [metric for metric in vars(self).values() if isinstance(metric, Metric)]
        return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


_STATM = Path("/proc/self/statm")


def resident_bytes() -> float:
    """Bytes of memory that this process holds (Linux)."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _labels(pairs: tuple[tuple[str, str], ...]) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
