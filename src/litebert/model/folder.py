"""The config of a model by its name, without its weights. No torch."""

from __future__ import annotations

from pathlib import Path

from litebert.default import resolve_default
from litebert.errors import CheckpointError
from litebert.folders import folder_hint
from litebert.model.config import ModelConfig, read_config
from litebert.remote import CONFIG_FILE, GOOGLE_CONFIGS, find_folder, is_google


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
