"""Kinds of tasks on one text or a pair: the base of classification, regression and multi-label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from litebert.tasks.decode import Outputs, Prediction
from litebert.tasks.features import Feature, Target, join
from litebert.tasks.kinds.kind import Kind, Line, Part, shorten
from litebert.tasks.own import Cells, Column, Columns, Reader, first_column, free_columns, plain_name
from litebert.tasks.tables import Table, text_cell
from litebert.tasks.task import Task, TextExample
from litebert.text.tokenizer import Tokenizer

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

    def show(self, line: Line) -> list[list[Part]]:
        return [[Part(shorten(line[key]))] for key in ("text", "pair") if key in line]


def _mean_length(values: list[Any]) -> float:
    return sum(len(value) for value in values if isinstance(value, str)) / max(1, len(values))
