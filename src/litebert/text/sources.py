"""Input files: which ones a user means, and their bytes, decompressed piece by piece.

    find_sources(["corpus", "more/*.txt.gz", "s3://bucket/x.jsonl", "-"])  -> [Source(...), ...]
    ByteReader("x.jsonl.gz").read()                                        -> about a megabyte; b"" at the end

Local paths and standard input need nothing else; URLs (s3://, gs://, hdfs://, https://, memory://) go through fsspec.
Text in UTF-16 or UTF-32 is read as UTF-8 if it begins with a byte-order mark or its encoding is named.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import glob
import gzip
import hashlib
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TextIO, cast

from litebert.errors import DataError

STDIN = "-"
PIECE = 1 << 20

# Compression is recognised by the first bytes: this works for stdin and whatever the file is called.
_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"(\xb5/\xfd": "zstd", b"BZh": "bzip2"}
_SUFFIXES = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
# Byte-order marks of encodings whose characters are not single bytes; UTF-32's begins like UTF-16's.
_MARKS = {
    (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE): "utf-32",
    (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE): "utf-16",
}
# What remote file systems call the version of a file, the most reliable first.
_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "mtime", "LastModified", "last_modified", "created")


def ending_of(path: Path | str) -> str:
    """The ending that tells the format, in lower case: "a.csv.gz" -> ".csv", "notes" -> ""."""
    endings = [ending.lower() for ending in PurePath(path).suffixes]
    while endings and endings[-1] in _SUFFIXES:
        endings.pop()
    return endings[-1] if endings else ""


@dataclass(frozen=True)
class Source:
    """One input file, with what shows whether it has changed."""

    path: str
    size: int
    mtime_ns: int  # of a URL: a hash of its ETag or time


def find_sources(paths: Iterable[Path | str]) -> list[Source]:
    """Files, folders (recursive, sorted, without hidden files), globs, URLs and '-' -> the files, in order."""
    found: list[str] = []
    for path in map(str, paths):
        if path == STDIN or os.path.isfile(path):
            found.append(path)
        elif is_url(path):
            found.extend(_remote_files(path))
        elif os.path.isdir(path):
            inside = sorted(_files_below(path))
            if not inside:
                raise DataError(f"{path}: no files in this folder")
            found.extend(inside)
        else:
            matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []
            if not matches:
                raise DataError(f"{path}: no such file or folder")
            for match in matches:
                found.extend(sorted(_files_below(match)) if os.path.isdir(match) else [match])
    seen: set[str] = set()
    for path in found:
        real = path if path == STDIN or is_url(path) else os.path.realpath(path)
        if real in seen:
            raise DataError(f"{path}: given twice")
        seen.add(real)
    return [describe_source(path) for path in found]


def describe_source(path: str) -> Source:
    """A file as it is now; stdin has neither size nor time."""
    if path == STDIN:
        return Source(path, 0, 0)
    if is_url(path):
        system, name = file_system(path)
        info = ask_store(path, lambda: system.info(name))
        version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
        digest = hashlib.blake2b(version.encode(), digest_size=7).digest()  # JSON readers take 53 bits
        return Source(path, int(info.get("size") or 0), int.from_bytes(digest) >> 3)
    try:
        state = os.stat(path)
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from None
    return Source(path, state.st_size, state.st_mtime_ns)


def is_url(path: str) -> bool:
    """Whether a path is for fsspec: "s3://bucket/x.txt" -> True, "x.txt" -> False."""
    return _URL.match(path) is not None


def open_file(path: str) -> BinaryIO:
    """A local file, a URL or '-' (standard input), opened for reading bytes."""
    if path == STDIN:
        return sys.stdin.buffer
    if is_url(path):
        system, name = file_system(path)
        return cast(BinaryIO, io.BufferedReader(_Remote(ask_store(path, lambda: system.open(name, "rb")))))
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; name a file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror or error}") from None


def _remote_files(url: str) -> list[str]:
    system, name = file_system(url)

    def search() -> list[str]:
        if glob.has_magic(name):
            return sorted(match for match in system.glob(name) if system.isfile(match))
        if system.isdir(name):
            return sorted(file for file in system.find(name) if "/." not in file.removeprefix(name))
        return [name] if system.exists(name) else []

    found = ask_store(url, search)
    if not found:
        raise DataError(f"{url}: no such file or folder")
    return [str(system.unstrip_protocol(file)) for file in found]


def file_system(url: str) -> tuple[Any, str]:
    """fsspec's object for the place that a URL names, and the name of the file there."""
    from fsspec import core  # comes with huggingface_hub; only URLs need it

    system, name = ask_store(url, lambda: core.url_to_fs(url))
    return system, str(name)


def ask_store(url: str, call: Callable[[], Any], verb: str = "read") -> Any:
    """The result of a call to fsspec; each file system has its own error types."""
    try:
        return call()
    except FileNotFoundError:
        raise DataError(f"{url}: no such file or folder") from None
    except Exception as error:
        raise DataError(f"{url}: cannot {verb}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


class StoreError(OSError):
    """A file at an address that could be opened, but is not reached any more."""


class _Remote(io.RawIOBase):
    """A file that fsspec opened; whatever its store raises is a StoreError."""

    def __init__(self, file: Any):
        self._file = file

    def readinto(self, buffer: Any) -> int:
        data = self._ask(lambda: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._ask(lambda: self._file.seek(offset, whence)))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    @staticmethod
    def _ask(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            raise StoreError(_reason(error)) from None


def _files_below(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(place, name) for name in files if not name.startswith("."))


class ByteReader:
    """Reads one file (see `open_file`) from start to end and decompresses it.

    `read` returns b"" at the end. Damage raises DataError after everything before it has been returned. Text with two
    or four bytes per character comes out as UTF-8, and UTF-8 without its byte-order mark.
    """

    def __init__(self, path: str, encoding: str = "utf-8"):
        self.path = path
        try:
            name = codecs.lookup(encoding).name.removesuffix("-sig")
            self._wide = "\n".encode(name) != b"\n"
        except LookupError:
            raise DataError(f"{path}: cannot decode it as {encoding!r}, which is not a known encoding") from None
        self._encoding = name if name == "utf-8" else encoding
        self._decoder: codecs.IncrementalDecoder | None = None
        self._start: bytes | None = None  # read ahead
        self._file = open_file(path)
        self._raw = _Counted(self._file)
        try:
            start = self._raw.peek(max(map(len, _MAGIC)))
        except OSError as error:
            raise DataError(f"{path}: cannot read: {error.strerror or error}") from None
        self.compression = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "")
        named = _SUFFIXES.get(Path(path).suffix.lower(), "")
        if named and start and named != self.compression:
            self.close()
            raise DataError(f"{path}: not {named} data, although its name says so; is the download complete?")
        self._read = self._opened()

    @property
    def position(self) -> int:
        """Bytes of the file itself that have been read so far."""
        return self._raw.position

    @property
    def encoding(self) -> str:
        """The encoding of what `read` returns: the one that was named, or UTF-8."""
        if self._start is None:
            self._start = self._begin()
        return self._encoding

    def read(self) -> bytes:
        """The next piece, about a megabyte; b"" at the end."""
        if self._start is None:
            return self._begin()
        piece, self._start = self._start or self._next(), b""
        return piece

    def _begin(self) -> bytes:
        """The first piece, which shows whether the rest must be decoded."""
        self._start, start = b"", self._piece()
        with contextlib.suppress(DataError):  # raised again by the next read
            while 0 < len(start) < 4 and (piece := self._piece()):
                start += piece
        marked = next((name for marks, name in _MARKS.items() if start.startswith(marks)), None)
        if marked or self._wide:
            self._decoder = codecs.getincrementaldecoder(marked or self._encoding)()
            self._encoding = "utf-8"
            return self._decoded(start) or self._next()
        return start.removeprefix(codecs.BOM_UTF8) if self._encoding == "utf-8" else start

    def _next(self) -> bytes:
        piece = self._piece()
        if self._decoder is None:
            return piece
        while piece and not (text := self._decoded(piece)):  # half a character
            piece = self._piece()
        return text if piece else self._decoded(b"")

    def _decoded(self, piece: bytes) -> bytes:
        assert self._decoder is not None
        try:
            return self._decoder.decode(piece, final=not piece).encode()
        except UnicodeDecodeError as error:
            raise DataError(f"not {error.encoding.upper()} ({error.reason})") from None

    def _piece(self) -> bytes:
        try:
            return self._read(PIECE)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            intact = isinstance(error, StoreError) or not self.compression
            what = "cannot read" if intact else f"damaged or truncated {self.compression} data"
            raise DataError(f"{what} ({str(error).rstrip('.')})") from None

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self.path != STDIN:
            self._file.close()

    def _opened(self) -> Callable[[int], bytes]:
        # read1 instead of read: it returns what it has before it fails on damage.
        raw: Any = self._raw
        if self.compression == "gzip":
            return gzip.GzipFile(fileobj=raw).read1
        if self.compression == "xz":
            return lzma.LZMAFile(raw).read1
        if self.compression == "bzip2":
            return bz2.BZ2File(raw).read1
        if self.compression == "zstd":
            import pyarrow as pa

            stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
            # In small pieces: the piece with the damage is lost as a whole.
            return lambda size: cast(bytes, stream.read(min(size, 1 << 14)))
        return self._raw.read


class _Counted:
    """A binary file with a peek at its start, seekable or not, that counts the bytes read."""

    closed = False

    def __init__(self, file: BinaryIO):
        self._file = file
        self._peeked = b""
        self.position = 0

    def peek(self, size: int) -> bytes:
        while len(self._peeked) < size and (more := self._file.read(size - len(self._peeked))):
            self._peeked += more
        return self._peeked

    def read(self, size: int = -1) -> bytes:
        if self._peeked:
            size = len(self._peeked) if size < 0 else size
            data, self._peeked = self._peeked[:size], self._peeked[size:]
        else:
            data = self._file.read(size)
        self.position += len(data)
        return data

    # What gzip, lzma and bz2 need besides read().
    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        raise OSError("not seekable")

    def close(self) -> None:
        pass

    def flush(self) -> None:
        pass


def open_text_file(path: str, encoding: str = "utf-8") -> TextIO:
    """The lines of a file, decompressed and decoded."""
    reader = ByteReader(path, encoding)

    def pieces() -> Iterator[bytes]:
        try:
            while piece := reader.read():
                yield piece
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        finally:
            reader.close()

    return io.TextIOWrapper(as_file(pieces()), encoding=reader.encoding)


def as_file(pieces: Iterator[bytes]) -> io.BufferedReader:
    """Pieces of bytes as a binary file."""
    return io.BufferedReader(_Pieces(pieces))


class _Pieces(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]):
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
