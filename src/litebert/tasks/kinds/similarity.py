"""Similarity: vectors whose cosine says how near two texts are in meaning (STS-B, duplicate questions, search).

The columns of each file decide what it contains, so a model trained on pairs may be scored on STS-B.

    scored     two texts and a score           Spearman and Pearson correlation of cosine and score
    pairs      two texts that belong together  recall and nDCG of finding the second among all second texts
    triplets   a text, a near and a far one    how often the near one is nearer
    sentences  one text: only for training     (SimCSE: the same sentence twice, with different dropout)

Shapes: N examples, M different texts to find, H hidden.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError
from litebert.tasks.decode import Outputs, Prediction
from litebert.tasks.features import Arrays, Feature, Places, join
from litebert.tasks.kinds.kind import (
    TEXT_PAIRS,
    TEXTS,
    Constant,
    Forward,
    Fragment,
    Kind,
    Line,
    Losses,
    Targets,
    shorten,
)
from litebert.tasks.metrics import Floats, Measure, pearson, share, spearman
from litebert.tasks.own import (
    Cells,
    Column,
    Columns,
    Reader,
    find_columns,
    first_column,
    free_columns,
    plain_name,
    shared_notes,
)
from litebert.tasks.tables import Table, number_cell, text_cell
from litebert.tasks.task import Example, Form, SimilarityExample, Task, TaskData
from litebert.text.tokenizer import Tokenizer

METRICS: dict[Form, tuple[str, ...]] = {
    "scored": ("spearman", "pearson"),
    "pairs": ("recall_at_10", "recall_at_1", "ndcg_at_10", "mrr_at_10"),
    "triplets": ("accuracy",),
}
_SCORES = "score similarity relatedness rating label value 점수 유사도 分数 分數 相似度"
_ANCHORS, _POSITIVES = "anchor query premise title", "positive pos near answer paragraph passage entailment"
_NEGATIVES = "negative neg hardnegative far contradiction"
_UNNAMED = ("1", "2", "3")  # the columns of rows without names
_BLOCK = 1 << 24  # similarities held at a time


class SimilarityReader(Reader[SimilarityExample]):
    """Rows with one to three texts, and perhaps a score."""

    form: Form = "sentences"

    def example(self, cells: Cells, id: str, where: str) -> SimilarityExample:
        texts = tuple(text_cell(cells[role][0], where) for role in ("text", "pair", "negative") if role in cells)
        score = number_cell(cells["score"][0], where, self.roles["score"][0]) if "score" in cells else None
        return SimilarityExample(id, texts, score, where, self.form)

    def notes_on(self, table: Table, examples: Sequence[SimilarityExample]) -> list[str]:
        """How many examples lack one of their texts, and where."""
        lacking = [e.where for e in examples if len({not text.strip() for text in e.texts}) == 2]
        if not lacking:
            return []
        return [f"{len(lacking):,} of {len(examples):,} examples lack one of their texts; the first is {lacking[0]}"]


class Similarity(Kind[SimilarityExample]):
    """The encoder alone; the vector of a text is the mean of its tokens, or the state of [CLS]."""

    name = "similarity"
    aliases = tuple("similar sts semanticsimilarity embedding embeddings sentenceembedding simcse search".split())
    says = "nearness"
    columns = (
        Column("text", _ANCHORS),
        Column("pair", _POSITIVES, required=False),
        Column("negative", _NEGATIVES, required=False),
        Column("score", _SCORES, required=False, predicted=True),
    )
    reader = SimilarityReader
    metrics = METRICS["scored"]
    max_length = 256
    counts_right = False
    whole_examples = True
    compares = True
    pipeline = "sentence-similarity"
    how_wrong = "are not exact"

    # -- the user's files ----------------------------------------------------------------------------------------------

    def guess_columns(self, table: Table, found: Columns, named: Mapping[str, str]) -> None:
        """Find texts by name, or by their order if they have none; a column that is left over is the only text."""
        plain = {plain_name(column): column for column in reversed(table.columns)}

        def may_be(role: str, name: str) -> bool:  # also where one name of the two was enough to find it
            return plain.get(name) in (free_columns(table, found) if role not in found else found[role])

        for a, b in (*TEXT_PAIRS, *(("title", each) for each in TEXTS)):
            if a != b and may_be("text", a) and may_be("pair", b):
                found.setdefault("text", (plain[a],))
                found.setdefault("pair", (plain[b],))
                break
        if not found and table.columns == _UNNAMED[: len(table.columns)]:
            roles = ["text", "pair", "score" if _are_numbers(table, table.columns[-1]) else "negative"]
            if len(table.columns) != 2 or roles[-1] == "negative":  # a text and a number are not two texts
                found.update({role: (column,) for role, column in zip(roles, table.columns, strict=False)})
        if "text" not in found:
            rest = free_columns(table, found)
            column = first_column(table, TEXTS, found) or (rest[0] if len(rest) == 1 else None)
            if column is not None:
                found["text"] = (column,)

    def read_tables(
        self, tables: Mapping[str, Table], columns: Mapping[str, str] | None, known: Task | None
    ) -> TaskData:
        """Every table in its own form; that of dev decides the metrics."""
        splits: dict[str, list[SimilarityExample]] = {}
        notes: list[str] = []
        scored = False
        used: dict[str, str] = {}
        for split, table in sorted(tables.items(), key=lambda item: item[0] == "test"):
            named = {role: name for role, name in (columns or {}).items() if set(name.split(",")) <= {*table.columns}}
            if columns and not named:
                find_columns(self, table, columns)  # says which column is missing
            roles = find_columns(self, table, named)
            form = _form_of(roles, split == "test" and scored)
            scored = scored or form == "scored"
            if form == "sentences" and split != "train":
                raise DataError(
                    f"{table.path}: single texts cannot be scored; give two columns of texts and "
                    f"a score, two columns that belong together, or three (text, pair, negative). {_columns(table)}"
                )
            reader = SimilarityReader(self, roles, known, table, notes)
            reader.form = form
            splits[split] = reader.read(table)
            used = used or {role: ",".join(names) for role, names in roles.items()}
            shown = ", ".join(f"{role} = {','.join(names)!r}" for role, names in roles.items())
            unread = ", ".join(map(repr, free_columns(table, roles))) if form == "sentences" else ""
            notes.append(
                f"{table.path}: {form}: {shown}"
                + ("" if named.keys() >= roles.keys() - {"id"} else " (guessed)")
                + (f"; not read: {unread}; to learn from pairs, set columns to name them: pair=NAME" if unread else "")
            )
        notes += shared_notes(tables, splits)
        train = splits.pop("train", [])
        test = {"test": splits.pop("test")} if "test" in splits else {}
        found = [rows[0].form for rows in (*splits.values(), *test.values(), train) if rows]
        scores = [e.score for rows in (train, *splits.values()) for e in rows if e.score is not None]
        scale = (min(scores), max(scores)) if scores else None
        task = known or Task(self.name, self.name, max_length=self.max_length, columns=used, pair=None, scale=scale)
        task = dataclasses.replace(task, metrics=METRICS.get(found[0], self.metrics) if found else self.metrics)
        dev: dict[str, list[Example]] = {name: list(rows) for name, rows in splits.items()}
        return TaskData(task, list(train), dev, {name: list(rows) for name, rows in test.items()}, notes)

    # -- the model -----------------------------------------------------------------------------------------------------

    def head(self, task: Task) -> str:
        return "encoder"

    def features(
        self, task: Task, examples: Sequence[SimilarityExample], tokenizer: Tokenizer, num_threads: int = 1
    ) -> list[Feature]:
        """One sequence for each text; a sentence without a partner is its own, twice."""
        texts = [text for example in examples for text in _compared(example)]
        encoded = iter(tokenizer.encode_batch(texts, num_threads))
        return [
            join(tokenizer, next(encoded), None, task.max_length, number, math.nan if e.score is None else e.score)
            for number, e in enumerate(examples)
            for _ in _compared(e)
        ]

    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        """Scores [N] (NaN: none), and numbers [N] that are equal for equal texts, so that none is its own negative."""
        same = [zlib.crc32(sequence.ids.tobytes()) for sequence in sequences]
        scores = [sequence.target for sequence in sequences]
        made = {"scores": places.per_row(scores, 0.0, np.float32), "texts": places.per_row(same, -1)}
        return made, len({sequence.example for sequence in sequences})

    def loss(self, head: str, forward: Forward, targets: Targets, num_rows: int) -> Losses:
        raise AssertionError("its losses compare the vectors of a whole batch: finetuning/contrast.py")

    # -- predictions and scores ----------------------------------------------------------------------------------------

    def predict(
        self, task: Task, example: SimilarityExample, windows: Sequence[Feature], outputs: Sequence[Outputs]
    ) -> Prediction:
        """The cosine of a scored pair, by how much the near text is nearer; for search, the vectors themselves."""
        vectors = unit(np.stack([value for output in outputs for name, value in output.items() if name != "depth"]))
        if example.form == "pairs":
            return Prediction(vectors)
        return Prediction(compare_vectors(example.form, vectors[None])[0])

    def settle(
        self, task: Task, examples: Sequence[SimilarityExample], predictions: list[Prediction]
    ) -> list[Prediction]:
        """For search, the place of each second text among all of them."""
        if not examples or examples[0].form != "pairs":
            return predictions
        places, first = numbered([example.texts[1] for example in examples])
        asked, found = (np.stack([prediction.value[side] for prediction in predictions]) for side in (0, 1))
        ranks = search_ranks(lambda rows: asked[rows] @ found[first].T, places)
        return [Prediction(float(rank)) for rank in ranks]

    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        return Prediction(float(np.mean([vote.value for vote in votes])))

    def measures(self, task: Task, examples: Sequence[SimilarityExample], values: Sequence[Any]) -> dict[str, Measure]:
        found = np.array(values, dtype=float)
        form = examples[0].form
        if form == "scored":
            gold = np.array([example.score for example in examples], dtype=float)
            by_name = {"spearman": spearman(gold, found), "pearson": pearson(gold, found)}
        elif form == "triplets":
            by_name = {"accuracy": share((found > 0) + 0.5 * (found == 0))}
        else:
            by_name = {
                "recall_at_1": share(found <= 1),
                "recall_at_10": share(found <= 10),
                "ndcg_at_10": share((found <= 10) / np.log2(1 + found)),
                "mrr_at_10": share((found <= 10) / found),
            }
        return {name: by_name[name] for name in dict.fromkeys([*task.metrics, *by_name]) if name in by_name}

    def constant(
        self, task: Task, train: Sequence[SimilarityExample], examples: Sequence[SimilarityExample]
    ) -> Constant:
        if examples[0].form == "pairs":
            middle = (len({example.texts[1] for example in examples}) + 1) / 2
            return "a random order", [middle] * len(examples)
        return "all equally similar", [0.0] * len(examples)

    # -- files and pages -----------------------------------------------------------------------------------------------

    def call(self, task: Task) -> str:
        return 'embed(["a text", "another"])'

    def cell(self, task: Task, value: Any) -> str:
        return f"{value:.6g}"

    def describe(self, example: SimilarityExample) -> tuple[Line, Any]:
        gold = {"scored": example.score, "pairs": 1.0, "triplets": 1.0}.get(example.form)
        return dict(zip(("text", "pair", "negative"), example.texts, strict=False)), gold

    def badness(self, task: Task, example: SimilarityExample, gold: Any, prediction: Prediction) -> float:
        """How far a cosine is from its score, a rank from the first, a margin below 0."""
        if example.form == "scored":
            low, high = task.scale or (0.0, 1.0)
            return abs(float(prediction.value) - (float(gold) - low) / max(high - low, 1e-9))
        return float(prediction.value) - 1 if example.form == "pairs" else -float(prediction.value)

    def is_wrong(self, line: Line) -> bool:
        return bool(line["badness"] > 0)

    def show(self, line: Line) -> list[list[Fragment]]:
        return [[Fragment(shorten(line[key]))] for key in ("text", "pair", "negative") if key in line]

    def show_value(self, line: Line, key: Any) -> str:
        return f"{line[key]:.3g}"


def _form_of(roles: Columns, unscored: bool) -> Form:
    if "pair" not in roles:
        return "sentences"
    if "negative" in roles:
        return "triplets"
    return "scored" if "score" in roles or unscored else "pairs"


def _are_numbers(table: Table, column: str) -> bool:
    try:
        return all(number_cell(value, "", column) is not None for value in table.values(column))
    except DataError:
        return False


def _columns(table: Table) -> str:
    return f"The columns are {', '.join(map(repr, table.columns))}"


def _compared(example: SimilarityExample) -> tuple[str, ...]:
    return example.texts * 2 if example.form == "sentences" else example.texts


# -- vectors and ranks -------------------------------------------------------------------------------------------------


def unit(vectors: NDArray[Any]) -> Floats:
    """Vectors of length 1; one of zeros stays."""
    exact = vectors.astype(np.float64)
    return np.asarray(exact / np.maximum(np.linalg.norm(exact, axis=-1, keepdims=True), 1e-12))


def compare_vectors(form: Form, vectors: NDArray[Any]) -> list[float]:
    """Cosines of scored pairs [N, 2, H], or by how much the near text of triplets [N, 3, H] is nearer."""
    near = (vectors[:, 0] * vectors[:, 1]).sum(-1)
    if form == "triplets":
        near = near - (vectors[:, 0] * vectors[:, 2]).sum(-1)
    return [float(value) for value in near]


def numbered(texts: Sequence[str]) -> tuple[NDArray[np.int64], list[int]]:
    """The number of each text among the different ones, and where those are first: [b, a, b] -> [0, 1, 0], [0, 1]."""
    numbers: dict[str, int] = {}
    first = []
    for place, text in enumerate(texts):
        if text not in numbers:
            numbers[text] = len(numbers)
            first.append(place)
    return np.array([numbers[text] for text in texts]), first


def search_ranks(scores_of: Callable[[slice], Any], places: NDArray[np.int64]) -> Floats:
    """The rank of the right text [N], from 1 on, ties in the middle; `scores_of(rows)` gives similarities [rows, M]."""
    size = max(1, _BLOCK // max(1, int(places.max()) + 1))
    ranks = np.empty(len(places))
    for begin in range(0, len(places), size):
        rows = slice(begin, begin + size)
        scores = np.asarray(scores_of(rows))
        own = scores[np.arange(len(scores)), places[rows]][:, None]
        ranks[rows] = 1 + (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2
    return ranks
