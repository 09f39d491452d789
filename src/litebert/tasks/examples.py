"""One labelled (or still unlabelled) row of a task, as its file has it; `where` is "file:row" for error messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or a pair, with a label id, a number, several label ids, or nothing yet."""

    id: str
    a: str
    b: str | None
    label: int | float | tuple[int, ...] | None
    where: str


@dataclass(frozen=True, slots=True)
class TagExample:
    """Words, and a tag id for each."""

    id: str
    words: tuple[str, ...]
    tags: tuple[int, ...] | None
    where: str


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A question with its options, about a passage ("" where there is none); `group` is RACE's middle or high."""

    id: str
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None
    where: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a context. `starts` are character positions of the answers, -1 for one that is not in there."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]
    impossible: bool
    where: str


Example = TextExample | TagExample | ChoiceExample | QuestionExample


def option_letter(number: int) -> str:
    """How people call an option: 0 -> "A"; after Z they are counted, 26 -> "27"."""
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def asked(example: Example) -> tuple[str | tuple[str, ...] | None, ...]:
    """What an example asks, without its answer: equal for two examples that a model cannot tell apart."""
    if isinstance(example, TextExample):
        return example.a, example.b
    if isinstance(example, TagExample):
        return (example.words,)
    if isinstance(example, ChoiceExample):
        return example.passage, example.question, example.options
    return example.question, example.context


def is_labelled(example: Example) -> bool:
    """Whether an example says what is right: test sets of GLUE do not."""
    if isinstance(example, QuestionExample):
        return example.impossible or bool(example.answers)
    if isinstance(example, TagExample):
        return example.tags is not None
    return example.label is not None
