"""Fine-tuning runs side by side: those of one task in one table, every score with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.finetuning.results import Scores, goodness, is_study, read_scores, read_summary, show_interval, show_value
from litebert.finetuning.score_names import capital, is_detail, name_of
from litebert.report.html import Markup, element
from litebert.report.numbers import duration
from litebert.report.runs import Run, distinct_names
from litebert.report.summary import Column, draw_runs, print_runs
from litebert.tasks.metrics import ERRORS, Metric
from litebert.tasks.read import named_tasks


@dataclass(frozen=True)
class Group:
    """Runs whose scores can be compared, by their numbers on the page."""

    title: str
    runs: Mapping[int, Run]

    def columns(self) -> list[Column]:
        """Every score on every dev split, and what the runs took."""
        scores = [read_scores(run.folder) or Scores() for run in self.runs.values()]
        names = dict.fromkeys(
            (split, metric)
            for found in scores
            for split, metrics in found.splits.items()
            for metric in sorted(metrics, key=lambda name: name != found.metric)
            if not is_detail(metric)
        )
        first = next((split for split, _ in names), "")
        seconds = [float(clock.values[-1]) if (clock := run.clock("seconds")) else None for run in self.runs.values()]
        return [
            *(_score_column(split, metric, scores, split == first) for split, metric in names),
            Column("Chosen step", "step", [found.step or None for found in scores], "{:,.0f}".format),
            Column("Time", "time", seconds, duration),
        ]


def expand(folders: Sequence[Path]) -> list[Path]:
    """Run folders; a study stands for its runs."""
    return [
        folder / name
        for folder in folders
        for name in ([run["name"] for run in read_summary(folder)["runs"]] if is_study(folder) else [""])
    ]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Runs of a public task belong together, and so do those that were scored on the same file of one's own."""
    groups: dict[tuple[str, str, int], dict[int, Run]] = {}
    for number, run in enumerate(runs):
        task, data = str(run.config.get("task")), run.config.get("data") or {}
        place = "" if task in named_tasks() else str(data.get("dev") or data.get("folder") or data.get("train"))
        groups.setdefault((task, place, data.get("limit") or 0), {})[number] = run
    places = [Path(place) for place in dict.fromkeys(place for _, place, _ in groups if place)]
    names = dict(zip(map(str, places), distinct_names(places), strict=True)) if places else {}
    return [
        Group(task + f" on {names.get(place)}" * bool(place) + f", {limit:,} examples" * bool(limit), members)
        for (task, place, limit), members in groups.items()
    ]


def draw_groups(groups: Sequence[Group]) -> list[Markup]:
    """A table per group."""
    note = "With 95 % intervals over examples. ★ is the best of a column; it may be chance where intervals overlap."
    return [
        element("p", note, class_="note"),
        *(
            element("div", element("h3", group.title), draw_runs(group.runs, group.columns()), class_="group")
            for group in groups
        ),
    ]


def print_groups(groups: Sequence[Group]) -> None:
    """The scores that decide, on the terminal."""
    for group in groups:
        print(group.title)
        print_runs(group.runs.values(), group.columns())


def _score_column(split: str, metric: str, scores: Sequence[Scores], is_first: bool) -> Column:
    found: list[Metric | None] = [each.splits.get(split, {}).get(metric) for each in scores]
    words = name_of(metric if is_first else f"{split}/{metric}")
    return Column(
        capital(words),
        metric if is_first and any(each.metric == metric for each in scores) else "",  # the score that decides
        [score.value if score else None for score in found],
        lambda value: show_value(value, metric),
        1 if goodness(metric, 1.0) > 0 else -1,
        metric not in ERRORS,
        metric if is_first else "",
        [show_interval(score, metric) for score in found],
    )
