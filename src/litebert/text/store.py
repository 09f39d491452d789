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

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from litebert.errors import DataError, InputError
from litebert.files import file_sha256, staged_folder
from litebert.text.store_writer import (
    INDEX,
    KIND,
    MANIFEST,
    VERSION,
    Offsets,
    PartWriter,
    finish_store,
    make_schema,
    part_name,
    read_batches,
)

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


class Fingerprinted(Protocol):
    """Anything that can say which vocabulary it is: a `Tokenizer`."""

    @property
    def fingerprint(self) -> str: ...


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
        batches = [batch for path in self.part_paths for batch in read_batches(path)]
        return pa.Table.from_batches(batches, schema=make_schema(self.fingerprint, self.vocab_size))

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
    if kind != KIND or version != VERSION:
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


def _check_file(path: Path, checksum: str) -> None:
    if not path.is_file():
        raise DataError(f"{path}: is missing; the store is damaged: build it again with --overwrite")
    if file_sha256(path) != checksum:
        raise DataError(f"{path}: its bytes have changed since it was built; build the store again with --overwrite")
