"""Hardware decisions: what is picked, what is refused and with which words."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from litebert.config import build
from litebert.errors import ConfigError
from litebert.machine import usable_cores
from litebert.model.config import ModelConfig
from litebert.model.heads import EncoderModel
from litebert.train import device as device_module
from litebert.train.device import Device, DeviceConfig, measure_peak, open_device, seed_everything, speed_up


@pytest.fixture(autouse=True)
def _settings_stay(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def gpus(monkeypatch):
    """Pretend that the machine has so many GPUs, with or without bf16."""

    def pretend(count: int, bf16: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bf16)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA Pretend")

    return pretend


def test_cpu_runs_in_fp32_uncompiled(gpus):
    gpus(0)
    for config in (DeviceConfig(), DeviceConfig(device="cpu")):
        device = open_device(config)
        assert (device.device.type, device.precision, device.compile) == ("cpu", "fp32", False)
    with device.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize(("threads", "name"), [(1, "CPU, 1 thread"), (2, "CPU, 2 threads")])
def test_threads_in_words(threads, name):
    assert open_device(DeviceConfig(device="cpu", threads=threads)).name == name


def test_gpu_runs_in_bf16_compiled(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setattr(device_module.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(device_module.shutil, "which", lambda name: f"/bin/{name}")
    device = open_device(DeviceConfig(), local_rank=1, num_local=2)
    assert device == Device(torch.device("cuda", 1), "bf16", True, "NVIDIA Pretend", fast_layers=True, graphs="auto")
    assert not open_device(DeviceConfig(fast_layers="off")).fast_layers
    assert not open_device(DeviceConfig(precision="fp32")).fast_layers
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert open_device(DeviceConfig(fp8=True)).fp8
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(ConfigError, match="fp8: not available on NVIDIA Pretend"):
        open_device(DeviceConfig(fp8=True))
    assert open_device(DeviceConfig(device="cuda:1")).device.index == 1
    assert open_device(DeviceConfig(precision="fp32", compile="off")).precision == "fp32"
    assert not open_device(DeviceConfig(compile="off")).compile


def test_graphs_are_for_gpus_and_not_by_the_clock_where_results_must_repeat(gpus, monkeypatch):
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda mode: None)
    gpus(0)
    assert open_device(DeviceConfig()).graphs == "off"
    gpus(1)
    for choice in ("auto", "on", "off"):
        assert open_device(DeviceConfig(graphs=choice)).graphs == choice
    for more in ({"deterministic": True}, {"recompute": True}):
        assert open_device(DeviceConfig(**more)).graphs == "off"
        assert open_device(DeviceConfig(graphs="on", **more)).graphs == "on"


def test_an_old_gpu_runs_in_fp32(gpus):
    gpus(1, bf16=False)
    assert open_device(DeviceConfig()).precision == "fp32"
    with pytest.raises(ConfigError, match="NVIDIA Pretend has no bf16; use fp32"):
        open_device(DeviceConfig(precision="bf16"))


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        ("pass", None),
        ("import os; os.abort()", "precision: bf16 crashes on this CPU; use fp32"),
        (
            "import os; 'ONEDNN_MAX_CPU_ISA' in os.environ or os.abort()",
            "precision: bf16 crashes on this CPU, whose AMX does not work; use fp32, or set ONEDNN_MAX_CPU_ISA=",
        ),
    ],
)
def test_bf16_on_a_cpu_is_tried_in_another_process_first(monkeypatch, trial, message):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(device_module, "BF16_TRIAL", trial)
    monkeypatch.setattr(device_module, "bf16_problem", device_module.bf16_problem.__wrapped__)
    wanted = DeviceConfig(device="cpu", precision="bf16")
    if message is None:
        assert open_device(wanted).precision == "bf16"
    else:
        with pytest.raises(ConfigError, match=message):
            open_device(wanted)


def test_compiling_without_a_compiler(gpus, monkeypatch):
    gpus(1)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    device = open_device(DeviceConfig())
    assert not device.compile
    assert device.notes == ("not compiled, so slower: torch.compile needs a C compiler",)
    for place in ("cpu", "cuda"):
        with pytest.raises(ConfigError, match="needs a C compiler, which is not installed; use compile: off"):
            open_device(DeviceConfig(device=place, compile="on"))


@pytest.mark.parametrize(
    ("config", "count", "local", "message"),
    [
        ({"device": "mps"}, 0, 1, "'mps' is not one of: auto, cpu, cuda, cuda:1"),
        ({"device": "cuda:x"}, 1, 1, "'cuda:x' is not one of"),
        ({"device": "cpu:0"}, 1, 1, "'cpu:0' is not one of"),
        ({"device": "cuda"}, 0, 1, "finds no GPU for cuda; use cpu"),
        ({"device": "cuda:3"}, 2, 1, r"this machine has 2 GPU\(s\)"),
        ({"device": "cuda:1"}, 2, 2, "names one GPU for 2 processes; use cuda"),
        ({}, 2, 4, "4 processes for 2 GPUs; use torchrun --nproc-per-node=2"),
        ({"precision": "fp16"}, 0, 1, "not one of: auto, fp32, bf16"),
        ({"threads": -1}, 0, 1, "threads: must be >= 0"),
        ({"graphs": "on"}, 0, 1, "graphs: only a GPU has CUDA graphs; use auto"),
        ({"graphs": "yes"}, 0, 1, "not one of: auto, on, off"),
    ],
)
def test_mistakes_are_named(gpus, config, count, local, message):
    gpus(count)
    with pytest.raises(ConfigError, match=message):
        open_device(build(DeviceConfig, config), local_rank=local - 1, num_local=local)


def test_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    open_device(DeviceConfig(device="cpu"))
    assert torch.get_num_threads() == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    open_device(DeviceConfig(device="cpu", threads=3))
    assert torch.get_num_threads() == 3
    open_device(DeviceConfig(device="cpu"))
    assert torch.get_num_threads() == usable_cores()
    open_device(DeviceConfig(device="cpu"), num_local=1000)  # never none
    assert torch.get_num_threads() == 1


def test_deterministic_is_set():
    open_device(DeviceConfig(device="cpu", deterministic=True))
    assert torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("recompute", [False, True])
def test_recomputing_reaches_the_model_on_any_device(recompute):
    device = open_device(DeviceConfig(device="cpu", recompute=recompute))
    shape = dict(hidden_size=8, embedding_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    model = EncoderModel(ModelConfig(vocab_size=10, **shape))
    speed_up(model, device)
    assert model.encoder.recompute == recompute


def test_peak_counts_two_operations_per_product(monkeypatch):
    """With a clock that moves 10 ms per look, a product of 1024^3 takes 10 ms."""
    now = iter(range(10**6))
    monkeypatch.setattr(device_module, "time", SimpleNamespace(perf_counter=lambda: next(now) / 100))
    device = Device(torch.device("cpu"), "fp32", False, "CPU")
    assert measure_peak(device, seconds=0.0) == pytest.approx(2 * 1024**3 / 0.01)


DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def draw() -> list[float]:
    values = [random.random(), random.gauss(0, 1), np.random.random(), np.random.standard_normal()]  # noqa: NPY002
    for device in DEVICES:
        values += torch.nn.functional.dropout(torch.ones(20, device=device), 0.5).tolist()
        values += torch.randn(3, device=device).tolist()
    return values


@pytest.fixture(autouse=True)
def _leave_the_generators_alone():
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        yield
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002


def test_seed_decides_everything():
    def drawn(*seed: int) -> list[float]:
        seed_everything(*seed)
        return draw()

    assert drawn(1) == drawn(1)
    assert drawn(1, 5, 0) == drawn(1, 5, 0)
    different = [drawn(*seed) for seed in [(1,), (2,), (1, 5, 0), (1, 5, 1), (1, 6, 0), (2, 5, 0)]]
    for position in range(4):  # each generator for itself
        assert len({values[position] for values in different}) == len(different)
    assert len({tuple(values[4:]) for values in different}) == len(different)
