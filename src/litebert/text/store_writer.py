"""Write a token store: parts of Arrow record batches, then the index, and last the manifest.

Partial files have temporary names, so a file with its final name is complete, and a store without a manifest is
unfinished. Every byte has a checksum: SHA-256 for each file, and the faster CRC-32 for what readers check as they go
(the tokens of each record batch, the files of the index, the manifest itself).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from litebert.errors import DataError
from litebert.files import sync_folder, write_atomic

KIND, VERSION = "litebert-token-store", 1
MANIFEST = "manifest.json"
INDEX = "index"
SENTENCES, DOCUMENTS, BATCHES, CHECKSUMS = (
    f"{name}.npy" for name in ("sentence_offsets", "document_offsets", "batches", "checksums")
)
# Small enough to read and rewrite one at a time, large enough that per-batch costs are negligible.
BATCH_TOKENS = 1 << 20

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartRecord:
    """The manifest's entry for one part file."""

    file: str
    bytes: int
    sha256: str
    documents: int
    sentences: int
    tokens: int


@dataclass(frozen=True)
class RecordBatch:
    """Some documents of a part; offsets are relative to the batch's first token and sentence."""

    tokens: npt.NDArray[Any]
    sentence_offsets: npt.NDArray[np.int32]
    document_offsets: npt.NDArray[np.int32]


class PartWriter:
    """Writes one part file, record batch by record batch; `close` moves the complete file to its final name."""

    def __init__(self, path: Path, fingerprint: str, vocab_size: int):
        self.path = path
        self.dtype = token_dtype(vocab_size)
        # A unique name, so that two jobs writing the same part do not interfere.
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        self._file = open(self._temporary, "wb")  # noqa: SIM115 (closed by close and abort)
        self._sink = _HashingFile(self._file)
        self._schema = make_schema(fingerprint, vocab_size)
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._waiting: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._waiting_tokens = 0
        self._counts = np.zeros(3, np.int64)  # documents, sentences, tokens

    def add(
        self, tokens: npt.NDArray[Any], sentence_lengths: npt.NDArray[Any], document_lengths: npt.NDArray[Any]
    ) -> None:
        """Append documents: all tokens, the number of tokens per sentence, the number of sentences per document."""
        if not len(document_lengths):
            return
        self._waiting.append((tokens, sentence_lengths, document_lengths))
        self._waiting_tokens += len(tokens)
        self._counts += (len(document_lengths), len(sentence_lengths), len(tokens))
        if self._waiting_tokens >= BATCH_TOKENS:
            self._flush()

    def close(self) -> PartRecord:
        """Finish the file and return its manifest entry."""
        self._flush()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)
        sync_folder(self.path.parent)
        documents, sentences, tokens = (int(count) for count in self._counts)
        return PartRecord(self.path.name, self._sink.size, self._sink.hash.hexdigest(), documents, sentences, tokens)

    def abort(self) -> None:
        """Discard the unfinished file."""
        _discard(self._file, self._temporary)

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()

    def _flush(self) -> None:
        if self._waiting:
            tokens, sentences, documents = (np.concatenate(arrays) for arrays in zip(*self._waiting, strict=True))
            inner = pa.ListArray.from_arrays(
                _arrow_offsets(sentences), _to_arrow(tokens.astype(self.dtype, copy=False))
            )
            outer = pa.ListArray.from_arrays(_arrow_offsets(documents), inner)
            self._writer.write_batch(pa.record_batch([outer], schema=self._schema))
            self._waiting.clear()
            self._waiting_tokens = 0


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id: 30000 -> uint16, 250000 -> uint32."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def part_name(index: int) -> str:
    """part_name(3) -> 'part-00003.arrow'."""
    return f"part-{index:05d}.arrow"


def finish_store(
    folder: Path, parts: Sequence[PartRecord], fingerprint: str, vocab_size: int, facts: dict[str, Any]
) -> None:
    """Write the index, then the manifest (including `facts`), which makes the store complete."""
    index = write_index(folder, parts)
    manifest: dict[str, Any] = {
        "format": KIND,
        "version": VERSION,
        "tokenizer": {"fingerprint": fingerprint, "vocab_size": vocab_size},
        "dtype": token_dtype(vocab_size).name,
        "documents": sum(part.documents for part in parts),
        "sentences": sum(part.sentences for part in parts),
        "tokens": sum(part.tokens for part in parts),
        **facts,
        "parts": [asdict(part) for part in parts],
        "index": {name: writer.sha256 for name, writer in index.items()},
        "index_crc32": {name: writer.crc32 for name, writer in index.items()},
    }
    manifest["sha256"] = json_sum(manifest)
    write_atomic(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def json_sum(data: dict[str, Any]) -> str:
    """The checksum of a JSON object's content without its "sha256" key, independent of formatting."""
    rest = {key: value for key, value in data.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode("ascii")).hexdigest()


def write_index(folder: Path, parts: Sequence[PartRecord]) -> dict[str, _NpyWriter]:
    """Write where documents, sentences and record batches begin, and a checksum of each batch's tokens."""
    (folder / INDEX).mkdir(exist_ok=True)
    places = [np.empty((0, 3), np.int64)]
    sums = []
    num_sentences = sum(part.sentences for part in parts)
    num_documents = sum(part.documents for part in parts)
    with (
        _NpyWriter(folder / INDEX / SENTENCES, (num_sentences + 1,)) as sentence_offsets,
        _NpyWriter(folder / INDEX / DOCUMENTS, (num_documents + 1,)) as document_offsets,
    ):
        sentence_offsets.write(np.zeros(1, np.int64))
        document_offsets.write(np.zeros(1, np.int64))
        tokens = sentences = 0
        for index, part in enumerate(parts):
            path = folder / part.file
            mapped = pa.memory_map(str(path)).read_buffer()
            for batch in record_batches(path, mapped):
                sentence_offsets.write(tokens + batch.sentence_offsets[1:].astype(np.int64))
                document_offsets.write(sentences + batch.document_offsets[1:].astype(np.int64))
                byte = batch.tokens.ctypes.data - mapped.address
                places.append(np.array([[index, byte, len(batch.tokens)]], np.int64))
                sums.append(zlib.crc32(batch.tokens.data))
                tokens += len(batch.tokens)
                sentences += len(batch.sentence_offsets) - 1
    with _NpyWriter(folder / INDEX / BATCHES, (len(sums), 3)) as batches:
        batches.write(np.concatenate(places))
    with _NpyWriter(folder / INDEX / CHECKSUMS, (len(sums),)) as checksums:
        checksums.write(np.array(sums, np.int64))
    sync_folder(folder / INDEX)
    return {writer.path.name: writer for writer in (sentence_offsets, document_offsets, batches, checksums)}


def record_batches(path: Path, mapped: pa.Buffer | None = None) -> Iterator[RecordBatch]:
    """The record batches of a part file, memory-mapped."""
    for batch in read_batches(path, mapped):
        outer = batch.column(0)
        inner = outer.values
        yield RecordBatch(_to_numpy(inner.values), _to_numpy(inner.offsets), _to_numpy(outer.offsets))


class _HashingFile:
    """A writable file that tracks checksums and size."""

    closed = False

    def __init__(self, file: BinaryIO):
        self._file = file
        self.hash = hashlib.sha256()
        self.crc = 0
        self.size = 0

    def write(self, data: Any) -> int:
        self.hash.update(data)
        self.crc = zlib.crc32(data, self.crc)
        self.size += memoryview(data).nbytes
        return self._file.write(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


class _NpyWriter:
    """Writes a .npy file of int64 piece by piece; unlike with a memory-mapped file, a full disk does not crash."""

    def __init__(self, path: Path, shape: tuple[int, ...]):
        self.path = path
        self.shape = shape
        self.sha256, self.crc32 = "", 0

    def __enter__(self) -> _NpyWriter:
        self._temporary = self.path.with_name(f".{self.path.name}.tmp")
        self._file = open(self._temporary, "wb")
        self._sink = _HashingFile(self._file)
        header = {"descr": "<i8", "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(cast(Any, self._sink), header)
        return self

    def write(self, values: Offsets) -> None:
        self._sink.write(np.ascontiguousarray(values, "<i8"))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError:
            _discard(self._file, self._temporary)
            raise
        if kind is not None:
            _discard(self._file, self._temporary)
            return
        os.replace(self._temporary, self.path)
        self.sha256, self.crc32 = self._sink.hash.hexdigest(), self._sink.crc


def _discard(file: BinaryIO, path: Path) -> None:
    with contextlib.suppress(OSError):  # closing writes what is buffered, and the disk may be full
        file.close()
    path.unlink(missing_ok=True)


def make_schema(fingerprint: str, vocab_size: int) -> pa.Schema:
    """The single column of a part, with the vocabulary its ids belong to."""
    tokens = pa.uint16() if token_dtype(vocab_size) == np.uint16 else pa.uint32()
    metadata = {"litebert.fingerprint": fingerprint, "litebert.vocab_size": str(vocab_size)}
    return pa.schema([("sentences", pa.list_(pa.list_(tokens)))], metadata=metadata)


def _arrow_offsets(lengths: npt.NDArray[Any]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return _to_arrow(offsets)


# pa.array and to_numpy would import pandas, which takes longer than a small build does.
def _to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return cast(npt.NDArray[Any], values[array.offset : array.offset + len(array)])


def read_batches(path: Path, mapped: pa.Buffer | None = None) -> Iterator[pa.RecordBatch]:
    """The record batches of a part file as Arrow objects."""
    try:
        reader = pa.ipc.open_file(mapped if mapped is not None else pa.memory_map(str(path)))
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a valid part of a token store: {error}") from None
