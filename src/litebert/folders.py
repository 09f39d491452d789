"""What kind of litebert folder a path is, for error messages (people often pass a run instead of its model)."""

from __future__ import annotations

from pathlib import Path


def folder_hint(folder: Path) -> str:
    """A hint for a folder of the wrong kind: "runs/a" -> "; it is a run folder, its model is runs/a/best"."""
    for name in ("best", "model"):
        if (folder / name / "config.json").is_file():
            return f"; it is a run folder, its model is {folder / name}"
    if (folder / "checksums.json").is_file():
        return "; it is a training checkpoint: resume its run, or use the model folder of that run"
    if (folder / "run.json").is_file():
        return "; it is an unfinished run: rerun the same command to resume"
    if (folder / "adapter_config.json").is_file():
        return "; it is an adapter: merge it with its model first (litebert adapter merge)"
    if (folder / "manifest.json").is_file():
        return "; it is a token store"
    if (folder / "tokenizer_config.json").is_file() and not (folder / "config.json").is_file():
        return "; it is a tokenizer"
    return ""


def kind_of_folder(folder: Path) -> str:
    """What a folder is that no run may write to: a model, an adapter or a token store; else ''."""
    marks = {"adapter_config.json": "an adapter", "config.json": "a model", "manifest.json": "a token store"}
    return next((kind for name, kind in marks.items() if (folder / name).is_file()), "")


def adapter_hint(folder: Path) -> str:
    """A hint for a folder that is no adapter: "runs/a/best" -> "; the adapter of this run is runs/a/adapter"."""
    for place in (folder / "adapter", folder.parent / "adapter"):
        if (place / "adapter_config.json").is_file():
            return f"; the adapter of this run is {place}"
    return "; it is a whole model" if (folder / "config.json").is_file() else folder_hint(folder)


def holds_model(folder: Path) -> bool:
    """Whether a folder is a model or a run, finished or not."""
    return any((folder / name).exists() for name in ("config.json", "best", "model", "run.json"))


def models_in(folder: Path, most: int = 5) -> list[str]:
    """Paths of the models in a folder and in its runs: ["my-run/model", "my-labels/best"]."""
    found = []
    for entry in sorted(folder.iterdir()):
        found += [str(place) for place in (entry, entry / "best", entry / "model") if (place / "config.json").is_file()]
    return [*found[:most], "..."] if len(found) > most else found


def beside(folder: Path, suffix: str) -> Path:
    """The path of a folder plus a suffix: ("runs/a", "-onnx") -> runs/a-onnx; "." and ".." are resolved first."""
    named = folder.resolve() if folder.name in ("", "..") else folder
    return named.parent / f"{named.name}{suffix}"
