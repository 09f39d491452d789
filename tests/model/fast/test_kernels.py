"""The Triton kernels agree with plain torch in Triton's interpreter, and compile for a GPU; neither needs one."""

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


@pytest.mark.parametrize(
    ("script", "said"), [("check_kernels.py", "all kernels agree"), ("compile_kernels.py", "all kernels compile")]
)
def test_kernels_by_script(script, said):
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / script)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == said
