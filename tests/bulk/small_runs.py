"""Small files, small models and short runs for the tests of bulk scoring."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from small_models import LABELS

from litebert.bulk.score import score
from litebert.tasks.task import Task

TEXTS = ["anna lives in oslo.", "her brother lives in rome.", "it was may 2010, and cold.", "the cat sat on the mat."]
TASKS = {
    "classification": Task("mood", "classification", labels=("bad", "good", "new"), max_length=48),
    "token-classification": Task("names", "token-classification", labels=LABELS, max_length=48),
    "span": Task("answers", "question-answering", max_length=48),
    "multiple-choice": Task("choices", "multiple-choice", max_length=48),
}


def texts(count: int) -> list[str]:
    return [f"{TEXTS[number % 4]} {number}" for number in range(count)]


def write(path: Path, rows: list[str], **more: list) -> Path:
    pq.write_table(pa.table({"id": range(len(rows)), "body": rows, **more}), path, row_group_size=7)
    return path


def read(out: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("part-*.parquet"))])


def parts(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*.parquet"))}


def embed(model, inputs, out, **more):
    settings = {"ability": "embed", "columns": {"text": "body"}, "part_rows": 10, "device": "cpu", "workers": 1}
    return score(model("pretraining"), inputs, out, **{**settings, **more})
