"""--dry-run: everything that a run will do, and a time estimate that counts every stage."""

from __future__ import annotations

import pytest
from tiny_run import tiny_config

from litebert.model.config import preset
from litebert.pretraining import dry_run
from litebert.pretraining.dry_run import describe_run, estimate_seconds, random_inputs
from litebert.train.device import DeviceConfig, open_device


def test_a_dry_run_says_what_will_happen(tmp_path):
    stages = [{"until": 0.5, "value": 1}, {"until": 1.0, "value": 2}]
    config = tiny_config(tmp_path, depth=stages, max_minutes=1)
    text = "\n".join(describe_run(config))
    wanted = ("parameters", "sop", "lamb", "512 tokens in 1 micro-batches", "1 until 50%", "at most 1 minutes", "time")
    for part in wanted:
        assert part in text, text
    assert str(tmp_path / "store") in text  # it is not there, and that is said


def test_a_dry_run_says_what_time_leaves_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "estimate_seconds", lambda config, device: 600.0)
    optim = {"warmup_steps": 100}
    last = list(describe_run(tiny_config(tmp_path, steps=1000, max_minutes=5, optim=optim)))[-1]
    assert last == "until then  about 500 steps, 256k tokens"
    last = list(describe_run(tiny_config(tmp_path, steps=1000, max_minutes=1, optim=optim)))[-1]
    assert last.endswith(
        "about 100 steps, 51.2k tokens; warm-up takes 100 steps: set optim.warmup_steps=2, or more minutes"
    )
    assert list(describe_run(tiny_config(tmp_path, steps=1000, max_minutes=11)))[-1].startswith("time")


def test_random_inputs_look_like_a_packed_batch():
    device = open_device(DeviceConfig(device="cpu", threads=1))
    inputs = random_inputs(preset("albert-tiny"), 256, 64, 0.15, device)
    assert inputs.starts.tolist() == [0, 64, 128, 192, 256]
    assert len(inputs.masked) == round(0.15 * 256)


def test_the_estimate_counts_stages_and_micro_batches(tmp_path, monkeypatch):
    seconds = {1: 1.0, 2: 3.0}
    monkeypatch.setattr(dry_run, "time_micro_batch", lambda config, device, depth, tokens: seconds[depth])
    device = open_device(DeviceConfig(device="cpu", threads=1))
    stages = [{"until": 0.25, "value": 1}, {"until": 1.0, "value": 2}]
    config = tiny_config(tmp_path, steps=10, depth=stages, micro_batch_tokens=128)
    assert estimate_seconds(config, device) == pytest.approx(10 * 4 * (0.25 * 1.0 + 0.75 * 3.0))  # 4 micro-batches
