"""Inference by Triton's kernels: the numbers of the plain encoder in float64, in Triton's interpreter; and all of them
compile for a GPU, which needs none."""

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


@pytest.mark.parametrize("script", ["check_triton.py", "compile_small.py"])
def test_by_script(script):
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "text")]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / script)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "all right"
