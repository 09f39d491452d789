"""Connections to clients: how many there may be, for how long, and how they end.

uvicorn waits for ever for a client that sends nothing, half a header, or does not read its answer, and counts all
connections alike. Here every wait for a client has a deadline; a client that holds too many connections loses the one
that has kept us waiting longest; and a few places are kept, so that /health and /ready answer when the rest is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http
import ipaddress
import math
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from litebert.serve.config import ServeConfig
from litebert.serve.gate import GUARDS, Line
from litebert.serve.metrics import Metrics
from litebert.serve.refusals import Refusal

SPARE = 64  # connections beyond the limit: each gets one answer, which is a 503 unless it asks for /health or /ready
# A connection that waits this long for its client may be closed for another. The requests of a sudden crowd are read
# within that time, and get an answer.
PATIENCE_S = 0.5


class Door:
    """All connections of a server."""

    def __init__(self, settings: ServeConfig, metrics: Metrics):
        self.settings, self.metrics = settings, metrics
        self.most = settings.connections
        self.most_of_one = settings.client_connections or max(1, self.most // 2)
        self._open: set[Connection] = set()
        self._counts: Counter[str] = Counter()  # by client
        self._round: asyncio.TimerHandle | None = None
        metrics.connections.set_function(lambda: len(self._open))

    def enter(self, connection: Connection) -> None:
        """Let a connection in, if need be in the place of another."""
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
        """Forget a connection."""
        if connection in self._open:
            self._open.remove(connection)
            self._counts[connection.owner] -= 1
            self._counts += Counter()  # without those that are at 0

    def _replace(self, owner: str | None = None) -> bool:
        """Close the connection, of one client or of all, that has waited longest for its client; False: none has."""
        of_owner = [each for each in self._open if owner in (None, each.owner) and each.waits]
        longest = max(of_owner, key=lambda each: each.age, default=None)
        if longest is None or longest.age < PATIENCE_S:
            return False
        self.leave(longest)
        longest.close()
        self.metrics.closed.labels(reason="replaced").inc()
        return True

    def _look_around(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what is overdue, now and every so often, as long as there are connections."""
        for connection in list(self._open):
            connection.keep_deadlines()
        self._round = None
        if self._open:
            seconds = min(self.settings.header_s / 4, 1.0)
            self._round = loop.call_later(seconds, self._look_around, loop)


class Connection(H11Protocol):  # type: ignore[misc]
    """uvicorn's connection, which knows how long it has waited for its client and speaks of errors as we do."""

    def __init__(self, *arguments: Any, door: Door, **named: Any):
        super().__init__(*arguments, **named)
        self.door = door
        self.line = Line()
        self.app_state: dict[str, Any] = {
            **self.app_state,
            "litebert": self.line,
        }  # the gate finds it in scope["state"]
        self.owner = ""
        self._since = self.loop.time()  # that we wait for the client
        self._begun = False  # some bytes of the next request have come
        self._unsent = 0

    @property
    def waits(self) -> bool:
        """Whether the next thing must come from the client: a request, the rest of one, or taking its answer."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return True
        return bool(self.transport.get_write_buffer_size())

    @property
    def age(self) -> float:
        """Seconds that the current wait has lasted."""
        return float(self.loop.time() - self._since)

    def keep_deadlines(self) -> None:
        """Close a connection whose client has taken too long."""
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:  # the client reads
            self._unsent, self._since = unsent, self.loop.time()
        if unsent:
            if self.age > self.door.settings.timeout_s:
                self.door.metrics.closed.labels(reason="unread").inc()
                self.transport.abort()
        elif self.cycle is None or (self.cycle.response_complete and self._begun):  # uvicorn ends what has not begun
            limit = self.door.settings.header_s
            if self.age > limit:
                self.door.metrics.closed.labels(reason="slow_header").inc()
                if self._begun:
                    self._refuse(Refusal(408, "too_slow", f"the request's header took longer than {limit:g} s"))
                else:
                    self.close()

    def close(self) -> None:
        """End the connection; what the client has not read by now is lost."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.owner = owner_of(self.client[0] if self.client else "")
        self.door.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.line.gone = True
        self.door.leave(self)

    def data_received(self, data: bytes) -> None:
        if not self._begun and (self.cycle is None or self.cycle.response_complete):
            self._begun, self._since = True, self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._begun, self._since = False, self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused in the same form as everything else."""
        self._refuse(Refusal(400, "invalid_http", "this is not a valid HTTP/1.1 request"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a request that is not whole, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = refusal.response()
            headers = [*self.server_state.default_headers, *response.raw_headers, *GUARDS, (b"connection", b"close")]
            reason = http.HTTPStatus(refusal.status).phrase.encode()
            begin = h11.Response(status_code=refusal.status, headers=headers, reason=reason)
            for event in (begin, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
            self.door.metrics.requests.labels(endpoint="other", status=str(refusal.status)).inc()
        if self.cycle is not None and not self.cycle.response_complete:  # its body is not HTTP
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def shutdown(self) -> None:
        """The server is closing: the client learns it from its next answer, and has a moment to ask for that one."""
        self.line.closing = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(self.door.settings.last_call_s, self._end_idle)

    def _end_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.close()


class Server(uvicorn.Server):  # type: ignore[misc]
    """uvicorn's server with our connections, where a finished drain is a success."""

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
        """Finish what was accepted; from here on /ready says no."""
        self._service.closing = True
        await super().shutdown(*arguments, **named)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C begin the drain; uvicorn's own would raise the signal once more at the end."""
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


def owner_of(address: str) -> str:
    """Whom an address counts for: "10.0.0.7" itself; an IPv6 client has a whole network, "2001:db8::/64"."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False))
