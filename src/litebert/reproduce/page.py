"""A reproduction as one HTML page: tables, verdicts with their intervals, Figure 1 redrawn, the curves of its runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from litebert.files import write_atomic
from litebert.report.charts import make_charts
from litebert.report.figures import chart_data, draw_figures, make_axes
from litebert.report.html import Markup, element
from litebert.report.page import assemble_page, draw_header, draw_section, write_html
from litebert.report.palette import swatch
from litebert.report.runs import read_run
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
LEGEND = (
    "Dots are seeds, bars their means, diamonds the paper's numbers. Beside a claim: estimate, 90 % interval, and "
    "shaded the differences too small to matter."
)


def write_outcomes(folder: Path, page: Path | None = None) -> Path:
    """Write every table of a reproduction as Markdown, LaTeX and JSON, and all of them as one page."""
    outcomes = [judged(plan) for plan in load_plans(folder)]
    for outcome in outcomes:
        name = folder / outcome.results.table.name
        write_atomic(name.with_suffix(".md"), to_markdown(outcome))
        write_atomic(name.with_suffix(".tex"), to_latex(outcome))
        write_atomic(name.with_suffix(".json"), json.dumps(to_json(outcome), indent=1, ensure_ascii=False) + "\n")
    return write_html(draw_page(outcomes), page or folder / "report.html")


def draw_page(outcomes: Sequence[Outcome]) -> str:
    """The whole page as text."""
    title, style = _title(outcomes), files("litebert.reproduce").joinpath("page.css").read_text(encoding="utf-8")
    sections: list[Markup | None] = [_section(outcome) for outcome in outcomes]
    data, folders = None, _first_seeds(outcomes)
    runs = [read_run(folder, name) for folder, name in list(folders.items())[:MOST_RUNS]]
    if runs:
        rows, axes = make_charts(runs), make_axes(runs)
        which = f", {len(runs)} of {len(folders)} runs" if len(runs) < len(folders) else ""
        sections.append(draw_section(f"Curves, first seed{which}", draw_figures(rows, runs, axes)))
        data = chart_data(rows, runs, axes)
    return assemble_page(title, _header(outcomes, title), sections, data, style, "reproduction", LEGEND)


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
    eyebrow = "litebert · the ALBERT paper (Lan et al., 2020), reproduced"
    return draw_header(eyebrow, title, ", ".join(scales), element("ul", counts, class_="counts"))


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


def _first_seeds(outcomes: Sequence[Outcome]) -> dict[Path, str]:
    """The folders of the first seed of every row, each once, with the names of the rows."""
    found: dict[Path, str] = {}
    for results in (outcome.results for outcome in outcomes):
        for place, folder in results.runs.items():
            if place.seed == 0:
                found.setdefault(folder, place.row if len(outcomes) == 1 else f"{results.table.name} {place.row}")
    return found
