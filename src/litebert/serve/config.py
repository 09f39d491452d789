"""The settings of the server: address, limits and timeouts."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, fields

from litebert.errors import ConfigError


@dataclass(frozen=True)
class ServeConfig:
    """All settings of `litebert serve`; `--set batch_tokens=8192` changes any of them."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free port
    api_key: str | None = None  # required of every request, except for the page's files, /health and /ready
    allowed_hosts: tuple[str, ...] = ()  # further names of this server in the Host header; "*": any

    # Processes that answer HTTP. With more than one, a further process has the models and runs them for all: for a GPU,
    # which one Python cannot feed. Limits below are of all together.
    processes: int = 1

    # Batching: a pass starts when it has batch_tokens, or batch_wait_ms after its first request. Larger passes help a
    # GPU; on a CPU they only add latency. 0: chosen by device and measured speed.
    batch_tokens: int = 0
    batch_wait_ms: float = 2.0

    # Limits: a request beyond them is refused immediately (429 if it may be sent again later, 413 if it is too large).
    queue_requests: int = 256  # waiting, per model
    queue_tokens: int = 65_536  # waiting, per model; fewer if the device is too slow to run them within timeout_s
    request_bytes: int = 1_048_576
    request_tokens: int = 16_384
    request_inputs: int = 256  # texts in one request
    request_candidates: int = 20_000  # guesses in one answer: masks times `top`
    connections: int = 1024  # beyond this, only /health and /ready are answered
    client_connections: int = 0  # per client address; 0: half of `connections`

    timeout_s: float = 30.0  # from the arrival of a request to its answer
    header_s: float = 10.0  # to receive the header of a request
    idle_s: float = 5.0  # between requests on one connection
    shutdown_s: float = 60.0  # after SIGTERM, to finish accepted requests
    last_call_s: float = 1.0  # after SIGTERM, for one more request on an open connection

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = (
                0
                if field.name in ("port", "batch_tokens", "batch_wait_ms", "client_connections")
                else 1e-3
                if field.name.endswith("_s")
                else 1
            )
            if isinstance(value, int | float) and not value >= least:
                raise ConfigError(f"{field.name}: must be >= {least:g}, not {value}")
        if self.port > 65_535:
            raise ConfigError(f"port: must be <= 65535, not {self.port}")
        if self.request_tokens > self.queue_tokens:
            raise ConfigError(
                f"request_tokens: must be <= queue_tokens ({self.queue_tokens}), not {self.request_tokens}"
            )
        if self.api_key is not None and (
            not self.api_key or not self.api_key.isascii() or not self.api_key.isprintable()
        ):
            raise ConfigError("api_key: must be printable ASCII and not empty")
        for name in self.allowed_hosts:
            if name != "*" and (not name or "/" in name or host_name(name) != name.lower()):
                raise ConfigError(f"allowed_hosts: must be host names such as 'albert.example.org', not {name!r}")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def answers_to(self, host: str, arrived_at: str | None = None) -> bool:
        """Whether `host` is a known name of this server; `arrived_at` is the local address of the connection.

        This stops DNS rebinding: a malicious site points its own domain at our address, so that its page may read our
        answers, but the requests of that page still carry the domain in their Host header. Known names are the loopback
        names, the address we listen on, and `allowed_hosts`. A server that listens on all addresses cannot know how
        clients reach it (a port may be forwarded, for example). It accepts any IP address, because only names can be
        rebound, and the host name of this machine.
        """
        name = host_name(host)
        known = {self.host.lower(), arrived_at if arrived_at and is_address(arrived_at) else None}
        known.update(each.lower() for each in self.allowed_hosts)
        if "*" in known or name in known or is_loopback(name):
            return True
        return self.host in ("0.0.0.0", "::", "") and (is_address(name) or name == socket.gethostname().lower())


def host_name(host: str) -> str:
    """The name in a Host header: "Localhost:8000" -> "localhost", "[::1]:8000" -> "::1"."""
    host = host.strip().lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host if is_address(host) else host.partition(":")[0]
    return name.rstrip(".")


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether a name always means this machine: "localhost", "page.localhost", "127.0.0.2", "::1"."""
    if is_address(name):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")
