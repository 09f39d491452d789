"""A reproduction as one HTML page: tables, verdicts with their intervals, Figure 1 redrawn, the curves of its runs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from litebert.files import write_atomic
from litebert.report.charts import make_charts
from litebert.report.figures import chart_data, draw_figures, make_axes
from litebert.report.html import (
    Markup,
    assemble_page,
    color_of,
    dash_of,
    draw_header,
    draw_section,
    draw_table,
    element,
    read_style,
    scrolling,
    swatch,
    write_html,
)
from litebert.report.numbers import Axis, linear_axis
from litebert.report.reproduction_tables import (
    columns_of,
    notes_of,
    table_rows,
    title_of,
    to_json,
    to_latex,
    to_markdown,
    verdict_title,
)
from litebert.report.runs import read_run
from litebert.reproduce.paper import METRICS
from litebert.reproduce.reproduction import JudgedTable, judged, load_plans
from litebert.reproduce.results import Results
from litebert.reproduce.verdicts import Answer, Verdict

WIDTH, HEIGHT = 530, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 30

NO_BREAK = "\N{NON-BREAKING HYPHEN}"
MOST_RUNS = 20  # whose curves are still distinguishable on one page
PLURALS: dict[Answer, str] = {"holds": "hold", "does not hold": "do not hold", "inconclusive": "inconclusive"}
LEGEND = (
    "Dots are seeds, bars their means, diamonds the paper's numbers. Beside a claim: its estimate and 90 % interval; "
    "differences in the shaded range are too small to matter."
)


def write_reproduction_page(folder: Path, page: Path | None = None) -> Path:
    """Write every table of a reproduction as Markdown, LaTeX and JSON, and all of them as one page."""
    outcomes = [judged(plan) for plan in load_plans(folder)]
    for outcome in outcomes:
        name = folder / outcome.results.table.name
        write_atomic(name.with_suffix(".md"), to_markdown(outcome))
        write_atomic(name.with_suffix(".tex"), to_latex(outcome))
        write_atomic(name.with_suffix(".json"), json.dumps(to_json(outcome), indent=1, ensure_ascii=False) + "\n")
    return write_html(draw_page(outcomes), page or folder / "report.html")


def draw_page(outcomes: Sequence[JudgedTable]) -> str:
    """The whole page as text."""
    title, style = _title(outcomes), read_style("reproduction.css")
    sections: list[Markup | None] = [_section(outcome, with_title=len(outcomes) > 1) for outcome in outcomes]
    data, folders = None, _first_seeds(outcomes)
    runs = [read_run(folder, name) for folder, name in list(folders.items())[:MOST_RUNS]]
    if runs:
        rows, axes = make_charts(runs), make_axes(runs)
        which = f", {len(runs)} of {len(folders)} runs" if len(runs) < len(folders) else ""
        sections.append(draw_section(f"Curves, first seed{which}", draw_figures(rows, runs, axes)))
        data = chart_data(rows, runs, axes)
    return assemble_page(title, _header(outcomes, title), sections, data, style, "reproduction", LEGEND)


def _title(outcomes: Sequence[JudgedTable]) -> str:
    if len(outcomes) == 1:
        return f"{outcomes[0].results.table.label}: {outcomes[0].results.table.title}"
    return f"{len(outcomes)} tables and figures of the ALBERT paper"


def _header(outcomes: Sequence[JudgedTable], title: str) -> Markup:
    answers = [verdict.answer for outcome in outcomes for verdict in outcome.verdicts]
    counts = [
        element(
            "li", element("strong", str(number)), plural if number != 1 else answer, class_=answer.replace(" ", "-")
        )
        for answer, plural in PLURALS.items()
        for number in [answers.count(answer)]
        if answers
    ]
    scales = dict.fromkeys(f"scale {outcome.results.scale}" for outcome in outcomes)
    eyebrow = "litebert · the ALBERT paper (Lan et al., 2020), reproduced"
    return draw_header(eyebrow, title, ", ".join(scales), element("ul", counts, class_="counts"))


def _section(outcome: JudgedTable, with_title: bool) -> Markup:
    results = outcome.results
    seeds = f", {results.seeds} seeds" if results.seeds > 1 else ""
    return element(
        "section",
        element(
            "h2",
            f"{results.table.label}. {results.table.title}",
            class_="section-title"
            if with_title
            else "visually-hidden",  # of a single table, it is the title of the page
        ),
        element("p", f"What varies: {results.table.varies}. Scale {results.scale}{seeds}.", class_="note"),
        _table(results),
        element("div", class_="gap"),
        scrolling("Verdicts", _claims(outcome.verdicts)),
        element("ul", [element("li", note) for note in notes_of(results)], class_="table-notes"),
        _pictures(results),
        class_="part",
    )


def _table(results: Results) -> Markup:
    heads = ["", "", *(title_of(column).replace("-", NO_BREAK) for column in columns_of(results))]
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
    return draw_table(results.table.label, heads, body, "comparison reproduced")


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


def _first_seeds(outcomes: Sequence[JudgedTable]) -> dict[Path, str]:
    """The folders of the first seed of every row, each once, with the names of the rows."""
    found: dict[Path, str] = {}
    for results in (outcome.results for outcome in outcomes):
        for place, folder in results.runs.items():
            if place.seed == 0:
                found.setdefault(folder, place.row if len(outcomes) == 1 else f"{results.table.name} {place.row}")
    return found


# -- pictures ----------------------------------------------------------------------------------------------------------


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
    """A claim's estimate and interval, with a line at zero and the differences too small to matter shaded."""
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
