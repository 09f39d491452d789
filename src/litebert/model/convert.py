"""Any checkpoint we can read -> a model folder; and its outputs compared with transformers'."""

from __future__ import annotations

import filecmp
import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from litebert.errors import CheckpointError, InputError, check_choice
from litebert.extras import require
from litebert.files import staged_folder
from litebert.model.heads import Model
from litebert.model.hub import LoadReport, load_model, load_model_and_report, save_model
from litebert.model.names import hub_class
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

    `config` is the file to read if the one next to the weights is missing or wrong; `changes` override its values:
    num_attention_heads=32, hidden_act="gelu_new", hidden_dropout_prob=0.
    """
    target = Path(target)
    check_choice("dtype", dtype, DTYPES)
    if (target / CONFIG_FILE).exists() and not overwrite:
        raise CheckpointError(f"{target}: already holds a model; use another folder, or set overwrite")
    folder = Path(source).parent if is_google(source) and not Path(source).is_dir() else find_folder(source)
    tokenizer = _tokenizer_files(folder, target)
    if not overwrite and any(_differ(path, target / name) for name, path in tokenizer.items()):
        raise CheckpointError(f"{target}: already holds another tokenizer; use another folder, or set overwrite")
    model, report = load_model_and_report(source, head, config=config, **changes)
    save_model(model, target, DTYPES[dtype])
    if tokenizer:
        with staged_folder(target) as staging:
            for name, path in tokenizer.items():
                shutil.copyfile(path, staging / name)
    return Conversion(model.head, model.num_parameters, report, sorted(tokenizer))


def _differ(path: Path, other: Path) -> bool:
    """Whether there is another file that has other bytes."""
    return other.exists() and not filecmp.cmp(path, other, shallow=False)


def _tokenizer_files(source: Path, target: Path) -> dict[str, Path]:
    """What to copy, by its name in the target: {"spiece.model": Path("google/30k-clean.model")}."""
    files = {name: source / name for name in _TOKENIZER_FILES if (source / name).is_file()}
    if "spiece.model" not in files:
        # 30k-clean.model, or for Chinese a WordPiece vocab_chinese.txt.
        for name, pattern in (("spiece.model", "*.model"), ("vocab.txt", "vocab*.txt")):
            found = [*source.glob(pattern), *(source / "assets").glob(pattern)]
            if len(found) == 1:
                files.setdefault(name, found[0])
                break
    return {name: path for name, path in files.items() if not (target / name).exists() or path.parent != target}


class Difference(NamedTuple):
    """How far apart one output is."""

    output: str
    difference: float  # largest absolute
    magnitude: float  # largest absolute value of transformers' own output

    def within(self, tolerance: float) -> bool:
        """Whether the two agree; NaN or infinity on either side never does."""
        return math.isfinite(self.difference) and self.difference <= tolerance

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no NaN: such a number is null."""
        values = self._asdict()
        return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in values.items()}


def verify_model(source: Path | str, batch: int = 4, length: int | None = None, seed: int = 0) -> list[Difference]:
    """Run random ids with both segments and padding through both; the differences of every shared output.

    `length` defaults to 128 tokens, or to the model's limit if that is less.
    """
    transformers = require("transformers", "litebert verify")
    if batch < 1:
        raise InputError(f"batch: must be >= 1, got {batch}")
    if is_google(source):
        raise CheckpointError(
            f"{source}: a TensorFlow checkpoint, which transformers does not open; convert it first: "
            f"litebert convert {source} TARGET"
        )
    folder = find_folder(source)
    ours = load_model(source, allow_nan=True)  # NaN is a difference, see Difference.within
    architecture = hub_class(ours.head, ours.config.model_type)
    if architecture is None or not ours.config.fits_hub:
        raise CheckpointError(f"{folder}: transformers has no such model to compare with")
    longest = ours.config.max_position_embeddings
    length = min(128, longest) if length is None else length
    if not 2 <= length <= longest:
        raise InputError(f"length: must be between 2 and {longest}, got {length}")
    transformers.utils.logging.disable_progress_bar()
    theirs = getattr(transformers, architecture).from_pretrained(folder, dtype=torch.float32).eval()
    ids, segments, mask = _random_input(ours, batch, length, seed)
    if ours.head == "multiple-choice":
        ids, segments, mask = (x.unsqueeze(0) for x in (ids, segments, mask))  # one question, `batch` choices
    with torch.inference_mode():
        expected = theirs(ids, token_type_ids=segments, attention_mask=mask)
        actual = ours(ids, segment_ids=segments, attention_mask=mask)
    real = mask.bool()
    pairs = _pair_outputs(ours.head, actual, expected)
    return [_compare(name, a, b, real) for name, a, b in pairs if a is not None and b is not None]


def _random_input(model: Model, batch: int, length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, model.config.vocab_size, (batch, length), generator=generator)
    lengths = torch.randint(length // 2, length + 1, (batch,), generator=generator)
    positions = torch.arange(length).expand(batch, -1)
    mask = (positions < lengths[:, None]).long()
    segments = (positions >= lengths[:, None] // 2).long() * mask * min(1, model.config.type_vocab_size - 1)
    return ids, segments, mask


def _pair_outputs(head: str, ours: Any, theirs: Any) -> list[tuple[str, Tensor | None, Tensor | None]]:
    if head == "encoder":
        return [
            ("hidden", ours.hidden, theirs.last_hidden_state),
            ("pooled", ours.pooled, theirs.pooler_output),
        ]
    if head == "pretraining":
        sentence = theirs.sop_logits if "sop_logits" in theirs else theirs.seq_relationship_logits
        return [
            ("masked LM", ours.masked_lm, theirs.prediction_logits),
            ("sentence", ours.sentence, sentence),
        ]
    if head == "masked-lm":
        return [("masked LM", ours.masked_lm, theirs.logits)]
    if head == "sentence-order":
        return [("sentence", ours.sentence, theirs.logits)]
    if head == "span":
        return [("start", ours[0], theirs.start_logits), ("end", ours[1], theirs.end_logits)]
    return [(head, ours, theirs.logits)]


def _compare(name: str, ours: Tensor, theirs: Tensor, real: Tensor) -> Difference:
    if ours.shape[:2] == real.shape:  # one value per token: padding does not matter
        ours, theirs = ours[real], theirs[real]
    return Difference(name, float((ours - theirs).abs().max()), float(theirs.abs().max()))
