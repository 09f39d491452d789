"""The page: one HTML file with everything in it, that opens without a network and without a server."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import litebert
from litebert.errors import DataError
from litebert.files import write_atomic
from litebert.report.charts import make_charts
from litebert.report.figures import chart_data, draw_figures, make_axes
from litebert.report.history import describe_run, draw_events, draw_provenance
from litebert.report.html import Child, Markup, element, inline_json
from litebert.report.masks import draw_masks
from litebert.report.runs import Run, read_runs
from litebert.report.settings import draw_differences, draw_settings
from litebert.report.summary import draw_comparison, draw_tiles, state_of


def write_report(runs: Sequence[Path | str], out: Path | str) -> Path:
    """Write the page about some run folders: write_report(["runs/a", "runs/b"], "report.html") -> its path."""
    return write_page(read_runs(runs), out)


def write_page(runs: Sequence[Run], out: Path | str) -> Path:
    """Write the page about runs that are read already."""
    return write_html(draw_page(runs), out)


def write_html(page: str, out: Path | str) -> Path:
    """Write a page where a file may be."""
    out = Path(out)
    if out.is_dir():
        raise DataError(f"{out}: is a folder; name a file, for example {out / 'report.html'}")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, page)
    return out


def draw_page(runs: Sequence[Run]) -> str:
    """The whole page as text."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs compared"
    axes = make_axes(runs)
    rows = make_charts(runs)
    sections = [
        draw_section("Numbers", draw_tiles(runs[0]) if len(runs) == 1 else draw_comparison(runs), hide_title=True),
        draw_section("What differs", draw_differences(runs)),
        draw_section("Curves", draw_figures(rows, runs, axes)),
        draw_section("Filled masks", draw_masks(runs)),
        draw_section("What happened", draw_events(runs)),
        draw_section("Hardware and software", draw_provenance(runs)),
        draw_section("Config", draw_settings(runs)),
    ]
    return assemble_page(title, _header(runs, title), sections, chart_data(rows, runs, axes))


def assemble_page(
    title: str, header: Markup, sections: Child, data: Any, more_style: str = "", kind: str = "report", note: str = ""
) -> str:
    """A page of ours: its style, header, sections, footer (with a note), and where there are charts their script.

    `data` is what the script draws from; None where there is no chart.
    """
    colors, style, script = (
        files("litebert").joinpath(name).read_text(encoding="utf-8")
        for name in ("colors.css", "report/page.css", "report/page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Nothing is loaded, and no script runs but ours, whatever the texts of a run hold.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} · litebert {kind}"),
        element("style", Markup(colors + style + more_style)),
    )
    body = element(
        "body",
        header,
        element("main", sections),
        _footer(note),
        None if data is None else element("script", inline_json(data), type="application/json", id="data"),
        None if data is None else element("script", Markup(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _header(runs: Sequence[Run], title: str) -> Markup:
    if len(runs) == 1:
        state = state_of(runs[0])
        line: Child = [element("span", state, class_=f"state {state.split()[0]}"), describe_run(runs[0])]
    else:
        line = ", ".join(run.name for run in runs)
    return draw_header("litebert · pretraining report", title, line)


def draw_header(eyebrow: str, title: str, subtitle: Child, *more: Child) -> Markup:
    """The top of a page."""
    return element(
        "header",
        element("p", eyebrow, class_="eyebrow"),
        element("h1", title),
        element("p", subtitle, class_="subtitle"),
        *more,
    )


def draw_section(title: str, content: Child, hide_title: bool = False) -> Markup | None:
    """A part of the page under its title; None where there is nothing to show."""
    if not content:
        return None
    heading = element("h2", title, class_="visually-hidden" if hide_title else "section-title")
    return element("section", heading, content, class_="part")


def _footer(note: str) -> Markup:
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return element(
        "footer",
        element("p", note) if note else None,
        element("p", f"Made by litebert {litebert.__version__} on {made}. It is one file and needs no network."),
    )
