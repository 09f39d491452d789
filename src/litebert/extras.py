"""Optional dependencies: imported where they are needed, with the pip command where they are missing."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType

from litebert.errors import MissingExtraError

# Which extra of pyproject.toml brings which module.
EXTRAS = {
    "hf": ("transformers", "datasets"),
    "ray": ("ray",),
    "remote": ("fsspec",),
    "report": ("tensorboard",),
    "baselines": ("gensim",),
    "onnx": ("onnx", "onnxruntime"),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
    "search": ("lancedb",),
}


def require(module: str, what: str) -> ModuleType:
    """Import an optional module, or say which extra brings it: require("ray.data", "--engine ray")."""
    top = module.split(".")[0]
    extra = next(name for name, modules in EXTRAS.items() if top in modules)
    if importlib.util.find_spec(top) is None:
        raise MissingExtraError(what, extra)
    if top == "onnxruntime":
        # Official builds report to their makers, unless told not to before they are loaded; a user's own word counts.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module(module)
