"""SQuAD 1.1 and 2.0: the official JSON files, the answers in them, and the official scores.

    normalize_answer("The  Eiffel-Tower!")               -> "eiffeltower"
    score_answer("an Eiffel Tower", ["Eiffel Tower"])    -> (1.0, 1.0)
    score_answer("", [])                                 -> (1.0, 1.0)     correctly no answer

Question answering on other files uses the same parts (`litebert.tasks.kinds.question_answering`).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.parse import parse_json
from litebert.tasks.examples import QuestionExample
from litebert.tasks.tables import Table, format_of, number_cell, read_table, read_text, text_cell, truth_cell
from litebert.tasks.task import Task, TaskData

COLUMNS = ("id", "question", "context", "answers", "is_impossible")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
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
    ids, questions, contexts, cells = (table.values(column) for column in COLUMNS[:4])
    # The Hub's 2.0 has no such column: there, no answers mean that there is none.
    flags = table.values(COLUMNS[4]) if COLUMNS[4] in table.columns else None
    examples = []
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


# ---------------------------------------------------------------------------------------------------------------------
# Answers and their places in the context


@dataclass
class Repairs:
    """How many answers were moved or not found, and where first."""

    moved: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Lines for a person: "train.json: 12 answers moved to where their text is (first: train.json:17)"."""
        kinds = ((self.moved, "moved to where their text stands"), (self.lost, "not in their context"))
        return [f"{len(found):,} answers {what}, the first at {found[0]}" for found, what in kinds if found]


def place_answer(context: str, answer: str, start: int | None) -> int:
    """Where an answer begins: `start` if it is right, else the nearest place with that text, else -1."""
    if start is not None and start >= 0 and context.startswith(answer, start):
        return start
    wanted = max(0, start or 0)
    after = context.find(answer, wanted)
    before = context.rfind(answer, 0, wanted + len(answer))
    if after < 0 or (before >= 0 and wanted - before <= after - wanted):
        return before
    return after


def make_question(
    id: str,
    question: str,
    context: str,
    answers: list[tuple[str, int | None]],
    impossible: bool,
    where: str,
    repairs: Repairs,
) -> QuestionExample:
    """A question with each of its answers put in its place."""
    starts = []
    for text, start in answers:
        place = place_answer(context, text, start)
        if place < 0:
            repairs.lost.append(where)
        elif start is not None and place != start:
            repairs.moved.append(where)
        starts.append(place)
    return QuestionExample(id, question, context, tuple(text for text, _ in answers), tuple(starts), impossible, where)


def parse_answers(value: Any, where: str) -> list[tuple[str, int | None]]:
    """The answers of a table's cell: "text", ["a", "b"], {"text": [...], "answer_start": [...]} or a list of those."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [(value, None)]
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, str):
            texts, starts = [texts], [starts]
        if isinstance(texts, list) and (starts is None or (isinstance(starts, list) and len(starts) == len(texts))):
            pairs = zip(texts, starts or [None] * len(texts), strict=True)
            return [(text_cell(text, where), _start(start, where)) for text, start in pairs if text]
    elif isinstance(value, list):
        return [answer for item in value for answer in parse_answers(item, where)]
    raise DataError(f'{where}: expected answers as text or {{"text": [...], "answer_start": [...]}}, got {value!r:.80}')


def _start(value: Any, where: str) -> int | None:
    return None if value is None else int(number_cell(value, where, "answer_start"))


def trainable(questions: Sequence[QuestionExample], notes: list[str]) -> list[QuestionExample]:
    """The questions that can be learnt from: one whose answer is nowhere in its context teaches nothing."""
    kept = [question for question in questions if question.impossible or max(question.starts, default=-1) >= 0]
    if len(kept) < len(questions):
        notes.append(
            f"{len(questions) - len(kept):,} questions without an answer in their context left out of training"
        )
    if not kept:
        raise DataError(f"{questions[0].where}: no question of the training file has its answer in its context")
    return kept


# ---------------------------------------------------------------------------------------------------------------------
# SQuAD's official scores: exact match and F1 of words, after case, punctuation, articles and spaces are set aside


def normalize_answer(text: str) -> str:
    """What of an answer counts: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score_answer(prediction: str, references: Sequence[str]) -> tuple[float, float]:
    """(exact match, F1), each with the reference that suits it best; no references means that none is right."""
    words = normalize_answer(prediction).split()
    # The rule of 2.0: a reference of articles and punctuation only is no reference.
    normal = [kept for text in references if (kept := normalize_answer(text).split())] or [[]]
    return max(float(words == reference) for reference in normal), max(_f1(words, r) for r in normal)


def _f1(prediction: list[str], reference: list[str]) -> float:
    if not prediction or not reference:
        return float(prediction == reference)
    shared = sum((Counter(prediction) & Counter(reference)).values())
    return 2 * shared / (len(prediction) + len(reference))
