"""Runs the cells of tables: skips finished ones, resumes stopped ones, reports failures.

One process runs the cells in turn; with several jobs, each cell gets its own process. Under torchrun all processes
train every cell together, and the main one measures.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import litebert
from litebert.machine import usable_cpus
from litebert.pretraining.config import RunConfig
from litebert.reproduce import CellStopped
from litebert.reproduce.cell import (
    MODEL_SOURCES,
    Cell,
    has_lost_its_model,
    is_trained,
    measure_cell,
    missing_metrics,
    record_failure,
    save_cell,
    start_over,
    train_cell,
    work_on,
)
from litebert.reproduce.paper import METRICS
from litebert.train import checkpoint
from litebert.train.processes import World, stop_on_signals, world_from_environment

Say = Callable[[str], None]


def merge_cells(plans: Iterable[Mapping[tuple[str, int], Cell]]) -> list[Cell]:
    """Every cell once, with all metrics that any table wants; a cell comes after the one whose model it starts from."""
    merged: dict[str, Cell] = {}
    for cells in plans:
        for cell in cells.values():
            known = merged.get(cell.name)
            if known is None:
                merged[cell.name] = cell
                continue
            merged[cell.name] = replace(
                known,
                wanted=tuple(dict.fromkeys((*known.wanted, *cell.wanted))),
                speed_run=known.speed_run or cell.speed_run,
                tasks=known.tasks or cell.tasks,
            )
    return list(merged.values())


def run_cells(cells: Sequence[Cell], folder: Path, jobs: int = 1, say: Say = print) -> dict[str, str]:
    """Run every unfinished cell; returns the failures by name."""
    world = world_from_environment()
    say = say if world.is_main else lambda _: None
    if world.size == 1:  # several processes would have to agree on what exists
        for name in _lost_models(cells, folder):
            say(f"{name}: its model is gone; training it again")
            start_over(folder / name)
    todo = [cell for cell in cells if missing_metrics(cell, folder / cell.name)]
    if len(todo) < len(cells):
        say(f"{len(cells) - len(todo)} of {len(cells)} cells are already finished")
    if world.size > 1:
        return _run_together(todo, folder, world, say)
    if jobs > 1:
        together, alone = _split_timed(todo)
        return _run_in_turn(alone, folder, say, _run_in_processes(together, folder, jobs, say))
    return _run_in_turn(todo, folder, say, {})


def _lost_models(cells: Sequence[Cell], folder: Path) -> list[str]:
    """Cells whose models are gone but still needed, for a measurement or by a cell that starts from them."""
    lost: list[str] = []
    needed: set[str] = set()
    for cell in reversed(cells):  # a cell comes after the one it starts from
        own = folder / cell.name
        asks = any(METRICS[name].source in MODEL_SOURCES for name in missing_metrics(cell, own))
        if not asks and cell.name not in needed:
            continue
        if has_lost_its_model(own):
            lost.append(cell.name)
        is_begun = is_trained(own) or checkpoint.latest(own / "run") is not None
        if cell.after is not None and (cell.name in lost or not is_begun):
            needed.add(cell.after)
    return lost


def _split_timed(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Cells that can share the machine, and those that run alone at the end: timed ones and their successors."""
    together: list[Cell] = []
    alone: list[Cell] = []
    for cell in cells:  # a cell comes after the one it starts from
        is_timed = cell.speed_run is not None or cell.run.max_minutes is not None
        waits = any(other.name == cell.after for other in alone)
        (alone if is_timed or waits else together).append(cell)
    return together, alone


def _run_in_turn(cells: Sequence[Cell], folder: Path, say: Say, failures: dict[str, str]) -> dict[str, str]:
    for number, cell in enumerate(cells, start=1):
        began = time.monotonic()
        failed = _blocked(cell, failures)
        if failed is None:
            save_cell(cell, folder / cell.name)
            failed = work_on(cell, folder / cell.name)
        if failed is not None:
            failures[cell.name] = failed
        _report(f"{number}/{len(cells)}", cell, failed, time.monotonic() - began, say)
    return failures


def _run_together(cells: Sequence[Cell], folder: Path, world: World, say: Say) -> dict[str, str]:
    """All processes train each cell; the main one then measures them all."""
    failures: dict[str, str] = {}

    def attempt(cell: Cell, work: Callable[[Cell, Path], object]) -> None:
        try:
            work(cell, folder / cell.name)
        except (CellStopped, KeyboardInterrupt):
            raise
        except Exception as error:  # one bad cell must not stop the others
            failures[cell.name] = record_failure(folder / cell.name, error) if world.is_main else str(error)

    for cell in cells:
        blocked = _blocked(cell, failures)
        if blocked is not None:
            failures[cell.name] = blocked
            continue
        if world.is_main:
            save_cell(cell, folder / cell.name)
            (folder / cell.name / "error.txt").unlink(missing_ok=True)
        attempt(cell, train_cell)
    if world.is_main:
        for number, cell in enumerate(cells, start=1):
            began = time.monotonic()
            if cell.name not in failures:
                attempt(cell, measure_cell)
            _report(f"{number}/{len(cells)}", cell, failures.get(cell.name), time.monotonic() - began, say)
    return failures


def _run_in_processes(cells: Sequence[Cell], folder: Path, jobs: int, say: Say) -> dict[str, str]:
    """Several cells at once, each in its own process; a stop is passed on to all of them."""
    failures: dict[str, str] = {}
    waiting, done = list(cells), 0
    running: dict[str, tuple[Cell, subprocess.Popen[bytes], float]] = {}
    threads = max(1, usable_cpus() // jobs)
    with stop_on_signals() as stop, contextlib.ExitStack() as children:
        children.callback(_end, running)
        while waiting or running:
            if stop.signal is not None:
                raise CellStopped(int(stop.signal))
            for cell in list(waiting):
                blocked = _blocked(cell, failures)
                if blocked is not None:
                    waiting.remove(cell)
                    failures[cell.name] = blocked
                    done += 1
                    _report(f"{done}/{len(cells)}", cell, blocked, 0.0, say)
                elif len(running) < jobs and _is_ready(cell, waiting, running):
                    waiting.remove(cell)
                    running[cell.name] = (cell, _start(cell, folder, threads), time.monotonic())
            for name, (cell, process, began) in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[name]
                done += 1
                failed = None if code == 0 else _reason(folder / name, code)
                if failed is not None:
                    failures[name] = failed
                _report(f"{done}/{len(cells)}", cell, failed, time.monotonic() - began, say)
            time.sleep(0.05)
    return failures


def _end(running: Mapping[str, tuple[Cell, subprocess.Popen[bytes], float]]) -> None:
    """Ask the running cells to write a checkpoint and exit, and wait for them."""
    for _, process, _ in running.values():
        process.send_signal(signal.SIGTERM)
    for _, process, _ in running.values():
        process.wait()


def _is_ready(cell: Cell, waiting: Sequence[Cell], running: Mapping[str, object]) -> bool:
    """Whether the cell that this one starts from is done."""
    return cell.after is None or (cell.after not in running and all(other.name != cell.after for other in waiting))


def _start(cell: Cell, folder: Path, threads: int) -> subprocess.Popen[bytes]:
    cell = replace(cell, run=with_threads(cell.run, threads))
    save_cell(cell, folder / cell.name)
    # Works from a source tree that is not installed, too.
    path = os.pathsep.join(filter(None, [str(Path(litebert.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]))
    share = {"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
    environment = {**os.environ, **share, "PYTHONPATH": path}
    with open(folder / cell.name / "log.txt", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "litebert.reproduce.cell", str(folder / cell.name)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches only this process, which passes it on once
        )


def with_threads(run: RunConfig, threads: int) -> RunConfig:
    """The run with its share of the processors, unless its config sets the threads."""
    if run.device.threads:
        return run
    return replace(run, device=replace(run.device, threads=threads))


def _blocked(cell: Cell, failures: Mapping[str, str]) -> str | None:
    if cell.after in failures:
        return f"starts from the model of {cell.after}, which failed"
    return None


def _reason(folder: Path, code: int) -> str:
    if (folder / "error.txt").exists():
        return (folder / "error.txt").read_text(encoding="utf-8").splitlines()[0]
    name = signal.Signals(-code).name if code < 0 else f"code {code}"
    return f"its process ended with {name}; see {folder / 'log.txt'}"


def _report(number: str, cell: Cell, failed: str | None, seconds: float, say: Say) -> None:
    say(f"{number:>7s}  {cell.name}  " + (f"FAILED: {failed}" if failed else f"{seconds:.0f} s"))
