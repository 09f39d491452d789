"""Runs the app under uvicorn: binds before anything else, drains on SIGTERM and Ctrl-C, then returns."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

from litebert.errors import ConfigError
from litebert.extras import require
from litebert.serve.batcher import Predictor, runtime_of
from litebert.serve.config import ServeConfig
from litebert.serve.log import log_event, log_to_stderr

# oneDNN and PyTorch's layer above it keep code for every shape they have met, 1024 shapes each by default, and texts
# come in all lengths. Read when torch is loaded.
CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}


def serve(
    load: Callable[[], Mapping[str, Predictor]],
    settings: ServeConfig,
    announce: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve models until a signal says stop, and finish what was accepted; `load` is called once the port is ours."""
    for name, capacity in CACHES.items():
        os.environ.setdefault(name, capacity)
    uvicorn = require("uvicorn", "litebert serve")
    require("fastapi", "litebert serve")
    from litebert.serve.app import create_app

    class Server(uvicorn.Server):  # type: ignore[name-defined, misc]
        """uvicorn's own would end by raising the signal once more; a finished drain is a success."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
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

    with open_socket(settings) as listening:
        app = create_app(load(), settings)
        log_to_stderr()
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            limit_concurrency=settings.connections,
            timeout_graceful_shutdown=math.ceil(settings.shutdown_s),
        )
        host, port = listening.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        models = {name: runtime_of(batcher.predictor) for name, batcher in app.state.service.batchers.items()}
        log_event("listening", address=address, models=models, key=bool(settings.api_key))
        if not settings.is_loopback and not settings.api_key:
            log_event("open_to_others", advice="other machines can reach this server; --api-key asks for a key")
        announce(address)
        server = Server(config)
        asyncio.run(server.serve(sockets=[listening]))
        if server.force_exit:  # Ctrl-C a second time: not everything was finished
            raise KeyboardInterrupt


def open_socket(settings: ServeConfig) -> socket.socket:
    """A listening socket, or a message about why there is none."""
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
