"""The cells of a table at a scale: which runs, with how many steps, in which folder.

make_plan(load_table("table5"), load_scale("cpu"), corpus, out)  -> Plan with 3 rows x 3 seeds = 9 cells
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from litebert.config import to_dict
from litebert.errors import ConfigError
from litebert.pretraining.config import RunConfig
from litebert.reproduce.budget import Options, Steps, minutes_per_run, num_seeds, wanted_metrics
from litebert.reproduce.cell import Cell, read_result
from litebert.reproduce.corpus import Corpus
from litebert.reproduce.metrics import METRICS
from litebert.reproduce.scale import Scale, load_scale
from litebert.reproduce.table import Row, Table

# Settings that change nothing about what is learned, so that they do not make another cell.
FREE = ("device", "log", "guard", "micro_batch_tokens")
# Between a run and the one that it begins with: with the same seed it would read the same batches again, by heart.
SEEDS_APART = 1000


@dataclass(frozen=True)
class Plan:
    """All cells of a table by row and seed."""

    table: Table
    scale: Scale
    seeds: int
    out: Path
    cells: dict[tuple[str, int], Cell] = field(default_factory=dict)
    tasks: Path | None = None
    #: What was set for all rows (key=value).
    settings: tuple[str, ...] = ()

    def cell_folder(self, cell: Cell) -> Path:
        """Where a cell is worked on; tables of one reproduction share their cells."""
        return self.out / "cells" / cell.name

    def members_of(self, row: str) -> list[Cell]:
        """The models of an ensemble, one per seed; none where the row is no ensemble."""
        return [cell for (name, _), cell in self.cells.items() if name == self.table.rows[row].ensemble_of]

    def ensemble_file(self, row: str) -> Path:
        """Where the scores of an ensemble are kept: other members, or other scores of theirs, make another file."""
        found = {cell.name: read_result(self.cell_folder(cell))["metrics"] for cell in self.members_of(row)}
        own = {
            name: {metric: value for metric, value in metrics.items() if METRICS[metric].source == "task"}
            for name, metrics in found.items()
        }
        digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8]
        return self.out / "ensembles" / f"{self.table.name}-{row}-{digest}.json"


def make_plan(
    table: Table,
    scale: Scale,
    corpus: Corpus,
    out: Path,
    options: Options | None = None,
    steps: Steps | None = None,
    vocabulary: int | None = None,
) -> Plan:
    """The cells of a table; `steps` is what plan_steps said."""
    options = options or Options()
    needs_more = [name for name, row in table.rows.items() if row.is_run and row.data == "more"]
    if needs_more and not corpus.more:
        raise ConfigError(
            f"{table.name}: row {needs_more[0]} trains on additional data: name stores with --more-data STORE"
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
    plan: Plan, row: Row, seed: int, corpus: Corpus, options: Options, steps: int | None, vocabulary: int | None
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


def _speed_run(scale: Scale, row: Row, run: RunConfig) -> RunConfig:
    """One micro-batch of the shape to time, without dropout, so that only the shapes differ, on the run's device."""
    timed = scale.run_of(replace(row, dropout=0.0))
    return replace(timed, batch_tokens=timed.micro_batch_tokens, device=run.device)


def _cell_name(row: Row, run: RunConfig, seed: int, corpus: Corpus, before: Cell | None) -> str:
    """What a person can read, and a hash of everything that decides what is learned: the same run, the same name."""
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
