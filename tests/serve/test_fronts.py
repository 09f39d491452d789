"""Several processes answer requests for the one that holds the models."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from running import at_once, process, wait_until
from tiny_models import TASKS, write_model

from litebert.errors import ConfigError, LitebertError
from litebert.predict.predictor import Predictor
from litebert.serve import fronts
from litebert.serve.config import ServeConfig
from litebert.serve.fronts import share_of

KEY = {"authorization": "Bearer key"}
TEXTS = ["anna lives in oslo.", "rome", "the teacher walked to the café."]


def fronts_of(parent):
    """The processes of a server that answer."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {int(child) for child in children if b"litebert.serve.fronts" in Path(f"/proc/{child}/cmdline").read_bytes()}


def is_ready(address):
    try:
        return all(httpx.get(f"{address}/ready").status_code == 200 for _ in range(4))  # in turn: each of two twice
    except httpx.HTTPError:
        return False


def total(address, name):
    lines = httpx.get(f"{address}/metrics", headers=KEY).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def test_fronts_answer_as_one_server_and_a_dead_one_is_replaced(tmp_path):
    write_model(tmp_path / "mood", "classification", TASKS["classification"])
    predictor = Predictor(tmp_path / "mood", device="cpu", threads=1)
    options = ("--port", "0", "--threads", "1", "--device", "cpu", "--set", "processes=2", "--api-key", "key")
    with process("-m", "litebert", "serve", tmp_path / "mood", *options) as (child, address):
        wait_until(lambda: is_ready(address))
        ask = {"url": f"{address}/classify", "json": {"text": TEXTS}, "headers": KEY, "timeout": 60}
        answers = at_once(8, lambda _: httpx.post(**ask).json())
        for answer in answers:
            for one, other in zip(answer["results"], predictor.classify(TEXTS), strict=True):
                assert one["label"] == other.label
                assert one["probabilities"] == pytest.approx(other.probabilities, abs=1e-5)
        numpy = httpx.post(f"{address}/embed", json={"text": TEXTS}, headers={**KEY, "accept": "application/x-npy"})
        np.testing.assert_allclose(np.load(io.BytesIO(numpy.content)), predictor.embed(TEXTS), atol=1e-5)
        assert total(address, 'litebert_requests_total{endpoint="/classify"') == 8  # of both together
        assert total(address, "litebert_connections ") >= 0
        refused = httpx.post(f"{address}/classify", json={"text": ["fine", ""]}, headers=KEY)
        assert (refused.status_code, "input 1: text: is empty" in refused.text) == (422, True)

        fixed = httpx.post(f"{address}/adapters/load", json={"name": "a", "folder": str(tmp_path)}, headers=KEY)
        assert (fixed.status_code, "several processes cannot change its adapters" in fixed.text) == (400, True)

        (first, second) = before = fronts_of(child.pid)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(fronts_of(child.pid)) == 2 and first not in fronts_of(child.pid))
        assert second in fronts_of(child.pid) != before
        wait_until(lambda: is_ready(address))
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0


def test_a_front_that_dies_before_it_is_ready_ends_the_server(monkeypatch):
    """However long it took: a slow import that fails would fail again, for ever."""

    def failing(module, count, environment):
        code = "import sys, time; time.sleep(0.5); sys.exit(3)"
        ends = [multiprocessing.Pipe() for _ in range(count)]
        failing.kept += [end for _, end in ends]
        return subprocess.Popen([sys.executable, "-c", code]), [end for end, _ in ends]

    failing.kept = []
    monkeypatch.setattr(fronts, "start_process", failing)
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(LitebertError, match="before it was ready"):
        fronts.serve_fronts({}, ServeConfig(processes=2), listening)


def test_limits_are_divided():
    own = share_of(ServeConfig(processes=3, connections=100, client_connections=4, queue_requests=9))
    assert (own.processes, own.connections, own.client_connections, own.queue_requests) == (1, 34, 2, 3)
    assert own.queue_tokens == max(own.request_tokens, 65_536 // 3 + 1)
    with pytest.raises(ConfigError, match="processes: must be >= 1"):
        ServeConfig(processes=0)
