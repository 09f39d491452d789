"""Token classification: a tag per word (named entities, parts of speech).

find_entities(["B-PER", "I-PER", "O", "B-LOC"])  -> {("PER", 0, 2), ("LOC", 3, 4)}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError, InputError
from litebert.tasks.decode import Outputs, Prediction, softmax
from litebert.tasks.features import IGNORE, Arrays, Feature, Places, best_windows, cut_windows, pad_offsets, wrap
from litebert.tasks.kinds.classification import at_least, cross_entropy, mean_probabilities
from litebert.tasks.kinds.kind import (
    Constant,
    Forward,
    Fragment,
    Kind,
    Line,
    Losses,
    Targets,
    are_numbers,
    minus_log,
    most_common,
)
from litebert.tasks.metrics import Measure, ratio
from litebert.tasks.own import Cells, Column, Reader
from litebert.tasks.tables import Table, counted, label_id, order_tags, read_text, words_cell
from litebert.tasks.task import TagExample, Task
from litebert.text.tokenizer import Tokenizer

Entity = tuple[str, int, int]  # type, first word, word after the last
CONLL_SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".txt")


class TagReader(Reader[TagExample]):
    """Reads words and tags from lists or space-separated text."""

    def find_labels(self, train: Table) -> tuple[str, ...]:
        values = train.values(self.roles["tags"][0])
        return at_least(2, order_tags(tag for value in values for tag in words_cell(value, train.path)), train)

    def example(self, cells: Cells, id: str, where: str) -> TagExample:
        """One sentence; every word needs a tag."""
        words = words_cell(cells["words"][0], where)
        if not words:
            raise DataError(f"{where}: no words")
        tags = None
        if cells.get("tags", [None])[0] is not None:
            names = words_cell(cells["tags"][0], where)
            if len(names) != len(words):
                raise DataError(
                    f"{where}: {counted(len(words), 'word')} but {counted(len(names), 'tag')}; each word needs one"
                )
            tags = tuple(label_id(name, self.ids, where, self.source) for name in names)
        return TagExample(id, words, tags, where)

    def settings(self, train: Sequence[TagExample]) -> dict[str, Any]:
        """With entity tags, entity F1 is the first metric."""
        entities = any(label[:2] == "B-" for label in self.labels)
        return {"metrics": ("entity_f1", *self.kind.metrics)} if entities else {}


class TokenClassification(Kind[TagExample]):
    """Each word is tagged at its first piece; long texts are read in windows that overlap by a quarter."""

    name = "token-classification"
    aliases = tuple("ner pos tag tags tagging token tokens bio conll sequencelabeling sequencelabelling".split())
    says = "tags"
    columns = (
        Column("words", "words tokens word token text sentence 단어 토큰 문장 词 字 单词 文本"),
        Column("tags", "tags nertags labels ner tag label postags 태그 개체명 라벨 레이블 标签 标注", predicted=True),
    )
    reader = TagReader
    metrics = ("accuracy",)
    unit = "Tags"
    pipeline = "token-classification"

    def open_table(self, path: Path | str, columns: Mapping[str, str], encoding: str) -> Table:
        """Also reads CoNLL files, where columns are given by number."""
        if not self.names_columns(path):
            return super().open_table(path, columns, encoding)
        places = {role: int(value) for role, value in columns.items()} if are_numbers(columns) else {}
        return read_conll(path, encoding, places.get("words", 1), places.get("tags", -1))

    def names_columns(self, path: Path | str) -> bool:
        """Whether the file name is that of a CoNLL file; .txt counts as one."""
        return any(suffix.lower() in CONLL_SUFFIXES for suffix in Path(path).suffixes)

    def head(self, task: Task) -> str:
        return "token-classification"

    def num_outputs(self, task: Task) -> int | None:
        return len(task.labels)

    def fits(self, head: str, problem_type: str | None, num_outputs: int) -> bool:
        return head == "token-classification"

    def infer(self, head: str, labels: tuple[str, ...], max_length: int) -> Task:
        return Task(self.name, self.name, labels, max_length=max_length)

    def features(
        self, task: Task, examples: Sequence[TagExample], tokenizer: Tokenizer, num_threads: int = 1
    ) -> list[Feature]:
        return [
            sequence
            for number, example in enumerate(examples)
            for sequence in tag_windows(tokenizer, example.words, task.max_length, example.tags, number)
        ]

    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        """A tag id per token [flat], -100 elsewhere; the loss is the mean over tags."""
        tags = places.per_token(sequences, lambda sequence: np.asarray(sequence.target)).reshape(-1)
        return {"labels": tags}, int((tags != IGNORE).sum())

    def loss(self, head: str, forward: Forward, targets: Targets, num_rows: int) -> Losses:
        return cross_entropy(forward().float(), targets["labels"])

    def predict(
        self, task: Task, example: TagExample, windows: Sequence[Feature], outputs: Sequence[Outputs]
    ) -> Prediction:
        return _likeliest(word_probabilities(task, len(example.words), windows, outputs))

    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        return _likeliest(mean_probabilities(votes))

    def measures(self, task: Task, examples: Sequence[TagExample], values: Sequence[Any]) -> dict[str, Measure]:
        """Entity F1 as in CoNLL's scorer (type and both ends must match), and word accuracy."""
        pairs = [(example.tags or (), tuple(value)) for example, value in zip(examples, values, strict=True)]
        for (gold, found), example in zip(pairs, examples, strict=True):
            if len(gold) != len(found):
                raise InputError(f"{example.where}: {len(gold)} words but {len(found)} predicted tags")
        measures = {}
        if "entity_f1" in task.metrics:
            named = [[find_entities([task.labels[tag] for tag in tags]) for tags in pair] for pair in pairs]
            hits = np.array([2.0 * len(gold & found) for gold, found in named])
            measures["entity_f1"] = ratio(hits, np.array([float(len(gold) + len(found)) for gold, found in named]))
        if "accuracy" in task.metrics:
            right = np.array([float(np.equal(gold, found).sum()) for gold, found in pairs])
            measures["accuracy"] = ratio(right, np.array([float(len(gold)) for gold, _ in pairs]))
        return {name: measures[name] for name in task.metrics}

    def constant(self, task: Task, train: Sequence[TagExample], examples: Sequence[TagExample]) -> Constant:
        usual = most_common(Counter(tag for example in train for tag in example.tags or ()))
        return f"always {task.labels[usual]!r}", [(usual,) * len(example.words) for example in examples]

    def call(self, task: Task) -> str:
        return 'tag("a text")'

    def cell(self, task: Task, value: Any) -> str:
        return " ".join(task.labels[number] for number in value)

    def describe(self, example: TagExample) -> tuple[Line, Any]:
        return {"words": list(example.words)}, example.tags

    def say(self, task: Task, example: TagExample, value: Any) -> Any:
        return [task.labels[number] for number in value]

    def sureness(self, prediction: Prediction) -> float | None:
        """The least certain tag."""
        if prediction.probabilities is None:
            return None
        return float(prediction.probabilities.max(-1).min(initial=1.0))

    def badness(self, task: Task, example: TagExample, gold: Any, prediction: Prediction) -> float:
        """Summed negative log-likelihood of the gold tags."""
        assert prediction.probabilities is not None
        return float(minus_log(prediction.probabilities[np.arange(len(gold)), list(gold)]).sum())

    def confusions(self, line: Line) -> Iterable[tuple[str, str]]:
        return zip(line["gold"], line["prediction"], strict=True)

    def show(self, line: Line) -> list[list[Fragment]]:
        """All words; tagged and wrong ones are marked."""
        parts = []
        for word, gold, said in zip(line["words"], line["gold"], line["prediction"], strict=True):
            if gold != said:
                parts.append(Fragment(word, "wrong", f"gold: {gold}, predicted: {said}"))
            else:
                parts.append(Fragment(word) if gold == "O" else Fragment(word, "right", gold))
            parts.append(Fragment(" "))
        return [parts]

    def show_value(self, line: Line, key: Any) -> str:
        """The wrong words with their tags."""
        pairs = zip(line["words"], line[key], line["gold"], line["prediction"], strict=True)
        return ", ".join(f"{word}: {tag}" for word, tag, gold, said in pairs if gold != said)


def tag_windows(
    tokenizer: Tokenizer, words: Sequence[str], max_length: int, tags: Sequence[int] | None = None, example: int = 0
) -> list[Feature]:
    """Words joined by spaces, as one sequence or, if they do not fit, as overlapping windows."""
    ids, offsets = tokenizer.encode_arrays(" ".join(words))
    ends = np.cumsum([len(word) + 1 for word in words])  # end of each word with its space, in the joined text
    word_of = np.searchsorted(ends, offsets[:, 0], side="right")
    # The first piece with text in it: a "▁" alone has none.
    shown = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    first_words, places = np.unique(word_of[shown], return_index=True)
    first = np.full(len(ids), -1, dtype=np.int32)
    first[shown[places]] = first_words

    room = max_length - 2
    windows = cut_windows(len(ids), room, room - room // 4)
    owner = best_windows(windows, len(ids))
    sequences = []
    for number, (start, length) in enumerate(windows):
        here = slice(start, start + length)
        decided = np.full(length + 2, -1, dtype=np.int32)
        decided[1:-1] = np.where(owner[here] == number, first[here], -1)
        target = None
        if tags is not None:
            target = np.full(length + 2, IGNORE, dtype=np.int64)
            target[decided >= 0] = np.array(tags, dtype=np.int64)[decided[decided >= 0]]
        sequences.append(
            Feature(
                wrap(tokenizer, ids[here]),
                np.zeros(length + 2, dtype=np.int8),
                example,
                target,
                offsets=pad_offsets(offsets[here], 1, 1),
                words=decided,
            )
        )
    return sequences


def word_probabilities(
    task: Task, num_words: int, windows: Sequence[Feature], outputs: Sequence[Outputs]
) -> NDArray[np.float64]:
    """[words, labels]; a word without pieces (an invisible character) gets "O", or the first tag."""
    probabilities = np.zeros((num_words, len(task.labels)))
    probabilities[:, task.labels.index("O") if "O" in task.labels else 0] = 1
    for window, output in zip(windows, outputs, strict=True):
        assert window.words is not None
        decided = np.flatnonzero(window.words >= 0)
        probabilities[window.words[decided]] = softmax(output["logits"][decided])
    return probabilities


def _likeliest(probabilities: NDArray[np.float64]) -> Prediction:
    return Prediction(tuple(probabilities.argmax(1).tolist()), probabilities)


def find_entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of a sentence, from BIO, IOB or BIOES tags; as in CoNLL's scorer, a stray I- starts one."""
    entities = set()
    kind, begin, closed = "", 0, True
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        inside = bool(name)
        starts = inside and (closed or prefix in "BSU" or name != kind)
        if not closed and (starts or not inside):
            entities.add((kind, begin, place))
            closed = True
        if starts:
            kind, begin, closed = name, place, False
        if inside and prefix in "ESLU":
            entities.add((kind, begin, place + 1))
            closed = True
    return entities


def read_conll(path: Path | str, encoding: str = "utf-8", words: int = 1, tags: int = -1) -> Table:
    """Read tagged words, one per line, with blank lines between sentences (CoNLL, BIO).

    Returns the columns "words" and "tags", one row per sentence. `words` and `tags` count from 1; -1 is the last.
    """
    rows: list[tuple[tuple[str, ...], tuple[str, ...] | None]] = []
    lines: list[int] = []
    sentence: list[list[str]] = []
    begin = width = 0
    delimiter: str | None = None
    # A blank line at the end completes the last sentence.
    for number, line in enumerate([*read_text(path, encoding).split("\n"), ""], start=1):
        if not line.strip():
            if sentence:
                found = tuple(row[-1 if tags < 0 else tags - 1] for row in sentence)
                rows.append((tuple(row[words - 1] for row in sentence), found if width > 1 else None))
                lines.append(begin)
            sentence = []
            continue
        if not width:
            delimiter = "\t" if "\t" in line else None  # None: any run of spaces
        fields = line.rstrip("\r\n").split(delimiter)
        if fields[0] == "-DOCSTART-" or (line.startswith("#") and len(fields) != width):
            continue
        width = width or len(fields)
        if len(fields) != width:
            raise DataError(
                f"{path}:{number}: {counted(len(fields), 'column')}, but the lines before have {width}: {line!r:.80}"
            )
        if max(words, tags) > width:
            raise DataError(f"{path}:{number}: no column {max(words, tags)}; the line has {counted(width, 'column')}")
        if not sentence:
            begin = number
        sentence.append(fields)
    if not rows:
        raise DataError(f"{path}: no words in the file")
    return Table(
        str(path), ("words", "tags") if width > 1 else ("words",), [row[: min(width, 2)] for row in rows], lines
    )
