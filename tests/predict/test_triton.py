"""Triton's kernels in inference, in Triton's interpreter: the numbers of the plain encoder in float64."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None and not os.environ.get("CI"), reason="Triton has wheels for Linux only"
)


def test_by_script():
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "text")]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "check_triton.py")],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "all right"
