"""A real server for the tests: uvicorn on a free port of this machine, in a thread or in a separate process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from litebert.serve.app import create_app
from litebert.serve.config import ServeConfig
from litebert.serve.server import Server, open_socket


def stacks():
    """Where every thread stands: what a server that does not end is waiting for."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


@contextlib.contextmanager
def running(predictors, **settings):
    """Serve predictors for a while: with running({"fake": FakePredictor()}) as client: client.get("/health")."""
    settings = ServeConfig(**{"port": 0, "shutdown_s": 9, "last_call_s": 0.01, **settings})
    app = create_app(predictors, settings)
    server, listening = Server(app, settings), open_socket(settings)
    port = listening.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            client.app = app
            yield client
    finally:
        for predictor in predictors.values():
            if hasattr(predictor, "go"):
                predictor.go.set()  # a failed test must not hang as well
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive(), f"the server does not end:\n{stacks()}"


@contextlib.contextmanager
def process(*command, **environment):
    """A command that prints `... at ADDRESS`: yields (process, address), and ends the process if it is still there.

    What it writes to stderr goes to the file `process.log`: a pipe that nobody reads would fill up and stop it.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment}
    with tempfile.NamedTemporaryFile() as log:
        child = subprocess.Popen(
            [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=log, text=True, env=variables
        )
        child.log = Path(log.name)
        try:
            line = child.stdout.readline()
            assert " at http" in line, (line, child.log.read_text())
            yield child, line.split(" at ")[1].split()[0]
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
            child.communicate()


def at_once(count, call):
    """The results of count calls made at the same time: at_once(3, lambda i: client.get("/health"))."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


def wait_until(condition, seconds=60.0):
    """Wait for a condition, and fail if it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


HERE = Path(__file__).parent


def ask(page, ability, **fields):
    """Fill in the form of an ability, run it, and wait for the new result."""
    for name, value in fields.items():
        page.fill(f'#{ability} [name="{name}"]', value)
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.click(f"#{ability} .go")
    page.wait_for_selector(f"#{ability} .result:not([aria-busy])")


def until(page, condition):
    """Wait for a condition; playwright's own way would need eval, which the page's policy forbids."""
    for _ in range(3000):
        if condition():
            return
        page.wait_for_timeout(20)
    pytest.fail("waited too long")
