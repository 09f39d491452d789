"""What a task is: its kind, its labels, how it is cut into sequences, and how it is scored. No data in here.

    Task("sst-2", "classification", labels=("0", "1"), metrics=("accuracy",))

A fine-tuned model folder holds its task as `task.json`, beside the Hub's files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from litebert.config import build, to_dict
from litebert.errors import CheckpointError, ConfigError
from litebert.files import write_atomic
from litebert.parse import read_object
from litebert.tasks.examples import Example

Kind = Literal[
    "classification", "regression", "multi-label", "token-classification", "multiple-choice", "question-answering"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
TASK_FILE = "task.json"


@dataclass(frozen=True)
class Task:
    """Everything but the data: the same object guides fine-tuning, scoring and prediction."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()  # names by id; () for regression, multiple choice and question answering
    metrics: tuple[str, ...] = ()  # the first decides which checkpoint is kept
    max_length: int = 128
    pair: bool | None = False  # texts come in pairs; None: unknown, as for a model folder without task.json
    scale: tuple[float, float] | None = None  # regression: the lowest and highest score; None: unknown
    num_choices: int = 0  # multiple choice: the most options of a training question; others may have fewer
    max_option: int = 128  # multiple choice: the last so many tokens of question + option are kept
    answerable_head: bool = False  # question answering: the head that knows "no answer" (SQuAD 2.0)
    #: Question answering: tokens from one window's start to the next; None: as far as leaves each answer whole in one.
    stride: int | None = None
    max_question: int = 64
    max_answer: int = 30
    null_threshold: float = 0.0  # no answer where its score is above this
    columns: Mapping[str, str] = field(default_factory=dict)  # of the user's files: role -> column

    def __post_init__(self) -> None:
        for name in ("max_length", "stride", "max_question", "max_answer", "max_option"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: must be at least 1, not {value}")
        if self.max_length < 8:
            raise ConfigError(f"max_length: {self.max_length} tokens leave no room for text; use at least 8")


@dataclass(frozen=True)
class TaskData:
    """A task with its examples. `dev` and `test` are named splits, most often one of the name "dev" or "test"."""

    task: Task
    train: list[Example] = field(default_factory=list)
    dev: dict[str, list[Example]] = field(default_factory=dict)
    test: dict[str, list[Example]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what was guessed, repaired or left out, to be shown


def head_of(task: Task) -> str:
    """The head of litebert.model.heads that a task needs: squad-2.0 -> "answer"."""
    if task.kind == "question-answering":
        return "answer" if task.answerable_head else "span"
    if task.kind in ("regression", "multi-label"):
        return "classification"
    return task.kind


def check_outputs(task: Task, head: str, num_labels: int, where: str) -> None:
    """Refuse a model whose head is not what its task.json describes, before an answer is read off the wrong outputs."""
    if head_of(task) != head:
        raise CheckpointError(
            f"{where}: {TASK_FILE} describes {task.kind}, which needs the head {head_of(task)}; the model has {head}"
        )
    expected = 1 if task.kind == "regression" else len(task.labels)
    if head in ("classification", "token-classification") and num_labels != expected:
        raise CheckpointError(
            f"{where}: {TASK_FILE} names {expected} labels, the model has {num_labels} outputs; "
            "they do not belong together"
        )


def save_task(task: Task, folder: Path | str) -> None:
    """Write `task.json` into a model folder."""
    text = json.dumps({"format": 1, **to_dict(task)}, indent=2, ensure_ascii=False)
    write_atomic(Path(folder) / TASK_FILE, text + "\n")


def load_task(folder: Path | str) -> Task | None:
    """The task of a model folder; None if nothing there says it."""
    path = Path(folder) / TASK_FILE
    if not path.exists():
        return None
    data = read_object(path, CheckpointError)
    if "format" not in data:
        raise CheckpointError(f"{path}: not a description of a task: it has no format number")
    version = data.pop("format")
    if version != 1:
        raise CheckpointError(f"{path}: written by a newer litebert (format {version}); update litebert to read it")
    try:
        return build(Task, data, f"{path}: ")
    except ConfigError as error:
        raise CheckpointError(str(error)) from None
