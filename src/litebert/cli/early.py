"""Mistakes that are told at once: what a command names is looked for before torch is loaded, which takes seconds."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from litebert.errors import DataError


def check_files(*paths: Path | str | None) -> None:
    """Every path that was given leads to a file or a folder."""
    for path in paths:
        if path is not None and not Path(path).exists():
            raise DataError(f"{path}: no such file or folder")


def check_out_file(path: Path | None) -> None:
    """A result can be written there at the end, its folder made where it is missing."""
    if path is not None:
        if path.is_dir():
            raise DataError(f"{path}: is a folder; name a file in it")
        _check_writable(path, path.parent)


def check_out_folder(path: Path | None) -> None:
    """The same for a folder of results."""
    if path is not None:
        _check_writable(path, path)


def _check_writable(path: Path, folder: Path) -> None:
    nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise DataError(f"{path}: cannot be written, since {nearest} is a file and no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise DataError(f"{path}: cannot be written, since you may not write in {nearest}")


def check_data(data: str | None) -> None:
    """`--data` is a file or a folder, unless it names a data set of the Hub."""
    if data is not None and not data.startswith("hub:"):
        check_files(data)


def check_models(*sources: str) -> None:
    """Every model is there, or may be the Hub's."""
    from litebert.remote import check_source

    for source in sources:
        check_source(source)


def check_stores(stores: Iterable[Path | str], tokenizer: Path | str | None) -> None:
    """Every store can be opened, and its tokenizer, where one is named, is the one that it was built with."""
    from litebert.text.store import TokenStore
    from litebert.text.tokenizer import Tokenizer

    vocabulary = None if tokenizer is None else Tokenizer.load(tokenizer)
    for store in stores:
        TokenStore.open(store, vocabulary)


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """For imports of torch and all that follows: the collector finds nothing in them, and takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
