"""Fine-tuning runs side by side: the seeds and learning rates of a study, and runs compared task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.finetuning.results import Scores, capital, is_detail, is_study, name_of, read_scores, read_summary
from litebert.report.html import Markup, draw_table, element, number_heads
from litebert.report.numbers import duration, linear_axis, percent
from litebert.report.runs import TrainingRun, distinct_names
from litebert.report.summary import Column, draw_runs, print_runs
from litebert.tasks.metrics import ERRORS, Metric, goodness, show_interval, show_spread, show_value
from litebert.tasks.read import named_tasks

LEFT, RIGHT, ROW, WIDTH = 110, 24, 34, 1040


def draw_seeds(summary: Mapping[str, Any]) -> Markup | None:
    """One line per learning rate: a dot per seed, a bar from the lowest to the highest, a stroke at the median."""
    settings = [setting for setting in summary["settings"] if setting["median"] is not None]
    if not settings:
        return None
    metric = str(summary["metric"])
    values = [_value(run, metric) for run in summary["runs"] if _value(run, metric) is not None]
    axis = linear_axis(min(values), max(values), "number" if metric in ERRORS else "percent")
    height = ROW * len(settings) + 30

    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * axis.place(value), 1)

    parts: list[Markup] = []
    for tick, label in axis.ticks:
        parts.append(element("line", x1=x(tick), x2=x(tick), y1=4, y2=height - 24, class_="grid"))
        parts.append(element("text", label, x=x(tick), y=height - 6, text_anchor="middle"))
    for number, setting in enumerate(settings):
        y = ROW * number + ROW / 2 + 4
        parts.append(element("text", f"lr {setting['lr']:g}", x=0, y=y + 4))
        parts.append(element("line", x1=x(setting["min"]), x2=x(setting["max"]), y1=y, y2=y, class_="whisker"))
        runs = [run for run in summary["runs"] if run["lr"] == setting["lr"] and _value(run, metric) is not None]
        for run in runs:
            title = element("title", f"seed {run['seed']}: {show_value(_value(run, metric), metric)}")
            parts.append(element("circle", title, cx=x(_value(run, metric)), cy=y, r=5))
        middle = x(setting["median"])
        parts.append(element("line", x1=middle, x2=middle, y1=y - 11, y2=y + 11, class_="median"))
    chart = element(
        "svg", parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=f"{metric} of all runs on dev"
    )
    words = f"{metric.replace('_', ' ')} on dev: a dot per seed, a stroke at the median"
    return element("div", element("p", words, class_="note"), chart, class_="seeds")


def draw_study_table(summary: Mapping[str, Any]) -> Markup:
    """All runs and the median of each setting."""
    metric = str(summary["metric"])
    rows = []
    for setting in summary["settings"]:
        runs = [run for run in summary["runs"] if run["lr"] == setting["lr"]]
        for run in runs:
            best = run["name"] == summary["best"]
            rows.append(_row(f"{run['lr']:g}", str(run["seed"]), _score(run, metric), f"{run['step']:,}", metric, best))
        if len(runs) > 1:
            score = {"value": setting["median"], "low": setting["min"], "high": setting["max"]}
            spread = f"± {show_spread(setting['spread'], metric)}"
            rows.append(_row(f"{setting['lr']:g}", "median", score, spread, metric, kind="median"))
    columns = ("Learning rate", "Seed", metric.replace("_", " "), "95 % interval", "Chosen step")
    caption = (
        "★ marks the best run on dev. The interval of a run is over examples; a median is shown with the lowest and "
        "the highest of its seeds and their standard deviation (±)."
    )
    return draw_table("All runs", number_heads(columns), rows, "comparison", caption)


def _row(
    lr: str,
    seed: str,
    score: Mapping[str, Any] | None,
    last: str,
    metric: str,
    best: bool = False,
    kind: str | None = None,
) -> Markup:
    value = score["value"] if score else None
    star = element("span", "★", class_="star", role="img", aria_label="best") if best else None
    interval, label = "", "seeds " if kind == "median" else ""
    if score and score.get("low") is not None:
        interval = f"{label}{show_value(score['low'], metric)} – {show_value(score['high'], metric)}"
    style = None if value is None or metric in ERRORS else f"--share: {percent(min(max(value, 0.0), 1.0))}"
    cells = [
        element("td", lr, class_="number"),
        element("td", seed, class_="number"),
        element("td", star, show_value(value, metric), class_="number bar" + " best" * best, style=style),
        element("td", interval, class_="number"),
        element("td", last, class_="number"),
    ]
    return element("tr", cells, class_=kind)


def _score(run: Mapping[str, Any], metric: str) -> Mapping[str, Any] | None:
    first: Mapping[str, Any] | None = next(iter(run["splits"].values()), None)
    return None if first is None else first[metric]


def _value(run: Mapping[str, Any], metric: str) -> Any:
    score = _score(run, metric)
    return None if score is None else score["value"]


# -- runs compared -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Runs whose scores can be compared, by their numbers on the page."""

    title: str
    runs: Mapping[int, TrainingRun]

    def columns(self) -> list[Column]:
        """Every score on every dev split, the chosen step and the time."""
        scores = [read_scores(run.folder) or Scores() for run in self.runs.values()]
        names = dict.fromkeys(
            (split, metric)
            for found in scores
            for split, metrics in found.splits.items()
            for metric in sorted(metrics, key=lambda name: name != found.metric)
            if not is_detail(metric)
        )
        first = next((split for split, _ in names), "")
        seconds = [float(clock.values[-1]) if (clock := run.clock("seconds")) else None for run in self.runs.values()]
        return [
            *(_score_column(split, metric, scores, split == first) for split, metric in names),
            Column("Chosen step", "step", [found.step or None for found in scores], "{:,.0f}".format),
            Column("Time", "time", seconds, duration),
        ]


def expand(folders: Sequence[Path]) -> list[Path]:
    """Run folders, with each study replaced by its runs."""
    return [
        folder / name
        for folder in folders
        for name in ([run["name"] for run in read_summary(folder)["runs"]] if is_study(folder) else [""])
    ]


def group_runs(runs: Sequence[TrainingRun]) -> list[Group]:
    """Group runs of the same public task, or of the same own files."""
    groups: dict[tuple[str, str, int], dict[int, TrainingRun]] = {}
    for number, run in enumerate(runs):
        task, data = str(run.config.get("task")), run.config.get("data") or {}
        place = "" if task in named_tasks() else str(data.get("dev") or data.get("folder") or data.get("train"))
        groups.setdefault((task, place, data.get("limit") or 0), {})[number] = run
    places = [Path(place) for place in dict.fromkeys(place for _, place, _ in groups if place)]
    names = dict(zip(map(str, places), distinct_names(places), strict=True)) if places else {}
    return [
        Group(task + f" on {names.get(place)}" * bool(place) + f", {limit:,} examples" * bool(limit), members)
        for (task, place, limit), members in groups.items()
    ]


def draw_groups(groups: Sequence[Group]) -> list[Markup]:
    """A table per group."""
    note = "Intervals are 95 %, over examples. ★ marks the best of a column; it may be chance if intervals overlap."
    return [
        element("p", note, class_="note"),
        *(
            element("div", element("h3", group.title), draw_runs(group.runs, group.columns()), class_="group")
            for group in groups
        ),
    ]


def print_groups(groups: Sequence[Group]) -> None:
    """Print the scores by which weights were chosen."""
    for group in groups:
        print(group.title)
        print_runs(group.runs.values(), group.columns())


def _score_column(split: str, metric: str, scores: Sequence[Scores], is_first: bool) -> Column:
    found: list[Metric | None] = [each.splits.get(split, {}).get(metric) for each in scores]
    words = name_of(metric if is_first else f"{split}/{metric}")
    return Column(
        capital(words),
        metric if is_first and any(each.metric == metric for each in scores) else "",  # the score that decides
        [score.value if score else None for score in found],
        lambda value: show_value(value, metric),
        1 if goodness(metric, 1.0) > 0 else -1,
        metric not in ERRORS,
        metric if is_first else "",
        [show_interval(score, metric) for score in found],
    )
