"""A kind of task: one object with everything needed to read, train, decode, score and show it.

    kind_of(task).features(task, examples, tokenizer)    model inputs
    kind_of(task).loss("classification", forward, ...)   training loss
    kind_of(task).predict(task, example, windows, outputs)   prediction

To add a kind, write one file with a subclass and add it to `litebert.tasks.kinds`, or call `register` from outside.
Kinds that label texts extend `TextKind`. Only the losses use torch, and they import it when called.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.decode import Outputs, Prediction
from litebert.tasks.features import Arrays, Feature, Places, Target, join
from litebert.tasks.metrics import Measure
from litebert.tasks.own import Cells, Column, Columns, Reader, data_from_tables, first_column, free_columns, plain_name
from litebert.tasks.tables import Table, read_table, text_cell
from litebert.tasks.task import Example, Task, TaskData, TextExample
from litebert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

E = TypeVar("E", bound=Example)
Forward = Callable[..., Any]  # runs the model on the batch
Targets: TypeAlias = "Mapping[str, Tensor]"
Losses: TypeAlias = "tuple[Tensor, Tensor]"  # the sum over the batch, and the number of correct predictions
Constant = tuple[str, list[Any]]  # a description, and a value for each example
Line = dict[str, Any]  # of a predictions file: the example, "gold", "prediction", "badness", ...
MOST_TEXT = 420  # characters of a text in a table of errors


class Fragment(NamedTuple):
    """A piece of text in a table of errors: plain, or marked as right or wrong."""

    text: str
    mark: Literal["", "right", "wrong"] = ""
    title: str = ""


class Kind(ABC, Generic[E]):
    """What differs between kinds of tasks. A kind has no state; settings are in the `Task`."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # other names for it, in lower case without punctuation
    #: The value of a prediction: a label id, a number, label ids, a tag id per word, the index of an option, a text, or
    #: how similar texts are (see `litebert.tasks.kinds.similarity`).
    says: ClassVar[Literal["label", "number", "labels", "tags", "option", "text", "nearness"]]

    # -- the user's files ----------------------------------------------------------------------------------------------

    columns: ClassVar[tuple[Column, ...]]  # a training file needs the first predicted one
    reader: ClassVar[type[Reader[Any]]]
    metrics: ClassVar[tuple[str, ...]]  # of a task that names none; the first selects the checkpoint
    max_length: ClassVar[int] = 128

    def open_table(self, path: Path | str, columns: Mapping[str, str], encoding: str) -> Table:
        """Read a file as a table; if columns are given as numbers, it has no header."""
        return read_table(path, encoding, header=not are_numbers(columns))

    def names_columns(self, path: Path | str) -> bool:
        """Whether `open_table` already names the columns of this file by role."""
        return False

    def guess_columns(self, table: Table, found: Columns, named: Mapping[str, str]) -> None:
        """Find columns that were not found by name."""
        return

    def read_tables(
        self, tables: Mapping[str, Table], columns: Mapping[str, str] | None, known: Task | None
    ) -> TaskData:
        """The task and its examples from tables by split; `known` is the task of a saved model."""
        return data_from_tables(self.name, tables, columns, known)

    # -- the model -----------------------------------------------------------------------------------------------------

    unit: ClassVar[str] = "Examples"  # unit of the training speed
    counts_right: ClassVar[bool] = True  # whether training accuracy is meaningful
    whole_examples: ClassVar[bool] = False  # whether all sequences of an example must be in one batch
    compares: ClassVar[bool] = False  # whether the loss compares all examples of a batch (finetuning/contrast.py)
    problem_type: ClassVar[str | None] = None  # in the config of the Hub

    @property
    def has_linear_head(self) -> bool:
        """Whether `head_only` can fit the head (finetuning/head_only.py)."""
        return self.says not in ("text", "nearness")

    @abstractmethod
    def head(self, task: Task) -> str:
        """The head of litebert.model.heads that a task needs."""

    def num_outputs(self, task: Task) -> int | None:
        """The number of outputs of a head with labels; None for other heads."""
        return None

    def fits(self, head: str, problem_type: str | None, num_outputs: int) -> bool:
        """Whether a model folder without task.json is of this kind."""
        return False

    def infer(self, head: str, labels: tuple[str, ...], max_length: int) -> Task:
        """The task of a folder without task.json."""
        return Task(self.name, self.name, max_length=max_length)

    @abstractmethod
    def features(self, task: Task, examples: Sequence[E], tokenizer: Tokenizer, num_threads: int = 1) -> list[Feature]:
        """All sequences of a split, in the order of its examples."""

    def notes(self, task: Task, examples: Sequence[E], features: Sequence[Feature]) -> list[str]:
        """Notes for the user about the sequences of a split."""
        cut = sum(sequence.cut > 0 for sequence in features)
        if not cut:
            return []
        note = f"{cut:,} of {len(features):,} inputs are longer than max_length ({task.max_length} tokens) and are cut"
        return [note]

    def inputs(self, task: Task, sequences: Sequence[Feature], places: Places) -> Arrays:
        """Model inputs besides ids, segments and positions."""
        return {}

    @abstractmethod
    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        """The targets of a batch, and the count its loss is averaged over (examples or tags)."""

    @abstractmethod
    def loss(self, head: str, forward: Forward, targets: Targets, num_rows: int) -> Losses:
        """The summed loss and the number of correct predictions; `forward(**more)` runs the model."""

    # -- predictions ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def predict(self, task: Task, example: E, windows: Sequence[Feature], outputs: Sequence[Outputs]) -> Prediction:
        """Decode the outputs of all sequences of an example."""

    def settle(self, task: Task, examples: Sequence[E], predictions: list[Prediction]) -> list[Prediction]:
        """The predictions of a whole split, for kinds where they depend on other examples (search)."""
        return predictions

    @abstractmethod
    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        """Combine the predictions of several models for one example."""

    def tune(
        self, task: Task, examples: Sequence[E], predictions: Sequence[Prediction]
    ) -> tuple[Task, list[Prediction]]:
        """The task with its decoding tuned on labelled examples, and the predictions under it."""
        return task, list(predictions)

    def thresholds(self, task: Task, examples: Sequence[E], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Decision thresholds to score at: "fixed", "tuned" (that of the task) and "best" (on these examples)."""
        return {}

    def at_threshold(self, predictions: Sequence[Prediction], threshold: float) -> list[Prediction]:
        """The predictions at another threshold."""
        return list(predictions)

    # -- scores --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def measures(self, task: Task, examples: Sequence[E], values: Sequence[Any]) -> dict[str, Measure]:
        """The metrics of a task and of its parts, by name."""

    @abstractmethod
    def constant(self, task: Task, train: Sequence[E], examples: Sequence[E]) -> Constant:
        """The constant baseline: its description and values, ("always 'pos'", [1, 1, 1, ...])."""

    # -- files and pages -----------------------------------------------------------------------------------------------

    pipeline: ClassVar[str]  # pipeline tag of the model card
    how_wrong: ClassVar[str] = "are wrong"  # "12 of 40 ..." in a table of errors

    @abstractmethod
    def call(self, task: Task) -> str:
        """An example call of a Predictor for the model card."""

    def submission(self, task: Task, examples: Sequence[E], predictions: Sequence[Prediction]) -> dict[str, str]:
        """Submission files: suffix of the name -> content."""
        lines = [f"{e.id}\t{self.cell(task, p.value)}" for e, p in zip(examples, predictions, strict=True)]
        return {".tsv": "\n".join(["index\tprediction", *lines]) + "\n"}

    def cell(self, task: Task, value: Any) -> str:
        """A prediction in a submission file."""
        return str(value)

    @abstractmethod
    def describe(self, example: E) -> tuple[Line, Any]:
        """An example for a predictions file, and its gold value."""

    def say(self, task: Task, example: E, value: Any) -> Any:
        """A predicted or gold value in readable form."""
        return value

    def sureness(self, prediction: Prediction) -> float | None:
        """The probability of a prediction; None if there is none."""
        return None if prediction.probabilities is None else float(prediction.probabilities.max())

    @abstractmethod
    def badness(self, task: Task, example: E, gold: Any, prediction: Prediction) -> float:
        """How bad an error is, to rank errors: negative log-likelihood of the gold value, or the error itself."""

    def is_wrong(self, line: Line) -> bool:
        """Whether a line of a predictions file is an error."""
        return bool(line["prediction"] != line["gold"])

    confused: ClassVar[tuple[str, str] | None] = None  # extra row and column of the confusion matrix

    def confusions(self, line: Line) -> Iterable[tuple[str, str]]:
        """Pairs of gold and predicted labels."""
        return [(line["gold"], line["prediction"])]

    @abstractmethod
    def show(self, line: Line) -> list[list[Fragment]]:
        """The text of a line in paragraphs; those after the first are shown smaller."""

    def show_value(self, line: Line, key: Literal["gold", "prediction"]) -> str:
        """The gold or predicted value as text."""
        return str(line[key])

    def show_sureness(self, line: Line) -> str | None:
        """The confidence of the prediction as text."""
        return f"{100 * line['probability']:.0f}% sure" if "probability" in line else None


def are_numbers(columns: Mapping[str, str]) -> bool:
    """Whether columns are given by number, for a file without a header."""
    return bool(columns) and all(name.isdigit() for value in columns.values() for name in value.split(","))


def most_common(counts: Counter[Any]) -> Any:
    """The most frequent value; of ties the smallest, so that the order of a file does not matter."""
    most = max(counts.values())
    return min(value for value, count in counts.items() if count == most)


def minus_log(probabilities: Any) -> Any:
    """-log p, at most that of 1e-12."""
    return -np.log(np.maximum(probabilities, 1e-12))


def shorten(text: str) -> str:
    """Cut a long text."""
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def to_json(data: Any) -> str:
    """The text of a JSON file."""
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def row_logsumexp(values: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Log-sum-exp per row: [flat] -> [N + 1]; an empty row gives a large negative value."""
    import torch

    with torch.no_grad():
        top = torch.full((num_rows + 1,), -1e30, device=values.device).scatter_reduce(0, rows, values, "amax")
    sums = torch.zeros_like(top).index_add(0, rows, (values - top[rows]).exp())
    return top + sums.clamp(min=1e-30).log()


# ---------------------------------------------------------------------------------------------------------------------
# Kinds that label one text or a pair: the base of classification, regression and multi-label

# Names of columns, without case, spaces and punctuation.
LABELS = """label labels class category target sentiment goldlabel intent topic y
    라벨 레이블 감성 감정 분류 카테고리 标签 標籤 类别 類別 分类 情感"""
TEXTS = """text sentence document review comment comments content body tweet message title utterance sentence1 text1
    문장 텍스트 본문 내용 리뷰 댓글 문서 발화 제목 文本 句子 内容 內容 评论 評論 正文 标题""".split()
TEXT_PAIRS = [
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("texta", "textb"),
    ("sentencea", "sentenceb"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("query", "document"),
    ("string1", "string2"),
    ("1string", "2string"),
    ("text", "textpair"),
    ("text", "pair"),
    ("a", "b"),
    ("문장1", "문장2"),
    ("전제", "가설"),
    ("질문1", "질문2"),
    ("句子1", "句子2"),
    ("文本1", "文本2"),
    ("前提", "假设"),
]


def text_columns(labels: str) -> tuple[Column, ...]:
    """The columns of texts and their label, which has one of these names; `guess_columns` finds the texts."""
    return Column("text"), Column("pair", required=False), Column("label", labels, predicted=True)


class TextReader(Reader[TextExample]):
    """Rows with one or two texts and a label."""

    def example(self, cells: Cells, id: str, where: str) -> TextExample:
        pair = text_cell(cells["pair"][0], where) if "pair" in cells else None
        label = self.label(cells["label"], where) if "label" in cells else None
        return TextExample(id, text_cell(cells["text"][0], where), pair, label, where)

    def label(self, cells: list[Any], where: str) -> int | float | tuple[int, ...]:
        """The label in its columns."""
        raise NotImplementedError

    def settings(self, train: Sequence[TextExample]) -> dict[str, Any]:
        return {"pair": "pair" in self.roles}


class TextKind(Kind[TextExample]):
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]; the head reads the pooled state."""

    columns = text_columns(LABELS)
    pipeline = "text-classification"

    def guess_columns(self, table: Table, found: Columns, named: Mapping[str, str]) -> None:
        """Find texts by name, otherwise by length; the label can be the one column left."""
        plain = {plain_name(column): column for column in reversed(table.columns)}
        free = free_columns(table, found)
        if "text" not in named:
            for a, b in TEXT_PAIRS:
                if plain.get(a) in free and plain.get(b) in free:
                    found["text"], found["pair"] = (plain[a],), (plain[b],)
                    break
            else:
                if column := first_column(table, TEXTS, found):
                    found["text"] = (column,)
        rest = free_columns(table, found)
        if "text" not in found and rest:
            longest = max(rest, key=lambda column: _mean_length(table.values(column)))
            if len(rest) == 1 or "label" in found or len(rest) == 2:  # two columns: the long one is the text
                found["text"] = (longest,)
                rest.remove(longest)
        if "label" not in found:
            self.guess_label(table, rest, found)

    def guess_label(self, table: Table, rest: list[str], found: Columns) -> None:
        """Find the label among the remaining columns."""
        if len(rest) == 1:
            found["label"] = (rest[0],)

    def head(self, task: Task) -> str:
        return "classification"

    def num_outputs(self, task: Task) -> int | None:
        return len(task.labels)

    def infer(self, head: str, labels: tuple[str, ...], max_length: int) -> Task:
        """Whether the model expects pairs is unknown."""
        return Task(self.name, self.name, labels, max_length=max_length, pair=None)

    def features(
        self, task: Task, examples: Sequence[TextExample], tokenizer: Tokenizer, num_threads: int = 1
    ) -> list[Feature]:
        firsts = tokenizer.encode_batch([example.a for example in examples], num_threads)
        seconds = iter(tokenizer.encode_batch([e.b for e in examples if e.b is not None], num_threads))
        features = []
        for number, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            second = None if example.b is None else next(seconds)
            target = None if example.label is None else self.target(task, example.label)
            features.append(join(tokenizer, first, second, task.max_length, number, target))
        return features

    def target(self, task: Task, label: Any) -> Target:
        """The label as the target of a sequence."""
        return label  # type: ignore[no-any-return]

    def predict(
        self, task: Task, example: TextExample, windows: Sequence[Feature], outputs: Sequence[Outputs]
    ) -> Prediction:
        return self.decide(task, outputs[0]["logits"])

    @abstractmethod
    def decide(self, task: Task, logits: NDArray[Any]) -> Prediction:
        """The prediction for logits [L]."""

    def call(self, task: Task) -> str:
        return 'classify("a text", "its pair")' if task.pair else 'classify("a text")'

    def describe(self, example: TextExample) -> tuple[Line, Any]:
        return {"text": example.a, **({} if example.b is None else {"pair": example.b})}, example.label

    def show(self, line: Line) -> list[list[Fragment]]:
        return [[Fragment(shorten(line[key]))] for key in ("text", "pair") if key in line]


def _mean_length(values: list[Any]) -> float:
    return sum(len(value) for value in values if isinstance(value, str)) / max(1, len(values))
