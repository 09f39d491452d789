"""Inference by Triton's kernels, in Triton's interpreter: the numbers of the plain encoder in float64."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

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


@pytest.mark.parametrize(
    ("capability", "kilobytes", "programmatic", "stages"),
    [((8, 9), 99, False, 2), ((8, 0), 163, False, 3), ((9, 0), 227, True, 3)],
)
def test_launches_as_a_gpu_can_take_them(monkeypatch, capability, kilobytes, programmatic, stages):
    from litebert.model.fast import triton_ops
    from litebert.model.fast.plain_ops import Packing

    gpu = torch.device("cuda", kilobytes)  # another each time, since what a GPU can do is asked once
    memory = SimpleNamespace(shared_memory_per_block_optin=1024 * kilobytes)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: memory)
    assert triton_ops.launch_options(True, gpu)["PDL"] == programmatic
    assert ("launch_pdl" in triton_ops.launch_options(True, gpu)) == programmatic
    starts = torch.tensor([0, 200])
    blocks = triton_ops._fitted(triton_ops.Blocks(128, 64, 8, 3), Packing(starts, starts, 200, 200), gpu)
    assert blocks == triton_ops.Blocks(128, 64, 8, stages)
    assert triton_ops.launch_options(True, torch.device("cpu")) == {"PDL": False}
