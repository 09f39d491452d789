"""Several processes that answer HTTP for the one that has the models: `litebert serve --set processes=12`.

The first process listens, gives each connection to the next front in turn, and runs the models. Fronts read requests,
tokenise, batch and write answers, each in its own Python, so that one GPU is fed by all cores. A front that dies is
replaced; its clients lose their connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import multiprocessing.reduction
import os
import select
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, cast

from litebert.errors import ConfigError, LitebertError
from litebert.predict.remote import SharedModel, end_with_parent, serve_device, start_process
from litebert.serve.config import ServeConfig
from litebert.serve.telemetry import PROCESSES_FOLDER, log_event

if TYPE_CHECKING:
    from litebert.predict.predictor import Predictor

GRACE_S = 5.0  # beyond shutdown_s, before a front is killed


@dataclass(frozen=True)
class Start:
    """The first message to a front."""

    models: Mapping[str, SharedModel]
    settings: ServeConfig


class Front:
    """A front, as the process with the models sees it."""

    def __init__(self, models: Mapping[str, Predictor], settings: ServeConfig, folder: str):
        environment = {PROCESSES_FOLDER: folder}
        self.process, (self._control, *connections) = start_process(
            "litebert.serve.fronts", 1 + len(models), environment
        )
        self._started = False
        self._control.send(Start({name: SharedModel.of(each) for name, each in models.items()}, settings))
        for predictor, connection in zip(models.values(), connections, strict=True):
            threading.Thread(target=serve_device, args=(predictor, connection), daemon=True).start()

    @property
    def started(self) -> bool:
        """Whether it has ever been ready: one that dies before would die again."""
        if not self._started and self._control.poll():
            with contextlib.suppress(EOFError, OSError):
                self._started = self._control.recv()
        return self._started

    def take(self, client: socket.socket) -> None:
        """Give it a connection; OSError where the process has died."""
        multiprocessing.reduction.send_handle(self._control, client.fileno(), self.process.pid)

    def end(self, seconds: float) -> None:
        """Wait until it has drained; kill it after a number of seconds."""
        with contextlib.suppress(Exception):
            self.process.wait(max(seconds, 0.0))
        self.process.kill()
        self.process.wait()


def share_of(settings: ServeConfig) -> ServeConfig:
    """The limits of one front: those of the server, divided."""
    count = settings.processes
    return dataclasses.replace(
        settings,
        processes=1,
        connections=math.ceil(settings.connections / count),
        client_connections=math.ceil(settings.client_connections / count),
        queue_requests=math.ceil(settings.queue_requests / count),
        queue_tokens=max(settings.request_tokens, math.ceil(settings.queue_tokens / count)),
    )


def serve_fronts(models: Mapping[str, Any], settings: ServeConfig, listening: socket.socket) -> None:
    """Serve until a signal arrives; then the fronts finish what they have accepted."""
    if os.name == "nt":
        raise ConfigError("processes: must be 1 on Windows, where processes cannot share connections")
    for predictor in models.values():
        for name in predictor.shipped:
            predictor.load_shipped(name)
    own = share_of(settings)
    with tempfile.TemporaryDirectory(prefix="litebert-metrics-") as folder, _signals() as stopping:
        fronts = [Front(models, own, folder) for _ in range(settings.processes)]
        try:
            _hand_out(models, own, folder, fronts, listening, stopping)
        finally:
            listening.close()
            for front in fronts:
                front.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + settings.shutdown_s + settings.last_call_s + GRACE_S
            for front in fronts:
                front.end(deadline - time.monotonic())


def _hand_out(
    models: Mapping[str, Any],
    settings: ServeConfig,
    folder: str,
    fronts: list[Front],
    listening: socket.socket,
    stopping: threading.Event,
) -> None:
    """Give connections to fronts in turn, and replace those that die."""
    listening.setblocking(False)
    turn = 0
    while not stopping.is_set():
        for number, front in enumerate(fronts):
            if front.process.poll() is not None:
                if not front.started:
                    raise LitebertError("a process of the server ended before it was ready; its log says why")
                log_event("front_replaced", status=front.process.returncode)
                fronts[number] = Front(models, settings, folder)
        ready, _, _ = select.select([listening], [], [], 0.2)
        for _ in range(64 if ready else 0):
            try:
                client, _ = listening.accept()
            except OSError:  # none is left, or its client is gone again
                break
            with client, contextlib.suppress(OSError):  # of a front that has just died: the client tries again
                fronts[turn % len(fronts)].take(client)
            turn += 1


@contextlib.contextmanager
def _signals() -> Iterator[threading.Event]:
    """Set by SIGTERM and Ctrl-C."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in numbers}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------------------------------------------------------------
# In a front


def main(control_number: int, *numbers: int) -> None:
    """What a front does."""
    end_with_parent()
    from prometheus_client import disable_created_metrics

    from litebert.serve.app import create_app
    from litebert.serve.telemetry import log_to_stderr

    disable_created_metrics()  # type: ignore[no-untyped-call]
    control = Connection(control_number)
    start: Start = control.recv()
    predictors = {
        name: shared.open(Connection(number))
        for (name, shared), number in zip(start.models.items(), numbers, strict=True)
    }
    app = create_app(cast(Any, predictors), start.settings)
    log_to_stderr()
    asyncio.run(_front_server(app, start.settings, control).serve(sockets=[]))


def _front_server(app: Any, settings: ServeConfig, control: Connection) -> Any:
    from litebert.serve.server import Server

    class FrontServer(Server):
        """A server whose connections are accepted by another process."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start, and take connections as they come."""
            await super().startup(sockets=[])
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(control.fileno(), self._take)
            self._refresh()
            control.send(True)  # `Front.started`

        async def shutdown(self, *arguments: Any, **named: Any) -> None:
            """Drain."""
            self._loop.remove_reader(control.fileno())
            await super().shutdown(*arguments, **named)

        def _take(self) -> None:
            try:
                client = socket.socket(fileno=multiprocessing.reduction.recv_handle(control))
            except (EOFError, OSError, RuntimeError):  # the process with the models is gone
                self._loop.remove_reader(control.fileno())
                self.should_exit = True
                return
            client.setblocking(False)
            config = self.config

            def connection() -> Any:
                return config.http_protocol_class(
                    config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=self._loop
                )

            task = self._loop.create_task(self._loop.connect_accepted_socket(connection, client))
            self._arriving.add(task)  # asyncio keeps only a weak reference
            task.add_done_callback(self._arriving.discard)

        def _refresh(self) -> None:
            """Gauges of all fronts are added up where they are asked for, from what each has written down."""
            self._service.metrics.refresh()
            self._loop.call_later(1.0, self._refresh)

        _arriving: set[asyncio.Task[Any]]

    server = FrontServer(app, settings)
    server._arriving = set()
    return server
