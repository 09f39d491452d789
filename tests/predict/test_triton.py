"""Inference by Triton's kernels: the numbers of the plain encoder in float64, in Triton's interpreter; and all of them
compile for a GPU, which needs none."""

from __future__ import annotations

import importlib.util
import json
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


def test_the_script_that_times_them_works(tmp_path):
    script = Path(__file__).parents[2] / "benchmarks" / "predict_kernels.py"
    command = [sys.executable, str(script), "--device", "cpu", "--out", str(tmp_path / "result.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "result.json").read_text())
    assert max(found["16 pass"]["large off"], found["16 pass"]["small off"]) < 1e-4
    assert set(found["16 attention"]["blocks"]) == {"(16, 128, 4, 2)"}


@pytest.mark.parametrize(
    ("capability", "kilobytes", "programmatic", "stages"),
    [((8, 9), 99, False, 2), ((8, 0), 163, False, 3), ((9, 0), 227, True, 3)],
)
def test_launches_as_a_gpu_can_take_them(monkeypatch, capability, kilobytes, programmatic, stages):
    from litebert.model.fast import triton_ops
    from litebert.model.fast.plain_ops import Packing
    from litebert.predict import small_ops

    gpu = torch.device("cuda", kilobytes)  # another each time, since what a GPU can do is asked once
    memory = SimpleNamespace(shared_memory_per_block_optin=1024 * kilobytes)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: memory)
    monkeypatch.setattr(small_ops, "PDL", True)
    assert small_ops._launch(gpu)["PDL"] == programmatic
    assert ("launch_pdl" in small_ops._launch(gpu)) == programmatic
    starts = torch.tensor([0, 200])
    blocks = triton_ops._fitted(triton_ops.Blocks(128, 64, 8, 3), Packing(starts, starts, 200, 200), gpu)
    assert blocks == triton_ops.Blocks(128, 64, 8, stages)
    on_cpu = torch.device("cpu")
    assert small_ops._launch(on_cpu) == {"PDL": False}
