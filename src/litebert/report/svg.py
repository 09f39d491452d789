"""A chart as SVG. Elements carry their values in data attributes, so that page.js can move them.

    data-x      a step of run data-run, or a value of axis data-axis      data-from, data-to   the same, for a width
    data-scale  shown on this vertical scale only                         data-curve           which curve of the chart

The inner <svg class="plot"> clips the curves; inside it, 100% is the width of the plot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from litebert.report.charts import Chart, Curve
from litebert.report.html import Markup, color_of, dash_of, element, join
from litebert.report.numbers import Axis, show
from litebert.report.runs import Stage, TrainingRun

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

    def stage_name(self, run: int, stage: Stage, start: float, end: float, y: float) -> Markup:
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


def stretches(run: TrainingRun, end: float) -> list[tuple[Stage, float, float]]:
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
