"""The user's own files as a task of any kind: columns guessed and shown, or named.

    read_own("classification", {"train": "a.csv", "dev": "b.csv"})
    -> TaskData(Task("classification", labels=("neg", "pos"), ...), train=[TextExample(...), ...], dev={"dev": [...]})

Which column plays which role is named by the user, else told by its name, else by its content; a role may take several
columns (the options of a question, one 0/1 column per label): "A,B,C,D". The training file decides the labels; a label
that only another file has is an error with its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from litebert.errors import DataError, did_you_mean
from litebert.tasks.examples import Example
from litebert.tasks.tables import Table, text_cell
from litebert.tasks.task import Task, TaskData, kind_of

if TYPE_CHECKING:
    from litebert.tasks.kinds.kind import Kind

E = TypeVar("E", bound=Example)
Columns = dict[str, tuple[str, ...]]
Cells = dict[str, list[Any]]  # of one row: role -> the values of its columns

SHARED = 0.05  # of a split, may stand in the training file too without a word about it


class Column(NamedTuple):
    """What a column is for: its role, the plain names it may have (the first in a file is taken), who needs it."""

    role: str
    names: str = ""
    required: bool = True
    predicted: bool = False  # a test file may lack it


ID = Column("id", "id idx index guid uid qid exampleid rowid 번호 아이디 编号 序号", required=False)


def read_own(
    kind: str,
    files: Mapping[str, Path | str],
    columns: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    known: Task | None = None,
) -> TaskData:
    """Files by split ("train", "dev", "test") -> their examples; `known` brings labels and columns of a saved model."""
    named = columns or (known.columns if known else {})
    tables = {split: kind_of(kind).open_table(path, named, encoding) for split, path in files.items()}
    if all(map(kind_of(kind).names_columns, files.values())):
        columns = None  # they have done their work
    return data_from_tables(kind, tables, columns, known)


def data_from_tables(
    kind: str, tables: Mapping[str, Table], columns: Mapping[str, str] | None = None, known: Task | None = None
) -> TaskData:
    """The same for tables that are open already."""
    rules = kind_of(kind)
    named = dict(columns or {})
    if not named and known is not None:
        named = {role: name for role, name in known.columns.items() if _has(tables, name)}
    first = tables.get("train") or next(iter(tables.values()))
    if known is None and "train" not in tables:
        raise DataError(f"{first.path}: labels come from the training file; give one, or a model that has been trained")
    roles = find_columns(rules, first, named)
    predicted = [column.role for column in rules.columns if column.predicted]
    for split, table in tables.items():
        for role in roles:
            if role not in predicted and role != ID.role:
                need_column(table, roles, role)
        if split != "test":
            need_column(table, roles, predicted[0])
    notes = [_describe(first, roles, named)]
    reader = rules.reader(rules, roles, known, first, notes)
    splits = {split: reader.read(table) for split, table in tables.items()}
    if "train" in splits:
        splits["train"] = reader.trainable(splits["train"])
    task = known or reader.task(splits.get("train", []))
    return TaskData(
        task,
        splits.get("train", []),
        {split: rows for split, rows in splits.items() if split not in ("train", "test")},
        {"test": splits["test"]} if "test" in splits else {},
        notes + reader.late_notes() + _shared_notes(tables, splits),
    )


def _shared_notes(tables: Mapping[str, Table], splits: Mapping[str, list[Example]]) -> list[str]:
    """What is said where a good part of a split stands in the training file too, as when both are the same file."""
    train = {example.asked for example in splits.get("train", [])}
    notes = []
    for split, examples in splits.items():
        shared = sum(example.asked in train for example in examples) if split != "train" else 0
        if shared > SHARED * len(examples):
            notes.append(
                f"{tables[split].path}: {shared:,} of {len(examples):,} examples stand in the training file too; "
                "scores on what has been learned by heart say little about new texts"
            )
    return notes


def _has(tables: Mapping[str, Table], names: str) -> bool:
    return all(names in t.columns or set(names.split(",")) <= set(t.columns) for t in tables.values())


def _describe(table: Table, roles: Columns, named: Mapping[str, str]) -> str:
    shown = ", ".join(f"{role} = {','.join(columns)!r}" for role, columns in roles.items())
    return f"{table.path}: {shown}" + ("" if named.keys() >= roles.keys() - {"id"} else " (guessed)")


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def find_columns(kind: Kind[Any], table: Table, named: Mapping[str, str]) -> Columns:
    """The columns of each role; what was not named is guessed, and what cannot be guessed is an error.

    find_columns(classification, table, {})  -> {"text": ("review",), "label": ("sentiment",)}
    """
    found: Columns = {}
    columns = (*kind.columns, ID)
    roles = [column.role for column in columns]
    for role, value in named.items():
        if role not in roles:
            hint = did_you_mean(role, roles) or "."
            raise DataError(f"{role}={value}: {kind.name} has no such column{hint} It has: {', '.join(roles)}")
        found[role] = _split_names(table, value)
    for column in columns:
        if column.role not in found and (name := first_column(table, column.names.split(), found)):
            found[column.role] = (name,)
    kind.guess_columns(table, found, named)
    for column in columns:
        if column.required and not column.predicted and column.role not in found:
            raise DataError(f"{table.path}: {_cannot_tell(table, column.role)}")
    return {role: found[role] for role in roles if role in found}


def need_column(table: Table, columns: Columns, role: str) -> None:
    """Refuse a table to learn or to score from that does not say what is right."""
    if role not in columns:
        raise DataError(f"{table.path}: {_cannot_tell(table, role)}")
    for column in columns[role]:
        table.values(column)


def first_column(table: Table, names: Sequence[str], found: Columns) -> str | None:
    """The first of some names that the table has and no role has taken; compared as `plain_name` has them."""
    free = free_columns(table, found)
    return next((column for name in names for column in free if plain_name(column) == name), None)


def free_columns(table: Table, found: Columns) -> list[str]:
    """The columns that no role has taken."""
    taken = {column for columns in found.values() for column in columns}
    return [column for column in table.columns if column not in taken]


def plain_name(name: str) -> str:
    """A column's name without case, spaces and punctuation: "Sentence_1" -> "sentence1"."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _cannot_tell(table: Table, role: str) -> str:
    shown = ", ".join(map(repr, table.columns))
    name = f"Name it: --column {role}=COLUMN (by number, if there is no header)"
    return f"cannot tell which column is the {role}; it has {shown}. {name}"


def _split_names(table: Table, value: str) -> tuple[str, ...]:
    names = (value,) if value in table.columns else tuple(name.strip() for name in value.split(","))
    for name in names:
        table.values(name)  # a wrong name shows the columns
    return names


# ---------------------------------------------------------------------------------------------------------------------
# Rows


class Reader(Generic[E]):
    """Rows as examples; each kind has its own. What the training table decides is decided when it is made."""

    def __init__(self, kind: Kind[E], roles: Columns, known: Task | None, first: Table, notes: list[str]):
        self.kind, self.roles, self.notes = kind, roles, notes
        self.source = f"the model ({known.name})" if known else first.path
        self.look_at(first)
        self.labels = known.labels if known else self.find_labels(first)
        self.ids = {name: number for number, name in enumerate(self.labels)}

    def look_at(self, first: Table) -> None:
        """Find out how the training table writes what it holds (how labels are separated, where options begin)."""

    def find_labels(self, train: Table) -> tuple[str, ...]:
        """The labels by id, as the training table has them; () for kinds without."""
        return ()

    def example(self, cells: Cells, id: str, where: str) -> E:
        """One row."""
        raise NotImplementedError

    def settings(self, train: Sequence[E]) -> dict[str, Any]:
        """What else of the task the training examples decide: whether texts come in pairs, for example."""
        return {}

    def trainable(self, train: list[E]) -> list[E]:
        """The examples that can be learnt from."""
        return train

    def notes_on(self, table: Table, examples: Sequence[E]) -> Iterable[str]:
        """What a person should know about the rows of a table."""
        return ()

    def late_notes(self) -> list[str]:
        """What is said once all tables have been read."""
        return []

    def task(self, train: Sequence[E]) -> Task:
        """The task as the training file defines it."""
        return Task(
            **{
                "name": self.kind.name,
                "kind": self.kind.name,
                "labels": self.labels,
                "metrics": self.kind.metrics,
                "max_length": self.kind.max_length,
                "columns": {role: ",".join(columns) for role, columns in self.roles.items()},
                **self.settings(train),
            }
        )

    def read(self, table: Table) -> list[E]:
        """All examples of a table, in order."""
        present = {
            role: [table.values(c) for c in cs] for role, cs in self.roles.items() if set(cs) <= {*table.columns}
        }
        ids = self._row_ids(table, present.pop("id", None))
        examples = []
        for row in range(len(table.rows)):
            cells = {role: [values[row] for values in columns] for role, columns in present.items()}
            examples.append(self.example(cells, ids[row], table.where(row)))
        self.notes.extend(f"{table.path}: {note}" for note in self.notes_on(table, examples))
        return examples

    def _row_ids(self, table: Table, columns: list[list[Any]] | None) -> list[str]:
        """The ids that the file has, or row numbers: predictions are told apart by them."""
        if columns is not None:
            ids = [text_cell(value, table.where(row)) for row, value in enumerate(columns[0])]
            if len(set(ids)) == len(ids) and all(ids):
                return ids
            self.notes.append(f"{table.path}: ids in column {self.roles['id'][0]!r} repeat or lack: rows are numbered")
        return [str(row) for row in range(len(table.rows))]
