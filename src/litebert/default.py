"""The model that comes with the package, under the name "default"."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from litebert.errors import CheckpointError

NAME = "default"
FOLDER = Path(__file__).parent / "default_model"

S = TypeVar("S", Path, str, "Path | str")


def resolve_default(source: S) -> S | Path:
    """The package's own model folder for the name "default", anything else as it is ("./default" is a folder)."""
    if not isinstance(source, str) or source != NAME:
        return source
    if not (FOLDER / "config.json").is_file():
        raise CheckpointError(
            "default: this build of litebert carries no model; name a model folder or a Hub model "
            "(albert/albert-base-v2), or train one in minutes with: litebert quickstart"
        )
    return FOLDER
