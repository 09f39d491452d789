"""One cell of a table: a row with one seed. It is trained and measured, and can be stopped and resumed at any point.

CELL/
  cell.json      what to train and measure          result.json   what was measured
  run/           the pretraining run                examples.npz  correct answers per held-out sequence
  error.txt      why it failed, if it did           log.txt       its output, if several cells run at once

`python -m litebert.reproduce.cell CELL` runs one cell; the runner uses it to run several at once.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import traceback
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config import build, to_dict
from litebert.errors import DataError
from litebert.files import write_atomic
from litebert.parse import read_object
from litebert.pretraining.config import RunConfig
from litebert.pretraining.dry_run import time_micro_batch
from litebert.pretraining.evaluate import load_pretrained, pair_batches
from litebert.pretraining.recipes import Objective
from litebert.pretraining.run import pretrain
from litebert.reproduce import CellStopped
from litebert.reproduce.measure import Examples, layer_distances, mlm_floor, probe_pairs, score_examples
from litebert.reproduce.paper import METRICS
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import open_device
from litebert.train.log import read_metrics

OBJECTIVES: tuple[Objective, ...] = ("sop", "nsp")
ROWS_ON_GPU = 16  # of 1,024 tokens, to keep a GPU busy
MODEL_SOURCES = ("model", "task")  # of metrics that need a trained model
LAYER_METRICS = ("l2_roughness", "angle_roughness", "last_l2")


@dataclass(frozen=True)
class Cell:
    """What to train and measure; one cell may serve several tables."""

    #: The name of its folder, which ends with a hash of everything that affects training.
    name: str
    run: RunConfig
    wanted: tuple[str, ...]
    evaluation_tokens: int
    #: Cells of one seed are scored on the same examples, so that they can be compared in pairs.
    seed: int = 0
    #: The cell whose model this one starts from.
    after: str | None = None
    #: The shape to time for `speed`.
    speed_run: RunConfig | None = None
    #: A folder with data sets, and the settings of fine-tuning.
    tasks: str | None = None
    finetune: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_model(self) -> bool:
        """Whether any wanted metric needs training."""
        return any(METRICS[name].source in MODEL_SOURCES for name in self.wanted)


def is_trained(folder: Path) -> bool:
    """Whether the cell's run is complete."""
    with contextlib.suppress(OSError, ValueError):
        return bool(read_object(folder / "run" / "run.json").get("completed"))
    return False


def has_lost_its_model(folder: Path) -> bool:
    """Whether a trained model is gone: deleted, or not copied along with its results."""
    if (folder / "run" / "model").exists():
        return False
    return is_trained(folder) or any(METRICS[name].source in MODEL_SOURCES for name in read_result(folder)["metrics"])


def start_over(folder: Path) -> None:
    """Delete a run and its measurements: on another machine the same run gives different numbers."""
    for name in ("run", "tasks"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("examples.npz", "result.json"):  # result.json last: until it is gone, this can be repeated
        (folder / name).unlink(missing_ok=True)


def read_result(folder: Path) -> dict[str, Any]:
    """What was measured so far: {"metrics": {...}, "facts": {...}}; empty parts if there is nothing yet."""
    empty: dict[str, Any] = {"metrics": {}, "facts": {}, "layers": None, "tasks": {}}
    return read_over(empty, folder / "result.json", "restore the file, or delete it to measure this cell again")


def read_over(empty: dict[str, Any], path: Path, advice: str) -> dict[str, Any]:
    """The object in a file, with what it lacks from `empty`; all of that if there is no file."""
    if not path.exists():
        return empty
    try:
        return {**empty, **read_object(path)}
    except DataError as error:
        raise DataError(f"{error}; {advice}") from None


def read_examples(folder: Path) -> dict[str, Examples]:
    """Correct answers per held-out sequence, by metric."""
    path = folder / "examples.npz"
    if not path.exists():
        return {}
    try:
        with np.load(path) as arrays:
            return {name: Examples(*arrays[name]) for name in arrays.files}
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: damaged ({error}); restore the file, or delete it and result.json to measure again"
        ) from None


def missing_metrics(cell: Cell, folder: Path) -> tuple[str, ...]:
    """The wanted metrics that are not measured yet."""
    result = read_result(folder)
    there = set(result["metrics"])
    if cell.tasks is None or result["tasks"].get("contents") == _contents(cell.tasks):
        there |= set(result["tasks"].get("asked", ()))
    return tuple(name for name in cell.wanted if name not in there)


def _contents(tasks: str) -> list[str]:
    """The names in a folder, two levels deep; a data set that is missing today may be added later."""
    return sorted(str(path.relative_to(tasks)) for path in (*Path(tasks).glob("*"), *Path(tasks).glob("*/*")))


def train_cell(cell: Cell, folder: Path) -> None:
    """Train to the end; a stopped run is resumed."""
    if not cell.needs_model or is_trained(folder):
        return
    result = pretrain(cell.run, folder / "run", quiet=True)
    if not result.completed:
        raise CellStopped(result.signal or 15)


def measure_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Measure what is missing; each group of numbers is written as soon as it is known."""
    missing = set(missing_metrics(cell, folder))
    result = read_result(folder)
    if cell.needs_model:
        result["facts"] |= _facts(folder / "run")
        # A complete run is never resumed, and the optimiser states of a whole table would fill a disk.
        shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)
    if "speed" in missing:
        assert cell.speed_run is not None
        result["metrics"]["speed"] = _measure_speed(cell.speed_run)
        _write(folder, result)
    if any(METRICS[name].source == "model" for name in missing):
        _measure_model(cell, folder, missing, result)
    if any(METRICS[name].source == "task" for name in missing) and cell.tasks is not None:
        # Imported here because a cell without tasks does not need it.
        from litebert.reproduce.downstream import score_downstream

        model, tasks = folder / "run" / "model", Path(cell.tasks)
        scored = score_downstream(model, tasks, folder / "tasks", cell.wanted, cell.finetune, cell.seed)
        asked = [name for name in cell.wanted if METRICS[name].source == "task"]
        result["tasks"] = {
            "contents": _contents(cell.tasks),
            "asked": asked,
            "missing": scored.missing,
            "spread": scored.spread,
        }
        result["metrics"] |= scored.scores
        _write(folder, result)
    return result


def _measure_model(cell: Cell, folder: Path, missing: set[str], result: dict[str, Any]) -> None:
    config = cell.run
    device = open_device(config.device)
    model = load_pretrained(folder / "run" / "model").to(device.device)
    tokenizer = Tokenizer.load(folder / "run" / "model")
    kept = [TokenStore.open(path, tokenizer) for path in config.data.eval_stores]
    metrics: dict[str, float | None] = result["metrics"]
    examples = read_examples(folder)
    rows = ROWS_ON_GPU if device.is_cuda else 1
    batches = {
        objective: pair_batches(kept, tokenizer, config.recipe, objective, seed=cell.seed, rows=rows)
        for objective in OBJECTIVES
    }
    if missing & {"mlm", "sop", "nsp"}:
        found: dict[str, Examples | None] = {}
        found["mlm"], found["sop"] = score_examples(model, batches["sop"], cell.evaluation_tokens, device)
        if "nsp" in missing:
            _, found["nsp"] = score_examples(model, batches["nsp"], cell.evaluation_tokens, device)
        metrics |= {name: scored.accuracy if scored else None for name, scored in found.items()}
        result["facts"]["mlm_floor"] = mlm_floor(batches["sop"], cell.evaluation_tokens)
        examples |= {name: scored for name, scored in found.items() if scored}
        _write(folder, result, examples)
    for objective in OBJECTIVES:
        if f"{objective}_probe" in missing:
            stores = [TokenStore.open(path, tokenizer) for path in config.data.stores]
            held_out = config.data.held_out
            training = pair_batches(
                stores, tokenizer, config.recipe, objective, seed=cell.seed, held_out=held_out, rows=rows
            )
            scored = probe_pairs(model, training, batches[objective], cell.evaluation_tokens, device)
            metrics[f"{objective}_probe"] = scored.accuracy
            examples[f"{objective}_probe"] = scored
            _write(folder, result, examples)
    if missing & set(LAYER_METRICS):
        layers = layer_distances(model, batches["sop"], cell.evaluation_tokens, device)
        result["layers"] = {"l2": layers.l2, "angle": layers.angle}
        metrics |= layers.metrics
        _write(folder, result)


def _measure_speed(config: RunConfig) -> float:
    """Tokens per second of a training step on this machine."""
    device = open_device(config.device)
    tokens = config.batch_tokens // config.micro_batches(1)
    return tokens / time_micro_batch(config, device, config.model.num_hidden_layers, tokens, repeats=5)


def _facts(run: Path) -> dict[str, Any]:
    """Steps, tokens, time and hardware, from the files of the run."""
    facts = read_object(run / "run.json")
    reports = [line for line in read_metrics(run / "metrics.jsonl") if line.get("kind", "train") == "train"]
    rates = [line["tokens_per_second"] for line in reports if "tokens_per_second" in line]
    return {
        "steps": facts["steps"],
        "tokens": facts["tokens"],
        "seconds": facts["seconds"],
        "parameters": facts["backbone_parameters"],
        "tokens_per_second": float(np.median(rates)) if rates else None,
        "device": facts["hardware"]["name"],
        "torch": facts["torch"],
        "started": facts["started"],
    }


def _write(folder: Path, result: dict[str, Any], examples: dict[str, Examples] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if examples:
        temporary = folder / "examples.tmp.npz"
        arrays: dict[str, Any] = {name: np.stack([found.right, found.count]) for name, found in examples.items()}
        np.savez_compressed(temporary, **arrays)
        temporary.replace(folder / "examples.npz")
    write_atomic(folder / "result.json", json.dumps(result, indent=1))


def save_cell(cell: Cell, folder: Path) -> None:
    """Write cell.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "cell.json", json.dumps(to_dict(cell), indent=1))


def load_cell(folder: Path) -> Cell:
    """Read cell.json."""
    return build(Cell, read_object(folder / "cell.json"), f"{folder / 'cell.json'}: ")


def work_on(cell: Cell, folder: Path) -> str | None:
    """Train and measure; returns why it failed, or None. Only a request to stop is raised."""
    (folder / "error.txt").unlink(missing_ok=True)
    try:
        train_cell(cell, folder)
        measure_cell(cell, folder)
    except (CellStopped, KeyboardInterrupt):
        raise
    except Exception as error:  # one bad cell must not stop the others
        return record_failure(folder, error)
    return None


def record_failure(folder: Path, error: Exception) -> str:
    """Write error.txt; returns its first line."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "error.txt", f"{reason}\n\n{''.join(traceback.format_exception(error))}")
    return reason


def main() -> None:
    """Run the cell named on the command line; exit code 1 if it fails."""
    folder = Path(sys.argv[1])
    try:
        failed = work_on(load_cell(folder), folder)
    except CellStopped as stopped:
        sys.exit(128 + stopped.signal)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
