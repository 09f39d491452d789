"""`python serve_fake.py GATE [key=value ...]`: a server whose model works only while the file GATE is there."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fake_predictor import FakePredictor

from litebert.config import build, override
from litebert.serve.config import ServeConfig
from litebert.serve.server import serve


class GatedPredictor(FakePredictor):
    def run_pass(self, parts):
        while not Path(sys.argv[1]).exists():
            time.sleep(0.01)
        super().run_pass(parts)


predictor = GatedPredictor(abilities=("embed",))
settings = build(ServeConfig, override({"port": 0}, sys.argv[2:]))
try:
    serve(lambda: {"fake": predictor}, settings, lambda address: print(f"fake at {address}", flush=True))
except KeyboardInterrupt:
    sys.exit(130)  # as litebert.cli.main does
