"""The user's own files as a task of any kind: columns guessed and shown, or named.

    read_own("classification", {"train": "a.csv", "dev": "b.csv"})
    -> TaskData(Task("classification", labels=("neg", "pos"), ...), train=[TextExample(...), ...], dev={"dev": [...]})

The training file decides the labels; a label that only another file has is an error with its row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.parse import parse_json
from litebert.tasks.answers import Repairs, make_question, parse_answers, trainable
from litebert.tasks.cells import number_cell, text_cell, truth_cell, words_cell
from litebert.tasks.columns import PREDICTED, Columns, find_columns, need_column
from litebert.tasks.conll import is_conll, read_conll
from litebert.tasks.examples import ChoiceExample, Example, QuestionExample, TagExample, TextExample, asked
from litebert.tasks.labels import label_id, label_name, order_labels, order_tags
from litebert.tasks.squad import is_squad, squad_table
from litebert.tasks.tables import Table, format_of, read_table, read_text
from litebert.tasks.task import Kind, Task, TaskData

METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"),
    "regression": ("pearson", "spearman", "rmse"),
    "multi-label": ("micro_f1", "macro_f1", "exact_match"),
    "token-classification": ("accuracy",),
    "multiple-choice": ("accuracy",),
    "question-answering": ("f1", "exact_match"),
}
MAX_LENGTH: dict[Kind, int] = {"multiple-choice": 512, "question-answering": 384}
SHARED = 0.05  # of a split, may stand in the training file too without a word about it
_SEPARATORS = "|;,"


def read_own(
    kind: Kind,
    files: Mapping[str, Path | str],
    columns: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    known: Task | None = None,
) -> TaskData:
    """Files by split ("train", "dev", "test") -> their examples; `known` brings labels and columns of a saved model."""
    named = columns or (known.columns if known else {})
    tables = {split: _open(kind, path, named, encoding) for split, path in files.items()}
    if kind == "token-classification" and all(map(is_conll, files.values())):
        columns = None  # their numbers have done their work
    return data_from_tables(kind, tables, columns, known)


def data_from_tables(
    kind: Kind, tables: Mapping[str, Table], columns: Mapping[str, str] | None = None, known: Task | None = None
) -> TaskData:
    """The same for tables that are open already."""
    named = dict(columns or {})
    if not named and known is not None:
        named = {role: name for role, name in known.columns.items() if _has(tables, name)}
    first = tables.get("train") or next(iter(tables.values()))
    if known is None and "train" not in tables:
        raise DataError(f"{first.path}: labels come from the training file; give one, or a model that has been trained")
    roles = find_columns(kind, first, named)
    for split, table in tables.items():
        for role in roles:
            if role not in PREDICTED and role != "id":
                need_column(table, roles, role)
        if split != "test":
            need_column(table, roles, _predicted(kind))
    notes = [_describe(first, roles, named)]
    reader = _Reader(kind, roles, known, first, notes)
    splits = {split: reader.read(table) for split, table in tables.items()}
    if kind == "question-answering" and "train" in splits:
        splits["train"] = trainable(splits["train"], notes)
    task = known or reader.task(splits.get("train", []))
    return TaskData(
        task,
        splits.get("train", []),
        {split: rows for split, rows in splits.items() if split not in ("train", "test")},
        {"test": splits["test"]} if "test" in splits else {},
        notes + reader.repairs.notes() + _shared_notes(tables, splits),
    )


def _shared_notes(tables: Mapping[str, Table], splits: Mapping[str, list[Example]]) -> list[str]:
    """What is said where a good part of a split stands in the training file too, as when both are the same file."""
    train = {asked(example) for example in splits.get("train", [])}
    notes = []
    for split, examples in splits.items():
        shared = sum(asked(example) in train for example in examples) if split != "train" else 0
        if shared > SHARED * len(examples):
            notes.append(
                f"{tables[split].path}: {shared:,} of {len(examples):,} examples stand in the training file too; "
                "scores on what has been learned by heart say little about new texts"
            )
    return notes


def _open(kind: Kind, path: Path | str, columns: Mapping[str, str], encoding: str) -> Table:
    numbers = bool(columns) and all(name.isdigit() for value in columns.values() for name in value.split(","))
    if kind == "token-classification" and is_conll(path):
        places = {role: int(value) for role, value in columns.items()} if numbers else {}
        return read_conll(path, encoding, places.get("words", 1), places.get("tags", -1))
    if kind == "question-answering" and format_of(str(path)) == "json":
        data = parse_json(read_text(path, encoding), str(path))
        if is_squad(data):
            return squad_table(str(path), data)
    # Columns given as numbers: the file has no header.
    return read_table(path, encoding, header=not numbers)


def _has(tables: Mapping[str, Table], names: str) -> bool:
    return all(names in t.columns or set(names.split(",")) <= set(t.columns) for t in tables.values())


def _predicted(kind: Kind) -> str:
    return {"question-answering": "answers", "token-classification": "tags"}.get(kind, "label")


def _describe(table: Table, roles: Columns, named: Mapping[str, str]) -> str:
    shown = ", ".join(f"{role} = {','.join(columns)!r}" for role, columns in roles.items())
    return f"{table.path}: {shown}" + ("" if named.keys() >= roles.keys() - {"id"} else " (guessed)")


class _Reader:
    """Rows of one kind as examples; what the training table decides is decided when it is made."""

    def __init__(self, kind: Kind, roles: Columns, known: Task | None, first: Table, notes: list[str]):
        self.kind, self.roles, self.notes = kind, roles, notes
        self.repairs = Repairs()
        self.source = f"the model ({known.name})" if known else first.path
        self.separator = self._separator(first) if kind == "multi-label" else ""
        self.labels = known.labels if known else self._labels(first)
        self.ids = {name: number for number, name in enumerate(self.labels)}
        self.first_option = self._first_option(first) if kind == "multiple-choice" else 0

    def task(self, train: list[Example]) -> Task:
        """The task as the training file defines it."""
        metrics = METRICS[self.kind]
        if self.kind == "token-classification" and any(label[:2] == "B-" for label in self.labels):
            metrics = ("entity_f1", *metrics)
        return Task(
            name=self.kind,
            kind=self.kind,
            labels=self.labels,
            metrics=metrics,
            max_length=MAX_LENGTH.get(self.kind, 128),
            pair="pair" in self.roles,
            scale=_scale(train),
            num_choices=max((len(row.options) for row in train if isinstance(row, ChoiceExample)), default=0),
            answerable_head=any(isinstance(row, QuestionExample) and row.impossible for row in train),
            columns={role: ",".join(columns) for role, columns in self.roles.items()},
        )

    def read(self, table: Table) -> list[Example]:
        """All examples of a table, in order."""
        present = {
            role: [table.values(c) for c in cs] for role, cs in self.roles.items() if set(cs) <= {*table.columns}
        }
        read_row: Callable[[dict[str, list[Any]], str, str], Example] = {
            "token-classification": self._tags,
            "multiple-choice": self._choice,
            "question-answering": self._question,
        }.get(self.kind, self._text)
        ids = self._row_ids(table, present.pop("id", None))
        examples = []
        for row in range(len(table.rows)):
            cells = {role: [values[row] for values in columns] for role, columns in present.items()}
            examples.append(read_row(cells, ids[row], table.where(row)))
        empty = sum(isinstance(example, TextExample) and not example.a.strip() for example in examples)
        if empty:
            self.notes.append(f"{table.path}: {empty:,} empty texts kept")
        counts = sorted({len(example.options) for example in examples if isinstance(example, ChoiceExample)})
        if len(counts) > 1:
            self.notes.append(f"{table.path}: {counts[0]} to {counts[-1]} options per question")
        return examples

    def _row_ids(self, table: Table, columns: list[list[Any]] | None) -> list[str]:
        """The ids that the file has, or row numbers: predictions are told apart by them."""
        if columns is not None:
            ids = [text_cell(value, table.where(row)) for row, value in enumerate(columns[0])]
            if len(set(ids)) == len(ids) and all(ids):
                return ids
            self.notes.append(f"{table.path}: ids in column {self.roles['id'][0]!r} repeat or lack: rows are numbered")
        return [str(row) for row in range(len(table.rows))]

    def _text(self, cells: dict[str, list[Any]], id: str, where: str) -> TextExample:
        pair = text_cell(cells["pair"][0], where) if "pair" in cells else None
        label: int | float | tuple[int, ...] | None = None
        if "label" in cells:
            label = self._label(cells["label"], where)
        return TextExample(id, text_cell(cells["text"][0], where), pair, label, where)

    def _label(self, cells: list[Any], where: str) -> int | float | tuple[int, ...]:
        if self.kind == "multi-label":
            if len(self.roles["label"]) > 1:
                flags = zip(self.roles["label"], cells, strict=True)
                names = [column for column, value in flags if truth_cell(value, where, column)]
            else:
                names = self._names(cells[0], where)
            return tuple(sorted({label_id(name, self.ids, where, self.source) for name in names}))
        if self.kind == "regression":
            return number_cell(cells[0], where, self.roles["label"][0])
        name = label_name(cells[0])
        if name is None:
            raise DataError(f"{where}: no label in column {self.roles['label'][0]!r}; fill it in, or delete the row")
        return label_id(name, self.ids, where, self.source)

    def _tags(self, cells: dict[str, list[Any]], id: str, where: str) -> TagExample:
        words = words_cell(cells["words"][0], where)
        if not words:
            raise DataError(f"{where}: no words")
        tags = None
        if cells.get("tags", [None])[0] is not None:
            names = words_cell(cells["tags"][0], where)
            if len(names) != len(words):
                raise DataError(f"{where}: {len(words)} words and {len(names)} tags; each word needs one")
            tags = tuple(label_id(name, self.ids, where, self.source) for name in names)
        return TagExample(id, words, tags, where)

    def _choice(self, cells: dict[str, list[Any]], id: str, where: str) -> ChoiceExample:
        options = _options(cells["options"], where)
        if len(options) < 2:
            raise DataError(f"{where}: a question needs at least two options, got {len(options)}")
        label = None
        if "label" in cells:
            label = _option_number(cells["label"][0], options, self.first_option, where)
        passage = text_cell(cells["passage"][0], where) if "passage" in cells else ""
        return ChoiceExample(id, passage, text_cell(cells["question"][0], where), options, label, where)

    def _question(self, cells: dict[str, list[Any]], id: str, where: str) -> QuestionExample:
        answers = parse_answers(cells.get("answers", [None])[0], where)
        if len(answers) == 1 and "start" in cells and cells["start"][0] not in (None, ""):
            answers = [(answers[0][0], int(number_cell(cells["start"][0], where, self.roles["start"][0])))]
        impossible = "answers" in cells and not answers
        if "impossible" in cells:  # such a column decides: without it, no answer in the file means that there is none
            impossible = truth_cell(cells["impossible"][0], where, self.roles["impossible"][0])
        answers = [] if impossible else answers
        question, context = (text_cell(cells[role][0], where) for role in ("question", "context"))
        return make_question(id, question, context, answers, impossible, where, self.repairs)

    def _labels(self, train: Table) -> tuple[str, ...]:
        if self.kind == "multi-label":
            if len(self.roles["label"]) > 1:
                return self.roles["label"]
            values = train.values(self.roles["label"][0])
            labels = order_labels(name for value in values for name in self._names(value, train.path))
        elif self.kind == "token-classification":
            values = train.values(self.roles["tags"][0])
            labels = order_tags(tag for value in values for tag in words_cell(value, train.path))
        elif self.kind == "classification":
            column = self.roles["label"][0]
            labels = order_labels(name for value in train.values(column) if (name := label_name(value)) is not None)
            if len(labels) > max(50, len(train.rows) // 2):
                raise DataError(
                    f"{train.path}: column {column!r} holds {len(labels)} different labels in {len(train.rows)} rows; "
                    "for numbers use the kind regression, else name the right column: --column label=COLUMN"
                )
        else:
            return ()
        if len(labels) < (1 if self.kind == "multi-label" else 2):
            raise DataError(f"{train.path}: only one label ({', '.join(labels) or 'none'}); there is nothing to learn")
        return labels

    def _names(self, value: Any, where: str) -> list[str]:
        """The labels in one cell: ["a", "b"], "a|b" or ""."""
        parts = value if isinstance(value, list | tuple) else text_cell(value, where).split(self.separator or "|")
        return [name for part in parts if (name := label_name(part)) is not None]

    def _separator(self, table: Table) -> str:
        if len(self.roles.get("label", ())) != 1 or self.roles["label"][0] not in table.columns:
            return ""
        text = "".join(value for value in table.values(self.roles["label"][0]) if isinstance(value, str))
        return next((separator for separator in _SEPARATORS if separator in text), "")

    def _first_option(self, table: Table) -> int:
        """Whether option numbers count from 0 or from 1: no row says 0, and some row says the number of its options."""
        column = next(iter(self.roles.get("label", ())), None)
        if column is None or column not in table.columns:
            return 0
        places = [table.columns.index(name) for name in self.roles["options"]]
        counts = [len(_options([row[place] for place in places], table.path)) for row in table.rows]
        said = zip((str(value).strip() for value in table.values(column)), counts, strict=True)
        numbers = [(int(text), count) for text, count in said if re.fullmatch(r"\d+", text)]
        if any(number == 0 for number, _ in numbers) or all(number < count for number, count in numbers):
            return 0
        self.notes.append(f"{table.path}: the options in column {column!r} count from 1")
        return 1


def _scale(train: list[Example]) -> tuple[float, float] | None:
    """The lowest and the highest score of a regression file; None for other kinds."""
    scores = [row.label for row in train if isinstance(row, TextExample) and isinstance(row.label, float)]
    return (min(scores), max(scores)) if scores else None


def _options(cells: list[Any], where: str) -> tuple[str, ...]:
    """Options in columns of their own, or all in one: ["x", "y"], {"text": ["x", "y"]} or "x|y".

    Empty columns at the end are not options: a table with columns A to D may hold questions with three.
    """
    if len(cells) > 1:
        texts = [text_cell(cell, where).strip() for cell in cells]
        return tuple(texts[: max((place for place, text in enumerate(texts, start=1) if text), default=0)])
    options = cells[0]
    if isinstance(options, Mapping):
        options = options.get("text", list(options.values()))
    if not isinstance(options, list | tuple):
        options = text_cell(options, where).split("|")
    return tuple(text_cell(option, where).strip() for option in options)


def _option_number(value: Any, options: tuple[str, ...], first: int, where: str) -> int:
    """Which option is right, given as a number, a letter or the option itself."""
    text = text_cell(value, where).strip()
    if re.fullmatch(r"\d+", text) and text not in options:
        number = int(text) - first
    elif len(text) == 1 and "A" <= text.upper() <= "Z" and text not in options:
        number = ord(text.upper()) - ord("A")
    else:
        number = options.index(text) if text in options else -1
    if not 0 <= number < len(options):
        raise DataError(f"{where}: {text!r} is none of the {len(options)} options; give a number, a letter or its text")
    return number
