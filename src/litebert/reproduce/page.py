"""A reproduction as one HTML page: tables, verdicts with their intervals, Figure 1 redrawn, the curves of its runs."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path

import litebert
from litebert.files import write_atomic
from litebert.report.charts import make_charts
from litebert.report.figures import chart_data, draw_figures, make_axes
from litebert.report.html import Child, Markup, element, inline_json
from litebert.report.palette import swatch
from litebert.report.runs import Run, read_run
from litebert.reproduce.metrics import METRICS
from litebert.reproduce.plot import draw_dots, draw_interval, draw_layers
from litebert.reproduce.render import (
    STYLES,
    columns_of,
    notes_of,
    table_rows,
    title_of,
    to_json,
    to_latex,
    to_markdown,
    verdict_title,
)
from litebert.reproduce.reproduction import Outcome, judged, load_plans
from litebert.reproduce.results import Results
from litebert.reproduce.verdicts import Verdict

MOST_RUNS = 20  # of which curves can be told apart on one page


def write_outcomes(folder: Path, page: Path | None = None) -> Path:
    """Write every table of a reproduction as Markdown, LaTeX and JSON, and all of them as one page."""
    outcomes = [judged(plan) for plan in load_plans(folder)]
    for outcome in outcomes:
        name = folder / outcome.results.table.name
        write_atomic(name.with_suffix(".md"), to_markdown(outcome))
        write_atomic(name.with_suffix(".tex"), to_latex(outcome))
        write_atomic(name.with_suffix(".json"), json.dumps(to_json(outcome), indent=1, ensure_ascii=False) + "\n")
    page = page or folder / "report.html"
    write_atomic(page, draw_page(outcomes))
    return page


def draw_page(outcomes: Sequence[Outcome]) -> str:
    """The whole page as text."""
    style = "\n".join(
        files(package).joinpath("page.css").read_text(encoding="utf-8")
        for package in ("litebert.report", "litebert.reproduce")
    )
    script = files("litebert.report").joinpath("page.js").read_text(encoding="utf-8")
    runs = _runs(outcomes)
    rows, axes = (make_charts(runs), make_axes(runs)) if runs else ([], {})
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Nothing is loaded, and no script runs but ours, whatever the texts of a run hold.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = _title(outcomes)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} · litebert reproduction"),
        element("style", Markup(style)),
    )
    curves: Child = None
    if runs:
        curves = element(
            "section",
            element("h2", "Curves, first seed", class_="section-title"),
            draw_figures(rows, runs, axes),
            class_="part",
        )
    body = element(
        "body",
        _header(outcomes, title),
        element("main", [_section(outcome) for outcome in outcomes], curves),
        _footer(),
        element("script", inline_json(chart_data(rows, runs, axes)), type="application/json", id="data")
        if runs
        else None,
        element("script", Markup(script)) if runs else None,
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _title(outcomes: Sequence[Outcome]) -> str:
    if len(outcomes) == 1:
        return f"{outcomes[0].results.table.label}: {outcomes[0].results.table.title}"
    return f"{len(outcomes)} tables of the ALBERT paper"


def _header(outcomes: Sequence[Outcome], title: str) -> Markup:
    answers = [verdict.answer for outcome in outcomes for verdict in outcome.verdicts]
    counts = [
        element("li", element("strong", str(answers.count(answer))), answer, class_=answer.replace(" ", "-"))
        for answer in STYLES
        if answers
    ]
    scales = dict.fromkeys(f"scale {outcome.results.scale}" for outcome in outcomes)
    return element(
        "header",
        element("p", "litebert · the ALBERT paper (Lan et al., 2020), reproduced", class_="eyebrow"),
        element("h1", title),
        element("p", ", ".join(scales), class_="subtitle"),
        element("ul", counts, class_="counts"),
    )


def _section(outcome: Outcome) -> Markup:
    results = outcome.results
    seeds = f", {results.seeds} seeds" if results.seeds > 1 else ""
    return element(
        "section",
        element("h2", f"{results.table.label}. {results.table.title}", class_="section-title"),
        element("p", f"What varies: {results.table.varies}. Scale {results.scale}{seeds}.", class_="note"),
        element("div", _table(results), class_="scroll", tabindex=0, role="region", aria_label=results.table.label),
        element("div", class_="gap"),
        element("div", _claims(outcome.verdicts), class_="scroll", tabindex=0, role="region", aria_label="Verdicts"),
        element("ul", [element("li", note) for note in notes_of(results)], class_="table-notes"),
        _pictures(results),
        class_="part",
    )


def _table(results: Results) -> Markup:
    heads = ["", "", *(title_of(column) for column in columns_of(results))]
    body, above = [], ""
    for name, who, *cells in table_rows(results):
        body.append(
            element(
                "tr",
                element("th", name, scope="row") if name else element("td"),
                element("td", who, class_="who"),
                [element("td", cell) for cell in cells],
                class_=f"{who} paired" if not name and above else who,
            )
        )
        above = name
    head = element("thead", element("tr", [element("th", text, scope="col") for text in heads]))
    return element("table", head, element("tbody", body), class_="comparison reproduced")


def _claims(verdicts: Sequence[Verdict]) -> Markup | None:
    if not verdicts:
        return None
    rows = [
        element(
            "tr",
            element("td", element("span", v.answer, class_=f"verdict {v.answer.replace(' ', '-')}")),
            element("td", element("p", verdict_title(v)), element("p", v.evidence, class_="note")),
            element("td", draw_interval(v), class_=v.answer.replace(" ", "-")),
        )
        for v in verdicts
    ]
    return element("table", element("tbody", rows), class_="comparison claims")


def _pictures(results: Results) -> Markup | None:
    figures = []
    for which, title in (("l2", "L2 distance by layer"), ("angle", "Angle by layer, degrees")):
        drawn = draw_layers(results, which)
        if drawn:
            rows = dict.fromkeys(place.row for place in results.layers)
            figures.append(
                (
                    title,
                    drawn,
                    [element("span", swatch(number), row, class_="lines") for number, row in enumerate(rows)],
                )
            )
    for metric in results.table.measure:
        drawn = draw_dots(results, metric) if METRICS[metric].source != "count" else None
        if drawn:
            figures.append((METRICS[metric].title, drawn, []))
    cards = [
        element(
            "figure",
            element("figcaption", element("h3", title), element("span", legend) if legend else None),
            drawn,
            class_="figure",
        )
        for title, drawn, legend in figures
    ]
    pairs = [cards[start : start + 2] for start in range(0, len(cards), 2)]
    return element("div", [element("div", pair, class_="row of-2") for pair in pairs]) if cards else None


def _runs(outcomes: Sequence[Outcome]) -> list[Run]:
    """The first seed of every row, each run once."""
    found: dict[Path, Run] = {}
    places = chain.from_iterable(
        [(outcome.results.table, place, folder) for place, folder in outcome.results.runs.items()]
        for outcome in outcomes
    )
    for table, place, folder in places:
        if place.seed == 0 and folder not in found and len(found) < MOST_RUNS:
            found[folder] = read_run(folder, place.row if len(outcomes) == 1 else f"{table.name} {place.row}")
    return list(found.values())


def _footer() -> Markup:
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    legend = (
        "Dots are seeds, bars their means, diamonds the paper's numbers. Beside a claim: estimate, 90 % interval, and "
        "shaded the differences too small to matter."
    )
    return element(
        "footer",
        element("p", legend),
        element("p", f"Made by litebert {litebert.__version__} on {made}. It is one file and needs no network."),
    )
