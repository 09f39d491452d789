"""An adapter folder as the model that it stands for: its base with the adapter merged in, its head and its task.

model, task, base = load_adapted("run/adapter")
"""

from __future__ import annotations

from pathlib import Path

from litebert.errors import CheckpointError
from litebert.model.adapter import CONFIG_FILE, load_adapter, merge_adapter, read_adapter_config
from litebert.model.heads import Model
from litebert.model.hub import load_model, save_model
from litebert.remote import find_folder
from litebert.tasks.task import Task, kind_of, load_task, save_task
from litebert.text.tokenizer import Tokenizer


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter instead of a model."""
    return (folder / CONFIG_FILE).is_file()


def load_adapted(folder: Path, base: str | None = None) -> tuple[Model, Task, Path]:
    """The merged model of an adapter folder, its task, and the folder of its base (by default as the adapter says)."""
    task = load_task(folder)
    if task is None:
        raise CheckpointError(
            f"{folder}: has no task.json, so nothing says what its head means; open it with load_adapter(model, folder)"
        )
    named = base or read_adapter_config(folder)["base"]
    if not named:
        raise CheckpointError(f"{folder}: does not name its base model; give one as `base`")
    source = find_folder(named)
    kind = kind_of(task)
    changes = {"labels": task.labels, "problem_type": kind.problem_type}
    model = load_model(source, kind.head(task), new_head=True, **changes)
    load_adapter(model, folder)
    merge_adapter(model)
    return model.eval(), task, source


def merge_folder(folder: Path | str, out: Path | str, base: str | None = None) -> Path:
    """Write an adapter and its base as one plain model folder."""
    model, task, source = load_adapted(Path(folder), base)
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise CheckpointError(f"{out}: not empty; name another folder to write")
    save_model(model, out)
    tokenizer = Tokenizer.load(source)
    tokenizer.save(out, max_length=max(task.max_length, tokenizer.max_length or 0))
    save_task(task, out)
    return out
