"""A task (kind, labels, how it is cut into sequences and scored) and its examples.

    Task("sst-2", "classification", labels=("0", "1"), metrics=("accuracy",))

A fine-tuned model folder stores its task in `task.json`.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from litebert.config import build, check_numbers, to_dict
from litebert.errors import CheckpointError, ConfigError, check_choice
from litebert.files import write_atomic
from litebert.parse import read_object

if TYPE_CHECKING:
    from litebert.tasks.kinds.kind import Kind


TASK_FILE = "task.json"


@dataclass(frozen=True)
class Task:
    """Everything but the data; fine-tuning, scoring and prediction all use it."""

    name: str
    kind: str  # the name of one of litebert.tasks.kinds
    labels: tuple[str, ...] = ()  # names by id; () for regression, multiple choice and question answering
    metrics: tuple[str, ...] = ()  # the first selects the checkpoint
    max_length: int = 128
    pair: bool | None = False  # texts come in pairs; None: unknown, as for a model folder without task.json
    scale: tuple[float, float] | None = None  # regression: the lowest and highest score; None: unknown
    num_choices: int = 0  # multiple choice: the largest number of options of a training question
    max_option: int = 128  # multiple choice: tokens of question + option to keep, from the end
    answerable_head: bool = False  # question answering: use the head that can say "no answer" (SQuAD 2.0)
    #: Question answering: tokens between the starts of two windows; None: as many as keep every answer whole in one.
    stride: int | None = None
    max_question: int = 64
    max_answer: int = 30
    null_threshold: float = 0.0  # answer "no answer" if its score is above this
    exit_thresholds: Mapping[int, float] = field(default_factory=dict)  # the same at exits before full depth
    pooling: Literal["mean", "first"] = "mean"  # similarity: a text's vector is the mean of its tokens, or [CLS]
    normalize: bool = True  # similarity: vectors have length 1
    sizes: tuple[int, ...] = ()  # similarity: shorter vectors that it learned too (Matryoshka)
    columns: Mapping[str, str] = field(default_factory=dict)  # of the user's files: role -> column

    def __post_init__(self) -> None:
        check_numbers(self, ">= 1", "max_length", "stride", "max_question", "max_answer", "max_option")
        if self.max_length < 8:
            raise ConfigError(f"max_length: must be >= 8 to leave room for text, got {self.max_length}")

    def threshold_at(self, depth: int | None) -> float:
        """The no-answer threshold after this many layers (None: all); that of full depth where no other was tuned."""
        return self.null_threshold if depth is None else self.exit_thresholds.get(depth, self.null_threshold)


@dataclass(frozen=True)
class TaskData:
    """A task with its examples. `dev` and `test` hold named splits, usually one each."""

    task: Task
    train: list[Example] = field(default_factory=list)
    dev: dict[str, list[Example]] = field(default_factory=dict)
    test: dict[str, list[Example]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # for the user: what was guessed, repaired or skipped

    @classmethod
    def of(cls, task: Task, splits: Mapping[str, Sequence[Example]], notes: Sequence[str] = ()) -> TaskData:
        """Examples by split: "train", "test" (or "test-matched", ...), and any other name for dev."""
        data = cls(task, list(splits.get("train", ())), notes=list(notes))
        for split, examples in splits.items():
            if split != "train":
                (data.test if split.startswith("test") else data.dev)[split] = list(examples)
        return data


def kind_of(task: Task | str) -> Kind[Any]:
    """The kind of a task, or the kind with this name."""
    from litebert.tasks.kinds import KINDS  # here: the kinds import modules that import this one

    name = task if isinstance(task, str) else task.kind
    check_choice("kind", name, KINDS)
    return KINDS[name]


def check_outputs(task: Task, head: str, num_labels: int, where: str) -> None:
    """Refuse a model whose head does not match its task.json."""
    needed, expected = kind_of(task).head(task), kind_of(task).num_outputs(task)
    if needed != head:
        raise CheckpointError(
            f"{where}: {TASK_FILE} describes {task.kind}, which needs the head {needed}; the model has {head}"
        )
    if expected is not None and num_labels != expected:
        raise CheckpointError(
            f"{where}: {TASK_FILE} names {expected} labels, the model has {num_labels} outputs; they do not match"
        )


def save_task(task: Task, folder: Path | str) -> None:
    """Write `task.json` into a model folder."""
    text = json.dumps({"format": 1, **to_dict(task)}, indent=2, ensure_ascii=False)
    write_atomic(Path(folder) / TASK_FILE, text + "\n")


def load_task(folder: Path | str) -> Task | None:
    """The task of a model folder, ours or sentence-transformers'; None if it has none."""
    path = Path(folder) / TASK_FILE
    if not path.exists():
        from litebert.tasks.sentence_folder import read_sentence_task  # which makes a Task

        return read_sentence_task(Path(folder))
    data = read_object(path, CheckpointError)
    if "format" not in data:
        raise CheckpointError(f"{path}: not a task file: no format number")
    version = data.pop("format")
    if version != 1:
        raise CheckpointError(f"{path}: written by a newer litebert (format {version}); update litebert to read it")
    try:
        task = build(Task, data, f"{path}: ")
        kind_of(task)
    except ConfigError as error:
        raise CheckpointError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    return task


# ---------------------------------------------------------------------------------------------------------------------
# Examples, labelled or not; `where` is "file:row" for error messages


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
