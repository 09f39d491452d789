"""The token store: a folder of Arrow files, one row per document, read without copying.

    store/
      part-00000.arrow ...   column `sentences`: list<list<uint16 or uint32>>, uncompressed record batches
      index/*.npy            where each document, sentence and record batch begins
      manifest.json          counts, tokenizer, checksums; written last, so a store without it is unfinished

Tokens, sentences and documents are numbered through the whole store. A document never crosses a record batch,
and the tokens of a record batch lie side by side in its file, so any slice of a document is a view of it.

    store = TokenStore.open("store")
    first, last = store.document_offsets[7:9]                                 # sentences of document 7
    store.read(store.sentence_offsets[first], store.sentence_offsets[last])   # its tokens, not copied
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from litebert.errors import DataError, InputError
from litebert.files import file_sha256, staged_folder, sync_folder, write_atomic

VERSION = 1
MANIFEST = "manifest.json"
INDEX = "index"
# Small enough to read and rewrite one at a time, large enough that per-batch costs vanish.
BATCH_TOKENS = 1 << 20

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


class Fingerprinted(Protocol):
    """Anything that can say which vocabulary it is: a `Tokenizer`."""

    @property
    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class PartRecord:
    """What the manifest says about one part file."""

    file: str
    bytes: int
    sha256: str
    documents: int
    sentences: int
    tokens: int


@dataclass(frozen=True)
class RecordBatch:
    """Some documents of a part; offsets count from the first token and sentence of the batch."""

    tokens: npt.NDArray[Any]
    sentence_offsets: npt.NDArray[np.int32]
    document_offsets: npt.NDArray[np.int32]


class TokenStore:
    """A finished store, mapped into memory; pickles as its path, so processes can pass it around."""

    def __init__(self, path: Path, manifest: dict[str, Any]):
        self.path = path
        self.manifest = manifest
        self.num_documents: int = manifest["documents"]
        self.num_sentences: int = manifest["sentences"]
        self.num_tokens: int = manifest["tokens"]
        self.fingerprint: str = manifest["tokenizer"]["fingerprint"]
        self.vocab_size: int = manifest["tokenizer"]["vocab_size"]
        self.dtype = np.dtype(manifest["dtype"])
        self.part_paths = [path / part["file"] for part in manifest["parts"]]
        #: [num_sentences + 1] sentence s is tokens[sentence_offsets[s] : sentence_offsets[s + 1]]
        self.sentence_offsets: Offsets = self._load_index("sentence_offsets", self.num_sentences + 1)
        #: [num_documents + 1] document d is sentences[document_offsets[d] : document_offsets[d + 1]]
        self.document_offsets: Offsets = self._load_index("document_offsets", self.num_documents + 1)
        batches = np.array(self._load_index("batches", None))  # [batches, 3]: part, byte of its first token, tokens
        self._batch_part: Offsets = batches[:, 0]
        self._batch_starts: Offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(batches[:, 2])])
        # Add this to a token's number in the store to get its place in its part file, both counted in tokens.
        self._batch_shift: Offsets = batches[:, 1] // self.dtype.itemsize - self._batch_starts[:-1]
        self._mapped: list[Tokens | None] = [None] * len(self.part_paths)

    @classmethod
    def open(cls, path: Path | str, tokenizer: Fingerprinted | None = None) -> TokenStore:
        """Open a finished store; with a tokenizer, refuse a store whose tokens mean something else."""
        path = Path(path)
        manifest = read_manifest(path)
        if tokenizer is not None:
            check_tokenizer(path, manifest, tokenizer)
        for part in manifest["parts"]:
            file = path / part["file"]
            size = file.stat().st_size if file.is_file() else None
            if size != part["bytes"]:
                state = "is missing" if size is None else f"has {size:,} bytes instead of {part['bytes']:,}"
                raise DataError(f"{file}: {state}; the store is damaged: build it again with --overwrite")
        return cls(path, manifest)

    @classmethod
    def write(
        cls, path: Path | str, documents: Iterable[Sequence[Sequence[int]]], fingerprint: str, vocab_size: int
    ) -> TokenStore:
        """Write a small store from token ids at hand: [[[5, 6], [7]]] -> one document of two sentences."""
        with staged_folder(path, keep=lambda name: False) as folder:
            with PartWriter(folder / part_name(0), fingerprint, vocab_size) as writer:
                for document in documents:
                    lengths = np.array([len(sentence) for sentence in document], np.int64)
                    if not lengths.size or not lengths.all():
                        raise InputError("a document needs sentences, and a sentence needs tokens")
                    tokens = np.concatenate([np.asarray(sentence, np.int64) for sentence in document])
                    if tokens.min() < 0 or tokens.max() >= vocab_size:
                        raise InputError(f"token ids must lie between 0 and {vocab_size - 1}")
                    writer.add(tokens, lengths, np.array([len(document)], np.int64))
                part = writer.close()
            finish_store(folder, [part], fingerprint, vocab_size, {})
        return cls.open(path)

    def read(self, start: int, stop: int) -> Tokens:
        """Tokens [start, stop) of the store: a view within a document, a copy across record batches."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise InputError(f"{self.path}: tokens {start}..{stop} of {self.num_tokens:,} do not exist")
        if start == stop:
            return cast(Tokens, np.empty(0, self.dtype))
        first = int(np.searchsorted(self._batch_starts, start, side="right")) - 1
        last = int(np.searchsorted(self._batch_starts, stop, side="left")) - 1
        pieces = []
        for batch in range(first, last + 1):
            begin, end = max(start, self._batch_starts[batch]), min(stop, self._batch_starts[batch + 1])
            shift = self._batch_shift[batch]
            pieces.append(self._map(int(self._batch_part[batch]))[begin + shift : end + shift])
        return pieces[0] if len(pieces) == 1 else cast(Tokens, np.concatenate(pieces))

    def gather(
        self, starts: npt.ArrayLike, stops: npt.ArrayLike, out: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Many slices side by side in one array (in `out`, of any integer type, when given).

        gather([0, 7], [3, 9]) -> tokens 0, 1, 2, 7, 8. Each slice must lie in one record batch, as any slice
        of a document does.
        """
        first, stop = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        if first.size and (first.min() < 0 or (stop < first).any() or stop.max() > self.num_tokens):
            raise InputError(f"{self.path}: slices must lie within its {self.num_tokens:,} tokens")
        ends = np.cumsum(stop - first)
        total = int(ends[-1]) if ends.size else 0
        if out is None:
            out = np.empty(total, self.dtype)
        elif out.shape[0] < total:
            raise InputError(f"gather: {total} tokens do not fit into an array of {out.shape[0]}")
        batch = np.searchsorted(self._batch_starts[1:-1], first, side="right")  # an empty slice may start at the end
        if (stop > self._batch_starts[batch + 1]).any():
            raise InputError(f"{self.path}: a slice crosses a record batch; slices must lie in one document")
        shift = self._batch_shift[batch] if first.size else first
        parts = self._batch_part[batch] if first.size else first
        # A loop of plain copies: for slices of a sentence or more it beats one fancy index over all tokens.
        done = 0
        rows = zip(parts.tolist(), (first + shift).tolist(), (stop + shift).tolist(), ends.tolist(), strict=True)
        for part, begin, end, filled in rows:
            out[done:filled] = self._map(part)[begin:end]
            done = filled
        return out[:total]

    def document(self, index: int) -> list[Tokens]:
        """The sentences of one document, as views."""
        if not 0 <= index < self.num_documents:
            raise InputError(f"{self.path}: document {index} of {self.num_documents:,} does not exist")
        first, last = (int(i) for i in self.document_offsets[index : index + 2])
        bounds = self.sentence_offsets[first : last + 1].tolist()
        tokens = self.read(bounds[0], bounds[-1])
        return [tokens[a - bounds[0] : b - bounds[0]] for a, b in pairwise(bounds)]

    def documents(self) -> Iterator[list[Tokens]]:
        """All documents, in order."""
        return (self.document(index) for index in range(self.num_documents))

    def table(self) -> pa.Table:
        """The whole store as one memory-mapped Arrow table, for pyarrow, datasets, polars and Ray."""
        batches = [batch for path in self.part_paths for batch in _read_batches(path)]
        return pa.Table.from_batches(batches, schema=_schema(self.fingerprint, self.vocab_size))

    def verify(self) -> None:
        """Read every byte and compare with the checksums of the manifest; raises at the first difference."""
        for part in self.manifest["parts"]:
            _check_file(self.path / part["file"], part["sha256"])
        for name, checksum in self.manifest["index"].items():
            _check_file(self.path / INDEX / name, checksum)

    def __len__(self) -> int:
        return self.num_documents

    def __reduce__(self) -> tuple[Any, ...]:
        return (TokenStore.open, (str(self.path.absolute()),))

    def __repr__(self) -> str:
        counts = f"{self.num_documents:,} documents, {self.num_sentences:,} sentences, {self.num_tokens:,} tokens"
        return f"TokenStore({str(self.path)!r}: {counts})"

    def _map(self, part: int) -> Tokens:
        """A part file seen as one array of tokens; only what lies in its record batches means anything."""
        mapped = self._mapped[part]
        if mapped is None:
            size = self.manifest["parts"][part]["bytes"] // self.dtype.itemsize
            mapped = np.memmap(self.part_paths[part], self.dtype, "r", shape=(size,)).view(np.ndarray)
            self._mapped[part] = mapped
        return mapped

    def _load_index(self, name: str, length: int | None) -> Offsets:
        file = self.path / INDEX / f"{name}.npy"
        try:
            index = np.load(file, mmap_mode="r" if length is not None else None)
        except (OSError, ValueError) as error:
            raise DataError(f"{file}: {error}; the store is damaged: build it again with --overwrite") from None
        if length is not None and len(index) != length:
            raise DataError(f"{file}: {len(index):,} entries instead of {length:,}; the store is damaged")
        return cast(Offsets, index.view(np.ndarray))


class PartWriter:
    """Writes one part file, record batch by record batch; `close` makes it appear, whole, under its name."""

    def __init__(self, path: Path, fingerprint: str, vocab_size: int):
        self.path = path
        self.dtype = token_dtype(vocab_size)
        self._temporary = path.with_name(f".{path.name}.tmp")
        self._file = open(self._temporary, "wb")  # noqa: SIM115 (closed by close and abort)
        self._sink = _HashingFile(self._file)
        self._schema = _schema(fingerprint, vocab_size)
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._waiting: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._waiting_tokens = 0
        self._counts = np.zeros(3, np.int64)  # documents, sentences, tokens

    def add(
        self, tokens: npt.NDArray[Any], sentence_lengths: npt.NDArray[Any], document_lengths: npt.NDArray[Any]
    ) -> None:
        """Append documents: tokens side by side, tokens per sentence, sentences per document."""
        if not len(document_lengths):
            return
        self._waiting.append((tokens, sentence_lengths, document_lengths))
        self._waiting_tokens += len(tokens)
        self._counts += (len(document_lengths), len(sentence_lengths), len(tokens))
        if self._waiting_tokens >= BATCH_TOKENS:
            self._flush()

    def close(self) -> PartRecord:
        """Finish the file and say what is in it."""
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
        """Drop what was written."""
        with contextlib.suppress(OSError):  # closing writes what is buffered, and the disk may be full
            self._file.close()
        self._temporary.unlink(missing_ok=True)

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


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a finished store, or an error that says what to do."""
    file = path / MANIFEST
    if not path.is_dir():
        raise DataError(f"{path}: no such token store; litebert corpus build makes one")
    if not file.is_file():
        started = (path / "build").is_dir() or any(path.glob("*.arrow"))
        if started:
            raise DataError(f"{path}: this store is unfinished; run the same litebert corpus build again to finish it")
        raise DataError(f"{path}: not a token store ({MANIFEST} is missing); litebert corpus build makes one")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        kind, version = manifest["format"], manifest["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{file}: not a manifest of a token store: {error!r}") from None
    if kind != "litebert-token-store" or version != VERSION:
        raise DataError(f"{file}: {kind} version {version} cannot be read; build the store again with this litebert")
    return cast(dict[str, Any], manifest)


def check_tokenizer(path: Path, manifest: dict[str, Any], tokenizer: Fingerprinted) -> None:
    """Refuse a store whose tokens come from another vocabulary."""
    stored = manifest["tokenizer"]["fingerprint"]
    if stored != tokenizer.fingerprint:
        raise DataError(
            f"{path}: built with another tokenizer (fingerprint {stored[:12]}, yours is "
            f"{tokenizer.fingerprint[:12]}); use that one, or build the store again with --overwrite"
        )


def finish_store(
    folder: Path, parts: Sequence[PartRecord], fingerprint: str, vocab_size: int, facts: dict[str, Any]
) -> None:
    """Write the index, then the manifest (with `facts` as they are): from here on the store is whole."""
    checksums = write_index(folder, parts)
    manifest = {
        "format": "litebert-token-store",
        "version": VERSION,
        "tokenizer": {"fingerprint": fingerprint, "vocab_size": vocab_size},
        "dtype": token_dtype(vocab_size).name,
        "documents": sum(part.documents for part in parts),
        "sentences": sum(part.sentences for part in parts),
        "tokens": sum(part.tokens for part in parts),
        **facts,
        "parts": [asdict(part) for part in parts],
        "index": checksums,
    }
    write_atomic(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def write_index(folder: Path, parts: Sequence[PartRecord]) -> dict[str, str]:
    """Write where documents, sentences and record batches begin; gives the checksum of each file."""
    (folder / INDEX).mkdir(exist_ok=True)
    places = [np.empty((0, 3), np.int64)]
    num_sentences = sum(part.sentences for part in parts)
    num_documents = sum(part.documents for part in parts)
    with (
        _NpyWriter(folder / INDEX / "sentence_offsets.npy", (num_sentences + 1,)) as sentence_offsets,
        _NpyWriter(folder / INDEX / "document_offsets.npy", (num_documents + 1,)) as document_offsets,
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
                tokens += len(batch.tokens)
                sentences += len(batch.sentence_offsets) - 1
    with _NpyWriter(folder / INDEX / "batches.npy", (sum(map(len, places)), 3)) as batches:
        batches.write(np.concatenate(places))
    sync_folder(folder / INDEX)
    writers = (sentence_offsets, document_offsets, batches)
    return {writer.path.name: writer.checksum for writer in writers}


def record_batches(path: Path, mapped: pa.Buffer | None = None) -> Iterator[RecordBatch]:
    """The record batches of a part file, mapped and not copied."""
    for batch in _read_batches(path, mapped):
        outer = batch.column(0)
        inner = outer.values
        yield RecordBatch(_to_numpy(inner.values), _to_numpy(inner.offsets), _to_numpy(outer.offsets))


class _HashingFile:
    """A file to write to that knows the checksum and size of what was written."""

    closed = False

    def __init__(self, file: BinaryIO):
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self.hash.update(data)
        self.size += memoryview(data).nbytes
        return self._file.write(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


class _NpyWriter:
    """Writes a .npy file of int64 piece by piece: unlike in a mapped file, a full disk is no crash."""

    def __init__(self, path: Path, shape: tuple[int, ...]):
        self.path = path
        self.shape = shape
        self.checksum = ""

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
            self._discard()
            raise
        if kind is not None:
            self._discard()
            return
        os.replace(self._temporary, self.path)
        self.checksum = self._sink.hash.hexdigest()

    def _discard(self) -> None:
        with contextlib.suppress(OSError):  # closing writes what is buffered, and the disk may be full
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def _schema(fingerprint: str, vocab_size: int) -> pa.Schema:
    tokens = pa.uint16() if token_dtype(vocab_size) == np.uint16 else pa.uint32()
    metadata = {"litebert.fingerprint": fingerprint, "litebert.vocab_size": str(vocab_size)}
    return pa.schema([("sentences", pa.list_(pa.list_(tokens)))], metadata=metadata)


def _arrow_offsets(lengths: npt.NDArray[Any]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return _to_arrow(offsets)


# pa.array and to_numpy would import pandas, which takes longer than a small build.
def _to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return cast(npt.NDArray[Any], values[array.offset : array.offset + len(array)])


def _read_batches(path: Path, mapped: pa.Buffer | None = None) -> Iterator[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(mapped if mapped is not None else pa.memory_map(str(path)))
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a readable part of a token store: {error}") from None


def _check_file(path: Path, checksum: str) -> None:
    if not path.is_file():
        raise DataError(f"{path}: is missing; the store is damaged: build it again with --overwrite")
    if file_sha256(path) != checksum:
        raise DataError(f"{path}: its bytes have changed since it was built; build the store again with --overwrite")
