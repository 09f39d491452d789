"""Run the app under uvicorn: bind the port first, drain on SIGTERM and Ctrl-C, then return."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import uvicorn
from fastapi import FastAPI
from prometheus_client import disable_created_metrics

from litebert.errors import ConfigError
from litebert.serve.batcher import Predictor, runtime_of
from litebert.serve.config import ServeConfig
from litebert.serve.connections import SPARE, Connection, Door
from litebert.serve.log import log_event, log_to_stderr

# oneDNN and PyTorch cache code for every input shape, 1024 shapes each by default, and texts have any length: smaller
# caches save memory. Read when torch is imported.
CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}


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
        app = create_app(load(), settings)
        log_to_stderr()
        allow_open_files(settings.connections + SPARE + 256)  # more for models, logs and the event loop
        host, port = listening.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        models = {name: runtime_of(batcher.predictor) for name, batcher in app.state.service.batchers.items()}
        log_event("listening", address=address, models=models, key=bool(settings.api_key))
        if not settings.is_loopback and not settings.api_key:
            log_event("open_to_others", advice="other machines can reach this server; set an API key with --api-key")
        announce(address)
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
        raise ConfigError(f"cannot listen on {where}: {error.strerror}; choose another --host or --port") from None
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
