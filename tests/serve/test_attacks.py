"""benchmarks/server_attack.py on a tiny model: what it asserts holds, whatever the machine's speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "server_attack.py"


def test_nobody_else_is_harmed(tiny_folders, tmp_path):
    setting = "--threads 1 --idle 60 --clients 6 --large 3 --bytes 8000 --within 600".split()
    command = [sys.executable, SCRIPT, "--model", tiny_folders["pretraining"], "--out", tmp_path / "out", *setting]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((tmp_path / "out").read_text())
    assert all(report[attack]["holds"] for attack in ("idle", "large", "drain"))
    assert report["large"]["behind"] >= 1
    assert [each["status"] for each in report["large"]["large"]] == [200] * 3
