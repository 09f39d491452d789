"""Predictions in the files that scorers and leaderboards take.

GLUE: CoLA.tsv, MNLI-m.tsv, ... with "index" and "prediction"; SQuAD: one JSON of answers by question id (and the
no-answer scores and n-best lists beside it); RACE: the letters of the options by question id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.files import write_atomic
from litebert.tasks import glue
from litebert.tasks.decode import Prediction
from litebert.tasks.examples import Example, option_letter
from litebert.tasks.task import Task

_MNLI = {"test-matched": "MNLI-m", "test-mismatched": "MNLI-mm"}


def write_submission(
    task: Task, split: str, examples: Sequence[Example], predictions: Sequence[Prediction], folder: Path | str
) -> list[Path]:
    """Write the files of one split into a folder and say which; a dev split carries its name in theirs."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if task.kind == "question-answering":
        return _write_answers(task, split, examples, predictions, folder)
    if task.kind == "multiple-choice":
        letters = {e.id: _letter(p.value) for e, p in zip(examples, predictions, strict=True)}
        return [_write_json(folder / f"{task.name}-{split}.json", letters)]
    lines = ["index\tprediction"]
    for example, prediction in zip(examples, predictions, strict=True):
        lines.append(f"{example.id}\t{_cell(task, prediction)}")
    path = folder / f"{_file_name(task, split)}.tsv"
    write_atomic(path, "\n".join(lines) + "\n")
    return [path]


def _file_name(task: Task, split: str) -> str:
    if task.name == "mnli" and split in _MNLI:
        return _MNLI[split]
    name = glue.SOURCES[task.name].folder if task.name in glue.SOURCES else task.name
    return name if split == "test" and task.name in glue.SOURCES else f"{name}-{split}"


def _letter(option: object) -> str:
    assert isinstance(option, int)
    return option_letter(option)


def _cell(task: Task, prediction: Prediction) -> str:
    value = prediction.value
    if task.kind == "regression":
        assert isinstance(value, float)
        # GLUE's server wants STS-B within its scale.
        return f"{min(5.0, max(0.0, value)):.3f}" if task.name == "sts-b" else f"{value:.6g}"
    if isinstance(value, tuple):
        return ("|" if task.kind == "multi-label" else " ").join(task.labels[number] for number in value)
    assert isinstance(value, int)
    return task.labels[value]


def _write_answers(
    task: Task, split: str, examples: Sequence[Example], predictions: Sequence[Prediction], folder: Path
) -> list[Path]:
    texts, odds, n_best = {}, {}, {}
    for example, prediction in zip(examples, predictions, strict=True):
        texts[example.id] = prediction.value
        if prediction.answers is not None:
            spans, no_answer = prediction.answers
            odds[example.id] = no_answer
            shown = zip(spans, prediction.answers.probabilities(), strict=True)
            n_best[example.id] = [
                {"text": s.text, "probability": p, "score": s.score, "start": s.start, "end": s.end} for s, p in shown
            ]
    paths = [_write_json(folder / f"{task.name}-{split}-predictions.json", texts)]
    if task.answerable_head:
        paths.append(_write_json(folder / f"{task.name}-{split}-null-odds.json", odds))
    paths.append(_write_json(folder / f"{task.name}-{split}-nbest.json", n_best))
    return paths


def _write_json(path: Path, data: dict[str, Any]) -> Path:
    write_atomic(path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")
    return path
