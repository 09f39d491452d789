"""One example of a task, labelled or not; `where` is "file:row" for error messages."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, Protocol


class Example(Protocol):
    """What all examples have in common."""

    @property
    def id(self) -> str:
        """Identifies its prediction."""

    @property
    def where(self) -> str:
        """Where it comes from: "train.csv:17"."""

    @property
    def is_labelled(self) -> bool:
        """Whether it has a gold label; GLUE's test sets do not."""

    @property
    def asked(self) -> Hashable:
        """The input without the label: equal for examples that a model cannot tell apart."""


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or a pair, with a label id, a number, several label ids, or no label."""

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
    """Words with a tag id each."""

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
    """A question with options, about a passage ("" for none); `group` is RACE's middle or high."""

    id: str
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None
    where: str
    group: str = ""

    @property
    def is_labelled(self) -> bool:
        """Whether the correct option is known."""
        return self.label is not None

    @property
    def asked(self) -> Hashable:
        """The question with its passage and options."""
        return self.passage, self.question, self.options


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a context; `starts` are the character positions of the answers, -1 if not found."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]
    impossible: bool
    where: str

    @property
    def is_labelled(self) -> bool:
        """Whether it has an answer, or is marked as having none."""
        return self.impossible or bool(self.answers)

    @property
    def asked(self) -> Hashable:
        """The question and its context."""
        return self.question, self.context


Form = Literal["scored", "pairs", "triplets", "sentences"]


@dataclass(frozen=True, slots=True)
class SimilarityExample:
    """Texts that are compared: a pair with a score, a pair that belongs together, (text, near, far), or one text."""

    id: str
    texts: tuple[str, ...]
    score: float | None
    where: str
    form: Form

    @property
    def is_labelled(self) -> bool:
        """Whether it has a score, or needs none."""
        return self.form != "scored" or self.score is not None

    @property
    def asked(self) -> Hashable:
        """All texts."""
        return self.texts
