"""The token store: a folder of Arrow files, one row per document, read without copying.

    store/
      part-00000.arrow ...   column `sentences`: list<list<uint16 or uint32>>, uncompressed record batches
      index/*.npy            where each document, sentence and record batch begins; a checksum of each batch
      manifest.json          counts, tokenizer, checksums; written last, so a store without it is unfinished

Tokens, sentences and documents are numbered through the whole store. A document never spans two record batches,
and the tokens of a record batch are contiguous in its file, so any slice of a document is a view.

Damage never goes unnoticed: the index is checked when a store is opened, the tokens of a record batch when they
are first read (about a million of them at a time), each once per process. `verify` reads every byte.

    store = TokenStore.open("store")
    first, last = store.document_offsets[7:9]                                 # sentences of document 7
    store.read(store.sentence_offsets[first], store.sentence_offsets[last])   # its tokens, not copied
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from litebert.config import build
from litebert.errors import DataError, InputError
from litebert.files import file_sha256, staged_folder
from litebert.parse import read_object
from litebert.text.store_writer import (
    BATCHES,
    CHECKSUMS,
    DOCUMENTS,
    INDEX,
    KIND,
    MANIFEST,
    SENTENCES,
    VERSION,
    Offsets,
    PartRecord,
    PartWriter,
    finish_store,
    json_sum,
    make_schema,
    part_name,
    read_batches,
    token_dtype,
)

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

REMEDY = "restore the file, or rebuild the store and set overwrite"


class Fingerprinted(Protocol):
    """Anything that identifies a vocabulary: a `Tokenizer`."""

    @property
    def fingerprint(self) -> str: ...


class TokenStore:
    """A finished store, memory-mapped; pickles as its path, so it is cheap to pass between processes."""

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
        for part in manifest["parts"]:
            _check_size(path / part["file"], part["bytes"])
        #: [num_sentences + 1] sentence s is tokens[sentence_offsets[s] : sentence_offsets[s + 1]]
        self.sentence_offsets: Offsets = self._load_index(SENTENCES, (self.num_sentences + 1,))
        #: [num_documents + 1] document d is sentences[document_offsets[d] : document_offsets[d + 1]]
        self.document_offsets: Offsets = self._load_index(DOCUMENTS, (self.num_documents + 1,))
        batches = np.array(self._load_index(BATCHES, (-1, 3)))  # [batches, 3]: part, byte offset, number of tokens
        self._batch_part: Offsets = batches[:, 0]
        self._batch_starts: Offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(batches[:, 2])])
        # Add this to a token's index in the store to get its index in the part file.
        self._batch_shift: Offsets = batches[:, 1] // self.dtype.itemsize - self._batch_starts[:-1]
        self._mapped: list[Tokens | None] = [None] * len(self.part_paths)
        # Stores written by litebert 0.1 have no checksums per batch: their parts are checked as a whole.
        self._batch_sums: Offsets | None = None
        if CHECKSUMS in manifest["index"]:
            self._batch_sums = np.array(self._load_index(CHECKSUMS, (len(batches),)))
        self._unchecked = np.ones(len(batches), np.bool_)
        self._check_places(batches)

    @classmethod
    def open(cls, path: Path | str, tokenizer: Fingerprinted | None = None) -> TokenStore:
        """Open a finished store; with a tokenizer, reject a store that was built with another one."""
        path = Path(path)
        manifest = read_manifest(path)
        if tokenizer is not None:
            check_tokenizer(path, manifest, tokenizer)
        return cls(path, manifest)

    @classmethod
    def write(
        cls, path: Path | str, documents: Iterable[Sequence[Sequence[int]]], fingerprint: str, vocab_size: int
    ) -> TokenStore:
        """Write a small store from token ids in memory: [[[5, 6], [7]]] -> one document of two sentences."""
        with staged_folder(path, keep=lambda name: False) as folder:
            with PartWriter(folder / part_name(0), fingerprint, vocab_size) as writer:
                for document in documents:
                    lengths = np.array([len(sentence) for sentence in document], np.int64)
                    if not lengths.size or not lengths.all():
                        raise InputError("every document needs a sentence, and every sentence a token")
                    tokens = np.concatenate([np.asarray(sentence, np.int64) for sentence in document])
                    if tokens.min() < 0 or tokens.max() >= vocab_size:
                        raise InputError(f"token ids must be between 0 and {vocab_size - 1}")
                    writer.add(tokens, lengths, np.array([len(document)], np.int64))
                part = writer.close()
            finish_store(folder, [part], fingerprint, vocab_size, {})
        return cls.open(path)

    def read(self, start: int, stop: int) -> Tokens:
        """Tokens [start, stop) of the store: a view within a document, a copy across record batches."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise InputError(f"{self.path}: tokens {start}..{stop} are out of range; the store has {self.num_tokens:,}")
        if start == stop:
            return cast(Tokens, np.empty(0, self.dtype))
        first = int(np.searchsorted(self._batch_starts, start, side="right")) - 1
        last = int(np.searchsorted(self._batch_starts, stop, side="left")) - 1
        pieces = []
        for batch in range(first, last + 1):
            if self._unchecked[batch]:
                self._check_batch(batch)
            begin, end = max(start, self._batch_starts[batch]), min(stop, self._batch_starts[batch + 1])
            shift = self._batch_shift[batch]
            pieces.append(self._map(int(self._batch_part[batch]))[begin + shift : end + shift])
        return pieces[0] if len(pieces) == 1 else cast(Tokens, np.concatenate(pieces))

    def gather(
        self, starts: npt.ArrayLike, stops: npt.ArrayLike, out: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Many slices concatenated in one array (in `out`, of any integer type, if given).

        gather([0, 7], [3, 9]) -> tokens 0, 1, 2, 7, 8. Each slice must be within one record batch, as every slice
        of a document is.
        """
        first, stop = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        if first.size and (first.min() < 0 or (stop < first).any() or stop.max() > self.num_tokens):
            raise InputError(f"{self.path}: slices must be within its {self.num_tokens:,} tokens")
        ends = np.cumsum(stop - first)
        total = int(ends[-1]) if ends.size else 0
        if out is None:
            out = np.empty(total, self.dtype)
        elif out.shape[0] < total:
            raise InputError(f"gather: {total} tokens do not fit into an array of {out.shape[0]}")
        batch = np.searchsorted(self._batch_starts[1:-1], first, side="right")  # an empty slice may start at the end
        if (stop > self._batch_starts[batch + 1]).any():
            raise InputError(f"{self.path}: a slice crosses a record batch; each slice must be within one document")
        new = self._unchecked[batch] if first.size else first
        if new.any():
            for number in np.unique(batch[new]).tolist():
                self._check_batch(number)
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
            raise InputError(f"{self.path}: document {index} is out of range; the store has {self.num_documents:,}")
        first, last = (int(i) for i in self.document_offsets[index : index + 2])
        bounds = self.sentence_offsets[first : last + 1].tolist()
        tokens = self.read(bounds[0], bounds[-1])
        return [tokens[a - bounds[0] : b - bounds[0]] for a, b in pairwise(bounds)]

    def documents(self) -> Iterator[list[Tokens]]:
        """All documents, in order."""
        return (self.document(index) for index in range(self.num_documents))

    def share_of(self, token: int, sample: int = 1000) -> float:
        """The share of one token id, such as the unknown one, in a sample of documents from all over the store."""
        documents = range(0, self.num_documents, -(-self.num_documents // sample))
        bounds = self.sentence_offsets[self.document_offsets[[*documents, *(index + 1 for index in documents)]]]
        tokens = self.gather(bounds[: len(documents)], bounds[len(documents) :])
        return float((tokens == token).mean())

    def table(self) -> pa.Table:
        """The whole store as one memory-mapped Arrow table, for pyarrow, datasets, polars and Ray."""
        for part, file in zip(self.manifest["parts"], self.part_paths, strict=True):
            _check_once(file, part["sha256"], file_sha256)
        batches = [batch for path in self.part_paths for batch in read_batches(path)]
        return pa.Table.from_batches(batches, schema=make_schema(self.fingerprint, self.vocab_size))

    @property
    def content_sum(self) -> str:
        """Identifies the content of a store, wherever it is stored."""
        return hashlib.sha256(" ".join(part["sha256"] for part in self.manifest["parts"]).encode()).hexdigest()

    def verify(self) -> None:
        """Read every byte and compare it with the manifest's checksums; a difference is a DataError."""
        damage = find_damage(self.path)
        if damage:
            raise DataError("\n".join(damage))

    def __len__(self) -> int:
        return self.num_documents

    def __reduce__(self) -> tuple[Any, ...]:
        # The receiving process need not check an index again that this process has checked.
        stamps = (_stamp(self.path / INDEX / name, self._index_sum(name)[0]) for name in self.manifest["index"])
        return (_reopen, (str(self.path.absolute()), tuple(stamps)))

    def __repr__(self) -> str:
        counts = f"{self.num_documents:,} documents, {self.num_sentences:,} sentences, {self.num_tokens:,} tokens"
        return f"TokenStore({str(self.path)!r}: {counts})"

    def _map(self, part: int) -> Tokens:
        """A part file as one array of tokens; only the stretches inside record batches are meaningful."""
        mapped = self._mapped[part]
        if mapped is None:
            if self._batch_sums is None:
                _check_once(self.part_paths[part], self.manifest["parts"][part]["sha256"], file_sha256)
            size = self.manifest["parts"][part]["bytes"] // self.dtype.itemsize
            mapped = np.memmap(self.part_paths[part], self.dtype, "r", shape=(size,)).view(np.ndarray)
            self._mapped[part] = mapped
        return mapped

    def _check_batch(self, batch: int) -> None:
        """Compare the tokens of a record batch with their checksum and with the vocabulary, before they are used."""
        part = int(self._batch_part[batch])
        begin, end = (self._batch_starts[batch : batch + 2] + self._batch_shift[batch]).tolist()
        tokens = self._map(part)[begin:end]
        if self._batch_sums is not None and zlib.crc32(tokens.data) != self._batch_sums[batch]:
            raise DataError(
                f"{self.part_paths[part]}: damaged within the {end - begin:,} tokens from byte "
                f"{begin * self.dtype.itemsize:,} on; {REMEDY} (litebert corpus verify {self.path} lists all damage)"
            )
        if tokens.max() >= self.vocab_size:
            raise DataError(
                f"{self.part_paths[part]}: contains token {int(tokens.max()):,}, but the vocabulary has only "
                f"{self.vocab_size:,}; {REMEDY}"
            )
        self._unchecked[batch] = False

    def _check_places(self, batches: Offsets) -> None:
        """Check that the index fits the parts; checksums do not catch an index that was put there by hand."""
        sizes = np.array([part["bytes"] for part in self.manifest["parts"]], np.int64)
        part, byte, tokens = batches.T
        if (part < 0).any() or (part >= len(sizes)).any() or (byte < 0).any() or (tokens < 1).any():
            raise DataError(f"{self.path / INDEX / BATCHES}: damaged: it points outside the parts; {REMEDY}")
        width = self.dtype.itemsize
        inside = (byte % width == 0) & (byte + tokens * width <= sizes[part]) if len(part) else np.ones(0, np.bool_)
        ends = (tokens.sum(), self.sentence_offsets[-1], self.document_offsets[-1])
        if not inside.all() or ends != (self.num_tokens, self.num_tokens, self.num_sentences):
            raise DataError(f"{self.path / INDEX}: damaged: it does not fit the parts; {REMEDY}")

    def _load_index(self, name: str, shape: tuple[int, ...]) -> Offsets:
        file = self.path / INDEX / name
        _check_once(file, *self._index_sum(name))
        try:
            index = np.load(file, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{file}: damaged: {error}; {REMEDY}") from None
        expected = tuple(have if want == -1 else want for want, have in zip(shape, index.shape, strict=False))
        if index.shape != expected or index.dtype != np.int64:
            raise DataError(f"{file}: damaged: {index.dtype} {list(index.shape)} instead of int64 {shape}; {REMEDY}")
        return cast(Offsets, index.view(np.ndarray))

    def _index_sum(self, name: str) -> tuple[str, Callable[[Path], str]]:
        """The checksum of an index file (the faster one, if there is one) and the function that computes it."""
        crc = self.manifest.get("index_crc32", {}).get(name)
        return (self.manifest["index"][name], file_sha256) if crc is None else (str(crc), _file_crc32)


def find_damage(path: Path | str, on_file: Callable[[Path], None] = lambda file: None) -> list[str]:
    """Read every byte of a store and list what is wrong, one message per file; [] if it is intact."""
    path = Path(path)
    try:
        manifest = read_manifest(path)
    except DataError as error:
        return [str(error)]
    files = {path / part["file"]: part["sha256"] for part in manifest["parts"]}
    files |= {path / INDEX / name: checksum for name, checksum in manifest["index"].items()}
    found = []
    for file, checksum in files.items():
        on_file(file)
        try:
            _check_file(file, checksum, file_sha256)
        except DataError as error:
            found.append(str(error))
    if not found:
        try:
            store = TokenStore(path, manifest)
            for batch in range(len(store._unchecked)):
                store._check_batch(batch)
        except DataError as error:
            found.append(str(error))
    return found


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a finished store, or an error that says what to do."""
    file = path / MANIFEST
    if not path.is_dir():
        raise DataError(f"{path}: no such token store; create one with litebert corpus build")
    if not file.is_file():
        started = (path / "build").is_dir() or any(path.glob("*.arrow"))
        if started:
            raise DataError(f"{path}: unfinished store; rerun the same litebert corpus build to resume")
        raise DataError(f"{path}: not a token store ({MANIFEST} is missing); create one with litebert corpus build")
    manifest = read_object(file)
    kind, version = manifest.get("format"), manifest.get("version")
    if kind != KIND:
        raise DataError(f"{file}: not the manifest of a token store")
    if version != VERSION:
        raise DataError(f"{file}: unsupported format version {version}; rebuild the store with this litebert")
    try:
        whole = json_sum(manifest) == manifest.get("sha256", json_sum(manifest)) and _is_sound(manifest)
    except (KeyError, TypeError, AttributeError, ValueError):
        whole = False
    if not whole:
        raise DataError(f"{file}: damaged: its entries are inconsistent; {REMEDY}")
    return manifest


def _is_sound(manifest: dict[str, Any]) -> bool:
    """Whether a manifest has all required entries, with valid types and consistent sums."""
    parts = [build(PartRecord, part) for part in manifest["parts"]]
    vocab_size, index = manifest["tokenizer"]["vocab_size"], manifest["index"]
    sums = {name: sum(getattr(part, name) for part in parts) for name in ("documents", "sentences", "tokens")}
    return (
        all(manifest[name] == total >= 0 and type(manifest[name]) is int for name, total in sums.items())
        and all(min(part.bytes, part.documents, part.sentences, part.tokens) >= 0 for part in parts)
        and all(Path(part.file).name == part.file for part in parts)
        and isinstance(manifest["tokenizer"]["fingerprint"], str)
        and type(vocab_size) is int
        and vocab_size > 0
        and manifest["dtype"] == token_dtype(vocab_size).name
        and {SENTENCES, DOCUMENTS, BATCHES} <= index.keys() <= {SENTENCES, DOCUMENTS, BATCHES, CHECKSUMS}
        and all(isinstance(checksum, str) for checksum in index.values())
        and manifest.get("index_crc32", index).keys() == index.keys()
    )


def check_tokenizer(path: Path, manifest: dict[str, Any], tokenizer: Fingerprinted) -> None:
    """Reject a store whose tokens come from another vocabulary."""
    stored = manifest["tokenizer"]["fingerprint"]
    if stored != tokenizer.fingerprint:
        raise DataError(
            f"{path}: built with another tokenizer (fingerprint {stored[:12]}, yours is "
            f"{tokenizer.fingerprint[:12]}); use that one, or rebuild the store and set overwrite"
        )


_whole: set[bytes] = set()  # stamps of files that this process has found intact


def _check_once(file: Path, checksum: str, digest: Callable[[Path], str]) -> None:
    """Check a file, unless this process has already done so and the file has not changed since."""
    stamp = _stamp(file, checksum)
    if stamp not in _whole:
        _check_file(file, checksum, digest)
        _whole.add(stamp)


def _stamp(file: Path, checksum: str) -> bytes:
    """A stamp that changes with the file (its size, times and path) or with the expected checksum."""
    try:
        status = file.stat()
    except OSError:
        return b""
    facts = (checksum, str(file.absolute()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).digest()


def _check_file(file: Path, checksum: str, digest: Callable[[Path], str]) -> None:
    try:
        found = digest(file)
    except OSError as error:
        state = "missing" if isinstance(error, FileNotFoundError) else f"unreadable: {error.strerror}"
        raise DataError(f"{file}: {state}; {REMEDY}") from None
    if found != checksum:
        raise DataError(f"{file}: damaged: checksum mismatch; {REMEDY}")


def _check_size(file: Path, size: int) -> None:
    try:
        found = file.stat().st_size
    except OSError:
        raise DataError(f"{file}: missing; {REMEDY}") from None
    if found != size:
        raise DataError(f"{file}: damaged: {found:,} bytes instead of {size:,}; {REMEDY}")


def _file_crc32(file: Path) -> str:
    crc = 0
    with open(file, "rb") as opened:
        while block := opened.read(1 << 24):
            crc = zlib.crc32(block, crc)
    return str(crc)


def _reopen(path: str, whole: tuple[bytes, ...]) -> TokenStore:
    _whole.update(whole)
    return TokenStore.open(path)
