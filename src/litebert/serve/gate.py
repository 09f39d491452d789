"""Middleware for every request: host, API key, size, timeout, security headers, log.

Nothing behind it sees a body that is too large, and no exception leaves it: an internal error is logged and answered
with a 503, never with a broken connection.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litebert.serve.config import ServeConfig, host_name
from litebert.serve.schemas import ClientGone, Refusal
from litebert.serve.telemetry import Metrics, Traces, log_event

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing from other sites, no inline code, no framing.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
GUARDS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
PROBES = {"/health", "/ready"}  # answered even when there is no room for other requests
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
# A refused body is still read up to this limit, so that the client gets our answer and not a broken pipe.
DRAIN_BYTES, DRAIN_SECONDS = 64 * 2**20, 5.0


@dataclass
class Line:
    """State of a connection, in scope["state"]; set by our own server, absent with other ASGI servers."""

    crowded: bool = False  # there are too many connections
    closing: bool = False  # the server is shutting down
    gone: bool = False  # the client has disconnected


@dataclass
class Exchange:
    """Facts about one request for the log and the metrics; never text of a user."""

    began: float
    method: str
    endpoint: str
    line: Line
    status: int = 0
    model: str | None = None
    inputs: int | None = None
    tokens: int | None = None


class Gate:
    """ASGI middleware around the whole app."""

    def __init__(
        self, app: ASGIApp, settings: ServeConfig, metrics: Metrics, endpoints: set[str], open_paths: set[str]
    ):
        self._app, self._settings, self._metrics = app, settings, metrics
        self._endpoints, self._open_paths = endpoints, open_paths
        self._key = settings.api_key.encode() if settings.api_key else None
        self._traces = Traces()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Unknown paths and methods may contain anything, so they are not logged.
        path = scope["path"] if scope["path"] in self._endpoints else "other"
        method = scope["method"] if scope["method"] in METHODS else "other"
        line: Line = scope.get("state", {}).get("litebert") or Line()
        exchange = scope["litebert"] = Exchange(time.perf_counter(), method, path, line)
        number = f"{random.getrandbits(64):016x}"  # not a secret, so no system call for it
        extra = [*GUARDS, (b"x-request-id", number.encode())]

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                names = {name.lower() for name, _ in message["headers"]}
                message = {
                    **message,
                    "headers": [*message["headers"], *(pair for pair in extra if pair[0] not in names)],
                }
                if b"cache-control" not in names:
                    message["headers"].append((b"cache-control", b"no-store"))
                if line.closing or line.crowded:  # the client must not send another request here
                    message["headers"].append((b"connection", b"close"))
            elif method == "HEAD":  # what GET would give, without the body
                message = {**message, "body": b""}
            await send(message)

        try:
            if line.crowded and scope["path"] not in PROBES:
                self._metrics.refused.labels(model="", reason="too_many_connections").inc()
                message = "there are too many connections to this server; try again later"
                raise Refusal(503, "too_many_connections", message, {"Retry-After": "1"})
            await self._pass(scope, receive, answer)
        except Refusal as refusal:
            await refusal.response(scope["path"])(scope, receive, answer)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not exchange.status:  # uvicorn cancels what is still running after shutdown_s
                await Refusal(503, "closing", "the server was shut down before it could answer").response()(
                    scope, receive, answer
                )
            raise
        except Exception as error:
            log_event("failed", logging.ERROR, error, id=number, endpoint=path)
            if exchange.status:  # the answer has begun
                raise
            message = f"internal error; see the server's log, id {number}"
            await Refusal(503, "failed", message).response()(scope, receive, answer)
        finally:
            self._record(exchange, number, dict(scope["headers"]).get(b"traceparent"))

    async def _pass(self, scope: Scope, receive: Receive, answer: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host, server = headers.get(b"host"), scope.get("server") or (None, None)
        # HTTP/1.0 needs no Host. Rebinding needs a browser, and browsers always send it.
        if host is not None and not self._settings.answers_to(host.decode("latin-1"), server[0]):
            name = host_name(host.decode("latin-1"))[:80]
            message = f"unknown host {name!r}: add it to the server's allowed_hosts to accept it"
            await self._drain(headers, receive)
            self._metrics.refused.labels(model="", reason="unknown_host").inc()
            raise Refusal(421, "unknown_host", message)
        if self._key is not None and scope["path"] not in self._open_paths and not self._has_key(headers):
            message = "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'"
            await self._drain(headers, receive)
            raise Refusal(401, "key_needed", message, {"WWW-Authenticate": "Bearer"})
        body = await self._read(headers, receive)
        if body is None:
            return  # the client has disconnected
        # Without asking us first, a page on another site can post forms and plain text here, but not JSON.
        known = scope["path"] in self._endpoints
        if known and scope["method"] == "POST" and body and not _is_json(headers.get(b"content-type", b"")):
            raise Refusal(415, "not_json", "send JSON with the header 'Content-Type: application/json'")
        messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, replay, answer)

    def _has_key(self, headers: dict[bytes, bytes]) -> bool:
        assert self._key is not None
        kind, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        sent = bearer.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        return hmac.compare_digest(sent, self._key)

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Read the body within the limits of size and time; None if the client disconnects."""
        limit = self._settings.request_bytes
        length = headers.get(b"content-length", b"0")
        size = int(length) if length.isdigit() and int(length) > limit else 0
        chunks, more = [], True
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                while more and size <= limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Refusal(408, "too_slow", f"the request took longer than {self._settings.timeout_s:g} s") from None
        if size > limit:
            del chunks
            if more:
                await self._drain(headers, receive)
            self._metrics.refused.labels(model="", reason="too_large").inc()
            raise Refusal(413, "too_large", f"the request is larger than {limit:,} bytes; send shorter or fewer texts")
        return b"".join(chunks)

    async def _drain(self, headers: dict[bytes, bytes], receive: Receive) -> None:
        if b"expect" in headers:
            return  # the client waits for our answer before it sends the body
        left = DRAIN_BYTES
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
        except TimeoutError:
            return

    def _record(self, exchange: Exchange, number: str, parent: bytes | None) -> None:
        seconds = time.perf_counter() - exchange.began
        self._metrics.requests.labels(endpoint=exchange.endpoint, status=str(exchange.status)).inc()
        self._metrics.seconds.labels(endpoint=exchange.endpoint).observe(seconds)
        counted = {"model": exchange.model, "inputs": exchange.inputs, "tokens": exchange.tokens}
        known: dict[str, Any] = {name: value for name, value in counted.items() if value is not None}
        facts = {"http.request.method": exchange.method, "http.route": exchange.endpoint, "litebert.request_id": number}
        facts |= {f"litebert.{name}": value for name, value in known.items()}
        name = f"{exchange.method} {exchange.endpoint}"
        self._traces.record(name, seconds, exchange.status, None if parent is None else parent.decode("latin-1"), facts)
        log_event(
            "request",
            id=number,
            method=exchange.method,
            endpoint=exchange.endpoint,
            status=exchange.status,  # 0: the client disconnected before the answer
            ms=round(seconds * 1000, 2),
            **known,
        )


def _is_json(content_type: bytes) -> bool:
    kind = content_type.partition(b";")[0].strip().lower()
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))
