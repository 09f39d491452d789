"""The bytes of a file, plain or compressed, piece by piece; damage becomes an error a person understands."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from litebert.errors import DataError

STDIN = "-"
PIECE = 1 << 20

# Compression is told by the first bytes, so that it works on stdin and whatever the file is called.
_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"(\xb5/\xfd": "zstd", b"BZh": "bzip2"}
_SUFFIXES = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}


class ByteReader:
    """Reads one file (or '-', standard input) from start to end, decompressing on the way.

    `read` gives b"" at the end. Damage raises DataError, and what came before it has been given out by then.
    """

    def __init__(self, path: str):
        self.path = path
        try:
            self._file: BinaryIO = sys.stdin.buffer if path == STDIN else open(path, "rb")  # noqa: SIM115
            self._raw = _Counted(self._file)
            start = self._raw.peek(max(map(len, _MAGIC)))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
        self.compression = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "")
        named = _SUFFIXES.get(Path(path).suffix.lower(), "")
        if named and start and named != self.compression:
            self.close()
            raise DataError(f"{path}: not {named} data, though its name says so; is the download whole?")
        self._read = self._opened()

    @property
    def position(self) -> int:
        """Bytes of the file itself that have been read so far."""
        return self._raw.position

    def read(self) -> bytes:
        """The next piece, about a megabyte; b"" at the end."""
        try:
            return self._read(PIECE)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            what = f"damaged or cut short {self.compression} data" if self.compression else "cannot be read"
            raise DataError(f"{what} ({str(error).rstrip('.')})") from None

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self.path != STDIN:
            self._file.close()

    def _opened(self) -> Callable[[int], bytes]:
        # read1 and not read: it gives out what it has before it stumbles over damage.
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
            # In small pieces: the one that meets the damage is lost as a whole.
            return lambda size: cast(bytes, stream.read(min(size, 1 << 14)))
        return self._raw.read


class _Counted:
    """A binary file that can be looked into before it is read, seekable or not, and counts what was read."""

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

    # What gzip, lzma and bz2 ask of a file besides read().
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
