"""A run folder: who may write to it, whether its run can resume, what it records; and the model card."""

from __future__ import annotations

import contextlib
import json
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

import litebert
from litebert.config import build, read_yaml, to_dict, write_yaml
from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.files import hold_lock, sweep, write_atomic
from litebert.folders import kind_of_folder
from litebert.parse import read_object
from litebert.train import checkpoint
from litebert.train.device import Device

Resume = Literal["auto", "never", "must"]


def check_folder(folder: Path, config: Any, resume: Resume, free: tuple[str, ...] = (), advice: str = "") -> bool:
    """Whether to resume the run in the folder; refuses a folder whose run has another config.

    `free` lists prefixes of keys that may change on resume.
    """
    steps, there = checkpoint.steps(folder), checkpoint.latest(folder) is not None
    if resume == "must" and not steps:
        raise ConfigError(f"{folder}: no checkpoint to resume from; use resume auto to start a new run there")
    started = (folder / "metrics.jsonl").exists()
    if resume == "never" and (steps or started):
        raise ConfigError(f"{folder}: already holds a run; choose another folder, or use resume auto")
    if steps and not there:
        raise CheckpointError(
            f"{folder}: none of its checkpoints (steps {', '.join(map(str, steps))}) is complete; "
            f"{checkpoint.remedy(folder)}, or start in another folder"
        )
    if there:
        # The checkpoint's config has a checksum; config.yaml may have been damaged or edited since.
        check_config(folder, checkpoint.saved_config(folder), config, free, advice)
    elif not started:
        if kind := kind_of_folder(folder):
            raise ConfigError(f"{folder}: is {kind}; choose another folder for the run")
        _spare_config(folder / "config.yaml", config)
    else:  # stopped before its first checkpoint, or of another kind, such as a finished fine-tuning run
        saved = None
        with contextlib.suppress(ConfigError):  # lost or damaged
            saved = read_yaml(folder / "config.yaml")
        if saved is not None:
            _read_config(folder, saved, config)
    return there


def _spare_config(path: Path, config: Any) -> None:
    """Do not overwrite a hand-written config.yaml."""
    if path.exists() and not (path.parent / "run.json").exists() and path.read_bytes() != write_yaml(config).encode():
        raise ConfigError(f"{path}: not written by a run, and a run would overwrite it; choose another output folder")


def check_config(
    folder: Path, saved: Mapping[str, Any] | None, config: Any, free: tuple[str, ...] = (), advice: str = ""
) -> None:
    """Refuse to resume with a config that differs from the run's own, `saved` (None: unknown)."""
    if saved is None:
        return
    before = to_dict(_read_config(folder, saved, config))
    changes = checkpoint.config_changes(before, to_dict(config))
    changes = {key: text for key, text in changes.items() if not key.startswith(free)}
    if changes:
        listed = "\n  ".join(f"{key}: {text}" for key, text in changes.items())
        raise ConfigError(
            f"{folder}: already holds a run with another config:\n  {listed}\n"
            f"To resume it, use its own config; for a new run, choose another folder{advice}."
        )


def _read_config(folder: Path, saved: Mapping[str, Any], config: Any) -> Any:
    """A run's own config; refuses that of a pretraining run, say, where a fine-tuning run is to be."""
    try:
        return build(type(config), saved)
    except ConfigError as error:
        raise ConfigError(
            f"{folder}: already holds a run of another kind or version ({error}); choose another folder"
        ) from None


def begin(folder: Path, config: Any, resuming: bool) -> None:
    """Write the complete config; a run stopped before its first checkpoint starts over."""
    if not resuming:
        (folder / "metrics.jsonl").unlink(missing_ok=True)
    write_atomic(folder / "config.yaml", write_yaml(config))


def describe_process(device: Device, **hardware: Any) -> dict[str, Any]:
    """Versions, command and hardware of this process, for run.json; `hardware` adds to it."""
    return {
        "litebert": litebert.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": shlex.join(["litebert", *sys.argv[1:]]),
        "hardware": {
            "device": str(device.device),
            "name": device.name,
            "precision": device.precision,
            "threads": torch.get_num_threads(),
            **hardware,
        },
    }


def write_facts(folder: Path, facts: dict[str, Any], completed: bool) -> None:
    """Write run.json; the time of the first start stays."""
    path = folder / "run.json"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    started = now
    with contextlib.suppress(DataError):  # not there yet, or damaged
        before = read_object(path).get("started")
        started = before if isinstance(before, str) else now
    facts = {**facts, "started": started, "finished": now if completed else None, "completed": completed}
    write_atomic(path, json.dumps(facts, indent=1))


@contextlib.contextmanager
def locked(folder: Path, wanted: bool) -> Iterator[None]:
    """Lock the folder for this run (if `wanted`: one process of a run does); a crash releases it."""
    if not wanted:
        yield
        return
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        if made:  # a mistake that is found before anything was written leaves no folder behind
            held.callback(_remove_empty, folder)
        try:
            held.enter_context(hold_lock(folder / ".lock"))
        except BlockingIOError:
            raise ConfigError(f"{folder}: another process is training in this folder; choose another one") from None
        sweep(folder)
        yield


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not empty: something was written
        folder.rmdir()


def save_card(
    folder: Path,
    *,
    tags: Sequence[str],
    pipeline: str,
    title: str,
    body: Sequence[str],
    code: Sequence[str],
    elsewhere: str,
    config: Any,
    facts: Mapping[str, Any],
) -> Path:
    """Write README.md; `body` are lines of Markdown, `code` shows the use in litebert, `elsewhere` in transformers."""
    lines = [
        "---",
        "library_name: litebert",
        f"tags: [{', '.join(tags)}]",
        f"pipeline_tag: {pipeline}",
        "---",
        "",
        f"# {title}",
        "",
        *body,
        "## Use",
        "",
        "```python",
        *code,
        "```",
        "",
        elsewhere,
        "",
        "## Config",
        "",
        f"litebert {facts['litebert']}, torch {facts['torch']}, Python {facts['python']}.",
        "",
        "```yaml",
        write_yaml(config).rstrip(),
        "```",
        "",
    ]
    write_atomic(folder / "README.md", "\n".join(lines))
    return folder / "README.md"
