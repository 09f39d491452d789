"""The numbers a run came to: tiles for one run, a table for several, rows for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from litebert.report.charts import held_out_loss
from litebert.report.curves import Series
from litebert.report.html import Child, Markup, element, join
from litebert.report.numbers import count, duration, percent
from litebert.report.palette import color_of, swatch
from litebert.report.runs import Run

LAST_REPORTS = 10  # where nothing was held out, a number is the mean of so many reports


@dataclass(frozen=True)
class Final:
    """What a run came to; None where it is not known. `held_out` says where the accuracies and the loss are from."""

    step: int
    mlm_accuracy: float | None
    sentence_accuracy: float | None
    loss: float | None
    held_out: bool
    tokens: float | None
    seconds: float | None
    tokens_per_second: float | None
    share_of_peak: float | None
    parameters: float | None


def final_numbers(run: Run) -> Final:
    """The last held-out scores, or where there are none the mean of the last training reports; and what they took."""
    tokens, seconds = run.clock("tokens"), run.clock("seconds")
    total = float(tokens.values[-1]) if tokens else None
    elapsed = float(seconds.values[-1]) if seconds else None
    shares = run.train.series("share_of_peak")
    parameters = run.facts.get("parameters")
    loss = held_out_loss(run)
    mlm, sentence = (run.held_out.last(name) for name in ("mlm_accuracy", "sentence_accuracy"))
    held_out = mlm is not None or sentence is not None or bool(loss)
    return Final(
        run.step,
        mlm if held_out else _recent(run.train.series("mlm_accuracy")),
        sentence if held_out else _recent(run.train.series("sentence_accuracy")),
        _recent(loss, 1) if held_out else _recent(run.train.series("loss")),
        held_out,
        total,
        elapsed,
        total / elapsed if total and elapsed else None,
        float(np.median(shares.values)) if shares else None,
        parameters if isinstance(parameters, (int, float)) else None,
    )


def state_of(run: Run) -> str:
    """completed, stopped or not finished."""
    if run.facts.get("completed"):
        return "completed"
    return "stopped" if run.facts.get("finished") else "not finished"


def draw_tiles(run: Run) -> Markup:
    """One run's headline: its accuracies beside what guessing scores, and what they took."""
    final = final_numbers(run)
    where = "on held-out text" if final.held_out else "in training"
    sentence = {"sop": "Sentence order", "nsp": "Next sentence"}.get(str(run.facts.get("objective")), "Sentence pairs")
    cards = [
        _accuracy_card("Masked words", where, final.mlm_accuracy, run.baselines.get("mlm", {})),
        _accuracy_card(sentence, where, final.sentence_accuracy, run.baselines.get("sentence", {})),
    ]
    peak = f"{100 * final.share_of_peak:.0f}% of the hardware's peak" if final.share_of_peak is not None else None
    stats = [
        ("Loss", f"{final.loss:.3f}" if final.loss is not None else None, where),
        ("Tokens seen", _or_none(count, final.tokens), f"in {final.step:,} steps"),
        ("Time", _or_none(duration, final.seconds), None),
        ("Tokens per second", _or_none(count, final.tokens_per_second), peak),
        ("Parameters", _or_none(count, final.parameters), None),
    ]
    return join(
        element("div", cards, class_="cards") if any(cards) else None,
        element("dl", [_stat(*stat) for stat in stats if stat[1]], class_="stats"),
    )


def draw_comparison(runs: Sequence[Run]) -> Markup:
    """Several runs in one table, the best of each column marked, with what guessing scores below."""
    finals = [final_numbers(run) for run in runs]
    columns: list[tuple[str, list[float | None], Callable[[float], str], int]] = [
        # name, values, form, which way is better (0: neither)
        ("Masked words", [final.mlm_accuracy for final in finals], percent, 1),
        ("Sentence pairs", [final.sentence_accuracy for final in finals], percent, 1),
        ("Loss", [final.loss for final in finals], "{:.3f}".format, -1),
        ("Steps", [float(final.step) for final in finals], "{:,.0f}".format, 0),
        ("Tokens", [final.tokens for final in finals], count, 0),
        ("Time", [final.seconds for final in finals], duration, 0),
        ("Tokens/s", [final.tokens_per_second for final in finals], count, 1),
        ("Parameters", [final.parameters for final in finals], count, 0),
    ]
    columns = [column for column in columns if any(value is not None for value in column[1])]
    head = [element("th", name, scope="col", class_="number") for name, *_ in columns]
    body = []
    for number, run in enumerate(runs):
        cells = [_cell(values, number, form, better) for _, values, form, better in columns]
        note = None if finals[number].held_out else element("small", " in training")
        state = element("small", f" {state_of(run)}") if state_of(run) != "completed" else None
        name = element("th", swatch(number), " ", element("span", run.name), note, state, scope="row")
        body.append(element("tr", name, cells, class_=color_of(number), data_run=number))
    body += _baseline_rows(runs, [name for name, *_ in columns])
    table = element(
        "table",
        element("caption", "Scores are on held-out text; the best of each column is marked."),
        element("thead", element("tr", element("th", "Run", scope="col"), head)),
        element("tbody", body),
        class_="comparison",
    )
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Runs compared")


def _cell(values: Sequence[float | None], row: int, form: Callable[[float], str], better: int) -> Markup:
    value = values[row]
    if value is None:
        return element("td", "–", class_="number none")
    known = [other for other in values if other is not None]
    best = better and len(set(known)) > 1 and value == (max(known) if better > 0 else min(known))
    bar = f"--share: {100 * value:.1f}%" if form is percent else None
    mark = element("span", "★", class_="star", title="best", role="img", aria_label="best") if best else None
    kind = " ".join(name for name, on in (("number", True), ("best", best), ("bar", bar)) if on)
    return element("td", mark, form(value), class_=kind, style=bar)


def _baseline_rows(runs: Sequence[Run], columns: Sequence[str]) -> list[Markup]:
    """What guessing scores, where all runs that say so agree."""
    rows = []
    for task, column in (("mlm", "Masked words"), ("sentence", "Sentence pairs")):
        levels: dict[str, set[float]] = {}
        for run in runs:
            for label, value in run.baselines.get(task, {}).items():
                levels.setdefault(label, set()).add(round(value, 4))
        for label, values in levels.items():
            if column in columns and len(values) == 1:
                share = min(values)
                cells = [
                    element("td", percent(share), class_="number bar", style=f"--share: {100 * share:.1f}%")
                    if name == column
                    else element("td", class_="number")
                    for name in columns
                ]
                rows.append(element("tr", element("th", label, scope="row"), cells, class_="guessing"))
    return rows


def _accuracy_card(title: str, where: str, value: float | None, baselines: dict[str, float] | object) -> Markup | None:
    if value is None:
        return None
    levels = sorted(baselines.items(), key=lambda item: -item[1]) if isinstance(baselines, dict) else []
    bars = [_bar("this model", value, "model"), *(_bar(name, level, "") for name, level in levels)]
    return element(
        "section",
        element("h2", title),
        element("p", element("strong", percent(value)), element("span", f"right {where}"), class_="big"),
        element("ul", bars, class_="bars"),
        class_="card",
    )


def _bar(name: str, share: float, kind: str) -> Markup:
    return element(
        "li",
        element("span", name, class_="name"),
        element("span", element("span", style=f"width: {100 * min(max(share, 0.0), 1.0):.1f}%"), class_="track"),
        element("span", percent(share), class_="number"),
        class_=kind or None,
    )


def _stat(name: str, value: Child, note: str | None) -> Markup:
    return element(
        "div", element("dt", name), element("dd", value), element("dd", note, class_="note") if note else None
    )


def _or_none(form: Callable[[float], str], value: float | None) -> str | None:
    return None if value is None else form(value)


def _recent(series: Series, most: int = LAST_REPORTS) -> float | None:
    return float(series.values[-most:].mean()) if series else None
