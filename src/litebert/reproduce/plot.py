"""The pictures of a reproduction page as SVG: dots per seed, lines over layers, an interval per claim."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from litebert.report.axes import Axis, linear_axis
from litebert.report.html import Markup, element
from litebert.report.palette import color_of, dash_of
from litebert.reproduce.metrics import METRICS
from litebert.reproduce.results import Results
from litebert.reproduce.verdicts import Verdict

WIDTH, HEIGHT = 530, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 30


def _frame(axis: Axis, labels: Sequence[tuple[float, str]], *inside: object, title: str) -> Markup:
    """A chart with horizontal grid lines, numbers at the left and labels below; `inside` is drawn on top."""
    grid = [
        (
            element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_y(axis, tick), y2=_y(axis, tick), class_="grid"),
            element("text", label, x=LEFT - 8, y=round(_y(axis, tick) + 4, 1), text_anchor="end"),
        )
        for tick, label in axis.ticks
    ]
    names = [
        element("text", line, x=round(x, 1), y=HEIGHT - 9 + below, text_anchor="middle")
        for x, label in labels
        for line, below in zip(label.split("\n"), (-6, 6) if "\n" in label else (0,), strict=True)
    ]
    return element(
        "svg",
        element("title", title),
        grid,
        names,
        *inside,  # type: ignore[arg-type]
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="chart still",
    )


def _y(axis: Axis, value: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - axis.place(value)), 1)


def draw_dots(results: Results, metric: str) -> Markup | None:
    """A metric by row: a dot per seed, a bar at their mean, a diamond at the paper's number."""
    rows = [row for row in results.table.rows if results.of(row, metric)]
    if len(rows) < 2:
        return None
    values = {row: list(results.of(row, metric).values()) for row in rows}
    paper = {row: results.table.rows[row].paper.get(metric) for row in rows}
    every = [value for seeds in values.values() for value in seeds] + [value for value in paper.values() if value]
    axis = linear_axis(min(every), max(every), "number")
    step = (WIDTH - LEFT - RIGHT) / len(rows)
    room = max(3, int(step / 6.2))
    labels, marks = [], []
    for place, row in enumerate(rows):
        x = LEFT + step * (place + 0.5)
        number = list(results.table.rows).index(row)  # a row has its colour in every picture
        labels.append((x, _fit(row, room)))
        mean = _y(axis, statistics.fmean(values[row]))
        marks.append(element("line", x1=x - 16, x2=x + 16, y1=mean, y2=mean, class_=f"mean {color_of(number)}"))
        for seed, value in enumerate(values[row]):
            shift = 7 * (seed - (len(values[row]) - 1) / 2)
            marks.append(
                element("circle", cx=round(x + shift, 1), cy=_y(axis, value), r=3.6, class_=f"seed {color_of(number)}")
            )
        printed = paper[row]
        if printed is not None:
            y = _y(axis, printed)
            marks.append(element("path", d=f"M{x - 6} {y}l6 -6 6 6 -6 6z", class_="printed"))
    return _frame(axis, labels, marks, title=f"{METRICS[metric].title} by row")


def _fit(name: str, room: int) -> str:
    """A row's name in `room` letters, on two lines if need be: ("768-attention", 9) -> "768-\\nattention"."""
    if len(name) <= room:
        return name
    head, dash, tail = name.rpartition("-")
    lines = [head + dash, tail] if head else [name]
    return "\n".join(line if len(line) <= room else line[: room - 1] + "…" for line in lines)


def draw_layers(results: Results, which: str) -> Markup | None:
    """Figure 1: L2 distance or angle over layers; a line per row, thin ones for its seeds."""
    rows = list(dict.fromkeys(place.row for place in results.layers))
    if not rows:
        return None
    lines: Mapping[str, list[Sequence[float]]] = {
        row: [layers[which] for place, layers in results.layers.items() if place.row == row] for row in rows
    }
    every = [value for seeds in lines.values() for line in seeds for value in line]
    axis = linear_axis(min(every), max(every), "number")
    deepest = max(len(line) for seeds in lines.values() for line in seeds)

    def x(layer: int) -> float:
        return round(LEFT + 14 + (WIDTH - LEFT - RIGHT - 28) * layer / max(deepest - 1, 1), 1)

    drawn = []
    for number, row in enumerate(rows):
        means = [statistics.fmean(values) for values in zip(*lines[row], strict=True)]
        for kind, line in [*(("curve thin", one) for one in lines[row]), ("curve", means)]:
            points = " ".join(f"{x(layer)} {_y(axis, value)}" for layer, value in enumerate(line))
            dash = dash_of(number) if kind == "curve" else None
            drawn.append(element("path", d=f"M{points}", class_=f"{kind} {color_of(number)}", stroke_dasharray=dash))
        drawn += [
            element("circle", cx=x(layer), cy=_y(axis, value), r=3, class_=f"seed {color_of(number)}")
            for layer, value in enumerate(means)
        ]
    every_nth = max(1, deepest // 12)
    labels = [(x(layer), str(layer + 1)) for layer in range(deepest) if layer % every_nth == 0]
    return _frame(axis, labels, drawn, title=f"{which} between input and output of each layer")


def draw_interval(verdict: Verdict) -> Markup | None:
    """A claim's estimate with its interval, beside nothing (the line) and what is too small to matter (shaded)."""
    test = verdict.test
    if test is None or test.method == "exact":
        return None
    margin = verdict.claim.margin
    low, high = min(test.low, -margin if verdict.claim.near is not None else 0.0), max(test.high, margin)
    air = 0.06 * (high - low) or 1.0
    low, high = low - air, high + air

    def x(value: float) -> float:
        return round(200 * (value - low) / (high - low), 1)

    start = x(-margin) if verdict.claim.near is not None else x(0.0)
    kind = verdict.answer.replace(" ", "-")
    return element(
        "svg",
        element("title", verdict.evidence),
        element("rect", x=start, width=max(0.0, x(margin) - start), y=2, height=20, class_="margin"),
        element("line", x1=x(0.0), x2=x(0.0), y1=0, y2=24, class_="zero"),
        element("line", x1=x(test.low), x2=x(test.high), y1=12, y2=12, class_=f"interval {kind}"),
        element("circle", cx=x(test.estimate), cy=12, r=4, class_=f"estimate {kind}"),
        viewBox="0 0 200 24",
        role="img",
        class_="forest",
    )
