"""`python serve_fake.py SECONDS [key=value ...]`: a server whose model takes its time, for tests of whole processes."""

from __future__ import annotations

import sys

from fake_predictor import FakePredictor

from litebert.config import build, override
from litebert.serve.config import ServeConfig
from litebert.serve.server import serve

predictor = FakePredictor(abilities=("embed",), seconds=float(sys.argv[1]))
settings = build(ServeConfig, override({"port": 0}, sys.argv[2:]))
try:
    serve(lambda: {"fake": predictor}, settings, lambda address: print(f"fake at {address}", flush=True))
except KeyboardInterrupt:
    sys.exit(130)  # as litebert.cli.main does
