"""From a model's name to what a Predictor is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from litebert.errors import ConfigError
from litebert.model.folder import find_folder
from litebert.model.hub import load_model
from litebert.predict.exported import MANIFEST_FILE
from litebert.predict.runtime import Runtime, TorchRuntime
from litebert.tasks.task import Task, load_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import DeviceConfig, open_device

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
    tokenizer, task = Tokenizer.load(folder), load_task(folder)
    if runtime == "auto":
        exported_only = (folder / MANIFEST_FILE).is_file() and not has_weights(folder)
        runtime = "onnx" if exported_only else "torch"
    if runtime not in RUNTIMES:
        raise ConfigError(f"runtime: {runtime!r} is not one of: auto, {', '.join(RUNTIMES)}")
    precision = RUNTIMES[runtime]
    if precision is not None:
        from litebert.predict.onnx_runtime import OnnxRuntime

        exported = OnnxRuntime(folder, threads=threads, max_tokens=max_tokens, precision=precision)
        return exported, tokenizer, task
    opened = open_device(DeviceConfig(device=device, threads=threads))
    return TorchRuntime(load_model(folder), opened, max_tokens), tokenizer, task


def has_weights(folder: Path) -> bool:
    """Whether a folder holds weights for torch."""
    return any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin"))
