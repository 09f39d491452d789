"""A kind of task: one object that knows how to read, learn, decode, score and show it.

    kind_of(task).features(task, examples, tokenizer)    what a model reads
    kind_of(task).loss("classification", forward, ...)   what it learns from
    kind_of(task).predict(task, example, windows, outputs)   what it says

A new kind is one file with a subclass and one entry in `litebert.tasks.kinds`; `register` takes one from outside. What
a kind does not say, it has from here or from the kind it builds on: a new label of texts is a subclass of `TextKind`.
Nothing here imports torch but a loss, when it is called.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from litebert.tasks.decode import Outputs, Prediction
from litebert.tasks.examples import Example
from litebert.tasks.features import Arrays, Places
from litebert.tasks.features import Sequence as Feature
from litebert.tasks.metrics import Measure
from litebert.tasks.own import Column, Columns, Reader
from litebert.tasks.tables import Table, read_table
from litebert.tasks.task import Task
from litebert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

E = TypeVar("E", bound=Example)
Line = dict[str, Any]  # of a predictions file: an example in plain words, "gold", "prediction", "badness"
MOST_TEXT = 420  # characters of a text that a table of errors shows


class Part(NamedTuple):
    """A stretch of text as a table of errors shows it: plain, or marked as right or wrong."""

    text: str
    mark: Literal["", "right", "wrong"] = ""
    title: str = ""


class Kind(ABC, Generic[E]):
    """Everything that differs between kinds of tasks. Kinds have no state: what varies is in the `Task`."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # what else people call it, without spaces and punctuation
    #: What a prediction is: a label id, a number, label ids, a tag id per word, the number of an option, or a text.
    says: ClassVar[Literal["label", "number", "labels", "tags", "option", "text"]]

    # -- the user's files ----------------------------------------------------------------------------------------------

    columns: ClassVar[tuple[Column, ...]]  # to learn from a file, the first of those to be predicted is needed
    reader: ClassVar[type[Reader[Any]]]
    metrics: ClassVar[tuple[str, ...]]  # of a task that names none; the first decides
    max_length: ClassVar[int] = 128

    def open_table(self, path: Path | str, columns: Mapping[str, str], encoding: str) -> Table:
        """A file as a table; columns given as numbers say that it has no header."""
        return read_table(path, encoding, header=not are_numbers(columns))

    def names_columns(self, path: Path | str) -> bool:
        """Whether `open_table` gives the columns of this file the names of their roles."""
        return False

    def guess_columns(self, table: Table, found: Columns, named: Mapping[str, str]) -> None:
        """Add what names alone did not tell."""
        return

    # -- the model -----------------------------------------------------------------------------------------------------

    unit: ClassVar[str] = "Examples"  # what speed is counted in
    counts_right: ClassVar[bool] = True  # whether the share of right predictions in training means something
    whole_examples: ClassVar[bool] = False  # whether all sequences of an example belong into one batch
    problem_type: ClassVar[str | None] = None  # the Hub's word for what a classifier learns

    @abstractmethod
    def head(self, task: Task) -> str:
        """The head of litebert.model.heads that a task needs."""

    def num_outputs(self, task: Task) -> int | None:
        """How many outputs a head with labels has; None for other heads."""
        return None

    def fits(self, head: str, problem_type: str | None, num_outputs: int) -> bool:
        """Whether a model folder that does not say its task is one of this kind."""
        return False

    def infer(self, head: str, labels: tuple[str, ...], max_length: int) -> Task:
        """The task of such a folder."""
        return Task(self.name, self.name, max_length=max_length)

    @abstractmethod
    def features(self, task: Task, examples: Sequence[E], tokenizer: Tokenizer, num_threads: int = 1) -> list[Feature]:
        """All sequences of a split, in the order of its examples."""

    def notes(self, task: Task, examples: Sequence[E], features: Sequence[Feature]) -> list[str]:
        """What a person should know about the sequences of a split."""
        cut = sum(sequence.cut > 0 for sequence in features)
        if not cut:
            return []
        told = f"{cut:,} of {len(features):,} inputs have more than {task.max_length} tokens and are cut (max_length)"
        return [told]

    def inputs(self, task: Task, sequences: Sequence[Feature], places: Places) -> Arrays:
        """Inputs of the model beyond ids, segments and positions."""
        return {}

    @abstractmethod
    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        """What a batch is to predict, and what its loss is the mean over: examples, or tags."""

    @abstractmethod
    def loss(
        self, head: str, forward: Callable[..., Any], targets: Mapping[str, Tensor], num_rows: int
    ) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and how many predictions are right; `forward(**more)` is the model's output."""

    # -- predictions ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def predict(self, task: Task, example: E, windows: Sequence[Feature], outputs: Sequence[Outputs]) -> Prediction:
        """What the outputs of an example's sequences say."""

    @abstractmethod
    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        """Several models' predictions of one example as one."""

    def tune(
        self, task: Task, examples: Sequence[E], predictions: Sequence[Prediction]
    ) -> tuple[Task, list[Prediction]]:
        """The task with the settings of decoding that suit labelled examples best, and the predictions with them."""
        return task, list(predictions)

    def thresholds(self, task: Task, examples: Sequence[E], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Where scores are at one of several thresholds: "fixed", the "tuned" one of the task, the "best" here."""
        return {}

    def at_threshold(self, predictions: Sequence[Prediction], threshold: float) -> list[Prediction]:
        """The same predictions, decided at another threshold."""
        return list(predictions)

    # -- scores --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def measures(self, task: Task, examples: Sequence[E], values: Sequence[Any]) -> dict[str, Measure]:
        """The metrics of a task (and of its parts) for predicted values, by name."""

    @abstractmethod
    def constant(self, task: Task, train: Sequence[E], examples: Sequence[E]) -> tuple[str, list[Any]]:
        """Always the same, as training suggests it: ("always 'pos'", [1, 1, 1, ...])."""

    # -- files and pages -----------------------------------------------------------------------------------------------

    pipeline: ClassVar[str]  # the Hub's word on a model card
    how_wrong: ClassVar[str] = "are wrong"  # of predictions that are errors

    @abstractmethod
    def call(self, task: Task) -> str:
        """How a Predictor is asked, for the model card."""

    def submission(self, task: Task, examples: Sequence[E], predictions: Sequence[Prediction]) -> dict[str, str]:
        """What servers take: the end of a file's name -> its text."""
        lines = [f"{e.id}\t{self.cell(task, p.value)}" for e, p in zip(examples, predictions, strict=True)]
        return {".tsv": "\n".join(["index\tprediction", *lines]) + "\n"}

    def cell(self, task: Task, value: Any) -> str:
        """A prediction in such a file."""
        return str(value)

    @abstractmethod
    def describe(self, example: E) -> tuple[Line, Any]:
        """An example for a predictions file, and what is right about it (as a prediction has it)."""

    def say(self, task: Task, example: E, value: Any) -> Any:
        """A prediction, or what is right, in plain words."""
        return value

    def sureness(self, prediction: Prediction) -> float | None:
        """How sure a model is of what it says, as a probability; None where it does not say."""
        return None if prediction.probabilities is None else float(prediction.probabilities.max())

    @abstractmethod
    def badness(self, task: Task, example: E, gold: Any, prediction: Prediction) -> float:
        """By which the worst errors are found: minus the log of what the right answer got, or the error itself."""

    def is_wrong(self, line: Line) -> bool:
        """Whether a line of a predictions file is an error (of a number: whatever is not exact)."""
        return bool(line["prediction"] != line["gold"])

    confused: ClassVar[tuple[str, str] | None] = None  # a further row and column of the confusion matrix

    def confusions(self, line: Line) -> Iterable[tuple[str, str]]:
        """Pairs of what is right and what was said, for kinds with labels."""
        return [(line["gold"], line["prediction"])]

    @abstractmethod
    def show(self, line: Line) -> list[list[Part]]:
        """The text of a line: its first paragraph, and what stands smaller below it."""

    def show_value(self, line: Line, key: Literal["gold", "prediction"]) -> str:
        """What is right, or what was said."""
        return str(line[key])

    def show_sureness(self, line: Line) -> str | None:
        """How sure the model was."""
        return f"{100 * line['probability']:.0f}% sure" if "probability" in line else None


def are_numbers(columns: Mapping[str, str]) -> bool:
    """Whether columns are named by their numbers, as for a file without a header."""
    return bool(columns) and all(name.isdigit() for value in columns.values() for name in value.split(","))


def most_common(counts: Counter[Any]) -> Any:
    """The value that was counted most; of equals the smallest, so that the order of a file does not matter."""
    most = max(counts.values())
    return min(value for value, count in counts.items() if count == most)


def minus_log(probabilities: Any) -> Any:
    """-log p, at most that of 1e-12."""
    return -np.log(np.maximum(probabilities, 1e-12))


def shorten(text: str) -> str:
    """The beginning of a text, if it is long."""
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def to_json(data: Any) -> str:
    """The text of a JSON file."""
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def row_logsumexp(values: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """log sum exp over the places of each row: [flat] -> [N + 1]; a row without places gives a large negative."""
    import torch

    with torch.no_grad():
        top = torch.full((num_rows + 1,), -1e30, device=values.device).scatter_reduce(0, rows, values, "amax")
    sums = torch.zeros_like(top).index_add(0, rows, (values - top[rows]).exp())
    return top + sums.clamp(min=1e-30).log()
