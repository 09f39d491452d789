"""Model folders in the Hub's layout, in and out: `config.json` + `model.safetensors`.

What transformers cannot express (attention-only or FFN-only sharing, the SQuAD 2.0 head, ...) is written in the same
two files under our own `model_type`, with our own tensor names, so that AutoModel refuses it instead of filling layers
at random. Weights are one safetensors file, sharded ones, or a `pytorch_model.bin`; `SHA256SUMS` (as sha256sum writes
it) is saved with them and checked before use, unless another program has since rewritten the weights.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from litebert.errors import CheckpointError, InputError, quote_value
from litebert.files import file_sha256, staged_folder
from litebert.folders import folder_hint
from litebert.model.config import EXTENSION_MODEL_TYPE, ModelConfig, read_config, to_hub, vary
from litebert.model.heads import MODELS, Model, model_class
from litebert.model.names import HUB_CLASSES, clean_hub_name, hub_class, hub_names
from litebert.parse import read_object
from litebert.remote import CONFIG_FILE, INDEX_FILE, SUMS_FILE, find_folder, is_google, resolve_default

M = TypeVar("M", bound=Model)

_PROJECTION = "encoder.projection"
_WORDS, _OUTPUT = "encoder.embeddings.word.weight", "masked_lm.output.weight"


@dataclass
class LoadReport:
    """The tensors of a file: our names of those mapped and missing, the file's names of those skipped."""

    mapped: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------------------------
# Loading


def load_model(source: Path | str, head: str | None = None, new_head: bool = False, **changes: Any) -> Model:
    """A model from a folder or a Hub name: load_model("runs/mine"), load_model("albert/albert-base-v2", "masked-lm").

    `head` defaults to that of the folder. A head missing from the folder needs `new_head=True`, which initialises it.
    `changes` alter the config: labels, dropout, num_attention_heads, ...
    """
    return load_model_and_report(source, head, new_head, **changes)[0]


def load_model_and_report(
    source: Path | str,
    head: str | None = None,
    new_head: bool = False,
    revision: str | None = None,
    config: Path | str | None = None,
    allow_nan: bool = False,
    **changes: Any,
) -> tuple[Model, LoadReport]:
    """Like load_model, with a report of what was mapped, skipped and missing.

    `config` names the file to read instead of the folder's own `config.json` or `albert_config.json`. Weights that hold
    NaN or infinity are refused unless `allow_nan`.
    """
    named, source = source, resolve_default(source)
    if is_google(source):
        from litebert.model.google import load_google

        return load_google(source, head, new_head, config, allow_nan, **changes)
    folder = find_folder(source, revision)
    config_path = folder / CONFIG_FILE if config is None else Path(config)
    if config is None and not config_path.is_file():
        raise CheckpointError(f"{named}: not a model folder (no {CONFIG_FILE}){folder_hint(folder)}")
    shape, architectures = read_config(config_path)
    tensors = open_weights(folder)
    extension = read_object(config_path, CheckpointError).get("model_type") == EXTENSION_MODEL_TYPE
    found, skipped = _rename(tensors, shape, extension)
    head = _pick_head(head, architectures, found, folder)
    report = LoadReport(skipped=skipped)
    shape = _fit_output_matrix(shape, found, tensors, report)
    shape = _fit_config(shape, head, found, tensors, changes)
    return build_model(shape, head, found, tensors.__getitem__, new_head, str(folder), report, allow_nan), report


def build_model(
    config: ModelConfig,
    head: str,
    found: Mapping[str, str],
    read: Callable[[str], Tensor],
    new_head: bool,
    where: str,
    report: LoadReport,
    allow_nan: bool = False,
) -> Model:
    """A model of `head` filled from `found` (our name -> the file's); fills in the report."""
    make = _maker(config, head, found, new_head)
    with torch.device("meta"), _WithoutValues():
        model = make()
    expected = model.state_dict()
    report.missing = [name for name in expected if name not in found]
    report.mapped = [name for name in expected if name in found]
    report.skipped += [file_name for name, file_name in found.items() if name not in expected]
    broken = [name for name in report.missing if name.startswith("encoder.") and not name.startswith("encoder.pooler")]
    if broken:
        raise CheckpointError(f"{where}: {len(broken)} tensors of the encoder are missing, first: {broken[0]}")
    if report.missing and not new_head:
        names = ", ".join(report.missing[:4]) + (", ..." if len(report.missing) > 4 else "")
        raise CheckpointError(
            f"{where}: has no {head} head (missing: {names}); "
            "choose a head that it has, or train one with `litebert finetune` (new_head=True in Python)"
        )
    state = {}
    for name in report.mapped:
        tensor = read(found[name])
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{where}: {found[name]} has shape {list(tensor.shape)}, the config says {list(expected[name].shape)}"
            )
        state[name] = tensor.to(torch.float32)
        if not allow_nan and not _is_finite(state[name]):
            raise CheckpointError(
                f"{where}: {found[name]} holds NaN or infinity: the training run "
                "diverged, or the file is damaged; use an earlier checkpoint, or train again at a lower learning rate"
            )
    if report.missing:
        model = make()
        model.load_state_dict(state, strict=False)
    else:
        model.load_state_dict(state, assign=True)
        for parameter in model.parameters():
            parameter.requires_grad_(True)
    return model.eval()


class _WithoutValues(TorchFunctionMode):
    """Skips initial values: meta tensors have none, yet drawing them makes torch load its compiler (a second)."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def _is_finite(tensor: Tensor) -> bool:
    low, high = tensor.aminmax()  # NaN is both; no copy is made
    return bool(low.isfinite() and high.isfinite())


def _maker(config: ModelConfig, head: str, found: Mapping[str, str], new_head: bool) -> Callable[[], Model]:
    """Makes the model; an encoder whose file has no pooler gets none, unless `new_head`."""
    without_pooler = head == "encoder" and "encoder.pooler.weight" not in found and not new_head
    return functools.partial(model_class(head), config, **({"pooler": False} if without_pooler else {}))


def _rename(tensors: Mapping[str, Any], config: ModelConfig, extension: bool) -> tuple[dict[str, str], list[str]]:
    """Our name -> the file's name, and the file's names that have no place in our models."""
    if extension:
        return {name: name for name in tensors}, []
    # A file may hold a projection that the config's E == H does not ask for.
    with_projection = config if config.model_type == "bert" else dataclasses.replace(config, embedding_projection=True)
    ours = {hub: our for our, hub in hub_names(with_projection).items()}
    found, skipped = {}, []
    for name in tensors:
        plain = clean_hub_name(name, config.model_type)
        if plain is not None and plain in ours:
            found[ours[plain]] = name
        else:
            skipped.append(name)
    for name in tensors:
        # What transformers adds: `predictions.bias` is the same where the two are tied, and unused where they are not.
        if name.endswith("predictions.decoder.bias"):
            skipped.remove(name)
            if "masked_lm.bias" in found:
                skipped.append(found["masked_lm.bias"])
            found["masked_lm.bias"] = name
    return found, skipped


def _pick_head(head: str | None, architectures: Sequence[str], found: Mapping[str, str], folder: Path) -> str:
    if head is not None:
        return model_class(head).head
    known = {name: ours for ours, names in HUB_CLASSES.items() for name in names if name}
    known |= {_extension_architecture(ours): ours for ours in MODELS}
    for architecture in architectures:
        if architecture in known:
            return known[architecture]
    if architectures:
        raise CheckpointError(
            f"{folder}: architecture {architectures[0]!r} is unknown; choose a head: {', '.join(MODELS)}"
        )
    if "masked_lm.bias" in found:
        return "pretraining" if "sentence.weight" in found else "masked-lm"
    return "encoder"


def _fit_config(
    config: ModelConfig,
    head: str,
    found: dict[str, str],
    tensors: Mapping[str, Tensor],
    changes: Mapping[str, Any],
) -> ModelConfig:
    """The config with what only the file can say: whether an E == H projection means anything, and the labels."""
    config = _without_unused_labels(config, head)
    if config.model_type == "albert" and config.embedding_size == config.hidden_size and not config.project_words_only:
        there = f"{_PROJECTION}.weight" in found
        if there and not config.embedding_projection and _is_identity(found, tensors):
            for part in ("weight", "bias"):
                del found[f"{_PROJECTION}.{part}"]
            there = False
        config = dataclasses.replace(config, embedding_projection=there)
    return vary(config, **{"embedding_projection": config.embedding_projection, **changes})


def _fit_output_matrix(
    config: ModelConfig, found: dict[str, str], tensors: Mapping[str, Tensor], report: LoadReport
) -> ModelConfig:
    """The config, untied where the file's output matrix is not its word embeddings: as transformers decides it."""
    if not config.tie_word_embeddings or _OUTPUT not in found:
        return config
    if _WORDS not in found:  # of two names for one tensor, some writers keep the other
        found[_WORDS] = found.pop(_OUTPUT)
        return config
    if torch.equal(tensors[found[_OUTPUT]].float(), tensors[found[_WORDS]].float()):
        report.skipped.append(found.pop(_OUTPUT))
        return config
    report.notes.append("the output matrix differs from the word embeddings, so it is kept (tie_word_embeddings=False)")
    return dataclasses.replace(config, tie_word_embeddings=False)


def _without_unused_labels(config: ModelConfig, head: str) -> ModelConfig:
    # The classes of a classifier that this head does not have.
    return config if model_class(head).labelled else dataclasses.replace(config, labels=(), problem_type=None)


def _is_identity(found: Mapping[str, str], tensors: Mapping[str, Tensor]) -> bool:
    weight, bias = (tensors[found[f"{_PROJECTION}.{part}"]].float() for part in ("weight", "bias"))
    return bool((weight == torch.eye(len(weight))).all()) and not bool(bias.any())


# ---------------------------------------------------------------------------------------------------------------------
# Saving


def save_model(model: Model, folder: Path | str, dtype: torch.dtype = torch.float32) -> Path:
    """Write a model folder atomically: an existing one stays intact if anything fails.

    `dtype` only affects the size of the file: every model is loaded in float32.
    """
    if not isinstance(model, Model):
        raise InputError(f"model: expected a model, such as load_model('default'), got {quote_value(model)}")
    folder = Path(folder)
    head, config = model.head, _without_unused_labels(model.config, model.head)
    architecture = hub_class(head, config.model_type)
    extension = architecture is None or not config.fits_hub
    state = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in model.state_dict().items()}
    if not extension:
        names = hub_names(config)
        if config.model_type == "albert" and not config.embedding_projection:
            # transformers always has a projection: an identity changes nothing.
            names = hub_names(dataclasses.replace(config, embedding_projection=True))
            state[f"{_PROJECTION}.weight"] = torch.eye(config.hidden_size, dtype=dtype)
            state[f"{_PROJECTION}.bias"] = torch.zeros(config.hidden_size, dtype=dtype)
        hub_state = {_bare(names[name], head): tensor for name, tensor in state.items()}
        if _OUTPUT in state:  # transformers adds the bias of this name then
            hub_state[names[_OUTPUT].replace(".weight", ".bias")] = state["masked_lm.bias"].clone()
        state = hub_state
    data = to_hub(config, architecture if not extension and architecture else _extension_architecture(head), extension)
    # Not the file's: transformers opens a model in this dtype, and AdamW turns float16 weights into NaN.
    data["dtype"] = "float32"
    with staged_folder(folder, keep=lambda name: not is_weights_file(name)) as staging:
        save_weights(state, staging)
        (staging / CONFIG_FILE).write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return folder


def _bare(name: str, head: str) -> str:
    # transformers' bare encoder has no prefix.
    return re.sub(r"^(albert|bert)\.", "", name) if head == "encoder" else name


def _extension_architecture(head: str) -> str:
    return f"Litebert{MODELS[head].__name__}"


# ---------------------------------------------------------------------------------------------------------------------
# Weights files

WEIGHTS_FILE = "model.safetensors"
PICKLE_FILE = "pytorch_model.bin"
# In the file's header. Other programs drop it when they rewrite the file, and then SHA256SUMS does not apply.
_OURS = {"saved_by": "litebert"}


def save_weights(state: Mapping[str, Tensor], folder: Path) -> None:
    """Write `model.safetensors` and its checksum."""
    path = folder / WEIGHTS_FILE
    save_file(dict(state), path, metadata={"format": "pt", **_OURS})
    _order_metadata(path)
    os.chmod(path, 0o644)
    (folder / SUMS_FILE).write_text(f"{file_sha256(path)}  {path.name}\n", encoding="utf-8")


def _order_metadata(path: Path) -> None:
    """safetensors writes metadata in random order: sort them, so that equal weights give equal files."""
    with open(path, "r+b") as file:
        header = file.read(1 << 12)  # they come first
        start, end = header.index(b'"__metadata__":') + 15, header.index(b"}") + 1
        ordered = json.dumps(json.loads(header[start:end]), sort_keys=True, separators=(",", ":")).encode()
        assert len(ordered) == end - start
        file.seek(start)
        file.write(ordered)


def is_weights_file(name: str) -> bool:
    """Whether a file of a model folder holds weights, or says something about them."""
    endings = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")
    return name.endswith(endings) or name == SUMS_FILE


class Weights(Mapping[str, Tensor]):
    """The tensors of one or several files by name, read on request."""

    def __init__(self, readers: dict[str, Callable[[], Tensor]]):
        self._readers = readers

    def __getitem__(self, name: str) -> Tensor:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def open_weights(folder: Path) -> Weights:
    """The weights of a folder: one safetensors file, sharded ones, or a pytorch_model.bin (tensors only)."""
    if (folder / WEIGHTS_FILE).is_file():
        return Weights(_open_safetensors(folder / WEIGHTS_FILE))
    for index_name, opener in ((INDEX_FILE, _open_safetensors), (f"{PICKLE_FILE}.index.json", _open_pickle)):
        if (folder / index_name).is_file():
            return Weights(_open_shards(folder / index_name, opener))
    if (folder / PICKLE_FILE).is_file():
        return Weights(_open_pickle(folder / PICKLE_FILE))
    raise CheckpointError(f"{folder}: no weights ({WEIGHTS_FILE}, {INDEX_FILE} or {PICKLE_FILE})")


def _open_safetensors(path: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        file = safe_open(path, framework="pt")
        names, ours = list(file.keys()), _OURS.items() <= (file.metadata() or {}).items()
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged or not a safetensors file ({error}); fetch or write it again") from None
    if ours:
        _check_sum(path)
    return {name: functools.partial(file.get_tensor, name) for name in names}


def _check_sum(path: Path) -> None:
    """Refuse weights that do not match the SHA256SUMS next to them."""
    sums = path.parent / SUMS_FILE
    if not sums.is_file():
        return
    text = sums.read_text(encoding="utf-8", errors="replace")
    line = re.search(rf"^([0-9a-f]{{64}}) [ *]{re.escape(path.name)}$", text, re.MULTILINE)
    if line is None:
        raise CheckpointError(
            f"{sums}: damaged: no checksum of {path.name}; copy the folder again, or delete {SUMS_FILE} to load "
            "the weights unchecked"
        )
    if line[1] != file_sha256(path):
        raise CheckpointError(
            f"{path}: damaged, or changed since it was saved (its SHA-256 is not the one in {SUMS_FILE}); copy or save "
            f"the model again, or delete {SUMS_FILE} if you changed the weights yourself"
        )


def _open_pickle(path: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        # weights_only: tensors and plain containers, no code from the file is ever run.
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types here, all of them about this file
        raise CheckpointError(f"{path}: {_explain_pickle(error)}") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: expected named tensors, found {type(state).__name__}")
    return {name: functools.partial(_given, value) for name, value in state.items() if isinstance(value, Tensor)}


def _explain_pickle(error: Exception) -> str:
    """Why a pickle is refused; torch's own message advises weights_only=False."""
    named = re.search(r"GLOBAL ([\w.]+)", str(error))
    if named:
        return (
            f"holds more than tensors ({named[1]}), which litebert never loads, since a pickle can run any code; use "
            "a safetensors file"
        )
    if isinstance(error, pickle.UnpicklingError):
        return "damaged, or holds more than tensors; fetch it again, or ask for a safetensors file"
    reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return f"damaged, or holds more than tensors ({reason})"


def _given(tensor: Tensor) -> Tensor:
    return tensor


def _open_shards(
    index: Path, opener: Callable[[Path], dict[str, Callable[[], Tensor]]]
) -> dict[str, Callable[[], Tensor]]:
    weight_map = read_object(index, CheckpointError).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{index}: damaged: no readable weight_map")
    shards = sorted(set(weight_map.values()))
    there = {file.name for file in index.parent.iterdir()}
    readers: dict[str, Callable[[], Tensor]] = {}
    for shard in shards:
        if shard not in there:
            raise CheckpointError(f"{index}: shard {quote_value(shard)} is not in the folder")
        readers |= opener(index.parent / shard)
    missing = [name for name in weight_map if name not in readers]
    if missing:
        raise CheckpointError(f"{index}: {len(missing)} tensors are in no shard, first: {missing[0]}")
    return {name: readers[name] for name in weight_map}
