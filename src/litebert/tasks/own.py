"""The user's own files as a task of any kind: columns guessed and shown, or named.

    read_own("classification", {"train": "a.csv", "dev": "b.csv"})
    -> TaskData(Task("classification", labels=("neg", "pos"), ...), train=[TextExample(...), ...], dev={"dev": [...]})

The user names the column for each role; otherwise it is found by its name, then by its content. A role can take several
columns ("A,B,C,D": the options of a question, or one 0/1 column per label). The labels are those of the training file;
a label that occurs only in another file is an error that names the row.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from litebert.errors import DataError, did_you_mean
from litebert.tasks.tables import Table, table_of, text_cell
from litebert.tasks.task import Example, Task, TaskData, kind_of

if TYPE_CHECKING:
    from litebert.tasks.kinds.kind import Kind

E = TypeVar("E", bound=Example)
Columns = dict[str, tuple[str, ...]]
Cells = dict[str, list[Any]]  # of one row: role -> the values of its columns

SHARED = 0.05  # of a split that may also be in the training file without a warning


class Column(NamedTuple):
    """A column of the user's files: its role and the plain names it may have; the first that a file has is used."""

    role: str
    names: str = ""
    required: bool = True
    predicted: bool = False  # a test file may lack it


ID = Column("id", "id idx index guid uid qid exampleid rowid 번호 아이디 编号 序号", required=False)


def read_own(
    kind: str,
    files: Mapping[str, Any],
    columns: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    known: Task | None = None,
) -> TaskData:
    """Read files or rows in memory by split; `known`, the task of a saved model, supplies labels and columns."""
    named = columns or (known.columns if known else {})
    paths = {split: source for split, source in files.items() if isinstance(source, str | Path)}
    tables = {
        split: kind_of(kind).open_table(source, named, encoding) if split in paths else table_of(split, source)
        for split, source in files.items()
    }
    if len(paths) == len(files) and all(map(kind_of(kind).names_columns, paths.values())):
        columns = None  # already applied
    return kind_of(kind).read_tables(tables, columns, known)


def data_from_tables(
    kind: str, tables: Mapping[str, Table], columns: Mapping[str, str] | None = None, known: Task | None = None
) -> TaskData:
    """The same for tables that are already open."""
    rules = kind_of(kind)
    named = dict(columns or {})
    if not named and known is not None:
        named = {role: name for role, name in known.columns.items() if _has(tables, name)}
    first = tables.get("train") or next(iter(tables.values()))
    if known is None and "train" not in tables:
        raise DataError(f"{first.path}: labels come from a training file; give one (train), or a fine-tuned model")
    roles = find_columns(rules, first, named)
    predicted = [column.role for column in rules.columns if column.predicted]
    for split, table in tables.items():
        for role in roles:
            if role not in predicted and role != ID.role:
                _need_same(table, first, roles, role)
        if split != "test":
            _need_same(table, first, roles, predicted[0])
    notes = [_describe(first, roles, named)]
    reader = rules.reader(rules, roles, known, first, notes)
    splits = {split: reader.read(table) for split, table in tables.items()}
    if "train" in splits:
        splits["train"] = reader.trainable(splits["train"])
    task = known or reader.task(splits.get("train", []))
    odd = _contradictions(first.path, splits.get("train", [])) if rules.says == "label" else []
    return TaskData.of(task, splits, notes + reader.late_notes() + odd + shared_notes(tables, splits))


def odd_texts(examples: Sequence[Example]) -> list[str]:
    """Notes about the texts themselves: how many are empty or contain NUL characters, and where."""
    empty, damaged = [], []
    for example in examples:
        texts = texts_of(example.asked)
        if not any(text.strip() for text in texts):
            empty.append(example.where)
        if any("\0" in text for text in texts):
            damaged.append(example.where)
    what = {"are empty": empty, "contain NUL characters (is the file damaged?)": damaged}
    return [
        f"{len(places):,} of {len(examples):,} texts {told}; the first is {places[0]}"
        for told, places in what.items()
        if places
    ]


def texts_of(asked: object) -> list[str]:
    """All texts of what an example asks (`Example.asked`)."""
    if isinstance(asked, tuple):
        return [text for part in asked for text in texts_of(part)]
    return [asked] if isinstance(asked, str) else []


def shared_notes(tables: Mapping[str, Table], splits: Mapping[str, Sequence[Example]]) -> list[str]:
    """A warning for each split that overlaps with the training file, as when both are the same file."""
    train = {example.asked for example in splits.get("train", [])}
    notes = []
    for split, examples in splits.items():
        shared = sum(example.asked in train for example in examples) if split != "train" else 0
        if shared > SHARED * len(examples):
            notes.append(
                f"{tables[split].path}: {shared:,} of {len(examples):,} examples are also in the training file; "
                "the scores overestimate how well the model does on new texts"
            )
    return notes


def _contradictions(path: str, train: Sequence[Any]) -> list[str]:
    """A warning if many training texts occur with more than one label: nothing can learn them."""
    labels: dict[Hashable, set[Any]] = {}
    for example in train:
        labels.setdefault(example.asked, set()).add(example.label)
    torn = [example for example in train if len(labels[example.asked]) > 1]
    if len(torn) <= SHARED * len(train):
        return []
    return [
        f"{path}: {len(torn):,} of {len(train):,} examples have a text that also occurs with another label; "
        f"the first is {torn[0].where}"
    ]


def _has(tables: Mapping[str, Table], names: str) -> bool:
    return all(names in t.columns or set(names.split(",")) <= set(t.columns) for t in tables.values())


def _describe(table: Table, roles: Columns, named: Mapping[str, str]) -> str:
    shown = ", ".join(f"{role} = {','.join(columns)!r}" for role, columns in roles.items())
    return f"{table.path}: {shown}" + ("" if named.keys() >= roles.keys() - {"id"} else " (guessed)")


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def find_columns(kind: Kind[Any], table: Table, named: Mapping[str, str]) -> Columns:
    """The columns for each role; those not named are guessed, and one that cannot be guessed is an error.

    find_columns(classification, table, {})  -> {"text": ("review",), "label": ("sentiment",)}
    """
    found: Columns = {}
    columns = (*kind.columns, ID)
    roles = [column.role for column in columns]
    for role, value in named.items():
        if role not in roles:
            hint = did_you_mean(role, roles) or "."
            raise DataError(f"{role}={value}: {kind.name} has no column {role!r}{hint} It has: {', '.join(roles)}")
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
    """Refuse a table without the columns of a role."""
    if role not in columns:
        raise DataError(f"{table.path}: {_cannot_tell(table, role)}")
    for column in columns[role]:
        table.values(column)


def _need_same(table: Table, first: Table, columns: Columns, role: str) -> None:
    """Refuse a table without the columns that the training table has for a role."""
    try:
        need_column(table, columns, role)
    except DataError as error:
        if table is first or role not in columns:
            raise
        told = f"{first.path} has it as its {role}; if its first line is no header, name columns by number: {role}=1"
        raise DataError(f"{error} ({told})") from None


def first_column(table: Table, names: Sequence[str], found: Columns) -> str | None:
    """The first of these plain names that the table has and no other role uses."""
    free = free_columns(table, found)
    return next((column for name in names for column in free if plain_name(column) == name), None)


def free_columns(table: Table, found: Columns) -> list[str]:
    """The columns that no role uses yet."""
    taken = {column for columns in found.values() for column in columns}
    return [column for column in table.columns if column not in taken]


def plain_name(name: str) -> str:
    """A name without case, spaces and punctuation: "Sentence_1" -> "sentence1"."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _cannot_tell(table: Table, role: str) -> str:
    shown = ", ".join(map(repr, table.columns))
    name = f"Set columns to name it: {role}=NAME (or its number, if the file has no header)"
    return f"cannot tell which column is the {role}; the columns are {shown}. {name}"


def _split_names(table: Table, value: str) -> tuple[str, ...]:
    names = (value,) if value in table.columns else tuple(name.strip() for name in value.split(","))
    for name in names:
        table.values(name)  # an unknown name is an error that lists the columns
    return names


# ---------------------------------------------------------------------------------------------------------------------
# Rows


class Reader(Generic[E]):
    """Turns rows into examples; each kind has its own. The training table sets the labels when it is created."""

    def __init__(self, kind: Kind[E], roles: Columns, known: Task | None, first: Table, notes: list[str]):
        self.kind, self.roles, self.notes = kind, roles, notes
        self.source = f"the model ({known.name})" if known else first.path
        self.look_at(first)
        self.labels = known.labels if known else self.find_labels(first)
        self.ids = {name: number for number, name in enumerate(self.labels)}

    def look_at(self, first: Table) -> None:
        """Find out how the training table is written: what separates labels, where option numbers start."""

    def find_labels(self, train: Table) -> tuple[str, ...]:
        """The labels of the training table by id; () for kinds without labels."""
        return ()

    def example(self, cells: Cells, id: str, where: str) -> E:
        """One row."""
        raise NotImplementedError

    def settings(self, train: Sequence[E]) -> dict[str, Any]:
        """Other settings of the task that follow from the training examples, such as whether texts come in pairs."""
        return {}

    def trainable(self, train: list[E]) -> list[E]:
        """The examples that are usable for training."""
        return train

    def notes_on(self, table: Table, examples: Sequence[E]) -> Iterable[str]:
        """Notes for the user about the rows of a table."""
        return ()

    def late_notes(self) -> list[str]:
        """Notes for the user once all tables are read."""
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
        notes = (*odd_texts(examples), *self.notes_on(table, examples))
        self.notes.extend(f"{table.path}: {note}" for note in notes)
        return examples

    def _row_ids(self, table: Table, columns: list[list[Any]] | None) -> list[str]:
        """The ids of the file, or row numbers; predictions are identified by them."""
        if columns is not None:
            ids = [text_cell(value, table.where(row)) for row, value in enumerate(columns[0])]
            if len(set(ids)) == len(ids) and all(ids):
                return ids
            column = self.roles["id"][0]
            self.notes.append(f"{table.path}: ids in column {column!r} are missing or repeated; rows are numbered")
        return [str(row) for row in range(len(table.rows))]
