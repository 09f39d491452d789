"""From a model's name to what a Predictor is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from litebert.errors import LitebertError, check_choice
from litebert.model.config import load_config
from litebert.model.hub import load_model
from litebert.predict.adapted import is_adapter, load_adapted
from litebert.predict.exported import (
    MANIFEST_FILE,
    ONNX_FILES,
    check_exported,
    check_weights,
    read_manifest,
    weight_files,
)
from litebert.predict.fastest import WithTorch, find_export, pick_fastest
from litebert.predict.runtime import Runtime
from litebert.predict.torch_runtime import TorchRuntime
from litebert.remote import find_folder
from litebert.tasks.task import Task, load_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import DeviceConfig, default_threads, open_device

# As users name them -> the precision of the exported file; None: torch.
RUNTIMES: dict[str, Literal["auto", "fp32", "int8"] | None] = {
    "torch": None,
    "onnx": "auto",
    "onnx-fp32": "fp32",
    "onnx-int8": "int8",
}


def load_parts(
    model: Path | str, runtime: str, device: str, threads: int, max_tokens: int
) -> tuple[Runtime, Tokenizer, Task | None]:
    """The runtime, the tokenizer and the task of a model folder, a Hub name or "default"."""
    folder = find_folder(model)
    if is_adapter(folder):
        check_choice("runtime", runtime, ("auto", "torch"))  # merge it for others
        adapted, its_task, base = load_adapted(folder)
        hardware = open_device(DeviceConfig(device=device, threads=threads))
        return TorchRuntime(adapted, hardware, max_tokens), Tokenizer.load(base), its_task
    tokenizer, task = Tokenizer.load(folder), load_task(folder)
    if runtime == "auto":
        return open_fastest(folder, device, threads, max_tokens), tokenizer, task
    check_choice("runtime", runtime, ("auto", *RUNTIMES))
    precision = RUNTIMES[runtime]
    if precision is None:
        check_weights(folder)
        return open_torch(folder, device, threads, max_tokens), tokenizer, task
    check_exported(folder, model)
    return open_onnx(folder, threads, max_tokens, precision), tokenizer, task


def open_fastest(folder: Path, device: str, threads: int, max_tokens: int) -> Runtime:
    """Torch on a GPU; on a CPU the faster of torch and the export of the same weights; what there is, if only one."""
    if not weight_files(folder) and (folder / MANIFEST_FILE).is_file():
        there = read_manifest(folder).files
        return open_onnx(folder, threads, max_tokens, "fp32" if ONNX_FILES["fp32"] in there else "auto")
    hardware = open_device(DeviceConfig(device=device, threads=threads))

    def in_torch() -> TorchRuntime:
        return TorchRuntime(load_model(folder), hardware, max_tokens)

    place = None if hardware.is_cuda else find_export(folder)
    if place is None:
        return in_torch()

    def in_onnx() -> Runtime:
        return open_onnx(place, threads, max_tokens, "fp32")

    try:
        candidates: dict[str, Callable[[], Runtime]] = {"torch": in_torch, "onnx-fp32": in_onnx}
        if pick_fastest(load_config(folder), threads or default_threads(), candidates) == "onnx-fp32":
            return WithTorch(in_onnx(), in_torch)
    except (LitebertError, ImportError):  # a damaged export or ONNX Runtime; the weights themselves are here
        pass
    return in_torch()


def open_torch(folder: Path, device: str, threads: int, max_tokens: int) -> TorchRuntime:
    """The weights of a folder in torch."""
    return TorchRuntime(load_model(folder), open_device(DeviceConfig(device=device, threads=threads)), max_tokens)


def open_onnx(folder: Path, threads: int, max_tokens: int, precision: Literal["auto", "fp32", "int8"]) -> Runtime:
    """An exported file of a folder in ONNX Runtime."""
    from litebert.predict.onnx_runtime import OnnxRuntime

    return OnnxRuntime(folder, threads=threads, max_tokens=max_tokens, precision=precision)
