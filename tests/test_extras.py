from __future__ import annotations

import os
import subprocess
import sys

import pytest

from litebert.errors import MissingExtraError
from litebert.extras import require

# ONNX Runtime reports nothing where it believes to be tested.
TESTED = ("CI", "TF_BUILD", "GITHUB_ACTIONS", "ORT_RUNNING_UNIT_TESTS", "ORT_DISABLE_TELEMETRY", "PYTEST_CURRENT_TEST")
LOAD = """
import os
from litebert.extras import require
onnxruntime = require("onnxruntime", "this test")
onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""


def test_onnx_runtime_reports_nothing_to_its_makers(tmp_path):
    from onnx import TensorProto, helper, save

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "graph", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "model.onnx")
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in TESTED and not name.startswith("XDG_")}
    environment = {**kept, "HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
    assert list(home.iterdir()) == [], "no identity of this machine, no events to be sent"


def test_who_wants_it_to_report_is_heard(monkeypatch):
    monkeypatch.setattr("importlib.import_module", lambda name: name)  # or it would
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    assert require("onnxruntime", "this test") == "onnxruntime"
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"


def test_a_missing_part_names_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'test needs an optional dependency: pip install "litebert\[ray\]"'):
        require("ray.data", "this test")
