"""Run the app under uvicorn: bind the port first, limit what clients can do, drain on SIGTERM and Ctrl-C, return.

uvicorn waits forever for a client that sends nothing, sends half a header, or does not read its answer, and it limits
only the total number of connections. Here every wait for a client has a timeout. A client with too many connections
loses the one that has been waiting for it the longest. A few connections are reserved, so that /health and /ready
answer even when the server is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http
import ipaddress
import math
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from prometheus_client import disable_created_metrics
from uvicorn.protocols.http.h11_impl import H11Protocol

from litebert.errors import ConfigError
from litebert.serve.batcher import Predictor, runtime_of
from litebert.serve.config import ServeConfig
from litebert.serve.fronts import serve_fronts
from litebert.serve.gate import GUARDS, Line
from litebert.serve.schemas import Refusal
from litebert.serve.telemetry import Metrics, log_event, log_to_stderr

# oneDNN and PyTorch cache code for every input shape, 1024 shapes each by default, and texts have any length: smaller
# caches save memory. Read when torch is imported.
CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

SPARE = 64  # connections beyond the limit; each gets one answer: /health and /ready as usual, anything else a 503
# A connection may be closed in favour of a new one only after it has waited this long for its client. In a burst of new
# connections, requests arrive sooner than that, so each gets an answer.
PATIENCE_S = 0.5


def serve(
    load: Callable[[], Mapping[str, Predictor]],
    settings: ServeConfig,
    announce: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve models until a signal arrives, then finish accepted requests; `load` is called after the port is bound."""
    for name, capacity in CACHES.items():
        os.environ.setdefault(name, capacity)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a time of birth beside every count
    from litebert.serve.app import create_app

    with open_socket(settings) as listening:
        predictors = load()
        if settings.processes == 1:
            app = create_app(predictors, settings)
        log_to_stderr()
        allow_open_files(settings.connections + SPARE + 256)  # more for models, logs and the event loop
        host, port = listening.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        models = {name: runtime_of(predictor) for name, predictor in predictors.items()}
        log_event("listening", address=address, models=models, key=bool(settings.api_key))
        if not settings.is_loopback and not settings.api_key:
            log_event("open_to_others", advice="other machines can reach this server; set an API key (api_key)")
        announce(address)
        if settings.processes > 1:
            serve_fronts(predictors, settings, listening)
            return
        server = Server(app, settings)
        asyncio.run(server.serve(sockets=[listening]))
        if server.force_exit:  # a second Ctrl-C: some requests were not finished
            raise KeyboardInterrupt


class Server(uvicorn.Server):  # type: ignore[misc]
    """uvicorn's server with our connections; a completed drain ends without an error."""

    def __init__(self, app: FastAPI, settings: ServeConfig):
        self._service = app.state.service
        door = Door(settings, self._service.metrics)
        config = uvicorn.Config(
            app,
            http=functools.partial(Connection, door=door),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_keep_alive=settings.idle_s,
            timeout_graceful_shutdown=math.ceil(settings.shutdown_s),
        )
        super().__init__(config)

    async def shutdown(self, *arguments: Any, **named: Any) -> None:
        """Drain; from now on /ready is 503."""
        self._service.closing = True
        await super().shutdown(*arguments, **named)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain on SIGTERM and Ctrl-C; uvicorn's own version raises the signal again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def open_socket(settings: ServeConfig) -> socket.socket:
    """Open the listening socket."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        where = f"{settings.host}:{settings.port}"
        raise ConfigError(f"cannot listen on {where}: {error.strerror}; choose another host or port") from None
    return listening


def allow_open_files(count: int) -> None:
    """Raise the limit of open files to `count` if the system allows it; each connection is a file."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        if wanted < count:
            log_event("few_open_files", limit=wanted, wanted=count, advice="raise ulimit -n or lower connections")


# ---------------------------------------------------------------------------------------------------------------------
# Connections


class Door:
    """All connections of a server."""

    def __init__(self, settings: ServeConfig, metrics: Metrics):
        self.settings, self.metrics = settings, metrics
        self.most = settings.connections
        self.most_of_one = settings.client_connections or max(1, self.most // 2)
        self._open: set[Connection] = set()
        self._counts: Counter[str] = Counter()  # by client
        self._round: asyncio.TimerHandle | None = None
        metrics.watch(metrics.connections, lambda: len(self._open))

    def enter(self, connection: Connection) -> None:
        """Add a connection, closing another one if there are too many."""
        self._open.add(connection)
        self._counts[connection.owner] += 1
        while self._counts[connection.owner] > self.most_of_one and self._replace(connection.owner):
            pass
        while len(self._open) > self.most and self._replace():
            pass
        too_many = self._counts[connection.owner] > self.most_of_one or len(self._open) > self.most
        connection.line.crowded = too_many
        if len(self._open) > self.most + SPARE:
            self.metrics.refused.labels(model="", reason="too_many_connections").inc()
            self.leave(connection)
            connection.transport.abort()
        elif self._round is None:
            self._look_around(connection.loop)

    def leave(self, connection: Connection) -> None:
        """Remove a connection."""
        if connection in self._open:
            self._open.remove(connection)
            self._counts[connection.owner] -= 1
            self._counts += Counter()  # drops the zeros

    def _replace(self, owner: str | None = None) -> bool:
        """Close the connection (of `owner`, if given) that has waited longest for its client; False if none has."""
        of_owner = [each for each in self._open if owner in (None, each.owner) and each.waits]
        longest = max(of_owner, key=lambda each: each.age, default=None)
        if longest is None or longest.age < PATIENCE_S:
            return False
        self.leave(longest)
        longest.close()
        self.metrics.closed.labels(reason="replaced").inc()
        return True

    def _look_around(self, loop: asyncio.AbstractEventLoop) -> None:
        """Enforce the timeouts, now and regularly while there are connections."""
        for connection in list(self._open):
            connection.keep_deadlines()
        self._round = None
        if self._open:
            seconds = min(self.settings.header_s / 4, 1.0)
            self._round = loop.call_later(seconds, self._look_around, loop)


class Connection(H11Protocol):  # type: ignore[misc]
    """uvicorn's connection with our timeouts, limits and form of errors."""

    def __init__(self, *arguments: Any, door: Door, **named: Any):
        super().__init__(*arguments, **named)
        self.door = door
        self.line = Line()
        self.app_state: dict[str, Any] = {
            **self.app_state,
            "litebert": self.line,
        }  # the gate finds it in scope["state"]
        self.owner = ""
        self._since = self.loop.time()  # start of the current wait for the client
        self._begun = False  # some bytes of the next request have arrived
        self._unsent = 0

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn: to send a request, to send the rest of one, or to read its answer."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return True
        return bool(self.transport.get_write_buffer_size())

    @property
    def age(self) -> float:
        """Seconds since the current wait began."""
        return float(self.loop.time() - self._since)

    def keep_deadlines(self) -> None:
        """Close the connection if its client is too slow."""
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:  # the client is reading
            self._unsent, self._since = unsent, self.loop.time()
        if unsent:
            if self.age > self.door.settings.timeout_s:
                self.door.metrics.closed.labels(reason="unread").inc()
                self.transport.abort()
        elif self.cycle is None or (
            self.cycle.response_complete and self._begun
        ):  # otherwise uvicorn's own timer applies
            limit = self.door.settings.header_s
            if self.age > limit:
                self.door.metrics.closed.labels(reason="slow_header").inc()
                if self._begun:
                    self._refuse(Refusal(408, "too_slow", f"the request header took longer than {limit:g} s"))
                else:
                    self.close()

    def close(self) -> None:
        """Close now; data that the client has not read is lost."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection, or refuse it."""
        super().connection_made(transport)
        self.owner = owner_of(self.client[0] if self.client else "")
        self.door.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give its place to another."""
        super().connection_lost(exc)
        self.line.gone = True
        self.door.leave(self)

    def data_received(self, data: bytes) -> None:
        """Start the clock of a request with its first byte."""
        if not self._begun and (self.cycle is None or self.cycle.response_complete):
            self._begun, self._since = True, self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Start the clock of an idle connection."""
        self._begun, self._since = False, self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP in the same form as every other error."""
        self._refuse(Refusal(400, "invalid_http", "not a valid HTTP/1.1 request"))

    def _refuse(self, refusal: Refusal) -> None:
        """Refuse an incomplete request, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = refusal.response()
            headers = [*self.server_state.default_headers, *response.raw_headers, *GUARDS, (b"connection", b"close")]
            reason = http.HTTPStatus(refusal.status).phrase.encode()
            begin = h11.Response(status_code=refusal.status, headers=headers, reason=reason)
            for event in (begin, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
            self.door.metrics.requests.labels(endpoint="other", status=str(refusal.status)).inc()
        if self.cycle is not None and not self.cycle.response_complete:  # an error in its body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def shutdown(self) -> None:
        """Called when the server shuts down: the next answer says `Connection: close`; idle clients get a last call."""
        self.line.closing = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(self.door.settings.last_call_s, self._end_idle)

    def _end_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.close()


def owner_of(address: str) -> str:
    """The client that an address belongs to: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False))
