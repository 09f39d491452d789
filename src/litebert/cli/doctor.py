"""`litebert doctor`: the facts a bug report needs."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
from typing import Any

import litebert
from litebert.cli import app
from litebert.cli.options import Json
from litebert.cli.terminal import print_facts
from litebert.extras import EXTRAS

CORE = (
    "torch",
    "numpy",
    "sentencepiece",
    "tokenizers",
    "fsspec",
    "safetensors",
    "huggingface_hub",
    "pyarrow",
    "PyYAML",
    "rich",
    "scikit-learn",
    "scipy",
    "typer",
)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Print versions, devices and installed extras, for a bug report."""
    facts = collect()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    devices = facts["devices"] or ["no GPU: training and inference run on the CPU in fp32"]
    extras = {
        f"extra {name}": "  ".join(f"{module} {version}" for module, version in extra["modules"].items())
        or f"missing: {extra['install']}"
        for name, extra in facts["extras"].items()
    }
    print_facts(
        [
            ("litebert", facts["litebert"]),
            ("python", f"{facts['python']} on {facts['platform']}"),
            ("cpu", f"{facts['cpu_count']} cores, {facts['threads']} torch threads"),
            *(("device", device) for device in devices),
            ("core", "  ".join(f"{name} {version or 'MISSING'}" for name, version in facts["core"].items())),
            *extras.items(),
        ]
    )


def collect() -> dict[str, Any]:
    """The facts as plain data."""
    import torch

    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(
            f"cuda:{index} {properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
        )
    extras = {}
    for name, modules in EXTRAS.items():
        present = all(importlib.util.find_spec(module) is not None for module in modules)
        extras[name] = {
            "present": present,
            "modules": {module: _version(module) for module in modules} if present else {},
            "install": f'pip install "litebert[{name}]"',
        }
    return {
        "litebert": litebert.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": devices,
        "core": {name: _version(name) for name in CORE},
        "extras": extras,
    }


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
