"""The tensors of a model folder: one safetensors file, sharded ones, or a `pytorch_model.bin`.

`SHA256SUMS` (as sha256sum writes it) is saved beside the weights. It is checked before they are used, unless
another program has written the weights since.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from litebert.errors import CheckpointError, show_value
from litebert.files import file_sha256
from litebert.parse import read_object
from litebert.remote import INDEX_FILE, SUMS_FILE

WEIGHTS_FILE = "model.safetensors"
PICKLE_FILE = "pytorch_model.bin"
# In the file's header. Other programs drop it when they rewrite the file, and then SHA256SUMS does not apply.
_OURS = {"saved_by": "litebert"}


def save_weights(state: Mapping[str, Tensor], folder: Path) -> None:
    """Write `model.safetensors` and its checksum."""
    path = folder / WEIGHTS_FILE
    save_file(dict(state), path, metadata={"format": "pt", **_OURS})
    _order_metadata(path)
    os.chmod(path, 0o644)
    (folder / SUMS_FILE).write_text(f"{file_sha256(path)}  {path.name}\n", encoding="utf-8")


def _order_metadata(path: Path) -> None:
    """safetensors writes metadata in random order: sort them, so that equal weights give equal files."""
    with open(path, "r+b") as file:
        header = file.read(1 << 12)  # they come first
        start, end = header.index(b'"__metadata__":') + 15, header.index(b"}") + 1
        ordered = json.dumps(json.loads(header[start:end]), sort_keys=True, separators=(",", ":")).encode()
        assert len(ordered) == end - start
        file.seek(start)
        file.write(ordered)


def is_weights_file(name: str) -> bool:
    """Whether a file of a model folder holds weights, or says something about them."""
    endings = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")
    return name.endswith(endings) or name == SUMS_FILE


class Weights(Mapping[str, Tensor]):
    """The tensors of one or several files by name, read when asked for."""

    def __init__(self, readers: dict[str, Callable[[], Tensor]]):
        self._readers = readers

    def __getitem__(self, name: str) -> Tensor:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def open_weights(folder: Path) -> Weights:
    """The weights of a folder: one safetensors file, sharded ones, or a pytorch_model.bin (tensors only)."""
    if (folder / WEIGHTS_FILE).is_file():
        return Weights(_open_safetensors(folder / WEIGHTS_FILE))
    for index_name, opener in ((INDEX_FILE, _open_safetensors), (f"{PICKLE_FILE}.index.json", _open_pickle)):
        if (folder / index_name).is_file():
            return Weights(_open_shards(folder / index_name, opener))
    if (folder / PICKLE_FILE).is_file():
        return Weights(_open_pickle(folder / PICKLE_FILE))
    raise CheckpointError(f"{folder}: no weights ({WEIGHTS_FILE}, {INDEX_FILE} or {PICKLE_FILE})")


def _open_safetensors(path: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        file = safe_open(path, framework="pt")
        names, ours = list(file.keys()), _OURS.items() <= (file.metadata() or {}).items()
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged or not a safetensors file ({error}); fetch or write it again") from None
    if ours:
        _check_sum(path)
    return {name: functools.partial(file.get_tensor, name) for name in names}


def _check_sum(path: Path) -> None:
    """Refuse weights that are not what SHA256SUMS beside them says."""
    sums = path.parent / SUMS_FILE
    if not sums.is_file():
        return
    text = sums.read_text(encoding="utf-8", errors="replace")
    line = re.search(rf"^([0-9a-f]{{64}}) [ *]{re.escape(path.name)}$", text, re.MULTILINE)
    if line is None:
        raise CheckpointError(
            f"{sums}: damaged: no checksum of {path.name}; copy the folder again, or delete {SUMS_FILE} to load "
            "the weights unchecked"
        )
    if line[1] != file_sha256(path):
        raise CheckpointError(
            f"{path}: damaged, or changed since it was saved (its SHA-256 is not the one in {SUMS_FILE}); copy or save "
            f"the model again, or delete {SUMS_FILE} if you changed the weights yourself"
        )


def _open_pickle(path: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        # weights_only: tensors and plain containers, no code from the file is ever run.
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types here, all of them about this file
        raise CheckpointError(f"{path}: {_explain_pickle(error)}") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: expected named tensors, found {type(state).__name__}")
    return {name: functools.partial(_given, value) for name, value in state.items() if isinstance(value, Tensor)}


def _explain_pickle(error: Exception) -> str:
    """Why a pickle is refused; torch's own message advises weights_only=False."""
    named = re.search(r"GLOBAL ([\w.]+)", str(error))
    if named:
        return (
            f"holds more than tensors ({named[1]}), which litebert never loads, since a pickle can run any code; use "
            "a safetensors file"
        )
    if isinstance(error, pickle.UnpicklingError):
        return "damaged, or holds more than tensors; fetch it again, or ask for a safetensors file"
    reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return f"damaged, or holds more than tensors ({reason})"


def _given(tensor: Tensor) -> Tensor:
    return tensor


def _open_shards(
    index: Path, opener: Callable[[Path], dict[str, Callable[[], Tensor]]]
) -> dict[str, Callable[[], Tensor]]:
    weight_map = read_object(index, CheckpointError).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{index}: damaged: no readable weight_map")
    shards = sorted(set(weight_map.values()))
    there = {file.name for file in index.parent.iterdir()}
    readers: dict[str, Callable[[], Tensor]] = {}
    for shard in shards:
        if shard not in there:
            raise CheckpointError(f"{index}: shard {show_value(shard)} is not in the folder")
        readers |= opener(index.parent / shard)
    missing = [name for name in weight_map if name not in readers]
    if missing:
        raise CheckpointError(f"{index}: {len(missing)} tensors are in no shard, first: {missing[0]}")
    return {name: readers[name] for name in weight_map}
