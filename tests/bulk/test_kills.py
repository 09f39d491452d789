"""A run killed at random moments leaves what an undisturbed one does: benchmarks/score_kills.py, a small one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "score_kills.py"


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_nothing_is_lost_doubled_or_changed():
    words = [sys.executable, str(SCRIPT), "--kills", "2", "--rows", "4000"]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["same bytes"] is True
    assert result["rows"] == 4000
