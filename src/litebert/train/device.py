"""The hardware of a run: device, precision, threads, compilation, peak speed, and seeds for all its generators.

device = open_device(DeviceConfig())           -> Device(device=cpu, precision='fp32', compile=False, ...)
with device.autocast(): loss = model(batch)
measure_peak(device)                           -> 1.1e11  (FLOP/s of a large matrix product, here and now)
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.errors import ConfigError
from litebert.machine import usable_cores
from litebert.model.encoder import Encoder
from litebert.model.fast.fp8_ops import Fp8Ops
from litebert.model.fast.layers import FastLayers
from litebert.model.heads import Model
from litebert.train.config import DeviceConfig as DeviceConfig

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Device:
    """The hardware a run uses, decided once."""

    device: torch.device
    precision: Precision
    compile: bool
    name: str
    notes: tuple[str, ...] = ()
    fast_layers: bool = False
    recompute: bool = False
    fp8: bool = False
    graphs: Literal["auto", "on", "off"] = "off"  # auto: where a trial finds them worth it

    @property
    def is_cuda(self) -> bool:
        """Whether this is a GPU."""
        return self.device.type == "cuda"

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products in the run's precision; parameters and gradients stay fp32."""
        if self.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        """Wait until the device is idle, before reading a clock."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)


def open_device(config: DeviceConfig, local_rank: int = 0, num_local: int = 1) -> Device:
    """Decide and set up the hardware for this process, the `local_rank`-th of `num_local` on its machine."""
    device = _pick(config.device, local_rank, num_local)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        name = torch.cuda.get_device_name(device)
    else:
        torch.set_num_threads(config.threads or default_threads(num_local))
        name = name_cpu(torch.get_num_threads())
    if config.deterministic:
        # cuBLAS reads this when its first handle is made.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    precision = _precision(config.precision, device, name)
    compiled, notes = _compilation(config.compile, device)
    # The kernels are Triton's, which a compiled run on a GPU has.
    fast = compiled and device.type == "cuda" and precision == "bf16" and config.fast_layers == "on"
    if config.fp8 and not (fast and torch.cuda.get_device_capability(device) >= (8, 9)):
        raise ConfigError(
            f"device.fp8: not available on {name}; it needs a GPU with 8-bit products (Ada, Hopper or newer), "
            "bf16 and the fast layers"
        )
    graphs = _graphs(config, device)
    return Device(device, precision, compiled, name, notes, fast, config.recompute, config.fp8, graphs)


def _pick(wanted: str, local_rank: int, num_local: int) -> torch.device:
    num_gpus = torch.cuda.device_count()
    kind, _, index = wanted.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and not (kind == "cuda" and index.isdigit())):
        raise ConfigError(f"device: {wanted!r} is not one of: auto, cpu, cuda, cuda:1 (others are not tested)")
    if kind == "cpu" or (kind == "auto" and not num_gpus):
        return torch.device("cpu")
    if not num_gpus:
        raise ConfigError(f"device: torch {torch.__version__} finds no GPU for {wanted}; use cpu")
    if index and num_local > 1:
        raise ConfigError(f"device: {wanted} names one GPU for {num_local} processes; use cuda")
    number = int(index) if index else local_rank
    if number >= num_gpus:
        if num_local > 1:
            raise ConfigError(f"{num_local} processes for {num_gpus} GPUs; use torchrun --nproc-per-node={num_gpus}")
        raise ConfigError(f"device: no {wanted}; this machine has {num_gpus} GPU(s), starting at cuda:0")
    return torch.device("cuda", number)


def _precision(wanted: str, device: torch.device, name: str) -> Precision:
    if device.type == "cpu":
        if wanted != "bf16":
            return "fp32"
        if problem := bf16_problem():
            raise ConfigError(f"precision: {problem}")
        return "bf16"
    able = torch.cuda.is_bf16_supported(including_emulation=False)
    if wanted == "bf16" and not able:
        raise ConfigError(f"precision: {name} has no bf16; use fp32")
    return "bf16" if able and wanted != "fp32" else "fp32"


BF16_TRIAL = "import torch; x = torch.ones(256, 256, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"
WITHOUT_AMX = "AVX512_CORE_BF16"


@functools.cache
def bf16_problem() -> str:
    """Why this CPU should not multiply in bf16, or "".

    Some virtual machines announce AMX but do not have it, and a bf16 product ends the process with an illegal
    instruction; so the first product is a trial in a process of its own.
    """

    def crashes(**environment: str) -> bool:
        ended = subprocess.run([sys.executable, "-c", BF16_TRIAL], env=os.environ | environment, capture_output=True)
        return ended.returncode != 0

    if not crashes():
        return ""
    if os.environ.get("ONEDNN_MAX_CPU_ISA") is None and not crashes(ONEDNN_MAX_CPU_ISA=WITHOUT_AMX):
        return f"bf16 crashes on this CPU, whose AMX does not work; use fp32, or set ONEDNN_MAX_CPU_ISA={WITHOUT_AMX}"
    return "bf16 crashes on this CPU; use fp32"


def _compilation(wanted: str, device: torch.device) -> tuple[bool, tuple[str, ...]]:
    if wanted == "off" or (wanted == "auto" and device.type == "cpu"):
        return False, ()
    compilers = [os.environ.get("CC", ""), os.environ.get("CXX", ""), "cc", "gcc", "clang", "g++", "c++", "cl"]
    lacks = None
    if not any(name and shutil.which(name) for name in compilers):
        lacks = "a C compiler"
    elif device.type == "cuda" and importlib.util.find_spec("triton") is None:
        lacks = "triton"
    if lacks is None:
        return True, ()
    if wanted == "on":
        raise ConfigError(f"compile: torch.compile needs {lacks}, which is not installed; use compile: off")
    return False, (f"not compiled, so slower: torch.compile needs {lacks}",)


def _graphs(config: DeviceConfig, device: torch.device) -> Literal["auto", "on", "off"]:
    if device.type == "cpu":
        if config.graphs == "on":
            raise ConfigError("graphs: only a GPU has CUDA graphs; use auto")
        return "off"
    # A trial goes by the clock, so runs that must be bit-equal go without; and a graph keeps its memory throughout.
    if config.graphs == "auto" and (config.deterministic or config.recompute):
        return "off"
    return config.graphs


def name_cpu(threads: int) -> str:
    """The CPU as results name it: 2 -> "CPU, 2 threads"."""
    return f"CPU, {threads} thread" + "s" * (threads != 1)


def default_threads(num_local: int = 1) -> int:
    """OMP_NUM_THREADS, or a process's share of the cores; torchrun's own OMP_NUM_THREADS=1 is ignored."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if num_local == 1 and said.isdigit() and int(said) else max(1, usable_cores() // num_local)


def send(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array as a tensor on a device; the copy to a GPU does not block."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def fetch(tensor: Tensor) -> NDArray[Any]:
    """A tensor as an array: half precision as float32."""
    array: NDArray[Any] = (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
    return array


@torch.no_grad()
def measure_peak(device: Device, seconds: float = 0.5) -> float:
    """FLOP/s of a large matrix product on this device now: the ceiling that a share of peak refers to.

    Measured rather than looked up: no product reaches a data sheet's figure, and laptops have none.
    """
    size = 8192 if device.is_cuda else 1024
    dtype = torch.bfloat16 if device.precision == "bf16" else torch.float32
    a = torch.randn(size, size, device=device.device, dtype=dtype)
    b = torch.randn(size, size, device=device.device, dtype=dtype)
    repeats = 10 if device.is_cuda else 1
    best = math.inf
    deadline = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < deadline:
        device.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            torch.mm(a, b)
        device.synchronize()
        best = min(best, (time.perf_counter() - start) / repeats)
        rounds += 1
    return 2.0 * size**3 / best


def speed_up(model: Model, device: Device) -> None:
    """Use the fastest layers that this device has; results stay the same up to rounding."""
    for encoder in encoders_of(model):
        encoder.recompute = device.recompute
        if device.fast_layers and FastLayers.fits(encoder):
            from litebert.model.fast import triton_ops

            ops = Fp8Ops(triton_ops) if device.fp8 else triton_ops
            encoder.fast_layers = FastLayers(encoder, torch.bfloat16, ops, device.recompute)
    if device.compile:
        compile_blocks(model)


def encoders_of(model: nn.Module) -> list[Encoder]:
    """A model's encoder, and any other that learns beside it."""
    return [module for module in model.modules() if isinstance(module, Encoder)]


def compile_blocks(model: nn.Module) -> None:
    """Compile the dense parts of a model's blocks: once per shape, for any number of layers that apply them.

    Attention itself stays outside: its kernels are fixed, and the starts of packed sequences change with every batch.
    """
    for module in model.modules():
        for name in ("project", "merge"):
            if hasattr(module, name):
                setattr(module, name, torch.compile(getattr(module, name), dynamic=False))
        if type(module).__name__ in ("FeedForward", "MaskedLMHead", "Embeddings"):
            module.compile(dynamic=False)


def seed_everything(seed: int, *more: int) -> None:
    """Seed Python, NumPy and torch (all devices) by one or several numbers, for example seed, step and rank."""
    words = np.random.SeedSequence([seed, *more]).generate_state(4, np.uint32)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))  # noqa: NPY002  (the global generator, for code that uses it)
    torch.manual_seed(int(words[2]) << 32 | int(words[3]))
