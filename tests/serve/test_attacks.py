"""The scripts that load, fuzz and attack the server, at a small setting: what they assert holds at any speed."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """A script of benchmarks/ as a module."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


def test_attacks_harm_nobody_else(tiny_folders, tmp_path):
    setting = "--threads 1 --idle 60 --clients 6 --large 3 --bytes 30000 --within 600".split()
    command = [sys.executable, SCRIPTS / "server_attack.py", "--model", tiny_folders["pretraining"], *setting]
    result = subprocess.run([*command, "--out", tmp_path / "out"], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((tmp_path / "out").read_text())
    assert all(report[attack]["holds"] for attack in ("idle", "large", "drain"))
    assert report["large"]["behind"] >= 1
    assert [each["status"] for each in report["large"]["large"]] == [200] * 3


def test_made_up_requests_find_no_failure(script, tiny_server):
    fuzz = script("server_fuzz")
    run = fuzz.Run(str(tiny_server.base_url), total=120)
    with run.client:
        fuzz.fuzz(run)
    assert not run.bad
    assert run.sent == 120
    assert len(run.statuses) > 2


def test_no_request_is_lost_under_load(script, tiny_server, tmp_path):
    load = script("server_load")
    (tmp_path / "texts").write_text(json.dumps({"short": ["Anna slept.", "Ben read the old book."]}))
    address = str(tiny_server.base_url).rstrip("/")
    done = asyncio.run(load.make_load(address, str(tmp_path / "texts"), "short", seconds=0.2, clients=4))
    assert done["lost"] == 0
    assert done["statuses"]["200"] >= 4
