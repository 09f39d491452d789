"""Answers to questions about a text: where each lies, also where the file is off by some characters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from litebert.errors import DataError
from litebert.tasks.cells import number_cell, text_cell
from litebert.tasks.examples import Example, QuestionExample


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


def trainable(questions: list[Example], notes: list[str]) -> list[Example]:
    """The questions that can be learnt from: one whose answer is nowhere in its context teaches nothing."""
    kept = [q for q in questions if isinstance(q, QuestionExample) and (q.impossible or max(q.starts, default=-1) >= 0)]
    if len(kept) < len(questions):
        notes.append(
            f"{len(questions) - len(kept):,} questions without an answer in their context left out of training"
        )
    if not kept:
        raise DataError(f"{questions[0].where}: no question of the training file has its answer in its context")
    return list[Example](kept)
