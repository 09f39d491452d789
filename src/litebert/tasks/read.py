"""A task with its data: by the name of a public one, or by the kind of the user's own files.

read_task("sst-2", folder="glue/SST-2")                                  the official files
read_task("sst-2")                                                       through `datasets`, of the extra [hf]
read_task("classification", train="a.csv", dev="b.csv")                  the user's own
read_task("classification", folder="hub:owner/name", columns={"text": "document"})
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from litebert.errors import DataError, did_you_mean
from litebert.tasks import glue, race, squad
from litebert.tasks.own import read_own
from litebert.tasks.task import KINDS, Task, TaskData

# A public task is one file: its TASKS, and read(task, folder, files, encoding) -> TaskData. A new one is entered here.
_FILES = (glue, squad, race)


def named_tasks() -> dict[str, Task]:
    """The public tasks by name, as they are before any data is read."""
    return {name: task for file in _FILES for name, task in file.TASKS.items()}


def check_task(name: str) -> None:
    """A name that is neither a public task nor a kind is an error."""
    known = [*named_tasks(), *KINDS]
    if name not in known:
        raise DataError(f"no task {name!r}{did_you_mean(name, known) or '.'} Known: {', '.join(known)}")


def data_form(task: Task) -> str:
    """The name by which `read_task` reads data for a task: its own where it is public, else its kind."""
    return task.name if task.name in named_tasks() else task.kind


def read_task(
    name: str,
    *,
    folder: Path | str | None = None,
    train: Path | str | None = None,
    dev: Path | str | None = None,
    test: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    task: Task | None = None,
) -> TaskData:
    """Read all splits that are there; `task`, that of a trained model, brings its labels and columns along."""
    check_task(name)
    files = {split: path for split, path in (("train", train), ("dev", dev), ("test", test)) if path is not None}
    hub = str(folder)[4:] if str(folder).startswith("hub:") else None
    if folder is not None and hub is None and not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder")
    if name in named_tasks():
        if columns:
            raise DataError(f"{name} knows its own columns; for other files use its kind, {named_tasks()[name].kind}")
        if hub is not None or (folder is None and not files):
            from litebert.tasks.hub import read_named_from_hub

            return read_named_from_hub(name, hub)
        file = next(file for file in _FILES if name in file.TASKS)
        data: TaskData = file.read(name, None if folder is None else Path(folder), files, encoding)
        return data
    assert name in KINDS
    if hub is not None:
        from litebert.tasks.hub import read_own_from_hub

        return read_own_from_hub(name, hub, columns, task)
    if folder is not None:
        files = {**_files_in(Path(folder)), **files}
    if not files:
        raise DataError(f"{name}: no files; give train and dev, or a folder with files of these names")
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
        raise DataError(f"{folder}: no file called train.*, dev.* or test.* in there")
    return found
