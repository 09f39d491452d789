"""GLUE from its official TSV files with their quirks, or the same data as Parquet or JSONL.

CoLA has no header in train and dev; quotes are literal; some QQP rows lack columns; test files have no label. Labels
have the order of the released code: MNLI and AX contradiction, entailment, neutral; QNLI and RTE entailment,
not_entailment; otherwise 0, 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from litebert.errors import DataError
from litebert.tasks.tables import (
    Table,
    format_of,
    label_id,
    label_name,
    number_cell,
    read_table,
    read_text,
    split_tabs,
    text_cell,
)
from litebert.tasks.task import Example, Task, TaskData, TextExample

_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")


def _task(
    name: str,
    labels: tuple[str, ...],
    *metrics: str,
    pair: bool = True,
    scale: tuple[float, float] | None = None,
) -> Task:
    kind = "classification" if labels else "regression"
    return Task(name, kind, labels, metrics or ("accuracy",), pair=pair, scale=scale)


# The first metric selects the checkpoint, as the authors did: accuracy for MRPC and QQP, Pearson for STS-B.
TASKS = {
    "cola": _task("cola", _BINARY, "matthews", "accuracy", pair=False),
    "sst-2": _task("sst-2", _BINARY, pair=False),
    "mrpc": _task("mrpc", _BINARY, "accuracy", "f1"),
    "sts-b": _task("sts-b", (), "pearson", "spearman", scale=(0.0, 5.0)),
    "qqp": _task("qqp", _BINARY, "accuracy", "f1"),
    "mnli": _task("mnli", _NLI),
    "qnli": _task("qnli", _ENTAILMENT),
    "rte": _task("rte", _ENTAILMENT),
    "wnli": _task("wnli", _BINARY),
    "ax": _task("ax", _NLI, "matthews", "accuracy"),
}
HUB = {name: f"nyu-mll/glue:{name.replace('-', '')}" for name in TASKS}


@dataclass(frozen=True)
class _Source:
    """The folder of a task and the names of its columns, official and on the Hub."""

    folder: str
    a: tuple[str, ...]
    b: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    names: Mapping[str, str] = field(default_factory=dict)  # other spellings of the labels


_SENTENCES = (("sentence1",), ("sentence2",))
_PREMISES = (("sentence1", "premise", "Premise"), ("sentence2", "hypothesis", "Hypothesis"))
# The Hub counts MNLI's labels in another order.
_HUB_NLI = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_HUB_ENTAILMENT = {"0": "entailment", "1": "not_entailment"}
SOURCES = {
    "cola": _Source("CoLA", ("sentence",), names={"unacceptable": "0", "acceptable": "1"}),
    "sst-2": _Source("SST-2", ("sentence",), names={"negative": "0", "positive": "1"}),
    "mrpc": _Source(
        "MRPC",
        ("#1 String", "sentence1"),
        ("#2 String", "sentence2"),
        ("Quality", "label"),
        {"not_equivalent": "0", "equivalent": "1"},
    ),
    "sts-b": _Source("STS-B", *_SENTENCES, ("score", "label")),
    "qqp": _Source(
        "QQP", ("question1",), ("question2",), ("is_duplicate", "label"), {"not_duplicate": "0", "duplicate": "1"}
    ),
    "mnli": _Source("MNLI", *_PREMISES, ("gold_label", "label"), _HUB_NLI),
    "qnli": _Source("QNLI", ("question",), ("sentence",), names=_HUB_ENTAILMENT),
    "rte": _Source("RTE", *_SENTENCES, names=_HUB_ENTAILMENT),
    "wnli": _Source("WNLI", *_SENTENCES, names={"not_entailment": "0", "entailment": "1"}),
    "ax": _Source("AX", *_PREMISES, ("label", "Label"), _HUB_NLI),
}
_IDS = ("index", "idx", "id")
# Split -> possible file names, the official one first.
_FILES: dict[str, tuple[str, ...]] = {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)}
_MNLI_FILES: dict[str, tuple[str, ...]] = {
    "train": ("train",),
    "matched": ("dev_matched", "validation_matched"),
    "mismatched": ("dev_mismatched", "validation_mismatched"),
    "test-matched": ("test_matched",),
    "test-mismatched": ("test_mismatched",),
}
_AX_FILES: dict[str, tuple[str, ...]] = {"test": ("diagnostic", "ax", "test")}


def read(name: str, folder: Path | None, files: Mapping[str, Path | str], encoding: str) -> TaskData:
    """Read the splits of a task from its folder (or the folder of all of GLUE), or from single files."""
    found = {**(find_files(name, folder) if folder else {}), **files}
    return read_tables(name, {split: _open(str(path), encoding) for split, path in found.items()})


def read_tables(name: str, tables: Mapping[str, Table]) -> TaskData:
    """Convert tables by split ("train", "dev" or "matched", "test" or "test-matched", ...) to examples."""
    notes: list[str] = []
    return TaskData.of(
        TASKS[name], {split: _examples(name, table, split, notes) for split, table in tables.items()}, notes
    )


def find_files(name: str, folder: Path) -> dict[str, Path]:
    """The files of each split in a task's folder, in any format."""
    places = [folder / SOURCES[name].folder, folder, *([folder / "MNLI"] if name == "ax" else [])]
    wanted = {"mnli": _MNLI_FILES, "ax": _AX_FILES}.get(name, _FILES)
    for place in places:
        found: dict[str, Path] = {}
        for split, stems in wanted.items():
            pattern = re.compile(rf"({'|'.join(stems)})(-\d+-of-\d+)?\.(tsv|csv|jsonl|json|parquet)")
            matches = sorted(path for path in place.glob("*") if pattern.fullmatch(path.name.lower()))
            if len(matches) > 1:
                raise DataError(f"{place}: several files for {split}: {', '.join(path.name for path in matches)}")
            found |= {split: matches[0]} if matches else {}
        if found:
            return found
    expected = ", ".join(f"{stems[0]}.tsv" for stems in wanted.values())
    raise DataError(f"{folder}: no files of {name} ({expected}) here or in {SOURCES[name].folder}/")


def _open(path: str, encoding: str) -> Table:
    if format_of(path) != "tsv":
        return read_table(path, encoding)
    rows, lines = split_tabs(read_text(path, encoding))
    if not rows:
        raise DataError(f"{path}: the file is empty")
    if len(rows[0]) == 4 and rows[0][1] in _BINARY:  # CoLA: source, label, the linguist's mark, sentence
        header = ["source", "label", "mark", "sentence"]
    else:
        header, rows, lines = rows[0], rows[1:], lines[1:]
    return Table(path, tuple(name.strip() for name in header), [tuple(row) for row in rows], lines)


def _examples(name: str, table: Table, split: str, notes: list[str]) -> list[Example]:
    source, task = SOURCES[name], TASKS[name]
    is_test = split.startswith("test")
    a = _need(table, source.a)
    b = _need(table, source.b) if source.b else None
    id = _find(table, _IDS)
    label = _find(table, source.label) if is_test else _need(table, source.label)
    needed = max(place for place in (a, b, label) if place is not None)
    ids = {known: number for number, known in enumerate(task.labels)}
    examples: list[Example] = []
    damaged = []
    for number, row in enumerate(table.rows):
        where = table.where(number)
        found = row[label] if label is not None and len(row) > needed else None
        known = _label(name, found)
        # A stray tab makes a row too long and shifts its label; "-" in MNLI means that the annotators disagreed.
        shifted = len(row) > len(table.columns) and bool(ids) and known not in ids
        if len(row) <= needed or shifted or found == "-":
            damaged.append(where)
            if not is_test:
                continue
            row = (*row, *[""] * needed)  # every row of a test set needs a prediction
            known = None
        value: int | float | None = None
        if known is not None:
            value = label_id(known, ids, where, "GLUE") if ids else number_cell(known, where, "score")
        elif not is_test:
            raise DataError(f"{where}: no label")
        text_b = None if b is None else text_cell(row[b], where)
        row_id = str(number if id is None else row[id])
        examples.append(TextExample(row_id, text_cell(row[a], where), text_b, value, where))
    if damaged:
        done = "kept" if is_test else "skipped"
        notes.append(f"{table.path}: {len(damaged):,} damaged or unlabelled rows {done}, first: {damaged[0]}")
    if not examples:
        raise DataError(f"{table.path}: no usable rows")
    return examples


def _label(name: str, value: object) -> str | None:
    known = label_name(value)
    if known in (None, "-", "-1", "hidden"):
        return None
    return SOURCES[name].names.get(str(known), known)


def _find(table: Table, names: Iterable[str]) -> int | None:
    return next((table.columns.index(name) for name in names if name in table.columns), None)


def _need(table: Table, names: Iterable[str]) -> int:
    place = _find(table, names)
    if place is None:
        shown = ", ".join(map(repr, table.columns))
        raise DataError(
            f"{table.path}: no column {' or '.join(map(repr, names))}; it has {shown}. "
            "For files with other columns, name the kind of task instead: classification or regression"
        )
    return place
