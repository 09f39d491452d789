"""A reproduction: tables at a scale in one folder, from the command to the verdicts.

OUT/
  reproduction.json   which tables, with which cells       corpus/   generated text, if none was given
  cells/              one folder per run, shared by tables  ensembles/   scores of rows that are ensembles
                      (cells.tar.xz in published reproductions)
  report.html, TABLE.md, TABLE.tex, TABLE.json
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import litebert
from litebert.config import to_dict
from litebert.errors import ConfigError, DataError
from litebert.files import staged_folder, write_atomic
from litebert.machine import usable_cpus
from litebert.reproduce.cell import load_cell, read_over
from litebert.reproduce.corpus import Corpus, generated_corpus, given_corpus
from litebert.reproduce.paper import PaperTable, load_table
from litebert.reproduce.plan import Options, Plan, make_plan, plan_steps, wanted_metrics
from litebert.reproduce.results import Results, collect
from litebert.reproduce.runner import Say, merge_cells, run_cells
from litebert.reproduce.scale import Scale, load_scale
from litebert.reproduce.verdicts import Verdict, judge_table
from litebert.text.tokenizer import Tokenizer
from litebert.train.processes import world_from_environment

RECORD = "reproduction.json"
PACKED = "cells.tar.xz"  # cells/ of a published reproduction (tools/pack_results.py)
NO_CORPUS = Corpus(Path(), (), (Path(),), Path(), 0.0)  # for tables that are only counted


@dataclass(frozen=True)
class DataChoice:
    """The stores that a user names."""

    stores: tuple[Path, ...] = ()
    more: tuple[Path, ...] = ()
    tokenizer: Path | None = None


@dataclass(frozen=True)
class JudgedTable:
    """A table's numbers and the verdicts on the paper's claims."""

    results: Results
    verdicts: tuple[Verdict, ...]


def reproduce(
    names: Sequence[str],
    scale_name: str,
    out: Path | str,
    options: Options | None = None,
    data: DataChoice | None = None,
    jobs: int | None = None,
    say: Say = print,
) -> list[JudgedTable]:
    """Run what is missing of the tables and judge them; call it again to resume."""
    out, options = Path(out), options or Options()
    tables, scale = [load_table(name) for name in names], load_scale(scale_name)
    if jobs is None:
        jobs = usable_cpus() if scale.run.get("device", {}).get("device") == "cpu" else 1
    if jobs < 1:
        raise ConfigError(f"jobs must be >= 1, got {jobs}")
    say = say if world_from_environment().is_main else lambda _: None
    plans = prepare(tables, scale, out, options, data or DataChoice(), say)
    failures = run_cells(merge_cells(plan.cells for plan in plans), out / "cells", jobs, say)
    if world_from_environment().is_main:
        for plan in plans:
            score_ensembles(plan)
    return [judged(plan, failures) for plan in plans]


def score_ensembles(plan: Plan) -> None:
    """Score the ensembles that are not scored yet and whose members are complete."""
    for row in plan.table.rows:
        members, file = plan.members_of(row), plan.ensemble_file(row)
        if not members or plan.tasks is None or file.exists():
            continue
        from litebert.reproduce.downstream import score_ensemble

        scores = score_ensemble([plan.cell_folder(cell) / "tasks" for cell in members], plan.tasks, plan.table.columns)
        if scores:
            file.parent.mkdir(exist_ok=True)
            content = {
                "members": [cell.name for cell in members],
                "scores": {metric: to_dict(found) for metric, found in scores.items()},
            }
            write_atomic(file, json.dumps(content, indent=1))


def judged(plan: Plan, failures: Mapping[str, str] | None = None) -> JudgedTable:
    """A table, from the cells finished so far."""
    results = collect(plan, failures)
    return JudgedTable(results, tuple(judge_table(results)))


def prepare(
    tables: Sequence[PaperTable], scale: Scale, out: Path, options: Options, data: DataChoice, say: Say
) -> list[Plan]:
    """Corpus, budget and cells of each table, recorded so that the same command finds them again."""
    world = world_from_environment()
    if world.is_main:
        unpack_cells(out)
    key = _key(tables, scale, options, data)
    while not world.is_main and key not in _read_record(out)["budgets"]:
        time.sleep(0.2)  # the main process makes the corpus and times a step for all
    record = _read_record(out)
    needs_text = any(wanted_metrics(table, options) for table in tables)
    corpus = _corpus(scale, out, data, say) if needs_text else NO_CORPUS
    vocabulary = Tokenizer.load(corpus.tokenizer).vocab_size if needs_text else None
    if key not in record["budgets"]:
        record["budgets"][key] = plan_steps(tables, scale, options, vocabulary)
        for name, count in record["budgets"][key].items():
            say(f"budget: {count:,} steps for each run of {name}, from a timed step")
    steps = record["budgets"][key]
    plans = [make_plan(table, scale, corpus, out, options, steps, vocabulary) for table in tables]
    for plan in plans:
        record["tables"][plan.table.name] = {
            "scale": scale.name,
            "seeds": plan.seeds,
            "settings": list(options.settings),
            "tasks": str(plan.tasks) if plan.tasks else None,
            "data": [str(path) for path in data.stores] or "generated",
            "cells": [[row, seed, cell.name] for (row, seed), cell in plan.cells.items()],
        }
    if world.is_main:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / RECORD, json.dumps(record, indent=1))
    return plans


def _key(tables: Sequence[PaperTable], scale: Scale, options: Options, data: DataChoice) -> str:
    """What a budget depends on."""
    chosen = [options.seeds, options.minutes, options.steps, options.settings, options.measure]
    stores = [str(path) for path in (*data.stores, *data.more)]
    return json.dumps([scale.name, [table.name for table in tables], chosen, stores])


def load_plans(out: Path | str) -> list[Plan]:
    """The tables of a reproduction folder, with their cells."""
    out = Path(out)
    if not (out / RECORD).exists():
        raise DataError(f"{out}: no {RECORD} in it; name the folder that `litebert reproduce --out` wrote")
    unpack_cells(out)
    plans = []
    for name, entry in _read_record(out)["tables"].items():
        cells = {
            (row, seed): load_cell(out / "cells" / cell)
            for row, seed, cell in entry["cells"]
            if (out / "cells" / cell / "cell.json").exists()
        }
        tasks = Path(entry["tasks"]) if entry["tasks"] else None
        table, scale, settings = load_table(name), load_scale(entry["scale"]), tuple(entry["settings"])
        plans.append(Plan(table, scale, entry["seeds"], out, cells, tasks, settings))
    return plans


def unpack_cells(out: Path) -> None:
    """Unpack the cells of a published reproduction, once."""
    archive, cells = out / PACKED, out / "cells"
    if cells.exists() or not archive.exists():
        return
    try:
        content = lzma.decompress(archive.read_bytes())  # all at once: tarfile takes damage for the end of the file
        with staged_folder(cells) as staging, tarfile.open(fileobj=io.BytesIO(content)) as packed:
            for entry in packed:
                entry.name = entry.name.removeprefix(f"{cells.name}/")
                packed.extract(entry, staging, filter="data")
    except (tarfile.TarError, lzma.LZMAError) as error:
        raise DataError(f"{archive}: damaged ({error}); fetch it again from the repository") from None


def _corpus(scale: Scale, out: Path, data: DataChoice, say: Say) -> Corpus:
    if data.stores:
        held_out = float(scale.run.get("data", {}).get("held_out", 0.005))
        return given_corpus(out / "corpus", data.tokenizer, data.stores, data.more, held_out)
    if not scale.generated:
        raise ConfigError(
            f"the scale {scale.name} needs token stores (litebert corpus build makes them) and their tokenizer; "
            "only the scale cpu generates its text"
        )
    say("corpus: generated stories (for your own text, give token stores: store)")
    return generated_corpus(out / "corpus", scale.vocabulary)


def _read_record(out: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {"litebert": litebert.__version__, "tables": {}, "budgets": {}}
    return read_over(empty, out / RECORD, "repair it, or choose another output folder")
