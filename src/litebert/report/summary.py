"""The final numbers of runs: cards for one, a table for several, rows for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from litebert.report.charts import held_out_loss, sentence_task
from litebert.report.html import (
    Markup,
    color_of,
    draw_stat,
    draw_table,
    element,
    join,
    number_heads,
    swatch,
)
from litebert.report.numbers import count, duration, percent
from litebert.report.runs import Series, TrainingRun

LAST_REPORTS = 10  # reports to average where nothing was held out


@dataclass(frozen=True)
class Final:
    """A run's final numbers; None if unknown. `held_out`: accuracies and loss are on held-out text, not in training."""

    step: int
    mlm_accuracy: float | None
    sentence_accuracy: float | None
    loss: float | None
    held_out: bool
    tokens: float | None
    seconds: float | None
    tokens_per_second: float | None
    share_of_peak: float | None
    parameters: int | None  # without heads, as the paper counts


def final_numbers(run: TrainingRun) -> Final:
    """The last held-out scores, or else the mean of the last training reports; with tokens, time and speed."""
    tokens, seconds = run.clock("tokens"), run.clock("seconds")
    total = float(tokens.values[-1]) if tokens else None
    elapsed = float(seconds.values[-1]) if seconds else None
    shares = run.train.series("share_of_peak")
    parameters = run.facts.get("backbone_parameters")
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
        parameters if isinstance(parameters, int) else None,
    )


def state_of(run: TrainingRun) -> str:
    """completed, stopped or unfinished."""
    if run.facts.get("completed"):
        return "completed"
    return "stopped" if run.facts.get("finished") else "unfinished"


def draw_tiles(run: TrainingRun) -> Markup:
    """The headline of one run: its accuracies, those of guessing, and the cost."""
    final = final_numbers(run)
    where = "on held-out text" if final.held_out else "in training"
    cards = [
        _accuracy_card("Masked words", where, final.mlm_accuracy, run.baselines.get("mlm", {})),
        _accuracy_card(sentence_task([run]), where, final.sentence_accuracy, run.baselines.get("sentence", {})),
    ]
    peak = f"{100 * final.share_of_peak:.0f}% of the hardware's peak" if final.share_of_peak is not None else None
    stats = [
        ("Loss", f"{final.loss:.3f}" if final.loss is not None else None, where),
        ("Tokens seen", _or_none(count, final.tokens), f"in {final.step:,} steps"),
        ("Time", _or_none(duration, final.seconds), None),
        ("Tokens per second", _or_none(count, final.tokens_per_second), peak),
        ("Parameters", _or_none("{:,}".format, final.parameters), "without heads, as the paper counts"),
    ]
    known = [draw_stat(*stat) for stat in stats if stat[1]]
    return join(
        element("div", cards, class_="cards") if any(cards) else None,
        element("dl", known, class_="stats") if known else None,
    )


def draw_comparison(runs: Sequence[TrainingRun]) -> Markup:
    """Pretraining runs in one table, the best of each column marked, with the scores of guessing below."""
    finals = [final_numbers(run) for run in runs]
    notes = ["" if final.held_out else "in training" for final in finals]
    caption = "Scores are on held-out text. ★ marks the best of a column."
    return draw_runs(dict(enumerate(runs)), _columns(finals, sentence_task(runs)), caption, notes)


def draw_runs(
    runs: Mapping[int, TrainingRun], columns: Sequence[Column], caption: str = "", notes: Sequence[str] = ()
) -> Markup:
    """Runs, by their numbers on the page, as the rows of a table."""
    body = []
    for row, (number, run) in enumerate(runs.items()):
        state = state_of(run)
        remarks = ", ".join(note for note in (*notes[row : row + 1], state if state != "completed" else "") if note)
        name = [swatch(number), " ", element("span", run.name), element("small", f" {remarks}") if remarks else None]
        cells = [_cell(column, row) for column in columns]
        body.append(element("tr", element("th", name, scope="row"), cells, class_=color_of(number)))
    body += _guessing_rows(list(runs.values()), columns)
    head = ["Run", *number_heads(column.name for column in columns)]
    return draw_table("Runs compared", head, body, "comparison", caption)


def print_summary(runs: Sequence[TrainingRun]) -> None:
    """Print the main numbers to the terminal."""
    print_runs(runs, _columns([final_numbers(run) for run in runs], sentence_task(runs)))


def print_runs(runs: Iterable[TrainingRun], columns: Sequence[Column]) -> None:
    """Print the columns that have a short name."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = [column for column in columns if column.short]
    if not columns:
        Console(highlight=False).print(Text(f"{', '.join(run.name for run in runs)}: no scores yet"))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    for column in columns:
        table.add_column(column.short, justify="right", no_wrap=True)
    for row, run in enumerate(runs):
        table.add_row(Text(run.name), *(" ".join(filter(None, column.show(row))) for column in columns))
    Console(highlight=False).print(table)


class Column(NamedTuple):
    """One number per run; `better` is 1 if higher is better, -1 if lower is, 0 if neither."""

    name: str
    short: str  # on the terminal; "" = not shown there
    values: Sequence[float | None]
    form: Callable[[float], str]
    better: int = 0
    is_share: bool = False
    guessing: str = ""  # the name of this score in `baselines`
    intervals: Sequence[str] = ()

    def show(self, row: int) -> tuple[str, str]:
        """A run's number and its interval as text: ("91.2", "90.1 – 92.3"), ("–", "")."""
        return _or_none(self.form, self.values[row]) or "–", self.intervals[row] if self.intervals else ""


def _columns(finals: Sequence[Final], sentence: str) -> list[Column]:
    columns = [
        Column("Masked words", "MLM", [final.mlm_accuracy for final in finals], percent, 1, True, "mlm"),
        Column(sentence, "sentence", [final.sentence_accuracy for final in finals], percent, 1, True, "sentence"),
        Column("Loss", "loss", [final.loss for final in finals], "{:.3f}".format, -1),
        Column("Steps", "", [final.step for final in finals], "{:,.0f}".format),
        Column("Tokens", "tokens", [final.tokens for final in finals], count),
        Column("Time", "time", [final.seconds for final in finals], duration),
        Column("Tokens/s", "tok/s", [final.tokens_per_second for final in finals], count, 1),
        Column("Parameters without heads", "", [final.parameters for final in finals], "{:,}".format),
    ]
    return [column for column in columns if any(value is not None for value in column.values)]


def _cell(column: Column, row: int) -> Markup:
    value, (text, interval) = column.values[row], column.show(row)
    if value is None:
        return element("td", text, class_="number none")
    known = [other for other in column.values if other is not None]
    best = max(known, key=lambda other: other * column.better)
    is_best = column.better != 0 and len(set(known)) > 1 and value == best
    star = element("span", "★", class_="star", role="img", aria_label="best") if is_best else None
    return element(
        "td",
        star,
        text,
        [" ", element("small", interval)] if interval else None,
        class_="number" + " bar" * column.is_share + " best" * is_best,
        style=_share(value) if column.is_share else None,
    )


def _guessing_rows(runs: Sequence[TrainingRun], columns: Sequence[Column]) -> list[Markup]:
    """The scores of guessing, if all runs agree on them."""
    levels: dict[tuple[str, str], dict[float, float]] = {}
    for column in columns:
        for run in runs:
            for label, value in run.baselines.get(column.guessing, {}).items():
                levels.setdefault((label, column.name), {}).setdefault(round(value, 4), value)
    agreed = {key: value for key, values in levels.items() if len(values) == 1 for value in values.values()}
    rows = []
    for label in dict.fromkeys(label for label, _ in agreed):
        cells = [_guessing_cell(column, agreed.get((label, column.name))) for column in columns]
        rows.append(element("tr", element("th", label, scope="row"), cells, class_="guessing"))
    return rows


def _guessing_cell(column: Column, value: float | None) -> Markup:
    return element("td") if value is None else _cell(column._replace(values=[value], intervals=()), 0)


def _share(value: float) -> str:
    return f"--share: {100 * min(max(value, 0.0), 1.0):.1f}%"


def _accuracy_card(title: str, where: str, value: float | None, levels: Mapping[str, float]) -> Markup | None:
    if value is None:
        return None
    below = sorted(levels.items(), key=lambda level: -level[1])
    bars = [_bar("this model", value, "model"), *(_bar(name, level) for name, level in below)]
    return element(
        "section",
        element("h3", title),
        element("p", element("strong", percent(value)), element("span", f"correct {where}"), class_="big"),
        element("ul", bars, class_="bars"),
        class_="card",
    )


def _bar(name: str, share: float, kind: str | None = None) -> Markup:
    return element(
        "li",
        element("span", name, class_="name"),
        element("span", element("span", style=_share(share)), class_="track"),
        element("span", percent(share), class_="number"),
        class_=kind,
    )


def _or_none(form: Callable[[float], str], value: float | None) -> str | None:
    return None if value is None else form(value)


def _recent(series: Series, most: int = LAST_REPORTS) -> float | None:
    return float(series.values[-most:].mean()) if series else None
