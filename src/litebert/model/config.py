"""The shape of a model: a typed, validated config whose JSON is the Hub's `config.json`; presets; the sharing plan.

Field names are the Hub's, so that a config reads the same here, in `config.json` and in transformers. No torch here.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from litebert.config import build, check_numbers
from litebert.errors import CheckpointError, ConfigError, InputError, did_you_mean, quote_value
from litebert.folders import folder_hint
from litebert.parse import read_object
from litebert.remote import CONFIG_FILE, GOOGLE_CONFIGS, find_folder, is_google, resolve_default

Sharing = Literal["all", "attention", "ffn", "none"]
Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"]

# What an ALBERT under another `model_type` is called, so that transformers refuses it instead of guessing.
EXTENSION_MODEL_TYPE = "litebert"

# Far above every published model, and small enough to refuse a config before it hangs or overflows.
MAX_LAYERS = 1 << 10
_LARGEST = {
    "vocab_size": 1 << 24,
    "embedding_size": 1 << 16,
    "hidden_size": 1 << 16,
    "num_hidden_layers": MAX_LAYERS,
    "num_attention_heads": 1 << 16,
    "intermediate_size": 1 << 20,
    "num_hidden_groups": MAX_LAYERS,
    "inner_group_num": MAX_LAYERS,
    "max_position_embeddings": 1 << 20,
    "type_vocab_size": 1 << 16,
}
_MOST_LABELS = 1 << 20

# Sharing modes that exist in transformers' ALBERT (through its groups).
_HUB_SHARING = ("all", "none")


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines the shape and numbers of an encoder.

    `sharing` says which blocks the layers have in common within a group: `all`, `attention`, `ffn` or `none`.
    `num_hidden_groups` cuts the layers into contiguous groups that share nothing with each other, and
    `inner_group_num` puts that many distinct blocks, one after another, into each layer.
    """

    model_type: Literal["albert", "bert"] = "albert"
    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    sharing: Sharing = "all"
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    # Groups as transformers cuts them, in floats. It differs for a few odd pairs only (18 layers in 14 groups, ...).
    rounded_groups: bool = False
    # "gelu" is the exact erf form, "gelu_new" and "gelu_pytorch_tanh" the tanh form that ALBERT was trained with.
    hidden_act: Activation = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    # None: a projection exists where E != H, as released. True keeps one that transformers put into an E == H file.
    embedding_projection: bool | None = None
    # True: only the word embeddings are projected, without a bias; positions, segments and LayerNorm have width H, and
    # the masked LM head goes back through the same matrix (brightmart/albert_zh, the most used Chinese ALBERTs).
    project_words_only: bool = False
    # False: the masked LM head has a separate output matrix instead of the word embeddings.
    tie_word_embeddings: bool = True
    pad_token_id: int = 0
    bos_token_id: int | None = 2
    eos_token_id: int | None = 3
    # What a classifier sees of a text: its [CLS] through the pooler, as released, or the mean over all its tokens.
    pooling: Literal["first", "mean"] = "first"
    # Depths (numbers of layers) that the model was trained to answer at, the last one its full depth; (): that alone.
    exits: tuple[int, ...] = ()
    # Names of the classes, for models with a classifier.
    labels: tuple[str, ...] = ()
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None

    def __post_init__(self) -> None:
        for name, largest in _LARGEST.items():
            check_numbers(self, f"between 1 and {largest:,}", name)
        blocks = self.num_hidden_layers * self.inner_group_num
        if blocks > MAX_LAYERS:
            raise ConfigError(
                f"inner_group_num: {self.num_hidden_layers} layers of {self.inner_group_num} blocks are {blocks:,}; "
                f"at most {MAX_LAYERS:,} are supported"
            )
        dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
        check_numbers(self, ">= 0 and < 1", *dropouts)
        check_numbers(self, "> 0 and <= 100", "initializer_range", "layer_norm_eps")
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"num_attention_heads: must divide hidden_size {self.hidden_size}, got {self.num_attention_heads}"
            )
        if not 0 <= self.pad_token_id < self.vocab_size:
            raise ConfigError(f"pad_token_id: must be >= 0 and < vocab_size {self.vocab_size}, got {self.pad_token_id}")
        if self.sharing == "none":
            # Not sharing means one group per layer; one spelling for both.
            object.__setattr__(self, "num_hidden_groups", self.num_hidden_layers)
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ConfigError(
                f"num_hidden_groups: must be <= num_hidden_layers {self.num_hidden_layers}, "
                f"got {self.num_hidden_groups}"
            )
        if self.embedding_projection is None:
            needed = self.embedding_size != self.hidden_size or self.project_words_only
            object.__setattr__(self, "embedding_projection", needed)
        if not self.embedding_projection and self.project_words_only:
            raise ConfigError("embedding_projection: must be true with project_words_only")
        if not self.embedding_projection and self.embedding_size != self.hidden_size:
            raise ConfigError(
                f"embedding_projection: needed, since embedding_size {self.embedding_size} is not hidden_size "
                f"{self.hidden_size}"
            )
        check_exits(self.exits, self.num_hidden_layers)
        if self.model_type == "bert":
            plain = self.sharing == "none" and self.inner_group_num == 1 and not self.embedding_projection
            if not plain:
                raise ConfigError(
                    "model_type: a bert has sharing none, inner_group_num 1 and embedding_size = hidden_size; "
                    "for anything else use model_type albert"
                )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_norm_size(self) -> int:
        """Width of the position and segment embeddings and of their LayerNorm."""
        return self.hidden_size if self.project_words_only else self.embedding_size

    @property
    def num_labels(self) -> int:
        """Number of outputs of a classifier: where no classes are named 2, as on the Hub, and 1 for regression."""
        return len(self.labels) or (1 if self.problem_type == "regression" else 2)

    @property
    def fits_hub(self) -> bool:
        """Whether transformers has such a model: its sharing, its groups, its embeddings and its pooling."""
        if self.sharing not in _HUB_SHARING or self.project_words_only or self.pooling != "first":
            return False
        return self.rounded_groups or not _rounds_differently(self.num_hidden_layers, self.num_hidden_groups)


def check_exits(exits: tuple[int, ...], layers: int) -> None:
    """Refuse exits that do not rise to the full depth."""
    if not exits:
        return
    if exits[0] < 1 or any(deeper <= exit for exit, deeper in itertools.pairwise(exits)):
        raise ConfigError(f"exits: must be rising depths >= 1, got {list(exits)}")
    if exits[-1] != layers:
        raise ConfigError(f"exits: the last must be the full depth of the model, {layers}; got {list(exits)}")


def check_depth(config: ModelConfig, depth: int) -> None:
    """Refuse a depth beyond the model's own."""
    if not 1 <= depth <= config.num_hidden_layers:
        raise InputError(f"depth: must be between 1 and {config.num_hidden_layers}, the model's own; got {depth}")


# Heads with parameters for each exit; the others have one head for all depths.
EXIT_HEADS = ("classification", "token-classification", "multiple-choice", "span")


def suggest_exits(layers: int) -> list[int]:
    """Exits for a message to suggest, about a quarter of the layers apart: 12 -> [3, 6, 9, 12], 2 -> [1, 2]."""
    return sorted({math.ceil(layers * quarter / 4) for quarter in range(1, 5)})


def check_exit(config: ModelConfig, depth: int) -> None:
    """Refuse a depth without its own head."""
    if depth not in (*config.exits, config.num_hidden_layers):
        exits = ", ".join(map(str, config.exits))
        some = suggest_exits(config.num_hidden_layers)
        known = f"it has exits at {exits}" if exits else f"it has no exits; train it with some (exits: {some})"
        raise InputError(f"depth: this model was not trained to answer at depth {depth}; {known}")


def group_of(layer: int, layers: int, groups: int, rounded: bool = False) -> int:
    """The group of a layer: contiguous and of nearly equal size; `rounded` as transformers computes it."""
    return int(layer / (layers / groups)) if rounded else layer * groups // layers


def _rounds_differently(layers: int, groups: int) -> bool:
    return 1 < groups < layers and any(
        group_of(i, layers, groups) != group_of(i, layers, groups, rounded=True) for i in range(layers)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Presets

_SIZES: dict[str, dict[str, Any]] = {
    # Two small shapes that Chinese ALBERT users know, for CPUs.
    "tiny": dict(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1248),
    "small": dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
    # Table 1. Heads are H / 64 for every size: 32 for xlarge, where the Hub says 16 (google-research/albert#180).
    "base": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072),
    "large": dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    "xlarge": dict(hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, intermediate_size=8192),
    "xxlarge": dict(hidden_size=4096, num_hidden_layers=12, num_attention_heads=64, intermediate_size=16384),
}


def _albert(size: str, dropout: float) -> ModelConfig:
    return ModelConfig(**_SIZES[size], hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)


def _bert(size: str) -> ModelConfig:
    shape = _SIZES[size]
    return ModelConfig(
        model_type="bert",
        **shape,
        embedding_size=shape["hidden_size"],
        sharing="none",
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        bos_token_id=None,
        eos_token_id=None,
    )


def _presets() -> dict[str, ModelConfig]:
    presets = {}
    for size in _SIZES:
        presets[f"albert-{size}"] = _albert(size, dropout=0.0)  # as v2, and as one should pretrain today
    for size in ("base", "large", "xlarge", "xxlarge"):
        presets[f"albert-{size}-v1"] = _albert(size, dropout=0.0 if size == "xxlarge" else 0.1)
        presets[f"albert-{size}-v2"] = _albert(size, dropout=0.0)
    for size in ("base", "large"):
        presets[f"bert-{size}"] = _bert(size)
    return presets


PRESETS: dict[str, ModelConfig] = _presets()


def preset(name: str, /, **changes: Any) -> ModelConfig:
    """A named model shape, with changes: preset("albert-base", sharing="attention", embedding_size=768)."""
    if not isinstance(name, str) or name not in PRESETS:  # YAML may give anything
        hint = did_you_mean(str(name), PRESETS) or "."
        raise ConfigError(f"no preset {name!r}{hint} Known: {', '.join(PRESETS)}")
    return vary(PRESETS[name], **changes)


def vary(config: ModelConfig, /, **changes: Any) -> ModelConfig:
    """A changed config with derived values recomputed (dataclasses.replace would keep the old ones)."""
    check_fields(changes)
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    if "embedding_size" in changes or "hidden_size" in changes:
        values["embedding_projection"] = None
    if config.sharing == "none":
        values["num_hidden_groups"] = 1
    return build(ModelConfig, {**values, **changes})


def check_fields(names: Iterable[str]) -> None:
    """Refuse a name that is not one of ModelConfig's fields."""
    known = {field.name for field in dataclasses.fields(ModelConfig)}
    for name in names:
        if name not in known:
            raise ConfigError(f"{name}: unknown model field{did_you_mean(name, known)}")


# ---------------------------------------------------------------------------------------------------------------------
# JSON: the Hub's and Google's


def from_hub(data: Mapping[str, Any], where: str = "config.json") -> ModelConfig:
    """A config from the Hub's `config.json`; fields we do not need are ignored, invalid ones refused."""
    kind = data.get("model_type") or ("albert" if "embedding_size" in data else "bert")
    if kind not in ("albert", "bert", EXTENSION_MODEL_TYPE):
        raise ConfigError(f"{where}: model_type {kind!r} is neither albert nor bert")
    for key, fine in (
        ("position_embedding_type", "absolute"),
        ("is_decoder", False),
        ("add_cross_attention", False),
    ):
        if data.get(key, fine) not in (fine, None):
            raise ConfigError(f"{where}: {key} {data[key]!r} is not supported; only {fine!r} is")
    values = _known_fields(data)
    values.pop("model_type", None)
    if kind == EXTENSION_MODEL_TYPE:
        values["model_type"] = data.get("base_model_type", "albert")
    elif kind == "bert":
        values |= {"model_type": "bert", "sharing": "none", "embedding_size": data.get("hidden_size", 768)}
        values.setdefault("hidden_act", "gelu")
        values.setdefault("vocab_size", 30522)
        for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            values.setdefault(key, 0.1)
        dropout = data.get("classifier_dropout")
        values["classifier_dropout_prob"] = values["hidden_dropout_prob"] if dropout is None else dropout
        for key in ("bos_token_id", "eos_token_id"):
            values.setdefault(key, None)
    else:
        # transformers fills what an ALBERT file leaves out with xxlarge's values.
        values = {**_XXLARGE, **values, "model_type": "albert"}
        layers = values.get("num_hidden_layers", 12)
        if values["num_hidden_groups"] == layers and layers != 1:
            values["sharing"] = "none"
    if values.get("classifier_dropout_prob") is None:
        values["classifier_dropout_prob"] = values.get("hidden_dropout_prob", 0.0)
    for key in ("bos_token_id", "eos_token_id"):
        if isinstance(values.get(key), list) and values[key]:
            values[key] = values[key][0]
    if values.get("pad_token_id", 0) is None:
        values["pad_token_id"] = 0
    id2label = data.get("id2label")
    if isinstance(id2label, Mapping):
        values["labels"] = _ordered_labels(id2label, where)
    elif isinstance(data.get("num_labels"), int):  # configs of 2019
        if not 0 <= data["num_labels"] <= _MOST_LABELS:
            raise ConfigError(f"{where}: num_labels: must be between 0 and {_MOST_LABELS:,}")
        values["labels"] = tuple(f"LABEL_{i}" for i in range(data["num_labels"]))
    config = build(ModelConfig, values, f"{where}: ")
    if kind == "albert" and _rounds_differently(config.num_hidden_layers, config.num_hidden_groups):
        config = dataclasses.replace(config, rounded_groups=True)
    return config


def from_google(data: Mapping[str, Any], where: str = "albert_config.json") -> ModelConfig:
    """A config from a released `albert_config.json`, where "gelu" means the tanh form, or a `bert_config.json`."""
    if "embedding_size" not in data:
        # BERT: "gelu" is taken for the exact form and no token begins or ends a text, as in the Hub's conversions.
        return from_hub({**data, "model_type": "bert"}, where)
    if data.get("ln_type", "postln") != "postln":  # brightmart/albert_zh's variant with LayerNorms before the blocks
        raise ConfigError(f"{where}: ln_type {data['ln_type']!r} is not supported; only 'postln' is")
    values = _known_fields(data)
    if values.get("hidden_act") == "gelu":
        values["hidden_act"] = "gelu_new"
    values = {**_XXLARGE, **values}
    if values["num_hidden_groups"] == values["num_hidden_layers"] != 1:
        values["sharing"] = "none"
    return build(ModelConfig, values, f"{where}: ")


def to_hub(config: ModelConfig, architecture: str, extension: bool = False) -> dict[str, Any]:
    """The Hub's `config.json`; with `extension`, under our own model_type and with every field of ours."""
    data: dict[str, Any] = {"architectures": [architecture], "model_type": config.model_type}
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    labels, problem = values.pop("labels"), values.pop("problem_type")
    if not config.exits:
        values.pop("exits")
    if extension:
        data |= {"model_type": EXTENSION_MODEL_TYPE, "base_model_type": config.model_type}
    else:
        assert config.fits_hub
        values.pop("sharing")
        values.pop("rounded_groups")
        values.pop("pooling")
        values.pop("project_words_only")
        if values["embedding_projection"] == (config.embedding_size != config.hidden_size):
            # The file may still carry an identity projection for transformers; this says that it means nothing.
            values.pop("embedding_projection")
            if config.model_type == "albert" and config.embedding_size == config.hidden_size:
                values["embedding_projection"] = False
        if config.model_type == "bert":
            for key in ("embedding_size", "num_hidden_groups", "inner_group_num"):
                values.pop(key)
            values["classifier_dropout"] = values.pop("classifier_dropout_prob")
    values.pop("model_type")
    data |= values
    labels = labels or tuple(f"LABEL_{i}" for i in range(config.num_labels) if config.num_labels != 2)
    if labels:
        data["id2label"] = {str(i): label for i, label in enumerate(labels)}
        data["label2id"] = {label: i for i, label in enumerate(labels)}
    if problem:
        data["problem_type"] = problem
    return data


def read_config(path: Path, google: bool | None = None) -> tuple[ModelConfig, list[str]]:
    """The config in a JSON file and the `architectures` it names.

    `google`: whether a file without a model_type is in Google's form; by default the file's name decides.
    """
    data = read_object(path, CheckpointError)
    if "model_type" not in data and (path.name != "config.json" if google is None else google):
        return from_google(data, str(path)), []
    architectures = data.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise CheckpointError(f"{path}: architectures: expected a list of names, got {quote_value(architectures)}")
    return from_hub(data, str(path)), architectures


_XXLARGE: dict[str, Any] = {
    **_SIZES["xxlarge"],
    "embedding_size": 128,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "vocab_size": 30000,
}


def _known_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in dataclasses.fields(ModelConfig)} - {"labels"}
    return {key: value for key, value in data.items() if key in known}


def _ordered_labels(id2label: Mapping[Any, Any], where: str) -> tuple[str, ...]:
    try:
        by_id = {int(key): str(label) for key, label in id2label.items()}
    except ValueError:
        raise ConfigError(f"{where}: id2label: keys must be the numbers 0, 1, ...") from None
    if sorted(by_id) != list(range(len(by_id))):
        raise ConfigError(f"{where}: id2label: ids must run from 0 to {len(by_id) - 1} without gaps")
    return tuple(by_id[i] for i in range(len(by_id)))


# The matrices of the encoder that may have an adapter.
ADAPTER_TARGETS = ("query", "key", "value", "attention_output", "ffn_input", "ffn_output", "pooler", "projection")


@dataclass(frozen=True)
class AdapterConfig:
    """The size and the place of an adapter."""

    rank: int = 8
    #: The adapter's output is multiplied by alpha / rank; null = 2 * rank.
    alpha: float | None = None
    #: Of the adapter's input, in training.
    dropout: float = 0.0
    #: Matrices of the encoder that are adapted; a pooler only where the model has one.
    targets: tuple[str, ...] = ("query", "value", "ffn_input", "ffn_output", "pooler")
    #: Each application of a shared layer gets a separate adapter with its share of the rank.
    per_application: bool = False
    #: An adapter folder of the same model to go on from, of the same rank; null = a new adapter.
    start: str | None = None
    #: Multiply by alpha / sqrt(rank) instead (rsLoRA), so that the steps of a high rank do not become too small.
    rslora: bool = False

    def __post_init__(self) -> None:
        check_numbers(self, ">= 1", "rank")
        check_numbers(self, "> 0 and < inf", "alpha")
        check_numbers(self, ">= 0 and < 1", "dropout")
        unknown = [name for name in self.targets if name not in ADAPTER_TARGETS]
        if unknown or not self.targets:
            raise ConfigError(
                f"targets: must name some of {', '.join(ADAPTER_TARGETS)}; got {', '.join(self.targets) or '-'}"
            )

    @property
    def scale(self) -> float:
        """What the adapter's output is multiplied by."""
        return (2 * self.rank if self.alpha is None else self.alpha) / alpha_divisor(self.rank, self.rslora)


def alpha_divisor(rank: int, rslora: bool) -> float:
    """What an adapter's alpha is divided by: its rank, or the root of that (rsLoRA, Kalajdzievski 2023)."""
    return math.sqrt(rank) if rslora else rank


def find_google_config(folder: Path) -> Path:
    """The config of the TensorFlow checkpoint in a folder: one of the usual names, else the one `*config*.json`."""
    places = (folder, folder.parent, folder.parent / "assets")
    for place in places:
        for name in GOOGLE_CONFIGS:
            if (place / name).is_file():
                return place / name
    for place in places[::2]:  # other names only beside it, or among a TF-Hub module's assets
        found = sorted(path for path in place.glob("*config*.json") if path.name != "tokenizer_config.json")
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise CheckpointError(
                f"{place}: several configs next to the checkpoint: {names}; pass one of them as `config`"
            )
        if found:
            return found[0]
    raise CheckpointError(
        f"{folder}: no {' or '.join(GOOGLE_CONFIGS)} next to the checkpoint, and no other *config*.json; it has the "
        "number of heads, so pass the file as `config`"
    )


def load_config(source: Path | str, revision: str | None = None) -> ModelConfig:
    """The config of a model folder or Hub name, without its weights; a JSON file is read as it is."""
    named, source = source, resolve_default(source)
    path = Path(source)
    if path.is_file():
        return read_config(path)[0]
    folder = find_folder(source, revision, weights=False)
    if is_google(folder):
        place = folder / "variables" if (folder / "variables").is_dir() else folder  # of a TF-Hub module
        return read_config(find_google_config(place), google=True)[0]
    if (folder / CONFIG_FILE).is_file():
        return read_config(folder / CONFIG_FILE)[0]
    raise CheckpointError(f"{named}: not a model folder (no {CONFIG_FILE}){folder_hint(folder)}")


# ---------------------------------------------------------------------------------------------------------------------
# Sharing: for each application of a layer, which attention block and which FFN block it uses


class Application(NamedTuple):
    """One application of a transformer layer: indices of the blocks it uses."""

    attention: int
    ffn: int


def sharing_plan(
    layers: int, sharing: Sharing, num_groups: int = 1, inner: int = 1, rounded_groups: bool = False
) -> tuple[Application, ...]:
    """The blocks (attention, FFN) of each of the `layers * inner` applications, in order.

    sharing_plan(layers=4, sharing="all")                 -> (0,0) (0,0) (0,0) (0,0)
    sharing_plan(layers=4, sharing="attention")           -> (0,0) (0,1) (0,2) (0,3)
    sharing_plan(layers=4, sharing="all", num_groups=2)   -> (0,0) (0,0) (1,1) (1,1)
    sharing_plan(layers=2, sharing="all", inner=2)        -> (0,0) (1,1) (0,0) (1,1)
    """
    plan = []
    for layer in range(layers):
        group = group_of(layer, layers, num_groups, rounded_groups)
        for step in range(inner):
            shared, own = group * inner + step, layer * inner + step
            plan.append(
                Application(
                    attention=shared if sharing in ("all", "attention") else own,
                    ffn=shared if sharing in ("all", "ffn") else own,
                )
            )
    return tuple(plan)


def plan_of(config: ModelConfig, layers: int | None = None) -> tuple[Application, ...]:
    """The plan of a config; with `layers`, of a shallower or deeper run of the same blocks (depth schedules)."""
    depth = config.num_hidden_layers if layers is None else layers
    if not 1 <= depth <= MAX_LAYERS:
        raise ConfigError(f"depth: must be between 1 and {MAX_LAYERS:,}, got {depth:,}")
    if config.sharing == "none":
        if depth > config.num_hidden_layers:
            raise ConfigError(
                f"depth: must be <= num_hidden_layers {config.num_hidden_layers}, got {depth}; only shared layers "
                "can be applied more often"
            )
        return sharing_plan(depth, "none", num_groups=depth, inner=config.inner_group_num)
    if depth != config.num_hidden_layers and config.sharing != "all" and depth > config.num_hidden_layers:
        raise ConfigError(
            f"depth: must be <= num_hidden_layers {config.num_hidden_layers} with sharing {config.sharing}, got {depth}"
        )
    if depth < config.num_hidden_groups:
        raise ConfigError(f"depth: must be >= num_hidden_groups {config.num_hidden_groups}, got {depth}")
    return sharing_plan(depth, config.sharing, config.num_hidden_groups, config.inner_group_num, config.rounded_groups)


def num_blocks(config: ModelConfig) -> tuple[int, int]:
    """How many distinct attention and FFN blocks a config has."""
    plan = plan_of(config)
    return len({step.attention for step in plan}), len({step.ffn for step in plan})
