"""Model names: a folder, Google's files, the model in this package, or one on the Hub. No torch here.

An unknown name fails fast: the Hub is asked once, with a short timeout.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TypeVar

from litebert.errors import CheckpointError, did_you_mean
from litebert.folders import folder_hint, holds_model, models_in
from litebert.parse import read_object

DEFAULT = "default"  # the name of the model in this package
DEFAULT_FOLDER = Path(__file__).parent / "default_model"
ADAPTERS = "adapters"  # the folder in there with an adapter for each further ability
CONFIG_FILE = "config.json"
ADAPTER_FILE, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # as PEFT calls them
INDEX_FILE = "model.safetensors.index.json"
SUMS_FILE = "SHA256SUMS"
GOOGLE_CONFIGS = ("albert_config.json", "bert_config.json")
PATIENCE = 5.0  # seconds to wait for the Hub's first answer
HUB = "hub:"  # prefix that forces a Hub name, even if a local folder has the same name
# Hub names that people use without the owner; any other name without an owner is a folder.
WITHOUT_OWNER = (
    *(f"albert-{size}-v{version}" for size in ("base", "large", "xlarge", "xxlarge") for version in (1, 2)),
    *(f"bert-{size}-{case}" for size in ("base", "large") for case in ("cased", "uncased")),
    *(f"bert-base-{language}" for language in ("chinese", "multilingual-cased", "multilingual-uncased")),
)
# Names that `litebert.preset` takes: architectures without weights.
_ARCHITECTURE = re.compile(r"albert-(tiny|small|base|large|xlarge|xxlarge)|bert-(base|large)")

S = TypeVar("S", Path, str, "Path | str")


def resolve_default(source: S) -> S | Path:
    """The folder of the packaged model for "default", of its adapter for "default:sentiment"; else what was given.

    "./default" is a folder like any other; Path("default") is one too if it exists.
    """
    name, colon, adapter = str(source).partition(":")
    if name != DEFAULT or (isinstance(source, Path) and source.exists()):
        return source
    if colon:
        found = shipped_adapters()
        if adapter not in found:
            there = ", ".join(f"{DEFAULT}:{each}" for each in found) or "none"
            raise CheckpointError(f"{source}: no such adapter in this package; it has {there}")
        return found[adapter]
    if not (DEFAULT_FOLDER / "config.json").is_file():
        raise CheckpointError(
            "default: this build of litebert contains no model; name a model folder or a Hub model "
            "(albert/albert-base-v2), or train one in minutes with: litebert quickstart"
        )
    return DEFAULT_FOLDER


def shipped_adapters() -> dict[str, Path]:
    """The folders of the adapters in this package by name: {"sentiment": ..., ...}."""
    return {path.parent.name: path.parent for path in sorted(DEFAULT_FOLDER.glob(f"{ADAPTERS}/*/{ADAPTER_FILE}"))}


def find_folder(source: Path | str, revision: str | None = None, weights: bool = True) -> Path:
    """The folder of a model: a local path as it is, a Hub name downloaded (or, offline, found in the cache)."""
    folder = find_local(source)
    if folder is not None:
        return folder
    return fetch_model(str(source).removeprefix(HUB), revision, weights)


def find_local(source: Path | str) -> Path | None:
    """A local folder as it is, None for a Hub name; a path that does not exist is an error. Needs no network."""
    source = resolve_default(source)
    name, path = str(source), Path(source).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise CheckpointError(f"{path}: a file; a model is a folder with {CONFIG_FILE} in it")
    if _ARCHITECTURE.fullmatch(name):
        raise CheckpointError(f"{name}: no such folder; {name} is an architecture without weights{_released(name)}")
    if not name.startswith(HUB) and is_path(name):
        raise CheckpointError(f"{name}: no such folder{_what_exists(path)}")
    return None


def is_path(name: str) -> bool:
    """Whether a name is a path rather than a Hub name (owner/name); "hub:owner/name" never is."""
    owner, slash, rest = name.partition("/")
    if not slash:
        return name not in WITHOUT_OWNER
    is_owner = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) and not Path(owner).is_dir()
    return not is_owner or rest in ("best", "model") or rest.endswith((".json", ".safetensors"))


def check_source(source: Path | str) -> None:
    """Fail early if a model exists neither locally nor on the Hub, before anything slow is loaded."""
    if not is_google(source) and find_local(source) is None:
        check_hub(str(source).removeprefix(HUB))


def is_google(source: Path | str) -> bool:
    """Whether this is a TensorFlow checkpoint: a folder, a TF-Hub module, a prefix or one of its files."""
    path = Path(source)
    if path.is_dir():
        checkpoint = any(any(place.glob("*.index")) for place in (path, path / "variables"))
        if (path / CONFIG_FILE).is_file():  # a model folder, unless the checkpoint is all it contains
            return checkpoint and not any(any(path.glob(f"*{suffix}")) for suffix in (".safetensors", ".bin", ".onnx"))
        return checkpoint or any((path / name).is_file() for name in GOOGLE_CONFIGS)
    prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.name)
    return bool(prefix) and path.parent.is_dir() and any(path.parent.glob(f"{glob.escape(prefix)}.index"))


def _what_exists(path: Path) -> str:
    """Suggestions for a folder that does not exist."""
    if path.name == "best" and path.parent.is_dir():
        return f"; is the run in {path.parent} unfinished? Rerun the same command to resume it"
    missing = next((place for place in reversed(path.parents) if not place.exists()), path)
    if not missing.parent.is_dir():
        return ""
    inside = missing.parent != Path()  # inside a folder the user named, any subfolder may be meant
    folders = [each for each in sorted(missing.parent.iterdir()) if each.is_dir()]
    names = [each.name for each in folders if inside or holds_model(each)]
    before = f"{missing.parent}{os.sep}" if inside else ""
    near = did_you_mean(missing.name, names if inside else [*names, DEFAULT], before)
    if near:
        return near
    found = models_in(missing.parent)
    return f"; model folders here: {', '.join(found)}" if found else f"; no model folders in {missing.parent.resolve()}"


def _released(name: str) -> str:
    """Where the weights of a preset are, if they were released."""
    released = f"{name}-v2"
    return f"; released weights: albert/{released}" if released in WITHOUT_OWNER else ""


def check_hub(name: str, revision: str | None = None) -> None:
    """Reject a name that is neither in the Hub's cache nor on the Hub; asks once, with a short timeout."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    try:
        known = (CONFIG_FILE, ADAPTER_FILE)
        if any(isinstance(try_to_load_from_cache(name, file, revision=revision), str) for file in known):
            return
        # hf_hub_download would retry six times over half a minute.
        files = HfApi().model_info(name, revision=revision, timeout=PATIENCE).siblings or []
        if not any(file.rfilename in known for file in files):
            raise EntryNotFoundError(CONFIG_FILE)
    except Exception as error:  # from whichever HTTP library is in use
        raise CheckpointError(_explain(name, error)) from None


def fetch_model(name: str, revision: str | None = None, weights: bool = True) -> Path:
    """The folder of a model, or of an adapter, in the Hub's cache; downloads it first if necessary."""
    check_hub(name, revision)
    from huggingface_hub import snapshot_download

    patterns = [CONFIG_FILE, "*.model", "tokenizer*.json", "vocab.txt", "special_tokens_map.json", "task.json"]
    patterns += ["modules.json", "sentence_bert_config.json", "*_Pooling/config.json"]  # of sentence-transformers
    if weights:
        patterns += ["model*.safetensors", INDEX_FILE, SUMS_FILE]
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
        if not (folder / CONFIG_FILE).is_file():
            adapter = [*patterns, ADAPTER_FILE, *([ADAPTER_WEIGHTS] if weights else [])]
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=adapter))
        elif weights and not list(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*patterns, "pytorch_model*.bin*"]))
    except Exception as error:
        raise CheckpointError(_explain(name, error)) from None
    return folder


def push_folder(
    folder: Path | str,
    name: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    message: str | None = None,
    token: str | None = None,
) -> str:
    """Upload a model folder, or an adapter's, to `owner/name` on the Hub (created if necessary); returns its URL.

    An adapter must name a base model that others can open: one on the Hub, or default.
    """
    from huggingface_hub import HfApi, constants, errors

    folder = Path(folder)
    is_adapter = (folder / ADAPTER_FILE).is_file()
    if is_adapter:
        _check_public_base(folder)
    elif not (folder / CONFIG_FILE).is_file():
        raise CheckpointError(f"{folder}: no {CONFIG_FILE} here, so this is not a model folder{folder_hint(folder)}")
    message = message or f"Upload {'adapter' if is_adapter else 'model'} with litebert"
    api = HfApi(token=token)
    name = name.removeprefix(HUB)
    try:
        url = api.create_repo(name, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, revision=revision, commit_message=message)
    except errors.HFValidationError as error:
        reason = str(error).partition(" Use `repo_type`")[0]  # of its library, not of ours
        raise CheckpointError(f"{name or repr(name)}: not a valid Hub name: {reason}") from None
    except Exception as error:  # from whichever HTTP library is in use
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        todo = "; log in with `hf auth login`, and use a repository you may write to" if status in (401, 403) else ""
        raise CheckpointError(f"{name}: not uploaded to {constants.ENDPOINT}: {reason}{todo}") from None
    return str(url)


def _check_public_base(folder: Path) -> None:
    """Refuse an adapter of a model that is only on this machine: nobody else could open it."""
    base = read_object(folder / ADAPTER_FILE, CheckpointError).get("base_model_name_or_path")
    if base == DEFAULT or (isinstance(base, str) and (base.startswith(HUB) or not is_path(base))):
        return
    raise CheckpointError(
        f"{folder}: its base model, {base or 'which has no name'}, is not on the Hub, so nobody else could open the "
        f"adapter; push the base too, and write its name (owner/name) to base_model_name_or_path in {ADAPTER_FILE}"
    )


def _explain(name: str, error: Exception) -> str:
    """What was searched for, where, why it was not found, and what to do."""
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    offline = f"download it on a machine with a network (`hf download {name} --local-dir FOLDER`) and use that folder"
    cause = error.__cause__ or error
    reason = next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__
    if isinstance(error, errors.GatedRepoError):
        why = f"{hub} requires you to accept the terms of this model; do so on its page, then run `hf auth login`"
    elif isinstance(error, errors.RepositoryNotFoundError):
        why = f"{hub} has no such model; check the spelling (if it is private: `hf auth login`)"
    elif isinstance(error, errors.RevisionNotFoundError):
        why = f"{hub} has the model, but no such revision"
    elif isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        why = f"{hub} has that repository, but it contains no {CONFIG_FILE}, so litebert cannot load it"
    elif isinstance(error, errors.HFValidationError):
        why = reason
    elif constants.HF_HUB_OFFLINE:
        why = f"HF_HUB_OFFLINE is set, so {hub} was not asked; {offline}"
    else:
        why = f"downloading from {hub} failed ({reason}); {offline}"
    cache = constants.HF_HUB_CACHE
    return f"{name}: no such folder, and not in the Hub's cache ({cache}); {why}"
