"""Serve a folder over HTTP, for a page that runs in the browser: `litebert serve --static FOLDER`.

It also sends the two headers that let browsers give the page several threads (cross-origin isolation).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError


class Handler(SimpleHTTPRequestHandler):
    """Files with the right types and headers; only errors are logged."""

    # Not what this machine's registry says: browsers refuse modules and wasm of another type.
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".json": "application/json",
        ".css": "text/css",
        ".html": "text/html; charset=utf-8",
    }
    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        """Isolate the page, and let browsers ask whether a file has changed."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Say nothing of requests that succeed."""


def serve_static(folder: Path, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve a folder until the process is interrupted; `announce` gets the address."""
    if not (folder / "index.html").is_file():
        raise ConfigError(f"{folder}: no index.html here; write one with `litebert export MODEL --to web --page`")
    try:
        server = ThreadingHTTPServer((host, port), functools.partial(Handler, directory=str(folder)))
    except OSError as error:
        raise ConfigError(f"{host}:{port}: cannot listen there: {error.strerror}; choose another port") from None
    with server:
        announce(f"http://{host}:{server.server_address[1]}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.1)
