"""What to run: the cells of a table at a scale, the steps that fit into the time, and what a whole table takes.

make_plan(load_table("table5"), load_scale("cpu"), corpus, out)  -> Plan with 3 rows x 3 seeds = 9 cells
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from litebert.config import check_numbers, to_dict
from litebert.errors import ConfigError
from litebert.model.count import count_parameters, forward_flops
from litebert.pretraining.config import RunConfig
from litebert.pretraining.dry_run import time_micro_batch
from litebert.pretraining.plan import predict_run
from litebert.reproduce.cell import Cell, read_result
from litebert.reproduce.corpus import Corpus
from litebert.reproduce.paper import METRICS, PaperRow, PaperTable
from litebert.reproduce.scale import Scale, load_scale
from litebert.train.device import open_device

# Settings that do not affect what is learned, and so make no new cell.
FREE = ("device", "log", "guard", "micro_batch_tokens")
# Between a run and the one it starts from: the same seed would repeat the batches that the model has memorised.
SEEDS_APART = 1000

# Time for batches, reports and evaluations, relative to the steps.
OVERHEAD = 1.15

#: Steps by table (`table5`), or by row if rows get equal time (`table6/bert-large`).
Steps = Mapping[str, int]


@dataclass(frozen=True)
class Options:
    """The user's choices for a reproduction."""

    seeds: int | None = None
    minutes: float | None = None
    steps: int | None = None
    settings: tuple[str, ...] = ()
    #: Only these metrics.
    measure: tuple[str, ...] = ()
    tasks: Path | None = None

    def __post_init__(self) -> None:
        check_numbers(self, ">= 1", "seeds", "steps")
        check_numbers(self, "> 0", "minutes")
        if self.tasks is not None and not self.tasks.is_dir():
            raise ConfigError(f"tasks: {self.tasks} is not a folder; name one with data sets such as SST-2/")


def num_seeds(table: PaperTable, options: Options) -> int:
    """How many seeds each row gets."""
    return options.seeds or table.seeds


def wanted_metrics(table: PaperTable, options: Options) -> tuple[str, ...]:
    """The metrics to measure for every cell; counts need no run."""
    wanted = [name for name in table.measure if METRICS[name].source in ("model", "speed")]
    if options.tasks is not None:
        wanted += [name for name in table.columns if METRICS[name].source == "task"]
    if options.measure:
        for name in options.measure:
            if name not in table.columns:
                raise ConfigError(f"measure: {table.name} has no {name}; it has: {', '.join(table.columns)}")
        wanted = [name for name in wanted if name in options.measure]
        if "speed_up" in options.measure:
            wanted.append("speed")
    # Derived metrics are computed later, from the results.
    return tuple(dict.fromkeys(name for name in wanted if name not in ("speed_up", "average")))


def minutes_per_run(table: PaperTable, scale: Scale, options: Options) -> float | None:
    """The wall-clock budget of one run; None if only steps count."""
    if options.minutes is not None or options.steps is not None:
        return options.minutes
    if scale.hours:
        runs = sum(row.is_run for row in table.rows.values()) * num_seeds(table, options)
        return 60 * scale.hours / max(runs, 1)
    if table.budget == "time" and scale.minutes:
        return scale.minutes
    return None


def plan_steps(
    tables: Sequence[PaperTable], scale: Scale, options: Options, vocabulary: int | None = None
) -> dict[str, int]:
    """Steps that fit into the minutes, from a timed step; empty if there is no time limit.

    Rows with equal tokens take the steps of the slowest row, over all tables, so that they can share cells.
    """
    steps: dict[str, int] = {}
    for table in tables:
        minutes = minutes_per_run(table, scale, options)
        if minutes is None or not any(METRICS[name].source != "speed" for name in wanted_metrics(table, options)):
            continue
        runs = {
            name: scale.run_of(row, settings=options.settings, vocabulary=vocabulary)
            for name, row in table.rows.items()
            if row.is_run
        }
        if table.budget == "time":
            for name, run in runs.items():
                # More than fits, so that the clock ends the run; schedules follow the clock.
                steps[f"{table.name}/{name}"] = max(1, math.ceil(1.5 * 60 * minutes / seconds_per_step(run)))
        else:
            slowest = max(runs.values(), key=_run_flops)
            steps[table.name] = max(1, int(60 * minutes / (OVERHEAD * seconds_per_step(slowest))))
    least = min((count for key, count in steps.items() if "/" not in key), default=0)
    return {key: count if "/" in key else least for key, count in steps.items()}


@dataclass(frozen=True)
class Estimate:
    """The cost of one row, over all its seeds."""

    row: str
    shape: str
    parameters: int
    runs: int
    steps: int
    tokens: int
    hours: float


def estimate(table: PaperTable, scale: Scale, options: Options) -> tuple[list[Estimate], str]:
    """Runs, tokens and hours of each row, without any data; and the source of the hours."""
    minutes = minutes_per_run(table, scale, options)
    configs = {
        name: scale.run_of(row, steps=options.steps, settings=options.settings)
        for name, row in table.rows.items()
        if row.is_run
    }
    if not wanted_metrics(table, options):
        return [], "nothing to train: parameters are counted"
    on_gpu = scale.run.get("device", {}).get("device") != "cpu"
    if on_gpu:
        per_step = {
            name: predict_run(c.model, 1, c.batch_tokens, 1, c.recipe.max_length).seconds_per_step
            for name, c in configs.items()
        }
        source = "GPU hours, from the rates of `litebert plan` (H200)"
    else:
        slowest = max(configs, key=lambda name: _run_flops(configs[name]))
        seconds = seconds_per_step(configs[slowest])
        per_step = {name: seconds * _run_flops(c) / _run_flops(configs[slowest]) for name, c in configs.items()}
        source = "timed on this machine, one run at a time"
    common = None
    if minutes is not None:
        common = int(60 * minutes / (OVERHEAD * max(per_step.values())))
        source += f"; {minutes:.3g} minutes for each run" + (
            "" if table.budget == "time" else ", in which the slowest row sets the steps of all (timed when it starts)"
        )
    rows = []
    for name, config in configs.items():
        steps = config.steps
        if minutes is not None:
            steps = int(60 * minutes / (OVERHEAD * per_step[name])) if table.budget == "time" else common or 1
        runs = num_seeds(table, options)
        model = config.model
        rows.append(
            Estimate(
                name,
                f"{model.num_hidden_layers} x {model.hidden_size}, E {model.embedding_size}, {model.sharing}",
                count_parameters(model).total,
                runs,
                steps,
                runs * steps * config.batch_tokens,
                runs * steps * per_step[name] * OVERHEAD / 3600,
            )
        )
    return rows, source


def seconds_per_step(config: RunConfig) -> float:
    """Seconds per optimiser step on this machine, from a timed micro-batch."""
    device = open_device(config.device)
    count = config.micro_batches(1)
    tokens = config.batch_tokens // count
    return count * time_micro_batch(config, device, config.model.num_hidden_layers, tokens)


def _run_flops(config: RunConfig) -> float:
    """The floating-point operations of a step."""
    return forward_flops(config.model, config.recipe.max_length) * config.batch_tokens


# -- cells -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """All cells of a table by row and seed."""

    table: PaperTable
    scale: Scale
    seeds: int
    out: Path
    cells: dict[tuple[str, int], Cell] = field(default_factory=dict)
    tasks: Path | None = None
    #: Settings for all rows (key=value).
    settings: tuple[str, ...] = ()

    def cell_folder(self, cell: Cell) -> Path:
        """The folder of a cell; the tables of a reproduction share cells."""
        return self.out / "cells" / cell.name

    def members_of(self, row: str) -> list[Cell]:
        """The models of an ensemble, one per seed; empty for other rows."""
        return [cell for (name, _), cell in self.cells.items() if name == self.table.rows[row].ensemble_of]

    def ensemble_file(self, row: str) -> Path:
        """The file of an ensemble's scores; new members, or new scores of theirs, make a new file."""
        found = {cell.name: read_result(self.cell_folder(cell))["metrics"] for cell in self.members_of(row)}
        own = {
            name: {metric: value for metric, value in metrics.items() if METRICS[metric].source == "task"}
            for name, metrics in found.items()
        }
        digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8]
        return self.out / "ensembles" / f"{self.table.name}-{row}-{digest}.json"


def make_plan(
    table: PaperTable,
    scale: Scale,
    corpus: Corpus,
    out: Path,
    options: Options | None = None,
    steps: Steps | None = None,
    vocabulary: int | None = None,
) -> Plan:
    """The cells of a table; `steps` comes from plan_steps."""
    options = options or Options()
    needs_more = [name for name, row in table.rows.items() if row.is_run and row.data == "more"]
    if needs_more and not corpus.more:
        raise ConfigError(
            f"{table.name}: row {needs_more[0]} trains on additional data; name its token stores (more_store)"
        )
    plan = Plan(table, scale, num_seeds(table, options), Path(out), tasks=options.tasks, settings=options.settings)
    wanted = wanted_metrics(table, options)
    for seed in range(plan.seeds if wanted else 0):
        for name, row in table.rows.items():
            if row.is_run:
                chosen = (steps or {}).get(f"{table.name}/{name}") or (steps or {}).get(table.name)
                plan.cells[name, seed] = _make_cell(plan, row, seed, corpus, options, chosen, vocabulary)
    return plan


def _make_cell(
    plan: Plan, row: PaperRow, seed: int, corpus: Corpus, options: Options, steps: int | None, vocabulary: int | None
) -> Cell:
    table, scale = plan.table, plan.scale
    before = plan.cells[row.after, seed] if row.after else None
    minutes = minutes_per_run(table, scale, options) if table.budget == "time" else None
    run = scale.run_of(
        row,
        seed=before.run.seed + SEEDS_APART if before else seed,
        steps=options.steps or steps,
        minutes=minutes,
        data=corpus.data_of(row.data),
        init_from=str(plan.cell_folder(before) / "run" / "model") if before else None,
        settings=options.settings,
        vocabulary=vocabulary,
    )
    wanted = wanted_metrics(table, options)
    timed_scale = load_scale("paper") if scale.speed_of_paper_shapes else scale
    speed_run = _speed_run(timed_scale, row, run) if "speed" in wanted else None
    return Cell(
        name=_cell_name(row, run, seed, corpus, before),
        run=run,
        wanted=wanted,
        evaluation_tokens=scale.evaluation_tokens,
        seed=seed,
        after=before.name if before else None,
        speed_run=speed_run,
        tasks=str(options.tasks) if options.tasks else None,
        finetune=scale.finetune,
    )


def _speed_run(scale: Scale, row: PaperRow, run: RunConfig) -> RunConfig:
    """One micro-batch of the shape to time, on the run's device and without dropout, so that only shapes differ."""
    timed = scale.run_of(replace(row, dropout=0.0))
    return replace(timed, batch_tokens=timed.micro_batch_tokens, device=run.device)


def _cell_name(row: PaperRow, run: RunConfig, seed: int, corpus: Corpus, before: Cell | None) -> str:
    """A readable name with a hash of everything that affects training: equal runs have equal names."""
    content: dict[str, Any] = {key: value for key, value in to_dict(run).items() if key not in FREE}
    content["data"] = {
        "held_out": run.data.held_out,
        "row_tokens": run.row_tokens,
        "weights": run.data.weights,
        "stores": corpus.fingerprints[row.data],
    }
    content["init_from"] = before.name if before else None
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    model = run.model
    shape = (
        f"{model.model_type}-h{model.hidden_size}-l{model.num_hidden_layers}-e{model.embedding_size}-{model.sharing}"
    )
    return f"{shape}-{run.recipe.objective}-seed{seed}-{digest}"
