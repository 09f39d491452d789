"""A study of runs on the page: every run as a dot, the median of each setting, and the same as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litebert.finetuning.results import show_spread, show_value
from litebert.report.axes import linear_axis
from litebert.report.html import Markup, element
from litebert.report.numbers import percent
from litebert.tasks.metrics import ERRORS

LEFT, RIGHT, ROW, WIDTH = 110, 24, 34, 1040


def draw_seeds(summary: Mapping[str, Any]) -> Markup | None:
    """One line per learning rate: a dot per seed, a bar from the least to the greatest, a stroke at the median."""
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
    head = [element("th", name, scope="col", class_="number") for name in columns]
    caption = (
        "★ is the best on dev. The interval of a run is over examples; beside a median stand the least and the "
        "greatest of its seeds, and ± is the standard deviation over them."
    )
    table = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", head)),
        element("tbody", rows),
        class_="comparison",
    )
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label="All runs")


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
