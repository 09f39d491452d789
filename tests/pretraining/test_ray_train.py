"""examples/cluster/ray_pretrain.py: Ray Train restarts a run when a worker dies, and the run continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from tiny_run import make_corpus, tiny_config

from litebert.config import write_yaml
from litebert.pretraining.run import pretrain
from litebert.train import checkpoint
from litebert.train.log import read_metrics

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "ray_pretrain.py"
STEPS = 400


def workers_of(session: int) -> list[int]:
    """The processes of Ray Train's workers among those of one session."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name = (folder / "cmdline").read_bytes()
                if b"RayTrainWorker" in name and os.getsid(int(folder.name)) == session:
                    found.append(int(folder.name))
            except OSError:
                continue
    return sorted(found)


def test_a_run_goes_on_to_its_end_though_a_worker_dies(tmp_path):
    corpus = make_corpus(tmp_path)
    log = {"report_every": 20, "evaluate_every": 0, "checkpoint_every": 20}
    config = tiny_config(corpus, steps=STEPS, model={"hidden_dropout_prob": 0.0}, log=log, optim={"lr": 1e-3})
    (tmp_path / "run.yaml").write_text(write_yaml(config))
    run = tmp_path / "run"
    command = [sys.executable, str(SCRIPT), str(tmp_path / "run.yaml"), "--out", str(run), "--workers", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(tmp_path / "log", "w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 240
        while not (run.is_dir() and checkpoint.steps(run)):
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        killed = workers_of(process.pid)
        assert len(killed) == 2, killed
        os.kill(killed[-1], signal.SIGKILL)
        before = max(checkpoint.steps(run))
        assert before < STEPS, "it was over before the kill"
        assert process.wait(240) == 0, (tmp_path / "log").read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert max(checkpoint.steps(run)) == STEPS
    events = [line["message"] for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "event"]
    assert any("resum" in message for message in events), events
    # What came of it is what one undisturbed process makes.
    pretrain(config, tmp_path / "one", quiet=True)
    one, two = (load_file(checkpoint.load(each).folder / "model.safetensors") for each in (tmp_path / "one", run))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], atol=1e-4, rtol=0, msg=name)
