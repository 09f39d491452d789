"""Any checkpoint we can read -> a model folder, with an account of every tensor."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from litebert.errors import CheckpointError, check_choice
from litebert.files import staged_folder
from litebert.model.hub import LoadReport, load_model_and_report, save_model
from litebert.remote import CONFIG_FILE, find_folder, is_google

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# Tokenizer files that belong to a model; Google's files have other names for the vocabularies.
_TOKENIZER_FILES = (
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "special_tokens_map.json",
)


@dataclass
class Conversion:
    """What a conversion did."""

    head: str
    parameters: int
    report: LoadReport
    copied: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def convert_model(
    source: Path | str,
    target: Path | str,
    head: str | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
    config: Path | None = None,
    **changes: Any,
) -> Conversion:
    """Read a model folder, a TensorFlow checkpoint (folder, prefix or file) or a Hub name; write a model folder.

    `config` is the file to read where the one beside the weights is missing or wrong; `changes` correct what it says:
    num_attention_heads=32, hidden_act="gelu_new", hidden_dropout_prob=0.
    """
    target = Path(target)
    check_choice("--dtype", dtype, DTYPES)
    if (target / CONFIG_FILE).exists() and not overwrite:
        raise CheckpointError(f"{target}: holds a model already; --overwrite replaces it")
    model, report = load_model_and_report(source, head, config=config, **changes)
    save_model(model, target, DTYPES[dtype])
    folder = Path(source).parent if is_google(source) and not Path(source).is_dir() else find_folder(source)
    copied = _copy_tokenizer(folder, target)
    return Conversion(model.head, model.num_parameters, report, copied)


def _copy_tokenizer(source: Path, target: Path) -> list[str]:
    files = {name: source / name for name in _TOKENIZER_FILES if (source / name).is_file()}
    if "spiece.model" not in files:
        # 30k-clean.model, or for Chinese a WordPiece vocab_chinese.txt.
        for name, pattern in (("spiece.model", "*.model"), ("vocab.txt", "vocab*.txt")):
            found = [*source.glob(pattern), *(source / "assets").glob(pattern)]
            if len(found) == 1:
                files.setdefault(name, found[0])
                break
    files = {name: path for name, path in files.items() if not (target / name).exists() or path.parent != target}
    if not files:
        return []
    with staged_folder(target) as staging:
        for name, path in files.items():
            shutil.copyfile(path, staging / name)
    return sorted(files)
