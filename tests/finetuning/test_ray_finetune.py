"""examples/cluster/ray_pretrain.py --finetune: fine-tuning in Ray Train's processes is fine-tuning in one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy_tasks import make_files, tiny_config

from litebert.config import write_yaml
from litebert.finetuning.results import read_scores
from litebert.finetuning.run import finetune

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "ray_pretrain.py"


def test_two_workers_score_as_one_process(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification", train=32, dev=16)
    config = tiny_config(toy_model, files, "classification", classifier_dropout=0.0, optim={"lr": 0.003}, steps=6)
    (tmp_path / "run.yaml").write_text(write_yaml(config))
    command = [sys.executable, str(SCRIPT), str(tmp_path / "run.yaml"), "--finetune", "--out", str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = finetune(config, tmp_path / "one", quiet=True).scores, read_scores(tmp_path / "two")
    assert two.step == one.step
    for name, metric in one.splits["dev"].items():
        assert two.splits["dev"][name].value == pytest.approx(metric.value, abs=1e-4), name
