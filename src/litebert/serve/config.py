"""The settings of a server: where it listens, how much it takes in, and how long anybody waits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, fields

from litebert.errors import ConfigError


@dataclass(frozen=True)
class ServeConfig:
    """All settings of `litebert serve`; `--set batch_tokens=8192` changes any of them."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free port
    api_key: str | None = None  # where set, every request but the page's own files, /health and /ready must carry it

    # Batching: a batch is closed when it holds batch_tokens, or batch_wait_ms after its first request.
    # More tokens than this make a CPU no faster, only later; a GPU wants many. 0 chooses by the device.
    batch_tokens: int = 0
    batch_wait_ms: float = 2.0

    # Bounds: what is beyond them is refused at once (429 where waiting helps, 413 where it does not).
    queue_requests: int = 256  # waiting, per model
    queue_tokens: int = 65_536  # waiting, per model
    request_bytes: int = 1_048_576
    request_tokens: int = 16_384
    request_inputs: int = 256  # texts in one request
    request_candidates: int = 20_000  # guesses in one answer: masks times `top`
    connections: int = 1024

    timeout_s: float = 30.0  # from arrival to answer
    shutdown_s: float = 60.0  # for what was accepted before SIGTERM

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = (
                0
                if field.name in ("port", "batch_tokens", "batch_wait_ms")
                else 1e-3
                if field.name.endswith("_s")
                else 1
            )
            if isinstance(value, int | float) and not value >= least:
                raise ConfigError(f"{field.name}: must be at least {least:g}, not {value}")
        if self.port > 65_535:
            raise ConfigError(f"port: must be at most 65535, not {self.port}")
        if self.request_tokens > self.queue_tokens:
            raise ConfigError(
                f"request_tokens: {self.request_tokens} tokens would never fit a queue of {self.queue_tokens}"
            )
        if self.api_key is not None and (
            not self.api_key or not self.api_key.isascii() or not self.api_key.isprintable()
        ):
            raise ConfigError("api_key: must be printable ASCII and not empty")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
