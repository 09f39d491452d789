"""The curves of a page: controls and legend, charts, the same as tables, and the data for page.js."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.report.charts import ROLE_NAMES, Chart
from litebert.report.html import Child, Markup, color_of, element, swatch
from litebert.report.numbers import Axis, count_axis, show, time_axis
from litebert.report.runs import Floats, TrainingRun
from litebert.report.svg import LEFT, OVERHANG, RIGHT, SIZES, TOP, Drawing

MOST_CLOCK_POINTS = 300
TABLE_ROWS = 12
EVENT_NAMES = {"skip": "step skipped", "rollback": "rolled back", "resume": "resumed", "note": "event"}

Rows = Sequence[Sequence[Chart]]


def make_axes(runs: Sequence[TrainingRun]) -> dict[str, Axis]:
    """The horizontal axes that suit all runs: steps, and tokens and seconds if every run counted them."""
    axes = {"step": count_axis("steps", max(run.step for run in runs))}
    tokens, seconds = ([run.clock(name) for run in runs] for name in ("tokens", "seconds"))
    if all(tokens):
        axes["tokens"] = count_axis("tokens", max(float(series.values[-1]) for series in tokens))
    if all(seconds):
        axes["seconds"] = time_axis(max(float(series.values[-1]) for series in seconds))
    return axes


def draw_figures(rows: Rows, runs: Sequence[TrainingRun], axes: Mapping[str, Axis]) -> Markup:
    """All charts."""
    if not rows:
        return element("p", "No curves yet: nothing has been reported.", class_="note")
    figures = [[_figure(chart, runs, axes, len(row)) for chart in row] for row in rows]
    return element(
        "div",
        _toolbar(rows, runs, axes),
        [element("div", row, class_=f"row of-{len(row)}") for row in figures],
        class_="alone" if len(runs) == 1 else "several",
    )


def chart_data(rows: Rows, runs: Sequence[TrainingRun], axes: Mapping[str, Axis]) -> dict[str, Any]:
    """What page.js needs to redraw the charts and to show values under the pointer."""
    return {
        "margins": [LEFT, RIGHT, TOP, OVERHANG],
        "axes": {name: axis.high for name, axis in axes.items()},
        "runs": [
            {
                "name": run.name,
                "color": color_of(number),
                "clocks": {name: _clock(run, name) for name in axes if name != "step"},
                "stages": [[stage.step, stage.description] for stage in run.stages if stage.label],
            }
            for number, run in enumerate(runs)
        ],
        "charts": {
            chart.name: {
                "form": chart.form,
                "linear": [chart.linear.low, chart.linear.high],
                "log": [chart.log.low, chart.log.high] if chart.log else None,
                "curves": [
                    {"run": c.run, "role": c.role, "x": _short(c.series.steps), "y": _short(c.series.values)}
                    for c in chart.curves
                ],
            }
            for row in rows
            for chart in row
        },
    }


def _toolbar(rows: Rows, runs: Sequence[TrainingRun], axes: Mapping[str, Axis]) -> Markup:
    """Controls and legend; without a script only the legend shows."""
    switches = [_switch("Over", "axis", {key: axis.name for key, axis in axes.items()})] if len(axes) > 1 else []
    if any(chart.log for row in rows for chart in row):
        switches.append(_switch("Scale", "scale", {"linear": "linear", "log": "log"}))
    legend = [
        element("button", swatch(n), " ", run.name, type="button", data_toggle=n, aria_pressed="true")
        for n, run in enumerate(runs)
    ]
    there = {curve.role for row in rows for chart in row for curve in chart.curves}
    keys = [
        element("span", element("i", class_=f"key {role}"), ROLE_NAMES[role])
        for role in ("held-out", "train", "report")
        if role in there
    ]
    kinds = {event.kind for run in runs for event in run.events}
    keys += [
        element("span", element("i", class_=f"key event {kind}"), words)
        for kind, words in EVENT_NAMES.items()
        if kind in kinds
    ]
    return element(
        "div",
        element("div", switches, class_="switches"),
        element("div", legend, class_="legend") if len(runs) > 1 else None,
        element("div", keys, class_="keys"),
        class_="toolbar",
    )


def _switch(label: str, name: str, choices: Mapping[str, str]) -> Markup:
    buttons = [
        element("button", text, type="button", data_set=name, data_value=value, aria_pressed=str(number == 0).lower())
        for number, (value, text) in enumerate(choices.items())
    ]
    return element("div", element("span", label), buttons, class_="switch", role="group", aria_label=label)


def _figure(chart: Chart, runs: Sequence[TrainingRun], axes: Mapping[str, Axis], in_row: int) -> Markup:
    finals = {run.name: final for number, run in enumerate(runs) if (final := chart.final(number))}
    ends = [
        f"{name if len(runs) > 1 else 'last'} {show(value, chart.form)} ({ROLE_NAMES[role]})"
        for name, (value, role) in finals.items()
    ]
    now: Child = None
    if len(runs) == 1:
        now = [element("span", show(value, chart.form), class_="now") for value, _ in finals.values()]
    return element(
        "figure",
        element("figcaption", element("h3", chart.title, id=f"{chart.name}-title"), now),
        element("p", "; ".join(ends), id=f"{chart.name}-summary", class_="visually-hidden"),
        Drawing(chart, runs, axes, SIZES[in_row]).draw(with_strip=len(runs) > 1 and chart.name == "loss"),
        _table(chart, runs),
        class_="figure scored" if any(curve.role == "held-out" for curve in chart.curves) else "figure",
        data_chart=chart.name,
    )


def _table(chart: Chart, runs: Sequence[TrainingRun]) -> Markup:
    """The chart as a table, for screen readers and exact numbers."""
    curves = [curve for curve in chart.curves if curve.role != "report"]
    # The steps at which the longest run was scored (or reported, without scores), and the end of the last curve.
    steps = max((c.series.steps for c in curves if c.role == curves[-1].role), key=lambda steps: float(steps[-1]))
    steps = np.union1d(steps, max(curve.series.steps[-1] for curve in curves))
    names = [f"{runs[c.run].name}, {ROLE_NAMES[c.role]}" if len(runs) > 1 else ROLE_NAMES[c.role] for c in curves]
    body = []
    for step in steps[_evenly(len(steps), TABLE_ROWS)]:
        cells = []
        for curve in curves:
            place = int(np.searchsorted(curve.series.steps, step, side="right")) - 1
            known = place >= 0 and step <= runs[curve.run].step
            cells.append(show(float(curve.series.values[place]), chart.form) if known else "–")
        body.append(element("tr", element("th", f"{step:,.0f}", scope="row"), [element("td", cell) for cell in cells]))
    head = [element("th", name, scope="col") for name in ("step", *names)]
    table = element("table", element("thead", element("tr", head)), element("tbody", body))
    return element(
        "details", element("summary", "as a table"), element("div", table, class_="scroll"), class_="alternative"
    )


def _clock(run: TrainingRun, name: str) -> list[list[float]]:
    series = run.clock(name)
    places = _evenly(len(series.steps), MOST_CLOCK_POINTS)
    return [_short(series.steps[places]), _short(series.values[places], digits=7)]


def _evenly(length: int, most: int) -> npt.NDArray[np.int64]:
    """At most `most` evenly spaced indices, including the first and the last."""
    return np.unique(np.linspace(0, length - 1, most).round().astype(np.int64))


def _short(values: Floats, digits: int = 5) -> list[float]:
    """Whole numbers as integers, others with as many digits as can be seen."""
    short = (value if value.is_integer() else float(f"{value:.{digits}g}") for value in values.tolist())
    return [int(value) if value.is_integer() else value for value in short]
