"""The results of a table's cells, as plain numbers by row, metric and seed; and which runs learned nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from litebert.model.count import count_parameters
from litebert.parse import read_object
from litebert.pretraining.evaluate import LEAST_LEARNED
from litebert.reproduce.cell import missing_metrics, read_examples, read_result
from litebert.reproduce.measure import Examples
from litebert.reproduce.paper import METRICS, PaperTable, average_error, average_of
from litebert.reproduce.plan import Plan
from litebert.reproduce.scale import load_scale


class Gain(NamedTuple):
    """A difference in percent, and its standard error over examples."""

    value: float
    error: float


class Place(NamedTuple):
    """The position of a cell in a table."""

    row: str
    seed: int


@dataclass(frozen=True)
class Results:
    """The numbers of a table, as far as they are known."""

    table: PaperTable
    scale: str
    seeds: int
    #: values[row][metric][seed]
    values: Mapping[str, Mapping[str, Mapping[int, float]]]
    #: Correct answers per held-out sequence.
    examples: Mapping[Place, Mapping[str, Examples]] = field(default_factory=dict)
    #: Half-widths of 95 % intervals of downstream scores.
    spreads: Mapping[Place, Mapping[str, float]] = field(default_factory=dict)
    layers: Mapping[Place, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    facts: Mapping[Place, Mapping[str, Any]] = field(default_factory=dict)
    #: Why a cell has no numbers: it failed, waits for another, or has not run yet.
    problems: Mapping[Place, str] = field(default_factory=dict)
    #: Data sets that were not found.
    missing_tasks: tuple[str, ...] = ()
    #: The gain of each ensemble over the mean of its members.
    gains: Mapping[str, Mapping[str, Gain]] = field(default_factory=dict)
    #: The run folder of every trained cell.
    runs: Mapping[Place, Path] = field(default_factory=dict)
    #: Settings for all rows.
    settings: tuple[str, ...] = ()

    def of(self, row: str, metric: str) -> Mapping[int, float]:
        """A metric of a row by seed."""
        return self.values.get(row, {}).get(metric, {})


def collect(plan: Plan, failures: Mapping[str, str] | None = None) -> Results:
    """Read the measurements of a plan's cells."""
    table, failures = plan.table, failures or {}
    values: dict[str, dict[str, dict[int, float]]] = {row: {} for row in table.rows}
    found: dict[str, dict[Place, Any]] = {
        name: {} for name in ("examples", "spreads", "layers", "facts", "problems", "runs")
    }
    missing_tasks: set[str] = set()
    for (row, seed), cell in plan.cells.items():
        place, folder = Place(row, seed), plan.cell_folder(cell)
        result = read_result(folder)
        for metric, value in result["metrics"].items():
            if value is not None:
                values[row].setdefault(metric, {})[seed] = value
        found["examples"][place] = read_examples(folder)
        found["spreads"][place] = result["tasks"].get("spread", {})
        missing_tasks |= set(result["tasks"].get("missing", ()))
        found["facts"][place] = {**result["facts"], "rate": cell.run.optim.lr} if result["facts"] else {}
        if result["layers"]:
            found["layers"][place] = result["layers"]
        if (folder / "run" / "metrics.jsonl").exists():
            found["runs"][place] = folder / "run"
        if cell.name in failures:
            found["problems"][place] = failures[cell.name]
        elif (folder / "error.txt").exists():
            found["problems"][place] = (folder / "error.txt").read_text(encoding="utf-8").splitlines()[0]
        elif missing_metrics(cell, folder):
            found["problems"][place] = "unfinished"
    gains = _add_ensembles(plan, values)
    _derive(table, values)
    return Results(
        table,
        plan.scale.name,
        plan.seeds,
        values,
        missing_tasks=tuple(sorted(missing_tasks)),
        gains=gains,
        settings=plan.settings,
        **found,
    )


def _add_ensembles(plan: Plan, values: dict[str, dict[str, dict[int, float]]]) -> dict[str, dict[str, Gain]]:
    """Add the scores of ensembles (one each); returns their gains over their members."""
    gains: dict[str, dict[str, Gain]] = {}
    tasks = tuple(metric for metric in plan.table.columns if METRICS[metric].source == "task")
    for row in plan.table.rows:
        if not plan.members_of(row) or not plan.ensemble_file(row).exists():
            continue
        scores = read_object(plan.ensemble_file(row))["scores"]
        values[row] |= {metric: {0: found["score"]} for metric, found in scores.items()}
        gains[row] = {metric: Gain(found["gain"], found["error"]) for metric, found in scores.items()}
        average = average_of({metric: gain.value for metric, gain in gains[row].items()}, tasks)
        error = average_error({metric: gain.error for metric, gain in gains[row].items()}, tasks)
        if average is not None and error is not None:
            gains[row]["average"] = Gain(average, error)
    return gains


def _derive(table: PaperTable, values: dict[str, dict[str, dict[int, float]]]) -> None:
    """Add derived numbers: exact parameter counts, speed-ups, averages over tasks."""
    paper = load_scale("paper")
    for name, row in table.rows.items():
        own = values[name]
        if "params" in table.columns and row.model:
            own["params"] = {0: count_parameters(paper.model_of(row)).total / 1e6}
        reference = values.get(table.speed_reference, {}).get("speed", {})
        if reference and "speed" in own:
            own["speed_up"] = {
                seed: speed / reference[seed] for seed, speed in own["speed"].items() if seed in reference
            }
        tasks = tuple(metric for metric in table.columns if METRICS[metric].source == "task")
        for seed in sorted({seed for metric in tasks for seed in own.get(metric, {})}):
            scores = {metric: own[metric][seed] for metric in tasks if seed in own.get(metric, {})}
            average = average_of(scores, tasks)
            if average is not None:
                own.setdefault("average", {})[seed] = average


# -- runs that learned nothing -----------------------------------------------------------------------------------------


class Unlearned(NamedTuple):
    """MLM accuracy of a run that learned nothing, and that of the most frequent token, in percent."""

    mlm: float
    floor: float


def find_unlearned(results: Results) -> dict[Place, Unlearned]:
    """Runs that predict masks hardly better than the most frequent token does.

    Deep and wide models may stay there for many steps. Such a run shows that its recipe does not work at this scale,
    and nothing about what the paper compares. Runs without a known floor count as learned."""
    found = {}
    for place, facts in results.facts.items():
        mlm, floor = results.of(place.row, "mlm").get(place.seed), facts.get("mlm_floor")
        if mlm is not None and floor is not None and mlm - floor < 100 * LEAST_LEARNED:
            found[place] = Unlearned(mlm, floor)
    return found


def describe_unlearned(unlearned: Mapping[Place, Unlearned]) -> str:
    """Which rows, seeds and numbers: "wide (seeds 0, 2) learned no more than token frequencies: MLM 5.3, where ..."."""
    rows: dict[str, list[int]] = {}
    for row, seed in unlearned:
        rows.setdefault(row, []).append(seed)
    names = [
        f"{row} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))})"
        for row, seeds in rows.items()
    ]
    mlm, floor = (_range(values) for values in zip(*unlearned.values(), strict=True))
    return (
        f"{', '.join(names)} learned no more than token frequencies: "
        f"MLM {mlm}, where the most frequent token alone gives {floor}"
    )


def _range(values: Sequence[float]) -> str:
    """(5.32, 5.28) -> "5.3", (5.32, 5.41) -> "5.3 to 5.4"."""
    return " to ".join(dict.fromkeys(f"{end:.1f}" for end in (min(values), max(values))))
