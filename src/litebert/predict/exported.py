"""The manifest of an exported folder (`export.json`): its head, inputs, outputs and checksums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from litebert.errors import CheckpointError
from litebert.files import file_sha256
from litebert.folders import beside
from litebert.model.heads import MODELS
from litebert.parse import read_object
from litebert.remote import CONFIG_FILE

MANIFEST_FILE = "export.json"
FORMAT = "litebert export"
VERSION = 1
# The file of each kind and precision; a folder may hold several.
ONNX_FILES = {"fp32": "model.onnx", "int8": "model.int8.onnx"}
# A model with exits in parts: up to the first layer, some layers, and the heads of all exits.
STAGES = ("begin", "layers", "heads")
TORCH_FILE = "model.pt2"


def stage_file(stage: str, precision: str) -> str:
    """The file of a part: ("layers", "int8") -> "model.layers.int8.onnx"."""
    return ONNX_FILES[precision].replace("model.", f"model.{stage}.")


@dataclass(frozen=True)
class Manifest:
    """The contents of `export.json`."""

    head: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    files: Mapping[str, str]  # name -> SHA-256
    versions: Mapping[str, str]  # package -> version that wrote the files
    checks: Mapping[str, Any] = field(default_factory=dict)  # file -> how far it is from torch
    source: Mapping[str, str] = field(default_factory=dict)  # what it was made of: name -> SHA-256

    def write(self, folder: Path) -> None:
        """Write `export.json`."""
        data = {"format": FORMAT, "version": VERSION, **asdict(self)}
        (folder / MANIFEST_FILE).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")

    def verify(self, folder: Path, name: str) -> Path:
        """The path of one of the files, which must be as it was written."""
        path = folder / name
        if name not in self.files or not path.is_file():
            there = [known for known in self.files if (folder / known).is_file()]
            advice = ""
            if there == [TORCH_FILE]:
                advice = ", for torch.export.load; litebert runs what `--to onnx` writes"
            elif any(known.startswith("onnx/") for known in there):
                advice = ", for browsers (`litebert serve --static`); litebert runs what `--to onnx` writes"
            raise CheckpointError(
                f"{folder}: contains no {name}; found: {', '.join(there) or 'none of its files'}{advice}"
            )
        parts = [name, *(other for other in self.files if other.startswith(f"{name}."))]  # large weights lie beside
        for part in parts:
            if not (folder / part).is_file() or file_sha256(folder / part) != self.files[part]:
                raise CheckpointError(
                    f"{folder / part}: damaged: its checksum is not that of {MANIFEST_FILE}; export it again"
                )
        return path


def read_manifest(folder: Path) -> Manifest:
    """Read `export.json`; a folder without one was not exported."""
    check_exported(folder, folder)
    path = folder / MANIFEST_FILE
    try:
        data = read_object(path, CheckpointError)
        assert data.pop("format") == FORMAT
        version = int(data.pop("version"))
        manifest = Manifest(**data) if version == VERSION else None
    except (OSError, ValueError, AssertionError, AttributeError, KeyError, TypeError):
        raise CheckpointError(f"{path}: damaged, or not written by litebert; export the model again") from None
    if manifest is None:
        raise CheckpointError(f"{path}: version {version}, this litebert reads version {VERSION}; export it again")
    if manifest.head not in MODELS or not isinstance(manifest.files, dict):
        raise CheckpointError(f"{path}: damaged: no readable head and files in it; export the model again")
    return manifest


def check_exported(folder: Path, name: Path | str) -> None:
    """A folder was exported; if not, say where its export is, or how to make it of the model as the user named it."""
    if (folder / MANIFEST_FILE).is_file():
        return
    made = beside(Path(name), "-onnx")
    advice = f"make one with `litebert export {name} --to onnx --out FOLDER`, and name that FOLDER instead"
    if (made / MANIFEST_FILE).is_file():
        advice = f"its export is {made}"
    raise CheckpointError(f"{name}: no {MANIFEST_FILE} here, so this is not an exported model; {advice}")


def check_weights(folder: Path) -> None:
    """A folder is more than an export: torch needs the weights themselves."""
    if (folder / MANIFEST_FILE).is_file() and not weight_files(folder):
        raise CheckpointError(f"{folder}: an export, without weights for torch; name the model folder it was made of")


def weight_files(folder: Path) -> list[Path]:
    """The files with weights for torch in a model folder."""
    return sorted([*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")])


def source_checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of everything that determines a model folder's outputs."""
    return {path.name: file_sha256(path) for path in (folder / CONFIG_FILE, *weight_files(folder))}
