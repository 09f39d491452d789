"""RACE from its official folders: {train,dev,test}/{middle,high}/*.txt, one JSON each with an article and questions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.parse import parse_json
from litebert.tasks.tables import Table, read_table, read_text, text_cell, words_cell
from litebert.tasks.task import ChoiceExample, Task, TaskData

LEVELS = ("middle", "high")
TASKS = {
    name: Task(name, "multiple-choice", metrics=("accuracy",), max_length=512, num_choices=4)
    for name in ("race", *(f"race-{level}" for level in LEVELS))
}
HUB = {name: f"ehovy/race:{name.removeprefix('race').removeprefix('-') or 'all'}" for name in TASKS}
Row = tuple[str, Mapping[str, Any]]  # where, and one question: article, question, options, answer, id, level


def read(name: str, folder: Path | None, files: Mapping[str, Path | str], encoding: str) -> TaskData:
    """Read all splits of a folder; a split can also be a single folder or a table with one question per row."""
    found: dict[str, Path] = {split: Path(path) for split, path in files.items()}
    if folder is not None:
        for split in ("train", "dev", "test"):
            if (folder / split).is_dir():
                found.setdefault(split, folder / split)
        if not found:
            raise DataError(f"{folder}: no folder train, dev or test; RACE has {{train,dev,test}}/{{middle,high}}")
    return _data(name, {split: _open(name, path, encoding) for split, path in found.items()})


def read_tables(name: str, tables: Mapping[str, Table]) -> TaskData:
    """Convert tables by split with one question per row, as on the Hub."""
    return _data(name, {split: _rows(table) for split, table in tables.items()})


def _data(name: str, splits: Mapping[str, Iterable[Row]]) -> TaskData:
    return TaskData.of(TASKS[name], {split: [_example(*row) for row in rows] for split, rows in splits.items()})


def _rows(table: Table) -> Iterator[Row]:
    """The rows of a table with one question each, as on the Hub, where ids are those of passages."""
    questions: Counter[str] = Counter()
    for number, values in enumerate(table.rows):
        row = dict(zip(table.columns, values, strict=True))
        if "example_id" in row:
            questions[row["example_id"]] += 1
            row["id"] = f"{row['example_id']}-{questions[row['example_id']]}"
        yield table.where(number), row


def _open(name: str, path: Path, encoding: str) -> Iterator[Row]:
    if path.is_file():
        yield from _questions(path, "", encoding) if path.suffix == ".txt" else _rows(read_table(path, encoding))
        return
    levels = LEVELS if name == "race" else (name.removeprefix("race-"),)
    files = [(level, file) for level in levels for file in _files(path / level)]
    if not files:
        raise DataError(f"{path}: no *.txt in {' or '.join(levels)}")
    for level, file in files:
        yield from _questions(file, level, encoding)


def _files(folder: Path) -> list[Path]:
    """The passage files by number; the authors' all.txt contains all of them."""
    whole = folder / "all.txt"
    if whole.exists():
        return [whole]
    return sorted(folder.glob("*.txt"), key=lambda path: (int(re.sub(r"\D", "", path.stem) or 0), path.name))


def _questions(path: Path, level: str, encoding: str) -> Iterator[Row]:
    # One passage per file, or one per line.
    for line, text in enumerate(read_text(path, encoding).strip().split("\n"), start=1):
        data = parse_json(text, str(path), line=line)
        try:
            answers = data.get("answers") or [None] * len(data["questions"])
            for number, (question, options, answer) in enumerate(
                zip(data["questions"], data["options"], answers, strict=True), start=1
            ):
                row = {"article": data["article"], "question": question, "options": options, "answer": answer}
                id = f"{data.get('id', path.name)}-{number}"
                yield f"{path}:{line}, question {number}", {**row, "id": id, "level": level}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path}:{line}: not in RACE's format (JSON with article, questions, options and answers): {error}"
            ) from None


def _example(where: str, row: Mapping[str, Any]) -> ChoiceExample:
    missing = {"article", "question", "options"} - row.keys()
    if missing:
        raise DataError(f"{where}: no {' and no '.join(sorted(missing))}; RACE has article, question, options, answer")
    options, answer = words_cell(row["options"], where), row.get("answer")
    label = None if answer in (None, "") else {"A": 0, "B": 1, "C": 2, "D": 3}.get(str(answer), -1)
    if label == -1 or len(options) != 4:
        raise DataError(f"{where}: expected 4 options and an answer A to D, got {len(options)} and {answer!r}")
    id = str(row.get("id") or where)
    # On the Hub the id starts with the level: high3.txt.
    level = row.get("level") or next((level for level in LEVELS if id.startswith(level)), "")
    passage, question = text_cell(row["article"], where), text_cell(row["question"], where)
    return ChoiceExample(id, passage, question, options, label, where, level)
