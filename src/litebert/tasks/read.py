"""A task with its data: by the name of a public one, or by the kind of the user's own files.

read_task("sst-2", folder="glue/SST-2")                                  the official files
read_task("sst-2")                                                       through `datasets`, of the extra [hf]
read_task("classification", train="a.csv", dev="b.csv")                  the user's own
read_task("classification", folder="hub:owner/name", columns={"text": "document"})
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from litebert.errors import DataError, did_you_mean
from litebert.tasks import glue, race, squad
from litebert.tasks.own import read_own
from litebert.tasks.task import KINDS, Kind, Task, TaskData

# A public task is one file: its TASKS, and read(task, folder, files, encoding) -> TaskData. A new one is entered here.
_FILES = (glue, squad, race)


def named_tasks() -> dict[str, Task]:
    """The public tasks by name, as they are before any data is read."""
    return {name: task for file in _FILES for name, task in file.TASKS.items()}


# What people call the kinds; "nli" and "similarity" are the user's own pairs, for MNLI and STS-B there are names.
_ALIASES: dict[Kind, str] = {
    "classification": "class classify classifier cls textclassification sequenceclassification sentiment topic "
    "intent nli entailment paraphrase binary multiclass",
    "regression": "regress regressor similarity sts score scoring rating",
    "multi-label": "multilabelclassification",
    "token-classification": "ner pos tag tags tagging token tokens bio conll sequencelabeling sequencelabelling",
    "multiple-choice": "mc mcq choice choose choices multichoice",
    "question-answering": "qa questionanswer questions mrc extractiveqa",
}
_SQUAD = {
    name: f"squad-{version}" for version in ("1.1", "2.0") for name in (f"squad{version[0]}", f"squadv{version[0]}")
}


def canonical_name(name: str) -> str:
    """The name of a task as we spell it: "SST2" -> "sst-2", "qa" -> "question-answering"; an unknown one as it is."""
    known = {_plain(task): task for task in [*named_tasks(), *KINDS]} | _SQUAD | {"squad": "squad-1.1"}
    for kind, aliases in _ALIASES.items():
        known |= dict.fromkeys(aliases.split(), kind)
    return known.get(_plain(name), name)


def find_task(name: str) -> str:
    """The same; a name that is neither a public task nor a kind is an error that names the nearest."""
    known = [*named_tasks(), *KINDS]
    found = canonical_name(name)
    if found not in known:
        aliases = [alias for words in _ALIASES.values() for alias in words.split()]
        hint = did_you_mean(name.lower(), known) or did_you_mean(name.lower(), aliases) or "."
        raise DataError(f"no task {name!r}{hint} Known: {', '.join(known)}")
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


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
    name = find_task(name)
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
