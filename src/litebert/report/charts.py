"""Which charts a page has and what each shows: curves, reference lines, ranges. No drawing here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from litebert.report.numbers import Axis, Format, linear_axis, log_axis
from litebert.report.runs import Floats, Series, TrainingRun

FEW = 12  # with fewer points, there is nothing to smooth

MOST_POINTS = 1000  # per curve; about the width of the widest chart in pixels
MOST_POINTS_IN_ALL = 4000  # per metric, over all runs

Role = Literal["report", "train", "held-out"]
ROLE_NAMES: dict[Role, str] = {"report": "each report", "train": "training, smoothed", "held-out": "held-out"}


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    run: int
    role: Role
    series: Series


@dataclass(frozen=True)
class Reference:
    """A level to compare with, such as the score of guessing."""

    label: str
    value: float


@dataclass(frozen=True)
class Chart:
    """One chart; `log` is None if a logarithmic axis makes no sense."""

    name: str
    title: str
    form: Format
    curves: tuple[Curve, ...]
    references: tuple[Reference, ...]
    linear: Axis
    log: Axis | None

    def final(self, run: int) -> tuple[float, Role] | None:
        """The last value of a run, held-out if there is one."""
        for role in ("held-out", "train"):
            for curve in self.curves:
                if (curve.run, curve.role) == (run, role) and curve.series:
                    return float(curve.series.values[-1]), curve.role
        return None


@dataclass(frozen=True)
class ChartSpec:
    """How one chart is made from a run's metrics."""

    name: str
    title: str
    form: Format
    train: str
    held_out: Callable[[TrainingRun], Series] | None = None
    baselines: str = ""
    log: bool = False
    #: The moving average covers this share of the run; 0: not smoothed.
    smoothing: float = 1 / 30


def held_out(name: str) -> Callable[[TrainingRun], Series]:
    """Take the held-out curve of a chart from this column."""
    return lambda run: run.held_out.series(name)


def held_out_loss(run: TrainingRun) -> Series:
    """The held-out counterpart of the training loss: both parts if the run has both."""
    mlm, sentence = (run.held_out.series(name) for name in ("mlm_loss", "sentence_loss"))
    if not sentence:
        return mlm
    steps, first, second = np.intersect1d(mlm.steps, sentence.steps, return_indices=True)
    return Series(steps, mlm.values[first] + sentence.values[second])


# One tuple per row of the page.
ROWS: tuple[tuple[ChartSpec, ...], ...] = (
    (ChartSpec("loss", "Loss", "number", "loss", held_out_loss, log=True),),
    (
        ChartSpec("mlm-accuracy", "Masked words, accuracy", "percent", "mlm_accuracy", held_out("mlm_accuracy"), "mlm"),
        ChartSpec(
            "sentence-accuracy",
            "{sentence_task}, accuracy",
            "percent",
            "sentence_accuracy",
            held_out("sentence_accuracy"),
            "sentence",
        ),
    ),
    (
        ChartSpec("mlm-loss", "Masked words, loss", "number", "mlm_loss", held_out("mlm_loss"), log=True),
        ChartSpec(
            "sentence-loss", "{sentence_task}, loss", "number", "sentence_loss", held_out("sentence_loss"), log=True
        ),
    ),
    (
        ChartSpec("learning-rate", "Learning rate", "rate", "lr", smoothing=0.0),
        ChartSpec("gradient-norm", "Gradient norm", "number", "gradient_norm", log=True, smoothing=1 / 12),
        ChartSpec("tokens-per-second", "Tokens per second", "count", "tokens_per_second"),
    ),
)


def sentence_task(runs: Sequence[TrainingRun]) -> str:
    """What the sentence head was trained on, in words; "Sentence pairs" if runs differ or do not say."""
    objectives = {run.facts.get("objective") for run in runs} - {"none"}
    names = {"sop": "Sentence order", "nsp": "Next sentence"}
    return names.get(str(*objectives), "Sentence pairs") if len(objectives) == 1 else "Sentence pairs"


def make_charts(runs: Sequence[TrainingRun], metrics: Sequence[Sequence[ChartSpec]] = ROWS) -> list[list[Chart]]:
    """The charts of a page, row by row; a metric that no run has is left out."""
    rows = [[chart for metric in row if (chart := _make_chart(metric, runs))] for row in metrics]
    has_sentences = any(chart.name == "sentence-loss" for row in rows for chart in row)
    if not has_sentences:  # the loss of masked words is then the loss, already shown
        rows = [[chart for chart in row if chart.name != "mlm-loss"] for row in rows]
    return [row for row in rows if row]


def _make_chart(metric: ChartSpec, runs: Sequence[TrainingRun]) -> Chart | None:
    most = max(100, min(MOST_POINTS, MOST_POINTS_IN_ALL // max(len(runs), 1)))
    curves: list[Curve] = []
    for number, run in enumerate(runs):
        series = run.train.series(metric.train)
        line = smooth(series, metric.smoothing, [stage.step for stage in run.stages])
        if len(runs) == 1 and line is not series:  # with several runs, single reports are noise
            curves.append(Curve(number, "report", downsample(series, most)))
        curves.append(Curve(number, "train", downsample(line, most)))
        if metric.held_out:
            curves.append(Curve(number, "held-out", downsample(metric.held_out(run), most)))
    curves = [curve for curve in curves if curve.series]
    if not curves:
        return None
    order: dict[Role, int] = {"report": 0, "train": 1, "held-out": 2}
    curves.sort(key=lambda curve: order[curve.role])  # the important ones on top
    references = _references(metric.baselines, runs) if metric.baselines else ()
    low, high = _range(curves, references)
    axis = linear_axis(low, high, metric.form, bounds=(0.0, 1.0) if metric.form == "percent" else None)
    log = log_axis(low, high, metric.form) if metric.log and low > 0 else None
    title = metric.title.format(sentence_task=sentence_task(runs))
    return Chart(metric.name, title, metric.form, tuple(curves), references, axis, log)


def _references(task: str, runs: Sequence[TrainingRun]) -> tuple[Reference, ...]:
    """Each level once, with the run's name if runs differ."""
    values: dict[str, dict[float, tuple[float, str]]] = {}
    for run in runs:
        for label, value in run.baselines.get(task, {}).items():
            values.setdefault(label, {}).setdefault(round(value, 4), (value, run.name))
    found = [
        Reference(label if len(levels) == 1 else f"{label} ({name})", value)
        for label, levels in values.items()
        for value, name in levels.values()
    ]
    return tuple(sorted(found, key=lambda reference: reference.value))


def _range(curves: Iterable[Curve], references: Iterable[Reference]) -> tuple[float, float]:
    """The range to show; the most extreme 1 % of single reports on each side do not stretch it."""
    low, high = [reference.value for reference in references], [reference.value for reference in references]
    for curve in curves:
        values = curve.series.values
        ends = np.percentile(values, (1, 99)) if curve.role == "report" else (values.min(), values.max())
        low.append(float(ends[0]))
        high.append(float(ends[1]))
    return min(low), max(high)


# -- what is drawn of a long series ------------------------------------------------------------------------------------


def downsample(series: Series, most: int) -> Series:
    """At most `most` points: the first, the last, and the lowest and highest of each stretch.

    Peaks and dips survive, so the picture at `most` / 2 pixels of width stays the same.
    """
    steps, values = series
    if len(steps) <= most:
        return series
    last = len(steps) - 1
    bounds = np.linspace(1, last, (most - 2) // 2 + 1).astype(int)
    keep = {0, last}
    for start, end in pairwise(bounds):
        stretch = values[start:end]
        keep |= {int(start + stretch.argmin()), int(start + stretch.argmax())}
    chosen = np.array(sorted(keep))
    return Series(steps[chosen], values[chosen])


def smooth(series: Series, share: float, breaks: Sequence[float] = ()) -> Series:
    """A centred moving average, applied twice, over a share of the series; never across a step of `breaks`.

    Centred, so that a drop is drawn where it happened; cut at breaks, so that a jump there stays a jump.
    """
    steps, values = series
    half = max(int(len(steps) * share / 2), 1)
    if not share or len(steps) < FEW:
        return series
    cuts = np.searchsorted(steps, np.asarray(breaks, dtype=float), side="right")
    parts = [_average(_average(part, half), half) for part in np.split(values, cuts) if len(part)]
    return Series(steps, np.concatenate(parts))


def _average(values: Floats, half: int) -> Floats:
    """The mean over up to `half` neighbours on each side."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    start, end = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    means: Floats = (sums[end] - sums[start]) / (end - start)
    return means
