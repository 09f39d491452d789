"""Runs the app under uvicorn: binds before anything else, drains on SIGTERM and Ctrl-C, then returns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

from prometheus_client import disable_created_metrics

from litebert.errors import ConfigError
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
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a time of birth beside every count
    from litebert.serve.app import create_app
    from litebert.serve.connections import SPARE, Server

    with open_socket(settings) as listening:
        app = create_app(load(), settings)
        log_to_stderr()
        allow_open_files(settings.connections + SPARE + 256)  # the rest: models, logs, the event loop
        host, port = listening.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        models = {name: runtime_of(batcher.predictor) for name, batcher in app.state.service.batchers.items()}
        log_event("listening", address=address, models=models, key=bool(settings.api_key))
        if not settings.is_loopback and not settings.api_key:
            log_event("open_to_others", advice="other machines can reach this server; --api-key asks for a key")
        announce(address)
        server = Server(app, settings)
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


def allow_open_files(count: int) -> None:
    """Let this process have so many open files, where the system permits it: a connection is one."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows knows no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        if wanted < count:
            log_event("few_open_files", limit=wanted, wanted=count, advice="raise ulimit -n or lower connections")
