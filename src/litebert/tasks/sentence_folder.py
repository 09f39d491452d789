"""sentence-transformers folders, written and read: how a text's vector is made from its tokens.

FOLDER/
  modules.json                 the transformer, pooling, and perhaps a scaling to length 1
  sentence_bert_config.json    the longest text in tokens
  1_Pooling/config.json        mean or [CLS]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from litebert.errors import CheckpointError
from litebert.files import write_atomic
from litebert.parse import read_json, read_object
from litebert.tasks.task import Task

MODULES_FILE, LENGTH_FILE, POOLING_FOLDER = "modules.json", "sentence_bert_config.json", "1_Pooling"
SIMILARITY = "similarity"
# Ours -> theirs, as a word and as the key of folders from before sentence-transformers 6.
_POOLINGS = {"mean": ("mean", "pooling_mode_mean_tokens"), "first": ("cls", "pooling_mode_cls_token")}


def write_sentence_files(folder: Path, task: Task, hidden_size: int) -> None:
    """Add what sentence-transformers needs to a model folder."""
    modules = [("", "Transformer"), (POOLING_FOLDER, "Pooling")]
    if task.normalize:
        modules.append(("2_Normalize", "Normalize"))
    _write(
        folder / MODULES_FILE,
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
            for number, (path, name) in enumerate(modules)
        ],
    )
    _write(folder / LENGTH_FILE, {"max_seq_length": task.max_length, "do_lower_case": False})
    (folder / POOLING_FOLDER).mkdir(exist_ok=True)
    chosen = {key: ours == task.pooling for ours, (_, key) in _POOLINGS.items()}
    _write(folder / POOLING_FOLDER / "config.json", {"word_embedding_dimension": hidden_size, **chosen})


def read_sentence_task(folder: Path) -> Task | None:
    """The task of a sentence-transformers folder; None for others, an error for one that computes more than we do."""
    path = folder / MODULES_FILE
    if not path.is_file():
        return None
    normalize, pooling = False, ""
    for module in read_modules(path):
        kind = module["type"].rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(folder / module["path"] / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise CheckpointError(f"{path}: has a module {kind}, which is not supported; Pooling and Normalize are")
    if not pooling:
        raise CheckpointError(f"{path}: has no Pooling module, so nothing says how a text's vector is made")
    length = _length(folder)
    return Task(SIMILARITY, SIMILARITY, max_length=length, pair=None, pooling=pooling, normalize=normalize)  # type: ignore[arg-type]


def read_modules(path: Path) -> list[dict[str, str]]:
    """The modules of modules.json, in their order."""
    try:
        return [{"path": str(each["path"]), "type": str(each["type"])} for each in read_json(path, CheckpointError)]
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: not readable as a list of modules: {error}") from None


def transformer_folder(folder: Path) -> Path:
    """Where a model's own files are: in the folder itself, or as in old ones in `0_Transformer`."""
    path = folder / MODULES_FILE
    if (folder / "config.json").is_file() or not path.is_file():
        return folder
    inner = next((module["path"] for module in read_modules(path) if module["type"].endswith("Transformer")), "")
    return folder / inner


def _pooling(path: Path) -> str:
    data = read_object(path, CheckpointError)
    modes = data.get("pooling_mode")
    words = [modes] if isinstance(modes, str) else list(modes or [])
    words += [key for key, value in data.items() if key.startswith("pooling_mode_") and value is True]
    found = [ours for ours, theirs in _POOLINGS.items() if set(theirs) & set(words)]
    if len(words) != 1 or len(found) != 1:
        raise CheckpointError(
            f"{path}: pooling {', '.join(map(str, words)) or '(none)'} is not supported; mean and cls are"
        )
    return found[0]


def _length(folder: Path) -> int:
    for place in (folder, transformer_folder(folder)):
        for name, key in ((LENGTH_FILE, "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
            data: dict[str, Any] = read_object(place / name, CheckpointError) if (place / name).is_file() else {}
            length = data.get(key)
            if isinstance(length, int) and 8 <= length <= 1 << 20:
                return length
    return 512


def _write(path: Path, data: Any) -> None:
    write_atomic(path, json.dumps(data, indent=2) + "\n")
