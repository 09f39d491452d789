"""From a name to the parts of a Predictor: a model folder, a Hub name, an export, or an adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from litebert.errors import CheckpointError, ConfigError, LitebertError, check_choice
from litebert.files import file_sha256
from litebert.folders import beside
from litebert.model.adapter import load_adapter, merge_adapter, read_adapter_config, trained_on
from litebert.model.heads import MODELS, Model
from litebert.model.hub import load_model, load_model_and_report, save_model
from litebert.parse import read_object
from litebert.predict.adapters import Adapter, make_adapter
from litebert.predict.runtime import Runtime, outputs_of
from litebert.predict.torch_runtime import TorchRuntime
from litebert.remote import ADAPTER_FILE, CONFIG_FILE, find_folder
from litebert.tasks.sentence_folder import transformer_folder, write_sentence_files
from litebert.tasks.task import Task, kind_of, load_task, save_task
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
    """The runtime, the tokenizer and the task of a model folder, a Hub name, an adapter folder or "default".

    `runtime` "auto" is torch, or ONNX Runtime in fp32 if the folder holds an export and no weights.
    """
    given = find_folder(model)
    folder = transformer_folder(given)

    def in_torch(loaded: Model) -> TorchRuntime:
        return TorchRuntime(loaded, open_device(DeviceConfig(device=device, threads=threads)), max_tokens)

    if is_adapter(folder):
        check_choice("runtime", runtime, ("auto", "torch"))  # merge it for others
        adapted, its_task, base = load_adapted(folder)
        return in_torch(adapted), Tokenizer.load(base), its_task
    tokenizer, task = Tokenizer.load(folder), load_task(given)
    if runtime == "auto":
        runtime = _runtime_for(folder)
    check_choice("runtime", runtime, ("auto", *RUNTIMES))
    precision = RUNTIMES[runtime]
    if precision is None:
        check_weights(folder)
        return in_torch(load_model(folder)), tokenizer, task
    check_exported(folder, model)
    from litebert.predict.onnx_runtime import OnnxRuntime

    return OnnxRuntime(folder, threads=threads, max_tokens=max_tokens, precision=precision), tokenizer, task


def _runtime_for(folder: Path) -> str:
    if weight_files(folder) or not (folder / MANIFEST_FILE).is_file():
        return "torch"
    return "onnx-fp32" if ONNX_FILES["fp32"] in read_manifest(folder).files else "onnx"


# ---------------------------------------------------------------------------------------------------------------------
# An adapter folder as a model: its base with the adapter merged in, its head and its task


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter instead of a model."""
    return (folder / ADAPTER_FILE).is_file()


def load_adapted(folder: Path, base: str | None = None) -> tuple[Model, Task, Path]:
    """The merged model of an adapter folder, its task, and the folder of its base (by default as the adapter says)."""
    task = _adapter_task(folder)
    named = base or read_adapter_config(folder)["base"]
    if not named:
        raise CheckpointError(f"{folder}: does not name its base model; give one as `base`")
    source = find_folder(named) if base else _find_base(folder, named)
    model, untrained = _with_head(source, task)
    load_adapter(model, folder, untrained=untrained)
    merge_adapter(model)
    return model.eval(), task, source


def open_adapter(folder: Path | str, name: str, runtime: Runtime, base: str) -> Adapter:
    """An adapter folder for shared passes of a runtime that runs its base model, given by name or folder."""
    if not isinstance(runtime, TorchRuntime):
        raise ConfigError(f"adapters run in torch, and this model in {runtime.name}; choose the runtime torch")
    folder, source = find_folder(folder), find_folder(base)
    if is_adapter(source):
        raise ConfigError(f"{base}: an adapter itself; add adapters to its base, {read_adapter_config(source)['base']}")
    task = _adapter_task(folder)
    _check_base(folder, base, source)
    model, untrained = _with_head(source, task)
    if model.encoder.pooler is not None and runtime.encoder.plain.pooler is None:
        raise CheckpointError(f"{folder}: its head needs a pooler, and {base} has none; merge the adapter")
    before = {path: tensor.clone() for path, tensor in model.encoder.state_dict().items()}
    load_adapter(model, folder, untrained=untrained)
    outputs = outputs_of(model) - {"attentions"}  # only the plain encoder gives them, without adapters
    return make_adapter(name, model, task, before, runtime.encoder.embeddings.word.weight, outputs)


def _check_base(folder: Path, base: str, source: Path) -> None:
    """An adapter belongs to the very weights that it was trained on; most know them by a fingerprint."""
    named = read_adapter_config(folder)["base"]
    if not named or named == base or trained_on(folder):
        return
    same = _find_base(folder, named)
    if same.resolve() != source.resolve() and source_checksums(same) != source_checksums(source):
        raise CheckpointError(f"{folder}: an adapter of another base model: {named}, not {base}")


def _find_base(folder: Path, named: str) -> Path:
    """The folder of the base model that an adapter names."""
    try:
        return find_folder(named)
    except LitebertError as error:
        raise CheckpointError(
            f"{folder}: its base model is not found: {error}. If it has moved, correct base_model_name_or_path in "
            f"{ADAPTER_FILE}"
        ) from None


def _adapter_task(folder: Path) -> Task:
    read_adapter_config(folder)  # refuses what is no adapter
    task = load_task(folder)
    if task is None:
        raise CheckpointError(
            f"{folder}: has no task.json, so its labels are unknown; open it with load_adapter(model, folder)"
        )
    return task


def _with_head(source: Path, task: Task) -> tuple[Model, list[str]]:
    """The base model with the head of a task, and the names of the head's tensors that the base lacks."""
    kind = kind_of(task)
    changes: dict[str, Any] = {"labels": task.labels, "problem_type": kind.problem_type}
    model, report = load_model_and_report(source, kind.head(task), new_head=True, **changes)
    return model, [name for name in report.missing if not name.startswith("encoder.")]


def merge_folder(folder: Path | str, out: Path | str, base: str | None = None) -> Path:
    """Write an adapter (a folder, or default:NAME) and its base as one plain model folder."""
    model, task, source = load_adapted(find_folder(folder), base)
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise CheckpointError(f"{out}: not empty; name another folder to write")
    save_model(model, out)
    tokenizer = Tokenizer.load(source)
    tokenizer.save(out, max_length=max(task.max_length, tokenizer.max_length or 0))
    save_task(task, out)
    if kind_of(task).compares:
        write_sentence_files(out, task, model.config.hidden_size)
    return out


# ---------------------------------------------------------------------------------------------------------------------
# What an exported folder holds


MANIFEST_FILE = "export.json"
FORMAT = "litebert export"
VERSION = 1
# The file of each kind and precision; a folder may hold several.
ONNX_FILES = {"fp32": "model.onnx", "int8": "model.int8.onnx"}
# A model with exits in parts: up to the first layer, some layers, the last FFN of these (where the head reads [CLS]
# alone), and the heads of all exits.
STAGES = ("begin", "layers", "finish", "heads")
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
        parts = [
            name,
            *(other for other in self.files if other.startswith(f"{name}.")),
        ]  # large weights are separate files
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
