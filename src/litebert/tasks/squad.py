"""SQuAD 1.1 and 2.0 from their official JSON files, or the same data as Parquet or JSONL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from litebert.errors import DataError
from litebert.parse import parse_json
from litebert.tasks.answers import (
    SQUAD_COLUMNS,
    Repairs,
    is_squad,
    make_question,
    parse_answers,
    squad_table,
    trainable,
)
from litebert.tasks.examples import QuestionExample
from litebert.tasks.tables import Table, format_of, read_table, read_text, text_cell, truth_cell
from litebert.tasks.task import Task, TaskData

TASKS = {
    "squad-1.1": Task("squad-1.1", "question-answering", metrics=("f1", "exact_match"), max_length=384),
    "squad-2.0": Task(
        "squad-2.0", "question-answering", metrics=("f1", "exact_match"), max_length=384, answerable_head=True
    ),
}


def read(name: str, folder: Path | None, files: Mapping[str, Path | str], encoding: str) -> TaskData:
    """train-v1.1.json and dev-v1.1.json (or v2.0) of a folder, and files named one by one (Parquet and JSONL too)."""
    version = name.removeprefix("squad-")
    found: dict[str, Path | str] = {}
    if folder is not None:
        official = {split: folder / f"{split}-v{version}.json" for split in ("train", "dev", "test")}
        found = {split: path for split, path in official.items() if path.exists()}
        if not found and not files:
            raise DataError(f"{folder}: no train-v{version}.json or dev-v{version}.json in there")
    found |= files
    return read_tables(name, {split: _open(str(path), encoding) for split, path in found.items()})


def read_tables(name: str, tables: Mapping[str, Table]) -> TaskData:
    """Tables with the columns id, question, context, answers and, for 2.0, is_impossible -> a task's data."""
    data = TaskData(TASKS[name])
    repairs = Repairs()
    for split, table in tables.items():
        examples = _examples(name, table, repairs)
        if split == "train":
            data.train.extend(trainable(examples, data.notes))
        else:
            (data.test if split == "test" else data.dev)[split] = list(examples)
    data.notes.extend(repairs.notes())
    return data


def _open(path: str, encoding: str) -> Table:
    if format_of(path) != "json":
        return read_table(path, encoding)
    data = parse_json(read_text(path, encoding), path)
    if not is_squad(data):
        raise DataError(f'{path}: not in the shape of SQuAD: {{"data": [{{"paragraphs": [...]}}]}} was expected')
    return squad_table(path, data)


def _examples(name: str, table: Table, repairs: Repairs) -> list[QuestionExample]:
    ids, questions, contexts, cells = (table.values(column) for column in SQUAD_COLUMNS[:4])
    # The Hub's 2.0 has no such column: there, no answers mean that there is none.
    flags = table.values(SQUAD_COLUMNS[4]) if SQUAD_COLUMNS[4] in table.columns else None
    examples = []
    for row in range(len(table.rows)):
        where = table.where(row)
        answers = parse_answers(cells[row], where)
        impossible = not answers if flags is None else truth_cell(flags[row], where, SQUAD_COLUMNS[4])
        if impossible and name == "squad-1.1":
            raise DataError(f"{where}: a question without an answer; this looks like squad-2.0")
        answers = [] if impossible else answers
        question, context = text_cell(questions[row], where), text_cell(contexts[row], where)
        examples.append(make_question(str(ids[row]), question, context, answers, impossible, where, repairs))
    return examples
