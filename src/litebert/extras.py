"""Optional dependencies, imported where needed; if one is missing, the error names the pip command."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType

from litebert.errors import MissingExtraError

# Which extra of pyproject.toml installs which modules.
EXTRAS = {
    "hf": ("transformers", "datasets"),
    "ray": ("ray",),
    "report": ("tensorboard",),
    "baselines": ("gensim",),
    "onnx": ("onnx", "onnxruntime"),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
    "search": ("lancedb",),
}


def require(module: str, what: str) -> ModuleType:
    """Import what `what` needs, or say which extra installs it: require("ray.data", "engine='ray'")."""
    top = module.split(".")[0]
    extra = next(name for name, modules in EXTRAS.items() if top in modules)
    if importlib.util.find_spec(top) is None:
        raise MissingExtraError(what, extra)
    if top == "onnxruntime":
        # Official builds send telemetry unless it is disabled before the import; the user's own setting wins.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module(module)
