"""HTML that is escaped by construction, and the frame that all pages share.

element("p", "1 < 2", class_="note")     -> <p class="note">1 &lt; 2</p>
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import time
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import litebert
from litebert.errors import DataError
from litebert.files import write_atomic

DASHES = ("", "7 4", "2 4", "10 4 2 4", "5 3")
NUM_COLORS = 7  # in page.css; with five dash patterns, 35 runs look different

# Elements without an end tag.
VOID = {"meta", "br", "hr", "wbr"}


class Markup(str):
    """Text that is HTML already, so that it is not escaped again."""

    __slots__ = ()


Child = str | Iterable["Child"] | None


def element(name: str, /, *children: Child, **attributes: Any) -> Markup:
    """One element; `class_` and `data_run` become `class` and `data-run`; None is skipped, True has no value."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{html.escape(str(value))}"')
    start = f"<{' '.join(parts)}>"
    return Markup(start if name in VOID else f"{start}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Concatenated children: text is escaped, markup kept, None skipped, lists flattened."""
    parts = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(str(child))
        elif isinstance(child, str):
            parts.append(html.escape(child, quote=False))
        elif child is not None:
            parts.append(str(join(*child)))
    return Markup("".join(parts))


def inline_json(data: Any) -> Markup:
    """JSON that is safe inside a script element, for any strings."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


# -- the colour and dashes of a run ------------------------------------------------------------------------------------


def color_of(run: int) -> str:
    """The CSS class for a run's colour."""
    return f"run-{run % NUM_COLORS}"


def dash_of(run: int) -> str | None:
    """The dash pattern of a run's lines; None for solid."""
    return DASHES[run % len(DASHES)] or None


def swatch(run: int) -> Markup:
    """A sample of a run's line, for legends."""
    line = element("line", x1=1, x2=25, y1=6, y2=6, stroke_dasharray=dash_of(run), class_=f"curve {color_of(run)}")
    return element("svg", line, class_="swatch", viewBox="0 0 26 12", aria_hidden="true")


# -- the frame of a page -----------------------------------------------------------------------------------------------


def assemble_page(
    title: str, header: Markup, sections: Child, data: Any, more_style: str = "", kind: str = "report", note: str = ""
) -> str:
    """A whole page: style, header, sections, footer with an optional note, and the script of the charts.

    `data` is what the script draws; None for a page without charts.
    """
    colors = files("litebert").joinpath("colors.css").read_text(encoding="utf-8")
    style, script = read_style("page.css"), read_style("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Nothing is loaded, and only our script runs, whatever the texts of a run contain.
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


def read_style(name: str) -> str:
    """A style sheet or script of this folder."""
    return files("litebert.report").joinpath(name).read_text(encoding="utf-8")


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
    """A section under its title; None if there is nothing to show."""
    if not content:
        return None
    heading = element("h2", title, class_="visually-hidden" if hide_title else "section-title")
    return element("section", heading, content, class_="part")


def draw_table(label: str, head: Iterable[str], body: Child, class_: str, caption: str = "") -> Markup:
    """A table that scrolls by itself; `head` are names of columns, or their cells."""
    cells = [name if isinstance(name, Markup) else element("th", name, scope="col") for name in head]
    table = element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", cells)),
        element("tbody", body),
        class_=class_,
    )
    return scrolling(label, table)


def number_heads(names: Iterable[str]) -> list[Markup]:
    """The head of columns of numbers."""
    return [element("th", name, scope="col", class_="number") for name in names]


def scrolling(label: str, table: Child) -> Markup:
    """What is too wide for the page scrolls by itself, also with the keyboard."""
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def draw_stat(name: str, value: Child, note: str | None) -> Markup:
    """A fact in a list of facts."""
    return element(
        "div", element("dt", name), element("dd", value), element("dd", note, class_="note") if note else None
    )


def _footer(note: str) -> Markup:
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return element(
        "footer",
        element("p", note) if note else None,
        element("p", f"Made with litebert {litebert.__version__} on {made}. This is one file; it needs no network."),
    )


def write_html(page: str, out: Path | str) -> Path:
    """Write a page to a file."""
    out = Path(out)
    if out.is_dir():
        raise DataError(f"{out}: is a folder; name a file, for example {out / 'report.html'}")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, page)
    return out
