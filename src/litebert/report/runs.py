"""Run folders as data for a page. One of metrics.jsonl and run.json must exist; all other files are optional."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from litebert.config import read_yaml
from litebert.errors import DataError
from litebert.parse import read_json
from litebert.train.log import read_metrics

Floats = npt.NDArray[np.float64]


class Series(NamedTuple):
    """Finite values, sorted by step."""

    steps: Floats
    values: Floats

    def __bool__(self) -> bool:
        return len(self.steps) > 0


@dataclass(frozen=True)
class MetricLog:
    """Metrics of one kind as columns; nan where a line has none."""

    steps: Floats
    columns: Mapping[str, Floats]

    def series(self, name: str) -> Series:
        """A column without its gaps; empty if there is no such column."""
        values = self.columns.get(name)
        if values is None:
            return Series(np.empty(0), np.empty(0))
        there = np.isfinite(values)
        return Series(self.steps[there], values[there])

    def last(self, name: str) -> float | None:
        """The last value of a column."""
        series = self.series(name)
        return float(series.values[-1]) if series else None


@dataclass(frozen=True)
class Event:
    """Something that happened: a step skipped, a rollback, a resume."""

    step: int
    message: str

    @property
    def kind(self) -> str:
        """The kind of event, from the words of its message: skip, rollback, resume, stage, note."""
        words = {"skip": "skip", "last checkpoint": "rollback", "rolled back": "rollback", "resumed": "resume"}
        message = self.message.lower()
        if message.startswith(("depth ", "length ")):
            return "stage"
        return next((kind for word, kind in words.items() if word in message), "note")


@dataclass(frozen=True)
class RunStage:
    """From `step` on, the model has this depth and sequences have this length; 0 if unknown."""

    step: float
    depth: int
    length: int
    label: str = ""

    @property
    def description(self) -> str:
        """What is known about the stage: "depth 4 · length 128"."""
        parts = [f"depth {self.depth}" if self.depth else "", f"length {self.length}" if self.length else ""]
        return " · ".join(part for part in parts if part)

    @property
    def short_label(self) -> str:
        """Only the first change."""
        return self.label.split(" · ")[0]


@dataclass(frozen=True)
class Guess:
    """A token that the model predicts for a mask."""

    token: str
    probability: float


@dataclass(frozen=True)
class Sample:
    """A text with masks, the original words, and the model's guesses for each."""

    text: str
    answers: tuple[str, ...]
    guesses: tuple[tuple[Guess, ...], ...]


@dataclass(frozen=True)
class TrainingRun:
    """Everything the page shows about one run."""

    folder: Path
    name: str
    train: MetricLog
    held_out: MetricLog
    events: tuple[Event, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def hardware(self) -> Mapping[str, Any]:
        """What the run ran on."""
        hardware = self.facts.get("hardware")
        return hardware if isinstance(hardware, Mapping) else {}

    @property
    def step(self) -> int:
        """The last step with a report, a score or an event."""
        ends = [table.steps[-1] for table in (self.train, self.held_out) if len(table.steps)]
        return int(max([*ends, *(event.step for event in self.events)], default=0))

    def clock(self, name: str) -> Series:
        """`tokens` or `seconds` at each step, increasing from 0; empty if the run did not count them."""
        parts = [table.series(name) for table in (self.train, self.held_out)]
        steps = np.concatenate([[0.0], *(part.steps for part in parts)])
        values = np.concatenate([[0.0], *(part.values for part in parts)])
        if len(steps) == 1:
            return Series(np.empty(0), np.empty(0))
        steps, first = np.unique(steps, return_index=True)
        return Series(steps, np.maximum.accumulate(values[first]))

    @cached_property
    def stages(self) -> tuple[RunStage, ...]:
        """The stages of constant depth and length, each labelled with what changed."""
        steps = self.train.steps
        if not len(steps):
            return ()
        columns = [self.train.columns.get(name, np.full(len(steps), np.nan)) for name in ("depth", "length")]
        values = np.nan_to_num(np.stack(columns, axis=1), nan=0.0).astype(int)
        begins = np.flatnonzero((values[1:] != values[:-1]).any(axis=1))  # the last report before each change
        starts = [(0.0, values[0]), *((float(steps[before]), values[before + 1]) for before in begins)]
        stages = [RunStage(step, int(depth), int(length)) for step, (depth, length) in starts]
        varying = [name for name in ("depth", "length") if len({getattr(stage, name) for stage in stages}) > 1]
        labels = []
        for before, stage in zip([None, *stages], stages, strict=False):
            new = [name for name in varying if not before or getattr(before, name) != getattr(stage, name)]
            labels.append(" · ".join(f"{name} {getattr(stage, name)}" for name in new))
        return tuple(replace(stage, label=label) for stage, label in zip(stages, labels, strict=True))


def read_runs(folders: Sequence[Path | str]) -> list[TrainingRun]:
    """Run folders as data, each with a distinct name."""
    paths = list({Path(folder).resolve(): Path(folder) for folder in folders}.values())
    if not paths:
        raise DataError("no run folder given; name one or more folders that `litebert pretrain` wrote")
    return [read_run(path, name) for path, name in zip(paths, distinct_names(paths), strict=True)]


def read_run(folder: Path | str, name: str | None = None) -> TrainingRun:
    """One run folder as data."""
    folder = Path(folder)
    _check_is_run(folder)
    lines = read_metrics(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    config, facts = folder / "config.yaml", _read_json(folder / "run.json", dict)
    events = [line for line in lines if line.get("kind") == "event"]
    return TrainingRun(
        folder,
        name or folder.resolve().name,
        make_log(line for line in lines if line.get("kind", "train") == "train"),
        make_log(line for line in lines if line.get("kind") == "eval"),
        tuple(Event(line["step"], str(line.get("message", ""))) for line in events),
        read_yaml(config) if config.exists() else {},
        facts or {},
        _read_samples(folder / "samples.json"),
        _read_baselines(folder / "baselines.json"),
    )


def make_log(lines: Iterable[Mapping[str, Any]]) -> MetricLog:
    """Lines of metrics as columns; the last line of a step counts."""
    by_step = {line["step"]: line for line in lines}
    rows = [by_step[step] for step in sorted(by_step)]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: np.array([_number(row.get(name)) for row in rows], dtype=float) for name in names}
    return MetricLog(columns.pop("step", np.empty(0)), columns)


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The shortest endings of the paths that are all different: [a/run, b/run] -> ["a/run", "b/run"]."""
    parts = [path.resolve().parts for path in paths]
    length = 1
    while len({part[-length:] for part in parts}) < len(parts):
        length += 1
    return ["/".join(part[-length:]) for part in parts]


def _check_is_run(folder: Path) -> None:
    if not folder.exists():
        raise DataError(f"{folder}: no such folder; name a run folder (from `litebert pretrain` or `finetune`)")
    if not folder.is_dir():
        raise DataError(f"{folder}: is a file; name its run folder, {folder.parent}")
    if not _is_run(folder):
        inside = sorted(path.name for path in folder.iterdir() if path.is_dir() and _is_run(path))
        if inside:
            command = shlex.join(["litebert", "report", *(str(folder / name) for name in inside)])
            raise DataError(f"{folder}: not a run folder, but it holds {len(inside)}; compare them with: {command}")
        raise DataError(
            f"{folder}: not a run folder (no metrics.jsonl, no run.json); "
            "name one (from `litebert pretrain` or `finetune`)"
        )


def _is_run(folder: Path) -> bool:
    return (folder / "metrics.jsonl").is_file() or (folder / "run.json").is_file()


def _number(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value) if math.isfinite(value) else math.nan
        except OverflowError:  # an integer too large for a float
            return math.nan
    return math.nan


def _read_json(path: Path, kind: type) -> Any:
    """The JSON in a file; None if there is no file."""
    if not path.exists():
        return None
    try:
        data = read_json(path)
    except DataError as error:
        raise DataError(f"{error}; repair the file, or move it away to write the report without it") from None
    if not isinstance(data, kind):
        raise _damaged(path, f"expected a {kind.__name__}, got {type(data).__name__}")
    return data


def _read_samples(path: Path) -> tuple[Sample, ...]:
    samples = []
    for number, item in enumerate(_read_json(path, list) or [], start=1):
        try:
            guesses = tuple(
                tuple(Guess(str(guess["token"]), _probability(guess["probability"])) for guess in mask)
                for mask in item["guesses"]
            )
            samples.append(Sample(str(item["text"]), tuple(str(answer) for answer in item["answers"]), guesses))
        except (KeyError, TypeError, ValueError):
            raise _damaged(path, f"entry {number} lacks text, answers or guesses") from None
    return tuple(samples)


def _probability(value: Any) -> float:
    if not 0 <= _number(value) <= 1:
        raise ValueError
    return float(value)


def _read_baselines(path: Path) -> dict[str, dict[str, float]]:
    baselines = {}
    for task, scores in (_read_json(path, dict) or {}).items():
        if not isinstance(scores, dict) or any(math.isnan(_number(score)) for score in scores.values()):
            raise _damaged(path, f'expected numbers by name under "{task}", such as {{"unigram": 0.08}}')
        baselines[task] = {str(name): float(score) for name, score in scores.items()}
    return baselines


def _damaged(path: Path, what: str) -> DataError:
    return DataError(f"{path}: {what}; repair the file, or move it away to write the report without it")
