"""How a run is told from the others: a colour and dashes that stay its own on the whole page."""

from __future__ import annotations

from litebert.report.html import Markup, element

DASHES = ("", "7 4", "2 4", "10 4 2 4", "5 3")
NUM_COLORS = 7  # of page.css; with five dashes, 35 runs have a pair of their own


def color_of(run: int) -> str:
    """The class that gives a run its colour."""
    return f"run-{run % NUM_COLORS}"


def dash_of(run: int) -> str | None:
    """The dashes of a run's lines; None for an unbroken one."""
    return DASHES[run % len(DASHES)] or None


def swatch(run: int) -> Markup:
    """A bit of a run's line, for legends."""
    line = element("line", x1=1, x2=25, y1=6, y2=6, stroke_dasharray=dash_of(run), class_=f"curve {color_of(run)}")
    return element("svg", line, class_="swatch", viewBox="0 0 26 12", aria_hidden="true")
