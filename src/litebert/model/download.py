"""Models of the Hub, in its cache or over the network: asked for once, and what is wrong is told at once. No torch."""

from __future__ import annotations

from pathlib import Path

from litebert.errors import CheckpointError

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
SUMS_FILE = "SHA256SUMS"
PATIENCE = 5.0  # seconds for a first answer of the Hub


def check_hub(name: str, revision: str | None = None) -> None:
    """Refuse a name that is neither in the Hub's cache nor on the Hub, which is asked once and for a moment only."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    try:
        if isinstance(try_to_load_from_cache(name, CONFIG_FILE, revision=revision), str):
            return
        # hf_hub_download would try six times in half a minute.
        files = HfApi().model_info(name, revision=revision, timeout=PATIENCE).siblings or []
        if CONFIG_FILE not in {file.rfilename for file in files}:
            raise EntryNotFoundError(CONFIG_FILE)
    except Exception as error:  # of whatever library it speaks HTTP with
        raise CheckpointError(_explain(name, error)) from None


def fetch_model(name: str, revision: str | None = None, weights: bool = True) -> Path:
    """The folder in the Hub's cache that holds a model, fetched where it does not yet."""
    check_hub(name, revision)
    from huggingface_hub import snapshot_download

    patterns = [CONFIG_FILE, "*.model", "tokenizer*.json", "vocab.txt", "special_tokens_map.json"]
    if weights:
        patterns += ["model*.safetensors", INDEX_FILE, SUMS_FILE]
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
        if weights and not list(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*patterns, "pytorch_model*.bin*"]))
    except Exception as error:
        raise CheckpointError(_explain(name, error)) from None
    return folder


def _explain(name: str, error: Exception) -> str:
    """What was looked for, where, why it was not found, and what to do."""
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    offline = f"fetch it where there is a network (`hf download {name} --local-dir FOLDER`) and name that folder"
    cause = error.__cause__ or error
    reason = next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__
    if isinstance(error, errors.GatedRepoError):
        why = f"{hub} gives it only to those who accepted its terms there; then `hf auth login`"
    elif isinstance(error, errors.RepositoryNotFoundError):
        why = f"{hub} has no such model; check the spelling (or, where it is private, `hf auth login`)"
    elif isinstance(error, errors.RevisionNotFoundError):
        why = f"{hub} has the model, but no such revision"
    elif isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        why = f"what {hub} has under that name holds no {CONFIG_FILE}, so it is no model that litebert reads"
    elif isinstance(error, errors.HFValidationError):
        why = reason
    elif constants.HF_HUB_OFFLINE:
        why = f"HF_HUB_OFFLINE forbids asking {hub}; {offline}"
    else:
        why = f"{hub} did not give it ({reason}); {offline}"
    cache = constants.HF_HUB_CACHE
    return f"{name}: no such folder here, and not in the Hub's cache ({cache}); {why}"
