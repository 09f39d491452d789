"""The charts of a page as SVG, with controls, legend and tables, and the data for page.js.

Elements of a chart carry their values in data attributes, so that page.js can move them:

    data-x      a step of run data-run, or a value of axis data-axis      data-from, data-to   the same, for a width
    data-scale  shown on this vertical scale only                         data-curve           which curve of the chart

The inner <svg class="plot"> clips the curves; inside it, 100% is the width of the plot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from litebert.report.charts import ROLE_NAMES, Chart, Curve
from litebert.report.html import Child, Markup, color_of, dash_of, element, join, swatch
from litebert.report.numbers import Axis, Format, count_axis, show, tick_labels, ticks_between, time_axis
from litebert.report.runs import Floats, RunStage, TrainingRun

LEFT, RIGHT, TOP, BOTTOM = 52, 12, 22, 24
OVERHANG = 6  # part of RIGHT that belongs to the plot, for a dot at the very end
STRIP = 17  # height of a run's row in the strip of stages
LETTER = 6.0  # approximate width of a letter in a small label
FEWEST = 3  # points needed to draw a line
MOST_MARKS = 60  # events per chart


class Size(NamedTuple):
    """Pixels of a chart; page.js fits the width to the window."""

    width: int
    height: int


SIZES = {1: Size(1080, 330), 2: Size(530, 260), 3: Size(346, 210)}  # by the number of charts in a row


class Drawing:
    """One chart over steps, with a linear vertical axis: what shows without a script."""

    def __init__(self, chart: Chart, runs: Sequence[TrainingRun], axes: Mapping[str, Axis], size: Size):
        self.chart, self.runs, self.axes = chart, runs, axes
        self.size = size
        self.width, self.height = size.width - LEFT - RIGHT, size.height - TOP - BOTTOM  # of the plot

    def draw(self, with_strip: bool = False) -> Markup:
        """The whole chart; `with_strip` adds a row under it for the stages of each run."""
        rows = [number for number, run in enumerate(self.runs) if len(run.stages) > 1] if with_strip else []
        alone = self.runs[0] if len(self.runs) == 1 else None
        plot = element(
            "svg",
            self.bands(alone) if alone else None,
            self.grid(self.chart.linear),
            self.grid(self.chart.log) if self.chart.log else None,
            [
                element("line", x2="100%", transform=f"translate(0 {self.y(r.value)})", class_="level")
                for r in self.chart.references
            ],
            [self.curve(number, curve) for number, curve in enumerate(self.chart.curves)],
            self.reference_labels(),
            [self.marks(number, run) for number, run in enumerate(self.runs)],
            class_="plot",
            x=LEFT,
            y=TOP,
            width=self.width + OVERHANG,
            height=self.height,
        )
        return element(
            "svg",
            self.band_labels(alone) if alone else None,
            plot,
            self.y_labels(self.chart.linear),
            self.y_labels(self.chart.log) if self.chart.log else None,
            [self.x_labels(name, axis) for name, axis in self.axes.items()],
            [self.strip(number, row) for row, number in enumerate(rows)],
            viewBox=f"0 0 {self.size.width} {self.size.height + STRIP * len(rows)}",
            role="img",
            aria_labelledby=f"{self.chart.name}-title {self.chart.name}-summary",
            class_="chart",
        )

    def x(self, step: float) -> float:
        """Pixels from the left edge of the plot."""
        return round(self.width * self.axes["step"].place(step), 1)

    def y(self, value: float, axis: Axis | None = None) -> float:
        """Pixels from the upper edge of the plot."""
        return round(self.height * (1 - (axis or self.chart.linear).place(value)), 1)

    # -- axes ----------------------------------------------------------------------------------------------------------

    def grid(self, axis: Axis) -> list[Markup]:
        """Horizontal lines at the ticks."""
        return [
            element("line", x2="100%", transform=f"translate(0 {self.y(tick, axis)})", class_="grid", **_scale(axis))
            for tick, _ in axis.ticks
        ]

    def y_labels(self, axis: Axis) -> list[Markup]:
        """Numbers at the left."""
        return [
            element(
                "text", label, x=LEFT - 8, y=round(TOP + self.y(tick, axis) + 4, 1), text_anchor="end", **_scale(axis)
            )
            for tick, label in axis.ticks
        ]

    def x_labels(self, name: str, axis: Axis) -> list[Markup]:
        """Numbers below, as many as fit, with their unit at the left."""
        gap = max(len(label) for _, label in axis.ticks) * LETTER + 14
        apart = self.width / max(len(axis.ticks) - 1, 1)
        every = next((count for count in (1, 2, 5, 10) if count * apart >= gap), 100)
        y = TOP + self.height + 17
        labels = [element("text", axis.name, x=LEFT - 14, y=y, text_anchor="end", class_="axis", **_shown(name, True))]
        for number, (tick, label) in enumerate(axis.ticks):
            place = f"translate({round(LEFT + self.width * axis.place(tick), 1)} {y})"
            shown = _shown(name, number % every == 0)
            labels.append(element("text", label, transform=place, text_anchor="middle", data_x=_exact(tick), **shown))
        return labels

    # -- curves and levels ---------------------------------------------------------------------------------------------

    def curve(self, number: int, curve: Curve) -> Markup:
        """A line, with dots if it is held-out or has too few points to show as a line."""
        points = [f"{self.x(step)} {self.y(value)}" for step, value in zip(*curve.series, strict=True)]
        dots = "".join(f"M{point}h0" for point in points)  # lines of zero length with round ends
        kind = f"curve {curve.role} {color_of(curve.run)}"
        common = {"data_run": curve.run, "data_curve": number}
        dash = dash_of(curve.run) if curve.role != "report" else None
        line = element("path", d="M" + " ".join(points), class_=kind, stroke_dasharray=dash, **common)
        if curve.role != "held-out" and len(points) >= FEWEST:
            return line
        return join(line, element("path", d=dots, class_=f"{kind} dots", **common))

    def reference_labels(self) -> list[Markup]:
        """Names of the levels at the right end, above their lines, or below if that place is taken."""
        labels, last = [], -100.0
        for reference in sorted(self.chart.references, key=lambda reference: -reference.value):  # from the top down
            y = self.y(reference.value) - 5
            if y < 10 or y - last < 13:
                y = max(y + 17, last + 13)
            last = y
            text = f"{reference.label} {show(reference.value, self.chart.form)}"
            labels.append(element("text", text, x="100%", dx=-4, y=round(y, 1), text_anchor="end", class_="level-name"))
        return labels

    # -- stages and events ---------------------------------------------------------------------------------------------

    def bands(self, run: TrainingRun) -> list[Markup]:
        """A shade behind every other stage."""
        return [
            element("rect", height=self.height, class_="band", **self.stretch(0, start, end))
            for _, start, end in stretches(run, self.axes["step"].high)[1::2]
        ]

    def band_labels(self, run: TrainingRun) -> list[Markup]:
        """What changes in each stage, above the plot."""
        return [
            self.stage_name(0, stage, start, end, TOP - 7)
            for stage, start, end in stretches(run, self.axes["step"].high)
        ]

    def strip(self, number: int, row: int) -> list[Markup]:
        """A run's stages as a row under the axis, for charts of several runs."""
        top = self.size.height + STRIP * row
        parts = []
        for stage, start, end in stretches(self.runs[number], self.runs[number].step):
            place = self.stretch(number, start, end, left=LEFT, gap=1)
            parts += [
                element("rect", y=top, height=STRIP - 3, rx=2, class_=f"strip {color_of(number)}", **place),
                self.stage_name(number, stage, start, end, top + STRIP - 6.5),
            ]
        return parts

    def stretch(self, run: int, start: float, end: float, left: int = 0, gap: int = 0) -> dict[str, object]:
        """The position of a range of steps."""
        width = round(max(0.0, self.x(end) - self.x(start) - gap), 1)
        return {
            "x": left + self.x(start),
            "width": width,
            "data_run": run,
            "data_from": _exact(start),
            "data_to": _exact(end),
        }

    def stage_name(self, run: int, stage: RunStage, start: float, end: float, y: float) -> Markup:
        """A label at the start of a stage, shortened or hidden if there is little room."""
        room = self.x(end) - self.x(start) - 8
        names = [name for name in (stage.label, stage.short_label) if len(name) * LETTER <= room]
        return element(
            "text",
            names[0] if names else stage.label,
            transform=f"translate({round(LEFT + self.x(start) + 4, 1)} {y})",
            class_="stage",
            data_run=run,
            data_from=_exact(start),
            data_to=_exact(end),
            data_names=f"{stage.label}|{stage.short_label}",
            display=None if names else "none",
        )

    def marks(self, number: int, run: TrainingRun) -> list[Markup]:
        """A small mark at the lower edge for each event but stages, which have bands."""
        events = [event for event in run.events if event.kind != "stage"]
        whose = f"{run.name}, " if len(self.runs) > 1 else ""
        return [
            element(
                "path",
                element("title", f"{whose}step {event.step:,}: {event.message}"),
                d="M0 -9 5 0h-10z",
                transform=f"translate({self.x(event.step)} {self.height})",
                class_=f"mark {event.kind}",
                data_run=number,
                data_x=event.step,
            )
            for event in events[:: max(1, -(-len(events) // MOST_MARKS))]
        ]


def stretches(run: TrainingRun, end: float) -> list[tuple[RunStage, float, float]]:
    """Each stage with its first and last step; empty if nothing changes."""
    if len(run.stages) < 2:
        return []
    bounds = pairwise([*(stage.step for stage in run.stages), end])
    return [(stage, start, stop) for stage, (start, stop) in zip(run.stages, bounds, strict=True)]


def _scale(axis: Axis) -> dict[str, str | None]:
    return {"data_scale": axis.scale, "display": "none" if axis.scale == "log" else None}


def _shown(axis: str, fits: bool) -> dict[str, str | None]:
    return {"data_axis": axis, "display": None if axis == "step" and fits else "none"}


def _exact(value: float) -> str:
    return f"{value:.12g}"


# ---------------------------------------------------------------------------------------------------------------------
# Charts with their controls, the same as tables, and the data for page.js

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
    """Whole numbers as integers, others with as many digits as are visible."""
    short = (value if value.is_integer() else float(f"{value:.{digits}g}") for value in values.tolist())
    return [int(value) if value.is_integer() else value for value in short]


# ---------------------------------------------------------------------------------------------------------------------
# Depth as a dial: scores over what they cost


DIAL = Size(680, 300)
# For a picture in a separate file; a page has other styles.
DIAL_STYLE = """text{font:11px system-ui,sans-serif;fill:#57606a}.grid{stroke:#d0d7de;stroke-width:1}
.curve{fill:none;stroke-width:2;stroke:currentColor}.dots{stroke-width:7;stroke-linecap:round}
.run-0{color:#0969da}.run-1{color:#bc4c00}.run-2{color:#1a7f37}.run-3{color:#8250df}.run-4{color:#bf3989}
.run-5{color:#9a6700}.run-6{color:#57606a}"""


class Point(NamedTuple):
    """What something costs, and how good it is."""

    cost: float
    score: float
    label: str = ""  # shown where the mouse is


class Line(NamedTuple):
    """Points that belong together, the cheapest first."""

    name: str
    points: Sequence[Point]
    auto: Sequence[Point] = ()  # where each text has its own depth: rings beside the line


def draw_depths(lines: Sequence[Line], cost: str, form: Format = "percent", alone: bool = False) -> Markup:
    """A chart of scores over costs; `alone`: as a separate file."""
    shown = [point for line in lines for point in (*line.points, *line.auto)]
    costs, scores = [point.cost for point in shown], [point.score for point in shown]
    room = max(max(scores) - min(scores), 0.005)
    across = _axis(0.0, max(costs) * 1.05, 8, "number")
    up = _axis(min(scores) - 0.1 * room, max(scores) + 0.1 * room, 5, form)
    width, height = DIAL.width - LEFT - 20, DIAL.height - TOP - BOTTOM - 16

    def at(point: Point) -> tuple[float, float]:
        return round(LEFT + width * across.place(point.cost), 1), round(TOP + height * (1 - up.place(point.score)), 1)

    def place(point: Point) -> str:
        return "{} {}".format(*at(point))

    def title(point: Point, name: str) -> Markup:
        return element("title", point.label or f"{name}: {point.score:.4g} at {point.cost:.4g} {cost}")

    parts: list[Markup] = []
    for tick, label in up.ticks:
        y = round(TOP + height * (1 - up.place(tick)), 1)
        parts.append(element("line", x1=LEFT, x2=LEFT + width, y1=y, y2=y, class_="grid"))
        parts.append(element("text", label, x=LEFT - 8, y=y + 4, text_anchor="end"))
    for tick, label in across.ticks:
        x = round(LEFT + width * across.place(tick), 1)
        parts.append(element("text", label, x=x, y=TOP + height + 17, text_anchor="middle"))
    parts.append(element("text", cost, x=LEFT + width, y=TOP + height + 33, text_anchor="end", class_="axis"))
    x = float(LEFT)
    for number, line in enumerate(lines):
        kind, dash = f"curve {color_of(number)}", dash_of(number)
        path = "M" + " ".join(place(point) for point in line.points)
        parts.append(element("path", d=path, class_=kind, stroke_dasharray=dash))
        for point in line.points:
            parts.append(element("path", title(point, line.name), d=f"M{place(point)}h0", class_=f"{kind} dots"))
        for point in line.auto:
            x_of, y_of = at(point)
            parts.append(element("circle", title(point, f"{line.name}, auto"), cx=x_of, cy=y_of, r=5, class_=kind))
        parts.append(element("path", d=f"M{x:.1f} {TOP - 10}h16", class_=kind, stroke_dasharray=dash))
        parts.append(element("text", line.name, x=round(x + 21, 1), y=TOP - 6))
        x += 36 + LETTER * len(line.name)
    if any(line.auto for line in lines):
        parts.append(element("circle", cx=round(x + 8, 1), cy=TOP - 10, r=5, class_="curve"))
        parts.append(element("text", "auto", x=round(x + 21, 1), y=TOP - 6))
    size = {"width": DIAL.width, "height": DIAL.height, "xmlns": "http://www.w3.org/2000/svg"} if alone else {}
    return element(
        "svg",
        element("style", Markup(DIAL_STYLE)) if alone else None,
        parts,
        viewBox=f"0 0 {DIAL.width} {DIAL.height}",
        role="img",
        aria_label=f"scores over {cost}: {', '.join(line.name for line in lines)}",
        class_="chart depths",
        **size,
    )


def _axis(low: float, high: float, most: int, form: Format) -> Axis:
    ticks = ticks_between(low, high, most)
    return Axis(low, high, tuple(zip(ticks, tick_labels(ticks, form), strict=True)))
