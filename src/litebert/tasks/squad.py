"""SQuAD 1.1 and 2.0 from their official JSON files, or anything of that shape.

{"data": [{"paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ..., "answers": [...]}]}]}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.parse import parse_json
from litebert.tasks.answers import Repairs, make_question, parse_answers, trainable
from litebert.tasks.cells import text_cell, truth_cell
from litebert.tasks.examples import Example
from litebert.tasks.tables import Table, format_of, read_table, read_text
from litebert.tasks.task import Task, TaskData

COLUMNS = ("id", "question", "context", "answers", "is_impossible")
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
            (data.test if split == "test" else data.dev)[split] = examples
    data.notes.extend(repairs.notes())
    return data


def _open(path: str, encoding: str) -> Table:
    if format_of(path) != "json":
        return read_table(path, encoding)
    data = parse_json(read_text(path, encoding), path)
    if not is_squad(data):
        raise DataError(f'{path}: not in the shape of SQuAD: {{"data": [{{"paragraphs": [...]}}]}} was expected')
    return squad_table(path, data)


def _examples(name: str, table: Table, repairs: Repairs) -> list[Example]:
    ids, questions, contexts, cells = (table.values(column) for column in COLUMNS[:4])
    # The Hub's 2.0 has no such column: there, no answers mean that there is none.
    flags = table.values(COLUMNS[4]) if COLUMNS[4] in table.columns else None
    examples: list[Example] = []
    for row in range(len(table.rows)):
        where = table.where(row)
        answers = parse_answers(cells[row], where)
        impossible = not answers if flags is None else truth_cell(flags[row], where, COLUMNS[4])
        if impossible and name == "squad-1.1":
            raise DataError(f"{where}: a question without an answer; this looks like squad-2.0")
        answers = [] if impossible else answers
        question, context = text_cell(questions[row], where), text_cell(contexts[row], where)
        examples.append(make_question(str(ids[row]), question, context, answers, impossible, where, repairs))
    return examples


def is_squad(data: Any) -> bool:
    """Whether a JSON value has SQuAD's shape."""
    articles = data.get("data") if isinstance(data, dict) else None
    return (
        isinstance(articles, list) and bool(articles) and isinstance(articles[0], dict) and "paragraphs" in articles[0]
    )


def squad_table(path: str, data: Any) -> Table:
    """One row per question; rows are counted through the whole file, from 1."""
    rows: list[tuple[Any, ...]] = []
    try:
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for qa in paragraph["qas"]:
                    # In 2.0 an impossible question has plausible answers beside its empty ones: they are no answers.
                    answers = [(answer["text"], answer["answer_start"]) for answer in qa.get("answers", ())]
                    unlabelled = "answers" not in qa and "is_impossible" not in qa
                    cell = (
                        None
                        if unlabelled
                        else {"text": [t for t, _ in answers], "answer_start": [s for _, s in answers]}
                    )
                    rows.append((str(qa["id"]), qa["question"], context, cell, qa.get("is_impossible")))
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: question {len(rows) + 1}: not in the shape of SQuAD: {error!r} is missing") from None
    if not rows:
        raise DataError(f"{path}: the file holds no questions")
    return Table(path, COLUMNS, rows, range(1, len(rows) + 1))
