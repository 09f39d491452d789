"""The settings of a server: where it listens, how much it takes in, and how long anybody waits."""

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
    api_key: str | None = None  # where set, every request but the page's own files, /health and /ready must carry it
    allowed_hosts: tuple[str, ...] = ()  # names that clients use for this server, beside its own; "*": any name

    # Batching: a pass begins when it has batch_tokens, or batch_wait_ms after its first request.
    # More tokens than this make a CPU no faster, only later; a GPU wants many. 0 chooses by the device and its speed.
    batch_tokens: int = 0
    batch_wait_ms: float = 2.0

    # Bounds: what is beyond them is refused at once (429 where waiting helps, 413 where it does not).
    queue_requests: int = 256  # waiting, per model
    queue_tokens: int = 65_536  # waiting, per model; less where the device could not do them within timeout_s
    request_bytes: int = 1_048_576
    request_tokens: int = 16_384
    request_inputs: int = 256  # texts in one request
    request_candidates: int = 20_000  # guesses in one answer: masks times `top`
    connections: int = 1024  # beyond them only /health and /ready are answered
    client_connections: int = 0  # of one address; 0: half of `connections`

    timeout_s: float = 30.0  # from arrival to answer
    header_s: float = 10.0  # for the header of a request
    idle_s: float = 5.0  # between requests on one connection
    shutdown_s: float = 60.0  # for what was accepted before SIGTERM
    last_call_s: float = 1.0  # then, for the next request on an open connection

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
        for name in self.allowed_hosts:
            if name != "*" and (not name or "/" in name or host_name(name) != name.lower()):
                raise ConfigError(f"allowed_hosts: must be host names such as 'albert.example.org', not {name!r}")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def answers_to(self, host: str, arrived_at: str | None = None) -> bool:
        """Whether a client may call this server by `host`, on a connection that arrived at the address `arrived_at`.

        DNS rebinding: a page on another site points its own name at our address and thereby gets to read our answers,
        but its requests still carry that name. So names must be known: loopback's, the one we listen on, and
        `allowed_hosts`. A server that listens on all addresses does not know how others reach it (through a forwarded
        port, say): it answers to any address, which no page can rebind, and to the name of this machine.
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
    """Whether a name can only mean this machine: "localhost", "page.localhost", "127.0.0.2", "::1"."""
    if is_address(name):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")
