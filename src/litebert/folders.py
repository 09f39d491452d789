"""Which of our folders a folder is, for messages (a run is easily named where its model is wanted); what is beside."""

from __future__ import annotations

from pathlib import Path


def folder_hint(folder: Path) -> str:
    """What a folder is that is not what was wanted: "runs/a" -> "; it is a run, whose model is runs/a/best"."""
    for name in ("best", "model"):
        if (folder / name / "config.json").is_file():
            return f"; it is a run, whose model is {folder / name}"
    if (folder / "checksums.json").is_file():
        return "; it is a checkpoint, from which only its run goes on"
    if (folder / "run.json").is_file():
        return "; it is a run that is not finished: the command that began it goes on with it"
    if (folder / "manifest.json").is_file():
        return "; it is a token store"
    if (folder / "tokenizer_config.json").is_file():
        return "; it is a tokenizer"
    return ""


def holds_model(folder: Path) -> bool:
    """Whether a folder is a model or a run, also one that has not come to its model yet."""
    return any((folder / name).exists() for name in ("config.json", "best", "model", "run.json"))


def models_in(folder: Path, most: int = 5) -> list[str]:
    """Paths of models in a folder, and of the runs in it: ["my-run/model", "my-labels/best"]."""
    found = []
    for entry in sorted(folder.iterdir()):
        found += [str(place) for place in (entry, entry / "best", entry / "model") if (place / "config.json").is_file()]
    return [*found[:most], "..."] if len(found) > most else found


def beside(folder: Path, suffix: str) -> Path:
    """The neighbour named after a folder: ("runs/a", "-onnx") -> runs/a-onnx; "." and ".." go by their real names."""
    named = folder.resolve() if folder.name in ("", "..") else folder
    return named.parent / f"{named.name}{suffix}"
