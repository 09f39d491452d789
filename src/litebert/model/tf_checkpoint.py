"""Google's TensorFlow checkpoints ("V2 bundles"), read without TensorFlow.

    checkpoint = read_bundle("albert_base_v2")         # a folder, a prefix or any file of the bundle
    checkpoint.shapes["bert/pooler/dense/kernel"]      -> (768, 768)
    checkpoint.tensor("bert/pooler/dense/kernel")      -> float32 array, read now and checked

A bundle `model.ckpt-best` is one index and one or more data files:

    model.ckpt-best.index                 name -> type, shape, shard, offset, size, checksum (see tf_index)
    model.ckpt-best.data-00000-of-00001   the bytes of the tensors, little-endian, one after another
    model.ckpt-best.meta                  the graph; not needed

A text file `checkpoint` next to them may name the latest of several bundles.
"""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from litebert.errors import CheckpointError, did_you_mean
from litebert.model.tf_index import TABLE_MAGIC, Entry, crc32c, mask_crc, parse_index, slice_key
from litebert.parse import DamagedBytes

# tensorflow/core/framework/types.proto: number -> (name, the form of the bytes)
_DTYPES = {
    1: ("float32", "<f4"),
    2: ("float64", "<f8"),
    3: ("int32", "<i4"),
    4: ("uint8", "u1"),
    5: ("int16", "<i2"),
    6: ("int8", "i1"),
    9: ("int64", "<i8"),
    10: ("bool", "?"),
    14: ("bfloat16", "<u2"),
    17: ("uint16", "<u2"),
    19: ("float16", "<f2"),
    22: ("uint32", "<u4"),
    23: ("uint64", "<u8"),
}
_STRING = 7
_FORMAT_VERSION = 1

_SUFFIX = re.compile(r"(?<=.)\.(index|meta|data-\d{5}-of-\d{5})$")
_AGAIN = "copy or download the checkpoint again"


def read_bundle(source: Path | str) -> TfCheckpoint:
    """Open a V2 checkpoint by folder, prefix or any of its files; only the index is read here."""
    try:
        return TfCheckpoint(find_bundle(source))
    except OSError as error:
        raise CheckpointError(f"{error.filename or source}: cannot be read: {error.strerror}") from None


def find_bundle(source: Path | str) -> Path:
    """The prefix of the bundle meant by a folder, prefix or file: "x/model.ckpt.index" -> "x/model.ckpt"."""
    source = Path(source)
    if source.is_dir():
        return _find_in_folder(source)
    if source.name == "checkpoint" and source.is_file():
        return _find_in_folder(source.parent)
    prefix = source.with_name(_SUFFIX.sub("", source.name))
    index = _with_suffix(prefix, ".index")
    if index.is_file():
        return prefix
    if source == prefix and source.is_file():
        raise CheckpointError(f"{source}: {_why_no_bundle(source)}")
    if source.is_file() or any(prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*")):
        raise CheckpointError(f"{index}: missing; data files cannot be read without their index: {_AGAIN}")
    known = [found.name for found in _bundles_in(prefix.parent)]
    raise CheckpointError(f"{source}: no such TensorFlow checkpoint{did_you_mean(prefix.name, known)}")


class TfCheckpoint:
    """An open bundle: names, shapes and dtypes of its tensors at once, their values one by one on request."""

    prefix: Path
    names: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]  # TensorFlow's names; a bfloat16 tensor is returned as float32
    skipped: dict[str, str]  # tensors that are not arrays of numbers, and why

    def __init__(self, prefix: Path):
        self.prefix = prefix
        self._index = _with_suffix(prefix, ".index")
        self._num_shards, entries = _read_index(self._index)
        self._tensors: dict[str, list[_Part]] = {}
        self.shapes, self.dtypes, self.skipped = {}, {}, {}
        for key, entry in entries.items():
            if not key.startswith(b"\0"):  # those are the slices, found through their tensor
                self._add(key, entry, entries)
        self.names = tuple(self._tensors)
        self._check_shards()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __repr__(self) -> str:
        return f"TfCheckpoint({str(self.prefix)!r}, {len(self)} tensors)"

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each name with its array, read one after another."""
        return ((name, self.tensor(name)) for name in self.names)

    def tensor(self, name: str) -> np.ndarray:
        """Read one tensor into a new array and check it against its checksum."""
        if name in self.skipped:
            raise CheckpointError(f"{self._index}: tensor {name!r} {self.skipped[name]}; it cannot be read")
        if name not in self._tensors:
            raise CheckpointError(f"{self._index}: no tensor {name!r}{did_you_mean(name, self.names)}")
        parts = self._tensors[name]
        array = self._read(name, parts[0].entry)
        if len(parts) == 1:
            return array
        whole = np.zeros(self.shapes[name], dtype=array.dtype)
        whole[parts[0].place] = array
        for part in parts[1:]:
            whole[part.place] = self._read(name, part.entry)
        return whole

    def _add(self, key: bytes, entry: Entry, entries: Mapping[bytes, Entry]) -> None:
        name = key.decode("utf-8", errors="backslashreplace")
        if entry.dtype not in _DTYPES:
            kind = "strings" if entry.dtype == _STRING else f"TensorFlow type {entry.dtype}"
            self.skipped[name] = f"holds {kind}, not numbers"
            return
        try:
            self._tensors[name] = _parts_of(key, entry, entries)
        except DamagedBytes as damage:
            raise CheckpointError(f"{self._index}: tensor {name!r}: {damage}; {_AGAIN}") from None
        self.shapes[name] = entry.shape
        self.dtypes[name] = _DTYPES[entry.dtype][0]

    def _shard(self, number: int) -> Path:
        return _with_suffix(self.prefix, f".data-{number:05d}-of-{self._num_shards:05d}")

    def _check_shards(self) -> None:
        """Report a missing or short data file now, not in the middle of a conversion."""
        sizes: dict[int, int] = {}
        for name, parts in self._tensors.items():
            for entry in (part.entry for part in parts):
                path = self._shard(entry.shard)
                if entry.shard >= self._num_shards:
                    raise CheckpointError(
                        f"{self._index}: tensor {name!r}: is in {path.name}, which does not exist; {_AGAIN}"
                    )
                if not path.is_file():
                    raise CheckpointError(
                        f"{path}: missing; it holds {name!r}. "
                        f"Put all {self._num_shards} data file(s) of the checkpoint next to its index"
                    )
                size = sizes.setdefault(entry.shard, path.stat().st_size)
                if entry.offset + entry.size > size:
                    raise CheckpointError(
                        f"{path}: cut short: tensor {name!r} ends at byte {entry.offset + entry.size}, "
                        f"the file at {size}; {_AGAIN}"
                    )

    def _read(self, name: str, entry: Entry) -> np.ndarray:
        path = self._shard(entry.shard)
        try:
            data = np.fromfile(path, dtype=np.uint8, count=entry.size, offset=entry.offset)
        except OSError as error:
            raise CheckpointError(f"{path}: tensor {name!r} cannot be read: {error.strerror}") from None
        if data.size != entry.size or mask_crc(crc32c(data)) != entry.crc:
            raise CheckpointError(f"{path}: tensor {name!r}: does not match its checksum; {_AGAIN}")
        dtype, stored = _DTYPES[entry.dtype]
        values = data.view(stored)
        if dtype == "bfloat16":  # the upper half of a float32
            return (values.astype(np.uint32) << 16).view(np.float32).reshape(entry.shape)
        return values.astype(dtype, copy=False).reshape(entry.shape)


# --- finding the bundle ---


def _with_suffix(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)


def _bundles_in(folder: Path) -> list[Path]:
    indexes = (path for path in folder.glob("?*.index") if path.is_file())
    return sorted(path.with_name(path.name.removesuffix(".index")) for path in indexes)


def _find_in_folder(folder: Path) -> Path:
    found = _bundles_in(folder)
    if len(found) == 1:
        return found[0]
    if not found:
        if (folder / "variables").is_dir():  # an unpacked TF-Hub module
            return _find_in_folder(folder / "variables")
        old = next((path for path in sorted(folder.glob("*ckpt*")) if _is_table(path)), None)
        raise CheckpointError(f"{old or folder}: {_why_no_bundle(old or folder)}")
    latest = _latest_name(folder / "checkpoint")
    for prefix in found:
        if prefix.name == latest:
            return prefix
    names = ", ".join(prefix.name for prefix in found)
    raise CheckpointError(f"{folder}: holds several checkpoints; choose one: {names}")


def _latest_name(path: Path) -> str | None:
    """What the text file `checkpoint` points at, without its folder, which is often the trainer's machine."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r'^\s*model_checkpoint_path:\s*"(?:.*[/\\])?([^"/\\]+)"', text, re.MULTILINE)
    return match[1] if match else None


def _why_no_bundle(path: Path) -> str:
    if _is_table(path):
        return (
            "a checkpoint in TensorFlow's old V1 format, which litebert does not read; "
            "restore it in TensorFlow and save it with tf.compat.v1.train.Saver() to get the V2 files"
        )
    return "not a TensorFlow checkpoint; expected NAME.index and NAME.data-... (unpack a .tar.gz first)"


def _is_table(path: Path) -> bool:
    """Whether a file ends as TensorFlow's tables do; a V1 checkpoint is one table, without a suffix."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - len(TABLE_MAGIC), 0))
            return file.read() == TABLE_MAGIC
    except OSError:
        return False


# --- making sense of the index ---


@dataclass(frozen=True)
class _Part:
    """A stored piece of a tensor, and where in the tensor it belongs."""

    entry: Entry
    place: tuple[slice, ...]


def _read_index(path: Path) -> tuple[int, dict[bytes, Entry]]:
    try:
        header, entries = parse_index(path.read_bytes())
    except DamagedBytes as damage:
        raise CheckpointError(f"{path}: {damage}; {_AGAIN}") from None
    if header.big_endian:
        raise CheckpointError(f"{path}: written on a big-endian machine, which litebert does not read")
    if header.needed_version > _FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: needs a reader of format version {header.needed_version}, this is {_FORMAT_VERSION}"
        )
    return header.num_shards, entries


def _parts_of(key: bytes, entry: Entry, entries: Mapping[bytes, Entry]) -> list[_Part]:
    """The stored pieces of a tensor, one unless it is partitioned; shapes and sizes must agree."""
    if not entry.slices:
        _check_size(entry)
        return [_Part(entry, ())]
    parts = []
    for extents in entry.slices:
        part = entries.get(slice_key(key, extents))
        if part is None or len(extents) != len(entry.shape):
            raise DamagedBytes(f"its slice {extents} is not in the index")
        place = tuple(
            slice(start, start + (size if length == -1 else length))
            for (start, length), size in zip(extents, entry.shape, strict=True)
        )
        inside = all(0 <= p.start <= p.stop <= size for p, size in zip(place, entry.shape, strict=True))
        if not inside or part.shape != tuple(p.stop - p.start for p in place) or part.dtype != entry.dtype:
            raise DamagedBytes(f"its slice {extents} does not fit shape {entry.shape}")
        _check_size(part)
        parts.append(_Part(part, place))
    if sum(math.prod(part.entry.shape) for part in parts) != math.prod(entry.shape):
        raise DamagedBytes(f"its {len(parts)} slices do not fill shape {entry.shape}")
    return parts


def _check_size(entry: Entry) -> None:
    expected = math.prod(entry.shape) * np.dtype(_DTYPES[entry.dtype][1]).itemsize
    # numpy refuses enormous shapes even where a 0 makes them empty.
    too_large = len(entry.shape) > 32 or math.prod(max(size, 1) for size in entry.shape) >= 1 << 60
    if entry.size != expected or too_large:
        raise DamagedBytes(f"shape {entry.shape} does not fit its {entry.size} bytes")
