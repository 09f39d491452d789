"""Read a task with its data: a public one by name, or the user's own files by kind.

read_task("sst-2", folder="glue/SST-2")                                  the official files
read_task("sst-2")                                                       through `datasets` (extra [hf])
read_task("classification", train="a.csv", dev="b.csv")                  the user's own
read_task("classification", train=[{"text": "good", "label": "pos"}, ...])   or any table in memory
read_task("classification", folder="hub:owner/name", columns={"text": "document"})
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from litebert.errors import DataError, did_you_mean
from litebert.extras import require
from litebert.tasks import glue, race, squad
from litebert.tasks.kinds import KINDS
from litebert.tasks.own import plain_name, read_own
from litebert.tasks.tables import Table, table_of
from litebert.tasks.task import Task, TaskData

# Public tasks are files with TASKS and read(name, folder, files, encoding) -> TaskData; those that are on the Hub have
# HUB (name -> "owner/data:config") and read_tables(name, tables) too. Add new ones here.
PUBLIC: list[Any] = [glue, squad, race]
PATIENCE = 5.0  # seconds to wait for the Hub
_SPLITS = {"validation": "dev", "valid": "dev", "dev": "dev", "train": "train", "test": "test"}


def named_tasks() -> dict[str, Task]:
    """The public tasks by name."""
    return {name: task for file in PUBLIC for name, task in file.TASKS.items()}


def canonical_name(name: str) -> str:
    """The canonical name of a task: "SST2" -> "sst-2", "qa" -> "question-answering"; an unknown name is unchanged."""
    known = {plain_name(task): task for task in [*named_tasks(), *KINDS]} | squad.ALIASES
    for kind in KINDS.values():
        known |= dict.fromkeys(kind.aliases, kind.name)
    return known.get(plain_name(name), name)


def find_task(name: str) -> str:
    """The canonical name; one that is neither a public task nor a kind is an error that suggests the nearest."""
    known = [*named_tasks(), *KINDS]
    found = canonical_name(name)
    if found not in known:
        aliases = [alias for kind in KINDS.values() for alias in kind.aliases]
        hint = did_you_mean(name.lower(), known) or did_you_mean(name.lower(), aliases) or "."
        raise DataError(f"unknown task {name!r}{hint} Known: {', '.join(known)}")
    return found


def data_form(task: Task) -> str:
    """The name under which `read_task` reads data for a task: its own if it is public, otherwise its kind."""
    return task.name if task.name in named_tasks() else task.kind


def read_task(
    name: str,
    *,
    folder: Path | str | None = None,
    train: Any = None,
    dev: Any = None,
    test: Any = None,
    columns: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    task: Task | None = None,
) -> TaskData:
    """Read all available splits; `task`, from a fine-tuned model, supplies its labels and columns.

    train, dev, test: files, or rows in memory in any form that `litebert.tasks.tables.table_of` takes.
    """
    name = find_task(name)
    files = {split: path for split, path in (("train", train), ("dev", dev), ("test", test)) if path is not None}
    hub = str(folder)[4:] if str(folder).startswith("hub:") else None
    if folder is not None and hub is None and not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder")
    if name in named_tasks():
        if in_memory := [split for split, rows in files.items() if not isinstance(rows, str | Path)]:
            kind = named_tasks()[name].kind
            raise DataError(f"{name}: {in_memory[0]}: expected a file; for rows in memory use its kind, {kind}")
        if columns:
            kind = named_tasks()[name].kind
            raise DataError(f"columns: the public task {name} has fixed columns; for other files use its kind, {kind}")
        file = next(file for file in PUBLIC if name in file.TASKS)
        if hub is not None or (folder is None and not files):
            return read_from_hub(file, name, hub)
        data: TaskData = file.read(name, None if folder is None else Path(folder), files, encoding)
        return data
    assert name in KINDS
    if hub is not None:
        return KINDS[name].read_tables(load_tables(hub), columns, task)
    if folder is not None:
        files = {**_files_in(Path(folder)), **files}
    if not files:
        raise DataError(f"{name}: no data; give train and dev files, or a folder with train.* and dev.*")
    return read_own(name, files, columns, encoding, task)


def _files_in(folder: Path) -> dict[str, Path | str]:
    """train.*, dev.* (or validation.*, valid.*) and test.* of a folder."""
    names = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
    found: dict[str, Path | str] = {}
    for split, stems in names.items():
        matches = [path for path in sorted(folder.iterdir()) if path.name.split(".")[0].lower() in stems]
        if len(matches) > 1:
            raise DataError(
                f"{folder}: several files for {split}: {', '.join(path.name for path in matches)}; name one"
            )
        if matches:
            found[split] = matches[0]
    if not found:
        raise DataError(f"{folder}: no file named train.*, dev.* or test.*")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The Hugging Face Hub, or any folder that `datasets` can load; needs the extra [hf]


def read_from_hub(file: Any, name: str, source: str | None = None) -> TaskData:
    """A public task of one of `PUBLIC`; `source` ("owner/name:config" or a local folder) overrides its data set."""
    if not hasattr(file, "HUB"):
        raise DataError(f"{name}: not on the Hub; give a folder with its files, or the files themselves")
    if source is None:
        require("datasets", f"{name} without a folder of its official files")
    try:
        tables = load_tables(source or file.HUB[name])
    except DataError as error:
        raise DataError(f"{name}: give a folder with its official files; the Hub failed: {error}") from None
    data: TaskData = file.read_tables(name, tables)
    return data


def load_tables(source: str) -> dict[str, Table]:
    """The splits of a data set by our names: {"train": ..., "dev": ..., "test": ...}."""
    datasets = require("datasets", f"hub:{source}")
    hub = importlib.import_module("huggingface_hub")
    repository, _, config = source.partition(":")
    try:
        with _quick(hub, datasets) if not Path(repository).exists() else contextlib.nullcontext():
            loaded = datasets.load_dataset(repository, config or None)
    except Exception as error:  # anything from a missing repository to no network
        first_line = next(iter(str(error).splitlines()), "")
        raise DataError(f"{source}: `datasets` cannot load it: {type(error).__name__}: {first_line}") from error
    tables = {}
    for split, rows in loaded.items():
        part, _, variant = split.partition("_")
        if part in _SPLITS:
            name = _SPLITS[part]
            if variant:  # MNLI: validation_matched, test_mismatched
                name = variant if name == "dev" else f"{name}-{variant}"
            tables[name] = table_of(f"hub:{source}/{split}", rows)
    if not tables:
        raise DataError(f"{source}: no split named train, validation or test; the splits are {', '.join(loaded)}")
    return tables


@contextlib.contextmanager
def _quick(hub: Any, datasets: Any) -> Iterator[None]:
    """Check once whether the Hub responds; if not, use the cache alone instead of retrying for half a minute."""
    settings = (hub.constants, datasets.config)
    before = [module.HF_HUB_OFFLINE for module in settings]
    if not any(before):
        try:
            hub.utils.get_session().head(hub.constants.ENDPOINT, timeout=PATIENCE)
        except Exception:  # from whichever HTTP library is in use
            for module in settings:
                module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, value in zip(settings, before, strict=True):
            module.HF_HUB_OFFLINE = value
