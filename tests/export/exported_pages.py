"""What tests of exported pages share: a static host, the npm packages, and answers compared."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from litebert.serve.static import Handler

WEB = Path(__file__).parent / "web"
MODULES = WEB / "node_modules"


def need_modules():
    """Skip (in CI: fail) without the packages of npm."""
    if not MODULES.is_dir():
        reason = "needs: npm install --ignore-scripts --no-package-lock --prefix tests/export/web"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@contextlib.contextmanager
def hosting(folder: Path, isolated: bool = True):
    """A static host; without `isolated`, one that sends no headers of its own, as most do."""

    class Plain(Handler):
        def send_header(self, keyword, value):
            if isolated or not keyword.startswith("Cross-Origin"):
                super().send_header(keyword, value)

        def log_message(self, *rest):
            """Nothing on the console of the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Plain, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(page, ability, body):
    """The answer that the page would draw."""
    script = """async ([ability, body]) =>
        (await import('./browser.js')).backend.answer(ability, body, new AbortController().signal)"""
    return page.evaluate(script, [ability, body])


def assert_close(actual, expected, where=""):
    """Plain data, equal but for the last digits of numbers; what the page leaves out is left out."""
    if isinstance(expected, dict):
        for key, value in actual.items():
            assert_close(value, expected[key], f"{where}.{key}")
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), where
        for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert_close(a, b, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-4), where
    else:
        assert actual == expected, where
