"""Checkpoints that are complete or absent: safetensors and JSON, with checksums, swapped in as one step.

RUN/checkpoints/step-00001000/
  model.safetensors      the weights
  optimizer.safetensors  the moments, by parameter name
  state.json             step, data position, config, fingerprints: plain data, no pickle. No random states:
                         everything random is drawn from (seed, step)
  checksums.json         bytes and SHA-256 of the three, written last

save("run", 1000, model.state_dict(), moments(optimizer), {"seed": 1})
checkpoint = load("run")          # the newest good one; `checkpoint.notes` says what was wrong with others
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

import litebert
from litebert.errors import CheckpointError, DataError
from litebert.files import file_sha256, is_full, staged_folder
from litebert.parse import read_object

MODEL, OPTIMIZER, STATE, CHECKSUMS = "model.safetensors", "optimizer.safetensors", "state.json", "checksums.json"
FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds; `notes` are for the user."""

    step: int
    folder: Path
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    notes: tuple[str, ...] = ()


class CheckpointWriteError(CheckpointError):
    """A checkpoint could not be written (`errno` says why); the ones before it are intact."""

    def __init__(self, message: str, errno: int | None):
        super().__init__(message)
        self.errno = errno


def save(
    run: Path | str,
    step: int,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    *,
    keep_last: int = 2,
    keep_every: int = 0,
) -> Path:
    """Write the checkpoint of `step`, then remove old ones by the keep policy.

    If writing fails, the old checkpoints stay and nothing of the new one is left.
    """
    folder = _folder(run, step)
    _sweep(folder.parent)
    try:
        with staged_folder(folder, keep=lambda name: False) as staging:
            _write_tensors(staging / MODEL, model)
            _write_tensors(staging / OPTIMIZER, optimizer)
            own = {
                "format": FORMAT,
                "step": step,
                "saved_at": time.time(),
                "litebert": litebert.__version__,
                "torch": torch.__version__,
            }
            (staging / STATE).write_text(json.dumps({**state, **own}, indent=1), encoding="utf-8")
            files = {name: _fingerprint(staging / name) for name in (MODEL, OPTIMIZER, STATE)}
            sums = json.dumps({"format": FORMAT, "files": files}, indent=1)
            (staging / CHECKSUMS).write_text(sums, encoding="utf-8")
    except OSError as error:
        size = sum(tensor.nbytes for tensor in (*model.values(), *optimizer.values()))
        raise _write_error(folder, error, size) from error
    discard_after(run, step)
    prune(run, keep_last, keep_every)
    return folder


def load(run: Path | str, step: int | None = None) -> Checkpoint:
    """Read and verify the checkpoint of `step`, or the newest good one of the run."""
    found = steps(run) if step is None else [step]
    if not found:
        raise CheckpointError(f"{run}: no checkpoint in this folder; start the run without resuming")
    notes: list[str] = []
    for candidate in reversed(found):
        folder = _folder(run, candidate)
        try:
            return _read(folder, tuple(notes))
        except CheckpointError as error:
            notes.append(f"checkpoint {error}; using the previous one")
    problems = "\n  ".join(note.removesuffix("; using the previous one") for note in notes)
    raise CheckpointError(f"{run}: no usable checkpoint; {remedy(run)}\n  {problems}")


def remedy(run: Path | str) -> str:
    """What to do when no checkpoint of a run is complete."""
    return f"restore one, or delete {Path(run) / 'checkpoints'} to start over"


def saved_config(run: Path | str) -> dict[str, Any] | None:
    """The config of the newest checkpoint whose state is intact; None if there is none."""
    for step in reversed(steps(run)):
        folder = _folder(run, step)
        with contextlib.suppress(CheckpointError):
            config = _state(folder, _checksums(folder)).get("config")
            if isinstance(config, dict):
                return config
    return None


def latest(run: Path | str) -> Path | None:
    """The newest complete checkpoint of a run by names and sizes (`load` checks every byte), or None."""
    return next((folder for step in reversed(steps(run)) if _complete(folder := _folder(run, step))), None)


def steps(run: Path | str) -> list[int]:
    """The steps of all checkpoint folders of a run, in order, good or not."""
    names = (path.name for path in (Path(run) / "checkpoints").glob("step-*") if path.is_dir())
    return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"step-(\d{8,})", name)))


def prune(run: Path | str, keep_last: int = 2, keep_every: int = 0) -> None:
    """Keep the `keep_last` newest complete checkpoints and those at multiples of `keep_every` steps.

    Damaged folders do not count, so the last good checkpoint always stays.
    """
    found = steps(run)
    good = [step for step in found if _complete(_folder(run, step))]
    keep = set(good[-max(keep_last, 1) :])
    if keep_every:
        keep |= {step for step in good if step % keep_every == 0}
    for step in found:
        if good and step < good[-1] and step not in keep:
            _remove(_folder(run, step))


def discard_after(run: Path | str, step: int) -> None:
    """Remove the checkpoints after `step`: a run that went back to it writes them again."""
    for later in steps(run):
        if later > step:
            _remove(_folder(run, later))


def config_changes(saved: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> dict[str, str]:
    """The keys of a config that differ from the saved one: {"optim.lr": "0.001 -> 0.002"}."""
    result: dict[str, str] = {}
    for key in [*saved, *(key for key in now if key not in saved)]:
        old, new = saved.get(key, "nothing"), now.get(key, "nothing")
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            result |= config_changes(old, new, f"{where}{key}.")
        elif old != new:
            result[f"{where}{key}"] = f"{old} -> {new}"
    return result


def _read(folder: Path, notes: tuple[str, ...]) -> Checkpoint:
    """The content of a checkpoint folder, after every byte has been checked."""
    checksums = _checksums(folder)
    for name in (MODEL, OPTIMIZER):
        _check_file(folder / name, checksums[name])
    state = _state(folder, checksums)
    return Checkpoint(
        step=state["step"],
        folder=folder,
        model=safetensors.torch.load_file(folder / MODEL),
        optimizer=safetensors.torch.load_file(folder / OPTIMIZER),
        state=state,
        notes=notes,
    )


def _state(folder: Path, checksums: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    _check_file(folder / STATE, checksums[STATE])
    return read_object(folder / STATE, CheckpointError)


def _check_file(path: Path, expected: Mapping[str, Any]) -> None:
    try:
        actual = _fingerprint(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot read: {error.strerror}") from None
    if actual["bytes"] != expected["bytes"]:
        raise CheckpointError(f"{path}: damaged, {actual['bytes']} bytes instead of {expected['bytes']}")
    if actual["sha256"] != expected["sha256"]:
        raise CheckpointError(f"{path}: damaged, its checksum differs")


def _checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """Bytes and SHA-256 of each file, from checksums.json, which may itself be damaged."""
    path = folder / CHECKSUMS
    if not path.exists():
        what = "half-written" if folder.is_dir() else "no such checkpoint"
        raise CheckpointError(f"{folder}: {what}, {CHECKSUMS} is missing")
    try:
        data = read_object(path)
        version, files = data["format"], {name: data["files"][name] for name in (MODEL, OPTIMIZER, STATE)}
        if any(type(file["bytes"]) is not int or type(file["sha256"]) is not str for file in files.values()):
            raise TypeError
    except (DataError, KeyError, TypeError):
        raise CheckpointError(f"{path}: damaged") from None
    if version != FORMAT:
        raise CheckpointError(f"{folder}: has format {version}; this litebert reads format {FORMAT}")
    return files


def _complete(folder: Path) -> bool:
    try:
        files = _checksums(folder)
        return all((folder / name).stat().st_size == file["bytes"] for name, file in files.items())
    except (CheckpointError, OSError):
        return False


def _fingerprint(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    plain: dict[str, Tensor] = {}
    storages = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        # safetensors refuses memory that two names share (tied weights): the second name gets a copy.
        plain[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    safetensors.torch.save_file(plain, path, metadata={"format": "pt"})


def _write_error(folder: Path, error: OSError, size: int) -> CheckpointWriteError:
    advice = ""
    if is_full(error):
        advice = f" Free some space (a checkpoint takes about {size / 1e6:,.1f} MB) or keep fewer checkpoints."
    reason = error.strerror or error
    return CheckpointWriteError(
        f"{folder}: the checkpoint was not written: {reason}. Older checkpoints are intact.{advice}", error.errno
    )


def _folder(run: Path | str, step: int) -> Path:
    return Path(run) / "checkpoints" / f"step-{step:08d}"


def _remove(folder: Path) -> None:
    """Rename first, then delete: a crash in between leaves no half-deleted checkpoint."""
    away = folder.with_name(f".{folder.name}.removed.tmp")
    shutil.rmtree(away, ignore_errors=True)
    folder.rename(away)
    shutil.rmtree(away, ignore_errors=True)


def _sweep(checkpoints: Path) -> None:
    """Remove what killed processes left behind."""
    for rest in checkpoints.glob(".step-*.tmp"):
        shutil.rmtree(rest, ignore_errors=True)
