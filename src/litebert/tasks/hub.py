"""Tasks by name from the Hugging Face Hub, or from any folder that `datasets` can load; it comes with the extra [hf].

read_named_from_hub("sst-2")                                 nyu-mll/glue, config sst2
read_own_from_hub("classification", "owner/name:config")     the user's own, with columns guessed or named
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.extras import require
from litebert.tasks import glue, race, squad
from litebert.tasks.own import data_from_tables
from litebert.tasks.tables import Table, name_classes
from litebert.tasks.task import Kind, Task, TaskData

NAMES = {
    **{name: f"nyu-mll/glue:{name.replace('-', '')}" for name in glue.TASKS},
    "squad-1.1": "rajpurkar/squad",
    "squad-2.0": "rajpurkar/squad_v2",
    "race": "ehovy/race:all",
    "race-middle": "ehovy/race:middle",
    "race-high": "ehovy/race:high",
}
PATIENCE = 5.0  # seconds for a first answer of the Hub
_SPLITS = {"validation": "dev", "valid": "dev", "dev": "dev", "train": "train", "test": "test"}


def read_named_from_hub(name: str, source: str | None = None) -> TaskData:
    """A public task; `source` ("owner/name:config" or a local folder) replaces the usual place."""
    if source is None:
        require("datasets", f"{name} without its official files (--data FOLDER)")
    try:
        tables = load_tables(source or NAMES[name])
    except DataError as error:
        raise DataError(f"{name}: give the official files with --data FOLDER. Without it: {error}") from None
    if name in glue.TASKS:
        return glue.read_tables(name, tables)
    if name in squad.TASKS:
        return squad.read_tables(name, tables)
    return race.read_rows(name, {split: race.rows_of(table) for split, table in tables.items()})


def read_own_from_hub(
    kind: Kind, source: str, columns: Mapping[str, str] | None = None, known: Task | None = None
) -> TaskData:
    """Any data set as a task of one kind."""
    return data_from_tables(kind, load_tables(source), columns, known)


def load_tables(source: str) -> dict[str, Table]:
    """The splits of a data set by our names: {"train": ..., "dev": ..., "test": ...}."""
    datasets = require("datasets", f"hub:{source}")
    hub = importlib.import_module("huggingface_hub")
    repository, _, config = source.partition(":")
    try:
        with _quick(hub, datasets) if not Path(repository).exists() else contextlib.nullcontext():
            loaded = datasets.load_dataset(repository, config or None)
    except Exception as error:  # whatever it raises, from a missing repository to no network, is about the source
        first_line = next(iter(str(error).splitlines()), "")
        raise DataError(f"{source}: `datasets` could not load it: {type(error).__name__}: {first_line}") from error
    tables = {}
    for split, rows in loaded.items():
        part, _, variant = split.partition("_")
        if part in _SPLITS:
            name = _SPLITS[part]
            if variant:  # MNLI: validation_matched, test_mismatched
                name = variant if name == "dev" else f"{name}-{variant}"
            tables[name] = _table(f"hub:{source}/{split}", rows)
    if not tables:
        raise DataError(f"{source}: no split train, validation or test; it has {', '.join(loaded)}")
    return tables


@contextlib.contextmanager
def _quick(hub: Any, datasets: Any) -> Iterator[None]:
    """Ask once whether the Hub answers; if not, look into the cache alone instead of trying again for half a minute."""
    settings = (hub.constants, datasets.config)
    before = [module.HF_HUB_OFFLINE for module in settings]
    if not any(before):
        try:
            hub.utils.get_session().head(hub.constants.ENDPOINT, timeout=PATIENCE)
        except Exception:  # of whatever library it speaks HTTP with
            for module in settings:
                module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, value in zip(settings, before, strict=True):
            module.HF_HUB_OFFLINE = value


def _table(path: str, rows: Any) -> Table:
    features = rows.features.to_dict()
    content = rows.with_format(None)[:]
    columns = [name_classes(list(content[name]), features.get(name)) for name in rows.column_names]
    return Table(path, tuple(rows.column_names), list(zip(*columns, strict=True)), range(1, len(rows) + 1))
