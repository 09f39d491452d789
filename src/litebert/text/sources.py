"""Which files are meant by what a user names: files, folders, patterns, standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import DataError
from litebert.text.compressed import STDIN


@dataclass(frozen=True)
class Source:
    """One input file and what tells whether it has changed."""

    path: str
    size: int
    mtime_ns: int


def find_sources(paths: Iterable[Path | str]) -> list[Source]:
    """Files, folders (recursive, sorted, without hidden files), globs and '-' -> the files, in order."""
    found: list[str] = []
    for path in map(str, paths):
        if path == STDIN or os.path.isfile(path):
            found.append(path)
        elif os.path.isdir(path):
            inside = sorted(_files_below(path))
            if not inside:
                raise DataError(f"{path}: the folder holds no files")
            found.extend(inside)
        else:
            matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []
            if not matches:
                raise DataError(f"{path}: no such file or folder")
            found.extend(name for match in matches for name in _files_of(match))
    seen: set[str] = set()
    for path in found:
        real = path if path == STDIN else os.path.realpath(path)
        if real in seen:
            raise DataError(f"{path}: given twice")
        seen.add(real)
    return [describe_source(path) for path in found]


def describe_source(path: str) -> Source:
    """A file as it is now; stdin has neither size nor time."""
    if path == STDIN:
        return Source(path, 0, 0)
    try:
        state = os.stat(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    return Source(path, state.st_size, state.st_mtime_ns)


def _files_below(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(place, name) for name in files if not name.startswith("."))


def _files_of(match: str) -> list[str]:
    return sorted(_files_below(match)) if os.path.isdir(match) else [match]
