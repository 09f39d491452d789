"""What every exported folder holds beside the exported files: config, tokenizer and task, so that it is complete."""

from __future__ import annotations

import functools
import importlib.metadata
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

import litebert
from litebert.errors import CheckpointError
from litebert.export.check import Check
from litebert.model.heads import Model
from litebert.model.hub import load_model
from litebert.page import page_files
from litebert.predict.exits import EXITS_FILE
from litebert.predict.load import MANIFEST_FILE, ONNX_FILES, STAGES, TORCH_FILE, is_adapter, merge_folder, stage_file
from litebert.remote import CONFIG_FILE, find_folder, is_google
from litebert.tasks.task import TASK_FILE
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizer_files import CONFIG, FILES

# Beyond this, fp32 files of the same arithmetic are not the same model.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class ExportedFile:
    """One file: its size, the arrays in it, and how it compares with torch."""

    name: str
    bytes: int
    parameters: int  # numbers stored in the file
    int8_arrays: int  # how many matrices are int8
    int8_parameters: int
    check: Check
    data_check: Check | None = None
    packed: Mapping[str, int] = field(default_factory=dict)  # numbers stored in fewer bits: int4, int6

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        numbers = {key: value for key, value in vars(self).items() if key not in ("check", "data_check")}
        data = None if self.data_check is None else self.data_check.as_dict()
        return {**numbers, "check": self.check.as_dict(), "data_check": data}


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote."""

    folder: str
    head: str
    model_parameters: int
    files: list[ExportedFile] = field(default_factory=list)
    page: bool = False  # whether the folder is a web page, too

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "files": [file.as_dict() for file in self.files]}


Export = TypeVar("Export", bound=Callable[..., ExportReport])


def merging_adapters(export: Export) -> Export:
    """An export that takes adapters too: it exports an adapter's model with the adapter merged into it."""

    @functools.wraps(export)
    def exported(source: Path | str, target: Path | str, **options: Any) -> ExportReport:
        folder = None if is_google(source) else find_folder(source)
        if folder is None or not is_adapter(folder):
            return export(source, target, **options)
        with tempfile.TemporaryDirectory() as temporary:
            return export(merge_folder(folder, Path(temporary, folder.name)), target, **options)

    return exported  # type: ignore[return-value]


def open_source(source: Path | str, target: Path, overwrite: bool) -> tuple[Path, Model]:
    """The folder and the model to export; refuses to write over either."""
    if is_google(source):
        raise CheckpointError(
            f"{source}: a TensorFlow checkpoint; make a model folder of it first: litebert convert {source} TARGET"
        )
    folder = find_folder(source)
    if (folder / MANIFEST_FILE).is_file():
        raise CheckpointError(f"{folder}: is an export itself; name the model folder it was made of")
    if target.resolve() == folder.resolve():
        raise CheckpointError(f"{target}: is the model folder itself; name another folder to write")
    if (target / CONFIG_FILE).is_file() and not (target / MANIFEST_FILE).is_file():
        raise CheckpointError(f"{target}: holds a model; name another folder to write")
    if any((target / name).is_file() for name in FILES) and not (target / MANIFEST_FILE).is_file():
        raise CheckpointError(f"{target}: holds a tokenizer; name another folder to write")
    if (target / MANIFEST_FILE).is_file() and not overwrite:
        raise CheckpointError(f"{target}: already contains an export; set overwrite to replace it")
    return folder, load_model(folder)


def find_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a model folder; None if it has none."""
    return Tokenizer.load(folder) if any((folder / name).is_file() for name in FILES if name != CONFIG) else None


def copy_companions(source: Path, target: Path) -> None:
    """Copy config, tokenizer, task and the rule of early exit."""
    for name in (CONFIG_FILE, TASK_FILE, EXITS_FILE, *FILES, "special_tokens_map.json"):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def is_foreign(name: str) -> bool:
    """Whether a file of the target folder is none of an export's: such files stay when an export is written there."""
    ours = {CONFIG_FILE, TASK_FILE, EXITS_FILE, MANIFEST_FILE, TORCH_FILE, *FILES, "special_tokens_map.json", "onnx"}
    page = {"page.json", "runtime", *(each.partition("/")[0] for each in page_files("browser"))}
    stages = {stage_file(stage, precision) for stage in STAGES for precision in ONNX_FILES}
    return name not in ours | page and not name.startswith((*ONNX_FILES.values(), *stages))


def versions(*packages: str) -> dict[str, str]:
    """The versions of what wrote a file."""
    return {
        "litebert": litebert.__version__,
        "torch": torch.__version__,
        **{package: importlib.metadata.version(package) for package in packages},
    }
