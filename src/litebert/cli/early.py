"""Mistakes that are told at once: what a command names is looked for before torch is loaded, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from litebert.errors import DataError


def check_files(*paths: Path | str | None) -> None:
    """Every path that was given leads to a file or a folder."""
    for path in paths:
        if path is not None and not Path(path).exists():
            raise DataError(f"{path}: no such file or folder")


def check_data(data: str | None) -> None:
    """`--data` is a file or a folder, unless it names a data set of the Hub."""
    if data is not None and not data.startswith("hub:"):
        check_files(data)


def check_models(*sources: str) -> None:
    """Every model is there, or may be the Hub's."""
    from litebert.model.folder import check_source

    for source in sources:
        check_source(source)


def check_stores(stores: Iterable[Path | str], tokenizer: Path | str | None) -> None:
    """Every store can be opened, and its tokenizer, where one is named, is the one that it was built with."""
    from litebert.text.store import TokenStore
    from litebert.text.tokenizer import Tokenizer

    vocabulary = None if tokenizer is None else Tokenizer.load(tokenizer)
    for store in stores:
        TokenStore.open(store, vocabulary)
