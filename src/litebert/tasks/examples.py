"""One row of a task, labelled or not yet, as its file has it; `where` is "file:row" for error messages."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol


class Example(Protocol):
    """What the examples of every kind have in common."""

    @property
    def id(self) -> str:
        """By which its prediction is found."""

    @property
    def where(self) -> str:
        """Where it was read: "train.csv:17"."""

    @property
    def is_labelled(self) -> bool:
        """Whether it says what is right; the test sets of GLUE do not."""

    @property
    def asked(self) -> Hashable:
        """What it asks, without the answer: equal for two examples that a model cannot tell apart."""


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or a pair, with a label id, a number, several label ids, or nothing yet."""

    id: str
    a: str
    b: str | None
    label: int | float | tuple[int, ...] | None
    where: str

    @property
    def is_labelled(self) -> bool:
        """Whether it has a label."""
        return self.label is not None

    @property
    def asked(self) -> Hashable:
        """Both texts."""
        return self.a, self.b


@dataclass(frozen=True, slots=True)
class TagExample:
    """Words, and a tag id for each."""

    id: str
    words: tuple[str, ...]
    tags: tuple[int, ...] | None
    where: str

    @property
    def is_labelled(self) -> bool:
        """Whether it has tags."""
        return self.tags is not None

    @property
    def asked(self) -> Hashable:
        """The words."""
        return self.words


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

    @property
    def is_labelled(self) -> bool:
        """Whether it says which option is right."""
        return self.label is not None

    @property
    def asked(self) -> Hashable:
        """The question with its passage and options."""
        return self.passage, self.question, self.options


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

    @property
    def is_labelled(self) -> bool:
        """Whether it has an answer, or says that there is none."""
        return self.impossible or bool(self.answers)

    @property
    def asked(self) -> Hashable:
        """The question and its context."""
        return self.question, self.context
