"""SQuAD 1.1 and 2.0: the official JSON files, the answers in them, and the official scores.

    normalize_answer("The  Eiffel-Tower!")               -> "eiffeltower"
    score_answer("an Eiffel Tower", ["Eiffel Tower"])    -> (1.0, 1.0)
    score_answer("", [])                                 -> (1.0, 1.0)     correctly no answer

Question answering on other files uses the same parts (`litebert.tasks.kinds.question_answering`).
"""

from __future__ import annotations

import functools
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.parse import parse_json
from litebert.tasks.tables import Table, format_of, number_cell, read_table, read_text, text_cell, truth_cell
from litebert.tasks.task import QuestionExample, Task, TaskData

COLUMNS = ("id", "question", "context", "answers", "is_impossible")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
TASKS = {
    "squad-1.1": Task("squad-1.1", "question-answering", metrics=("f1", "exact_match"), max_length=384),
    "squad-2.0": Task(
        "squad-2.0", "question-answering", metrics=("f1", "exact_match"), max_length=384, answerable_head=True
    ),
}
HUB = {"squad-1.1": "rajpurkar/squad", "squad-2.0": "rajpurkar/squad_v2"}
ALIASES = {"squad": "squad-1.1"} | {f"squad{v}{n[0]}": f"squad-{n}" for v in ("", "v") for n in ("1.1", "2.0")}


def read(name: str, folder: Path | None, files: Mapping[str, Path | str], encoding: str) -> TaskData:
    """Read train-v1.1.json and dev-v1.1.json (or v2.0) from a folder, or single files (Parquet and JSONL too)."""
    version = name.removeprefix("squad-")
    found: dict[str, Path | str] = {}
    if folder is not None:
        official = {split: folder / f"{split}-v{version}.json" for split in ("train", "dev", "test")}
        found = {split: path for split, path in official.items() if path.exists()}
        if not found and not files:
            raise DataError(f"{folder}: no train-v{version}.json or dev-v{version}.json")
    found |= files
    return read_tables(name, {split: _open(str(path), encoding) for split, path in found.items()})


def read_tables(name: str, tables: Mapping[str, Table]) -> TaskData:
    """Convert tables with the columns id, question, context, answers and, for 2.0, is_impossible."""
    repairs, notes = Repairs(), list[str]()
    splits = {split: _examples(name, table, repairs) for split, table in tables.items()}
    if "train" in splits:
        splits["train"] = trainable(splits["train"], notes)
    return TaskData.of(TASKS[name], splits, [*notes, *repairs.notes()])


def _open(path: str, encoding: str) -> Table:
    if format_of(path) != "json":
        return read_table(path, encoding)
    data = parse_json(read_text(path, encoding), path)
    if not is_squad(data):
        raise DataError(f'{path}: not in SQuAD\'s format: expected {{"data": [{{"paragraphs": [...]}}]}}')
    return squad_table(path, data)


def _examples(name: str, table: Table, repairs: Repairs) -> list[QuestionExample]:
    ids, questions, contexts, cells = (table.values(column) for column in COLUMNS[:4])
    # The Hub's 2.0 lacks this column: there, an empty list means "no answer".
    flags = table.values(COLUMNS[4]) if COLUMNS[4] in table.columns else None
    examples = []
    for row in range(len(table.rows)):
        where = table.where(row)
        answers = parse_answers(cells[row], where)
        impossible = not answers if flags is None else truth_cell(flags[row], where, COLUMNS[4])
        if impossible and name == "squad-1.1":
            raise DataError(f"{where}: a question without an answer; use squad-2.0 for such files")
        answers = [] if impossible else answers
        question, context = text_cell(questions[row], where), text_cell(contexts[row], where)
        examples.append(make_question(str(ids[row]), question, context, answers, impossible, where, repairs))
    return examples


def is_squad(data: Any) -> bool:
    """Whether a JSON value is in SQuAD's format."""
    articles = data.get("data") if isinstance(data, dict) else None
    return (
        isinstance(articles, list) and bool(articles) and isinstance(articles[0], dict) and "paragraphs" in articles[0]
    )


def squad_table(path: str, data: Any) -> Table:
    """One row per question, numbered from 1 through the whole file."""
    rows: list[tuple[Any, ...]] = []
    try:
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for qa in paragraph["qas"]:
                    # In 2.0 an impossible question also has plausible answers, which are ignored.
                    answers = [(answer["text"], answer["answer_start"]) for answer in qa.get("answers", ())]
                    unlabelled = "answers" not in qa and "is_impossible" not in qa
                    cell = (
                        None
                        if unlabelled
                        else {"text": [t for t, _ in answers], "answer_start": [s for _, s in answers]}
                    )
                    rows.append((str(qa["id"]), qa["question"], context, cell, qa.get("is_impossible")))
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: question {len(rows) + 1}: not in SQuAD's format: {error!r} is missing") from None
    if not rows:
        raise DataError(f"{path}: no questions in the file")
    return Table(path, COLUMNS, rows, range(1, len(rows) + 1))


# ---------------------------------------------------------------------------------------------------------------------
# Answers and their places in the context


@dataclass
class Repairs:
    """Answers that were moved or not found, by row."""

    moved: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Notes for the user: "12 answers moved to where their text is, first: train.json:17"."""
        kinds = ((self.moved, "moved to where their text is"), (self.lost, "not in their context"))
        return [f"{len(found):,} answers {what}, first: {found[0]}" for found, what in kinds if found]


def place_answer(context: str, answer: str, start: int | None) -> int:
    """Where an answer starts: `start` if correct, otherwise the nearest occurrence of its text, otherwise -1."""
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
    """A question with the position of each answer."""
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
    """The answers in a cell: "text", ["a", "b"], {"text": [...], "answer_start": [...]} or a list of those."""
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
    """The questions usable for training: those whose answer is in their context."""
    kept = [question for question in questions if question.impossible or max(question.starts, default=-1) >= 0]
    if len(kept) < len(questions):
        notes.append(
            f"{len(questions) - len(kept):,} questions skipped in training: their answer is not in their context"
        )
    if not kept:
        raise DataError(f"{questions[0].where}: no question in the training file has its answer in its context")
    return kept


# ---------------------------------------------------------------------------------------------------------------------
# SQuAD's official scores: exact match and word F1 of normalized answers


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and repeated spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score_answer(prediction: str, references: Sequence[str]) -> tuple[float, float]:
    """(exact match, F1), each against its best reference; without references, only no answer is correct."""
    return _score_answer(prediction, tuple(references))


@functools.lru_cache(1 << 16)  # calibration and intervals ask for the same ones again and again
def _score_answer(prediction: str, references: tuple[str, ...]) -> tuple[float, float]:
    words = normalize_answer(prediction).split()
    # As in 2.0, a reference of articles and punctuation alone does not count.
    normal = [kept for text in references if (kept := normalize_answer(text).split())] or [[]]
    return max(float(words == reference) for reference in normal), max(_f1(words, r) for r in normal)


def _f1(prediction: list[str], reference: list[str]) -> float:
    if not prediction or not reference:
        return float(prediction == reference)
    shared = sum((Counter(prediction) & Counter(reference)).values())
    return 2 * shared / (len(prediction) + len(reference))
