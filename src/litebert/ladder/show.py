"""A ladder as rows of text: 0.803 with its interval -> "80.3 (77.6 – 82.9)"."""

from __future__ import annotations

from litebert.ladder.climb import Ladder
from litebert.tasks.metrics import ERRORS, Metric


def rows_of(ladder: Ladder) -> tuple[list[str], list[list[str]]]:
    """The header, and one row per split and method."""
    splits = list(dict.fromkeys(split for rung in ladder.rungs for split in rung.scores))
    metrics = list(dict.fromkeys(name for rung in ladder.rungs for scores in rung.scores.values() for name in scores))
    many = len(splits) > 1
    rows = []
    for split in splits:
        for rung in ladder.rungs:
            if split in rung.scores:
                cells = [show_score(rung.scores[split].get(name), name) for name in metrics]
                seconds = "" if rung.seconds is None else f"{rung.seconds:.1f}"
                rows.append([rung.name, *([split] if many else []), *cells, seconds])
    names = [name.replace("_", " ") for name in metrics]
    return ["method", *(["split"] if many else []), *names, "s"], rows


def show_score(metric: Metric | None, name: str = "") -> str:
    """In per cent, unless it is an error; "–" where there is no such score."""
    if metric is None:
        return "–"

    def number(value: float) -> str:
        return f"{value:.3f}" if name in ERRORS else f"{100 * value:.1f}"

    if metric.low is None or metric.high is None:
        return number(metric.value)
    return f"{number(metric.value)} ({number(metric.low)} – {number(metric.high)})"
