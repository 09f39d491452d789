"""Depth as a dial, as a picture: scores over what they cost, one line per rule or model.

draw_depths([Line("SST-2", [Point(3, 0.86), Point(12, 0.92)])], "layers", "percent")   -> <svg>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from litebert.report.figures import LEFT, LETTER, TOP, Size
from litebert.report.html import Markup, color_of, dash_of, element
from litebert.report.numbers import Axis, Format, tick_labels, ticks_between

SIZE = Size(680, 300)
BOTTOM = 40
# Of a picture that stands alone; a page has its own.
STYLE = """text{font:11px system-ui,sans-serif;fill:#57606a}.grid{stroke:#d0d7de;stroke-width:1}
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


def draw_depths(lines: Sequence[Line], cost: str, form: Format = "percent", alone: bool = False) -> Markup:
    """A chart of scores over costs; `alone`: as a separate file."""
    costs = [point.cost for line in lines for point in line.points]
    scores = [point.score for line in lines for point in line.points]
    room = max(max(scores) - min(scores), 0.005)
    across = _axis(0.0, max(costs) * 1.05, 8, "number")
    up = _axis(min(scores) - 0.1 * room, max(scores) + 0.1 * room, 5, form)
    width, height = SIZE.width - LEFT - 20, SIZE.height - TOP - BOTTOM

    def place(point: Point) -> str:
        return f"{LEFT + width * across.place(point.cost):.1f} {TOP + height * (1 - up.place(point.score)):.1f}"

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
        kind, dash = f"curve {color_of(number)}", dash_of(number // 2)
        path = "M" + " ".join(place(point) for point in line.points)
        parts.append(element("path", d=path, class_=kind, stroke_dasharray=dash))
        for point in line.points:
            title = element("title", point.label or f"{line.name}: {point.score:.4g} at {point.cost:.4g} {cost}")
            parts.append(element("path", title, d=f"M{place(point)}h0", class_=f"{kind} dots"))
        parts.append(element("path", d=f"M{x:.1f} {TOP - 10}h16", class_=kind, stroke_dasharray=dash))
        parts.append(element("text", line.name, x=round(x + 21, 1), y=TOP - 6))
        x += 36 + LETTER * len(line.name)
    size = {"width": SIZE.width, "height": SIZE.height, "xmlns": "http://www.w3.org/2000/svg"} if alone else {}
    return element(
        "svg",
        element("style", Markup(STYLE)) if alone else None,
        parts,
        viewBox=f"0 0 {SIZE.width} {SIZE.height}",
        role="img",
        aria_label=f"scores over {cost}: {', '.join(line.name for line in lines)}",
        class_="chart depths",
        **size,
    )


def _axis(low: float, high: float, most: int, form: Format) -> Axis:
    ticks = ticks_between(low, high, most)
    return Axis(low, high, tuple(zip(ticks, tick_labels(ticks, form), strict=True)))
