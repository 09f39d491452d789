"""What a model's name stands for: a folder, Google's files, the package's own model, one of the Hub's. No torch."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from litebert.default import NAME as DEFAULT
from litebert.default import resolve_default
from litebert.errors import CheckpointError, did_you_mean
from litebert.folders import folder_hint, holds_model, models_in
from litebert.model.config import PRESETS, ModelConfig, read_config
from litebert.model.download import CONFIG_FILE, check_hub, fetch_model

HUB = "hub:"  # before a name that is the Hub's, whatever lies in this folder
# Names of the Hub that people know without their owner; any other name without one is a folder's.
WITHOUT_OWNER = (
    *(f"albert-{size}-v{version}" for size in ("base", "large", "xlarge", "xxlarge") for version in (1, 2)),
    *(f"bert-{size}-{case}" for size in ("base", "large") for case in ("cased", "uncased")),
    *(f"bert-base-{language}" for language in ("chinese", "multilingual-cased", "multilingual-uncased")),
)
GOOGLE_CONFIGS = ("albert_config.json", "bert_config.json")


def find_folder(source: Path | str, revision: str | None = None, weights: bool = True) -> Path:
    """A local folder as it is; a Hub name is fetched (or found in the cache when offline)."""
    folder = find_local(source)
    if folder is not None:
        return folder
    return fetch_model(str(source).removeprefix(HUB), revision, weights)


def find_local(source: Path | str) -> Path | None:
    """A local folder as it is, None for a Hub name; a path that leads nowhere is an error, without a network."""
    source = resolve_default(source)
    name, path = str(source), Path(source).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise CheckpointError(f"{path}: a file; a model is a folder with {CONFIG_FILE} in it")
    if name in PRESETS:
        raise CheckpointError(f"{name}: no such folder; {name} is an architecture without weights{_released(name)}")
    if not name.startswith(HUB) and is_path(name):
        raise CheckpointError(f"{name}: no such folder{_what_exists(path)}")
    return None


def is_path(name: str) -> bool:
    """Whether a name is a path rather than the Hub's owner/name; "hub:owner/name" is never one."""
    owner, slash, rest = name.partition("/")
    if not slash:
        return name not in WITHOUT_OWNER
    is_owner = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) and not Path(owner).is_dir()
    return not is_owner or rest in ("best", "model") or rest.endswith((".json", ".safetensors"))


def check_source(source: Path | str) -> None:
    """Say at once that a model is not there, neither here nor on the Hub, before anything slow is loaded."""
    if not is_google(source) and find_local(source) is None:
        check_hub(str(source).removeprefix(HUB))


def is_google(source: Path | str) -> bool:
    """Whether this is a TensorFlow checkpoint: its folder, a TF-Hub module, its prefix or one of its files."""
    path = Path(source)
    if path.is_dir():
        checkpoint = any(any(place.glob("*.index")) for place in (path, path / "variables"))
        if (path / CONFIG_FILE).is_file():  # a model folder, unless the checkpoint is all that it has
            return checkpoint and not any(any(path.glob(f"*{suffix}")) for suffix in (".safetensors", ".bin", ".onnx"))
        return checkpoint or any((path / name).is_file() for name in GOOGLE_CONFIGS)
    prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.name)
    return bool(prefix) and path.parent.is_dir() and any(path.parent.glob(f"{glob.escape(prefix)}.index"))


def find_google_config(folder: Path) -> Path:
    """The config of the TensorFlow checkpoint in a folder: one of the usual names, else the one `*config*.json`."""
    places = (folder, folder.parent, folder.parent / "assets")
    for place in places:
        for name in GOOGLE_CONFIGS:
            if (place / name).is_file():
                return place / name
    for place in places[::2]:  # other names only where nothing else lies: beside it, or among a TF-Hub module's assets
        found = sorted(path for path in place.glob("*config*.json") if path.name != "tokenizer_config.json")
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise CheckpointError(
                f"{place}: several configs beside the checkpoint: {names}; give one of them as `config`"
            )
        if found:
            return found[0]
    raise CheckpointError(
        f"{folder}: no {' or '.join(GOOGLE_CONFIGS)} beside the checkpoint, nor another *config*.json; it says the "
        "number of heads, so give the file as `config`"
    )


def load_config(source: Path | str, revision: str | None = None) -> ModelConfig:
    """The config of a model folder or Hub name, without its weights; a JSON file is read as it is."""
    source = resolve_default(source)
    path = Path(source)
    if path.is_file():
        return read_config(path)[0]
    folder = find_folder(source, revision, weights=False)
    if is_google(folder):
        place = folder / "variables" if (folder / "variables").is_dir() else folder  # of a TF-Hub module
        return read_config(find_google_config(place), google=True)[0]
    if (folder / CONFIG_FILE).is_file():
        return read_config(folder / CONFIG_FILE)[0]
    raise CheckpointError(f"{folder}: no {CONFIG_FILE} here, so this is not a model folder{folder_hint(folder)}")


def _what_exists(path: Path) -> str:
    """What may be meant instead of a folder that is not there."""
    if path.name == "best" and path.parent.is_dir():
        return f"; is the run in {path.parent} unfinished? Rerun the same command to resume it"
    missing = next((place for place in reversed(path.parents) if not place.exists()), path)
    if not missing.parent.is_dir():
        return ""
    inside = missing.parent != Path()  # of a folder that was named, everything in it may be meant
    folders = [each for each in sorted(missing.parent.iterdir()) if each.is_dir()]
    names = [each.name for each in folders if inside or holds_model(each)]
    near = did_you_mean(missing.name, names if inside else [*names, DEFAULT])
    if near:
        return near
    found = models_in(missing.parent)
    return f"; model folders here: {', '.join(found)}" if found else f"; no model folders in {missing.parent.resolve()}"


def _released(name: str) -> str:
    """Where the weights of a preset are, if the authors released some."""
    released = f"{name}-v2"
    return f"; released weights: albert/{released}" if released in WITHOUT_OWNER else ""
