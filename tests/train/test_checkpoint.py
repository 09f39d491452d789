"""A run's checkpoints survive damage, a full disk and being killed while saving."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from litebert.errors import CheckpointError
from litebert.train import checkpoint
from litebert.train.checkpoint import (
    CheckpointWriteError,
    config_changes,
    latest,
    load,
    prune,
    save,
    saved_config,
    steps,
)
from litebert.train.device import seed_everything
from litebert.train.optimizer import Lamb, load_moments, moments, parameter_groups


def tensors(seed: int, size: int = 100) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"a.weight": torch.randn(size, 3, generator=generator), "b": torch.randn(5, generator=generator)}


def store(run, step, **keep):
    return save(run, step, tensors(step), tensors(-step), {"seed": 7, "order": [1, 2.5, None]}, **keep)


def assert_is(loaded, step):
    assert loaded.step == step
    for got, expected in ((loaded.model, tensors(step)), (loaded.optimizer, tensors(-step))):
        assert got.keys() == expected.keys()
        assert all(torch.equal(got[name], value) for name, value in expected.items())
    assert (loaded.state["seed"], loaded.state["order"], loaded.state["step"]) == (7, [1, 2.5, None], step)


def test_round_trip_is_bit_exact(tmp_path):
    odd = {
        "nan": torch.tensor([float("nan"), -0.0, float("inf"), 1e-45]),
        "half": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        "double": torch.tensor([1 / 3], dtype=torch.float64),
        "count": torch.tensor(3),
        "view": torch.arange(12.0).reshape(3, 4).T,
    }
    tied = torch.randn(4)
    save(tmp_path, 3, odd | {"in": tied, "out": tied}, {}, {"pi": 3.141592653589793})
    loaded = load(tmp_path)
    for name, value in (odd | {"in": tied, "out": tied}).items():
        got = loaded.model[name]
        assert (got.dtype, got.shape) == (value.dtype, value.shape)
        assert bytes(got.flatten().view(torch.uint8)) == bytes(value.flatten().view(torch.uint8))
    assert loaded.optimizer == {}
    assert loaded.state["pi"] == 3.141592653589793
    assert loaded.notes == ()


def test_files_are_what_the_format_says(tmp_path):
    folder = store(tmp_path, 1000)
    assert folder == tmp_path / "checkpoints" / "step-00001000"
    names = {"model.safetensors", "optimizer.safetensors", "state.json", "checksums.json"}
    assert {path.name for path in folder.iterdir()} == names
    # Readable by others: plain safetensors, and sums that `sha256sum` gives too.
    assert torch.equal(safetensors.torch.load_file(folder / "model.safetensors")["b"], tensors(1000)["b"])
    sums = json.loads((folder / "checksums.json").read_text())["files"]
    output = subprocess.run(["sha256sum", folder / "state.json"], capture_output=True, text=True, check=True)
    assert sums["state.json"]["sha256"] == output.stdout.split()[0]


def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path):
    """Weights and moments through a checkpoint, and dropout from (seed, step), against the same steps without one."""

    def build():
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Dropout(0.3))
        return model, Lamb(parameter_groups(model), lr=0.01)

    def train(model, optimizer, steps):
        for step in steps:
            seed_everything(1, step)
            optimizer.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()

    seed_everything(1)
    model, optimizer = build()
    train(model, optimizer, range(4))
    save(tmp_path, 4, model.state_dict(), moments(optimizer), {})
    train(model, optimizer, range(4, 9))

    seed_everything(2)
    resumed, resumed_optimizer = build()
    checkpoint = load(tmp_path)
    resumed.load_state_dict(checkpoint.model)
    load_moments(resumed_optimizer, checkpoint.optimizer)
    train(resumed, resumed_optimizer, range(checkpoint.step, 9))
    for name, value in model.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value)
        assert torch.equal(moments(resumed_optimizer)[f"{name}.v"], moments(optimizer)[f"{name}.v"])


def damage_byte(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "checksums.json"])
@pytest.mark.parametrize("harm", [damage_byte, cut_short, os.unlink])
def test_damage_falls_back_to_the_one_before(tmp_path, name, harm):
    store(tmp_path, 10)
    last = store(tmp_path, 20)
    harm(last / name)
    loaded = load(tmp_path)
    assert_is(loaded, 10)
    assert len(loaded.notes) == 1
    assert "step-00000020" in loaded.notes[0]
    assert "using the previous one" in loaded.notes[0]
    with pytest.raises(CheckpointError, match="step-00000020"):
        load(tmp_path, step=20)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": 1}',
        '{"format": 1, "files": 5}',
        '{"format": 1, "files": {"model.safetensors": {}, "optimizer.safetensors": {}, "state.json": {}}}',
        '{"format": 1, "files": {"model.safetensors": 1, "optimizer.safetensors": 1, "state.json": 1}}',
        '{"format": 3, "files": {}}',
        "[" * 5000,
    ],
)
def test_damaged_checksums_lead_to_the_checkpoint_before(tmp_path, content):
    good = store(tmp_path, 10)
    checksums = store(tmp_path, 20) / "checksums.json"
    checksums.write_text(content)
    assert latest(tmp_path) == good
    loaded = load(tmp_path)
    assert_is(loaded, 10)
    assert "step-00000020" in loaded.notes[0]
    prune(tmp_path, keep_last=1)
    assert_is(load(tmp_path), 10)


def test_every_key_of_the_checksums_may_be_damaged(tmp_path):
    store(tmp_path, 10)
    checksums = store(tmp_path, 20) / "checksums.json"
    text = checksums.read_text()
    words = set(re.findall(r"\w+", text))
    assert len(words) > 10
    for word in words:
        checksums.write_text(text.replace(word, word[:-1] + chr(ord(word[-1]) ^ 1), 1))
        assert_is(load(tmp_path), 10)
    checksums.write_text(text)
    assert_is(load(tmp_path), 20)


def test_the_config_of_the_newest_good_state(tmp_path):
    assert saved_config(tmp_path) is None
    for step in (10, 20):
        save(tmp_path, step, {"w": torch.ones(2)}, {}, {"config": {"lr": step}}, keep_last=5)
    assert saved_config(tmp_path) == {"lr": 20}
    damage_byte(tmp_path / "checkpoints" / "step-00000020" / "state.json")
    assert saved_config(tmp_path) == {"lr": 10}


def test_no_good_checkpoint_names_each_problem(tmp_path):
    damage_byte(store(tmp_path, 10) / "model.safetensors")
    (store(tmp_path, 20) / "state.json").unlink()
    with pytest.raises(CheckpointError, match="no usable checkpoint") as caught:
        load(tmp_path)
    assert "step-00000010/model.safetensors: damaged, its checksum differs" in str(caught.value)
    assert "step-00000020/state.json: cannot read: No such file" in str(caught.value)


def test_no_checkpoint_at_all(tmp_path):
    assert latest(tmp_path) is None
    assert steps(tmp_path) == []
    with pytest.raises(CheckpointError, match="no checkpoint in this folder; start the run without resuming"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load(tmp_path, step=5)


def test_half_written_folders_are_not_opened(tmp_path):
    good = store(tmp_path, 10)
    half = tmp_path / "checkpoints" / "step-00000020"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"begun")
    rest = tmp_path / "checkpoints" / ".step-00000030.abc.tmp"
    rest.mkdir()
    (tmp_path / "checkpoints" / "step-notes").mkdir()  # a user's own
    assert latest(tmp_path) == good
    loaded = load(tmp_path)
    assert_is(loaded, 10)
    assert "half-written" in loaded.notes[0]
    store(tmp_path, 40)
    assert not rest.exists()  # swept
    assert_is(load(tmp_path), 40)


def test_newer_format_is_refused(tmp_path):
    path = store(tmp_path, 10) / "checksums.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(CheckpointError, match="format 2; this litebert reads format 1"):
        load(tmp_path)


def test_keep_policy(tmp_path):
    for step in range(10, 110, 10):
        store(tmp_path, step, keep_last=2, keep_every=40)
    assert steps(tmp_path) == [40, 80, 90, 100]
    store(tmp_path, 110, keep_last=1)
    assert steps(tmp_path) == [110]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000110"]


def test_pruning_never_takes_the_last_good_one(tmp_path):
    store(tmp_path, 10)
    cut_short(store(tmp_path, 20) / "model.safetensors")
    checkpoint.prune(tmp_path, keep_last=1)
    assert_is(load(tmp_path), 10)
    checkpoint.prune(tmp_path, keep_last=0)
    assert_is(load(tmp_path), 10)


def test_going_back_leaves_the_old_course(tmp_path):
    for step in (10, 20, 30):
        store(tmp_path, step, keep_last=3)
    damage_byte(tmp_path / "checkpoints" / "step-00000030" / "model.safetensors")
    assert_is(load(tmp_path), 20)
    store(tmp_path, 25, keep_last=1)  # 30 is newer by number, but not of this course
    assert steps(tmp_path) == [25]
    assert_is(load(tmp_path), 25)


def test_saving_a_step_again_replaces_it_whole(tmp_path):
    folder = store(tmp_path, 10)
    (folder / "stray").write_text("x")
    store(tmp_path, 10)
    assert not (folder / "stray").exists()
    assert_is(load(tmp_path), 10)


@pytest.mark.parametrize("victim", ["model.safetensors", "optimizer.safetensors", "state.json", "checksums.json"])
def test_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch, victim):
    store(tmp_path, 10)
    real_save, real_write = safetensors.torch.save_file, type(tmp_path).write_text

    def full_save(values, path, metadata=None):
        if path.name == victim:
            path.write_bytes(b"begun")
            raise safetensors.SafetensorError("Error while serializing: I/O error: No space left (os error 28)")
        real_save(values, path, metadata=metadata)

    def full_write(path, *args, **kwargs):
        if path.name == victim:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real_write(path, *args, **kwargs)

    monkeypatch.setattr(safetensors.torch, "save_file", full_save)
    monkeypatch.setattr(type(tmp_path), "write_text", full_write)
    with pytest.raises(CheckpointWriteError, match=r"No space left on device.*Older checkpoints are intact") as caught:
        store(tmp_path, 20)
    assert caught.value.errno == errno.ENOSPC
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000010"]
    assert_is(load(tmp_path), 10)
    monkeypatch.undo()
    store(tmp_path, 30)  # the run may go on
    assert_is(load(tmp_path), 30)


LIMITED = """
import errno, resource, sys, torch
from litebert.train.checkpoint import CheckpointWriteError, load, save
run = sys.argv[1]
small, large = {"w": torch.ones(10)}, {"w": torch.ones(100_000)}
save(run, 1, small, small, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save(run, 2, small, large, {})
except CheckpointWriteError as error:
    assert error.errno == errno.EFBIG, error.errno
    assert "File too large" in str(error), error
else:
    raise SystemExit("the limit did not bite")
save(run, 3, small, small, {})
assert load(run).step == 3
"""


def test_file_size_limit_of_the_system(tmp_path):
    subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], check=True, timeout=60)
    assert steps(tmp_path) == [1, 3]


KILLED = """
import itertools, os, random, signal, sys, time, torch
from litebert.train.checkpoint import latest, load, save
run, chance = sys.argv[1], random.Random(0)
torch.set_num_threads(1)  # forked children cannot use torch's threads

def save_for_ever(first, report):
    for step in itertools.count(first):
        tensors = {"w": torch.full((100_000,), float(step))}
        save(run, step, tensors, tensors, {"value": step}, keep_last=1)
        os.write(report, b"%d\\n" % step)

last, rests = 0, 0
for _ in range(30):
    receive, report = os.pipe()
    child = os.fork()
    if child == 0:
        save_for_ever(last + 1, report)
    os.close(report)
    with os.fdopen(receive) as pipe:
        done = int(pipe.readline())
        time.sleep(chance.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        done = int((pipe.read().split() or [done])[-1])
    os.waitpid(child, 0)
    rests += any(name.endswith(".tmp") for name in os.listdir(run + "/checkpoints"))
    checkpoint = load(run)
    # The kill may fall between the swap and the report.
    assert checkpoint.step in (done, done + 1), (checkpoint.step, done)
    assert checkpoint.notes == ()
    assert checkpoint.state["value"] == checkpoint.step
    assert (checkpoint.model["w"] == checkpoint.step).all() and (checkpoint.optimizer["w"] == checkpoint.step).all()
    last = checkpoint.step
print(rests)
"""


def test_killed_while_saving_is_always_loadable(tmp_path):
    """SIGKILL at random moments of a process that only saves; the next one goes on from the last step."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    assert int(result.stdout) > 5  # most kills did fall into a save


def test_config_changes_are_named():
    saved = {"optim": {"lr": 0.001, "name": "lamb"}, "seed": 1}
    now = {"optim": {"name": "lamb", "lr": 0.002}, "seed": 1, "depth": 4}
    assert config_changes(saved, now) == {"optim.lr": "0.001 -> 0.002", "depth": "nothing -> 4"}
    assert config_changes(saved, saved) == {}
