"""Low-rank adapters (LoRA, Hu et al. 2021) in PEFT's own format: a fine-tuned model in well under a megabyte.

y = x W^T + b + scale * (x A^T) B^T, with A [r, in], B [out, r] and scale = alpha / r, or alpha / sqrt(r) for rsLoRA.
ALBERT applies one layer at every depth, so one adapter of its six matrices adapts the whole model; `per_application`
gives each application of the layer its own adapter with a share of the rank.

Training skips the gradients of the frozen matrices and keeps less for the backward pass than full fine-tuning: the
outputs of LayerNorm and the activation are recomputed from their inputs, which are kept anyway (`Lean`).

    add_adapter(model, AdapterConfig(rank=8))          # freezes the encoder; A, B and the head learn
    save_adapter(model, "sentiment", base="default")   # adapter_config.json, adapter_model.safetensors
    load_adapter(model, "sentiment")                   # also a folder that PEFT wrote
    merge_adapter(model)                               # the plain model again, W + scale * B A

Shapes: r rank; everything else as in encoder.py.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from litebert.errors import CheckpointError, ConfigError
from litebert.files import staged_folder
from litebert.folders import adapter_hint
from litebert.model.config import ADAPTER_TARGETS, ModelConfig, alpha_divisor, plan_of, vary
from litebert.model.config import AdapterConfig as AdapterConfig
from litebert.model.encoder import Encoder
from litebert.model.heads import Model
from litebert.model.names import hub_names
from litebert.parse import read_object
from litebert.remote import ADAPTER_FILE as CONFIG_FILE
from litebert.remote import ADAPTER_WEIGHTS as WEIGHTS_FILE

PREFIX = "base_model.model."
BASE = "litebert_base"  # in the header of the weights: the fingerprint of the model that they belong to
OWN = "litebert_per_application"  # in adapter_config.json: each application of a shared layer has its own adapter
POOLING = "litebert_pooling"  # the same, for a classifier that reads the mean of all tokens
# Settings of PEFT's that change the outputs in ways that are not ours to compute.
UNSUPPORTED = (
    *("use_dora", "use_qalora", "use_bdlora", "rank_pattern", "alpha_pattern", "fan_in_fan_out"),
    *("layer_replication", "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config"),
    *("lora_bias", "trainable_token_indices", "target_parameters"),
)
PLAIN_STARTS = ("gaussian", "eva", "orthogonal")  # the others (PiSSA, ...) take something out of the base's weights
# What PEFT calls the task of a head; it decides nothing here but which class of transformers fits.
TASK_TYPES = {
    "classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "span": "QUESTION_ANS",
    "encoder": "FEATURE_EXTRACTION",
}


class AdaptedLinear(nn.Linear):
    """A frozen linear layer with a learning low-rank branch beside it; it starts as the layer itself (B = 0)."""

    def __init__(
        self, base: nn.Linear, rank: int, scale: float, dropout: float = 0.0, own: bool = False, rslora: bool = False
    ):
        nn.Module.__init__(self)  # the base layer's own tensors, no new ones
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        like: dict[str, Any] = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features, **like))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank, **like))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        self.scale, self.dropout, self.own, self.rslora = scale, nn.Dropout(dropout), own, rslora
        self._rounded: tuple[int, Tensor, Tensor] | None = None  # of which version of the weight

    def forward(self, input: Tensor) -> Tensor:
        if self.bias is None or self.dropout.p > 0:  # the branch reads another input than the layer
            narrow = F.linear(self.dropout(input), self.lora_a)  # [*, r]
            return F.linear(input, self.weight, self.bias) + self.scale * F.linear(narrow, self.lora_b)
        tensors: tuple[Tensor, ...] = (input, self.weight, self.bias, self.lora_a, self.lora_b)
        if torch.is_autocast_enabled(input.device.type):
            dtype = torch.get_autocast_dtype(input.device.type)
            tensors = (input.to(dtype), *self.rounded(dtype), self.lora_a.to(dtype), self.lora_b.to(dtype))
        output: Tensor = _LowRank.apply(*tensors, self.scale)
        return output

    def rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The frozen weight and bias in half precision.

        On a CPU they are made once, not at every application of a shared layer; a recorded step of a GPU makes its own.
        """
        known, version = self._rounded, self.weight._version
        if known is None or (known[0], known[1].dtype, known[1].device) != (version, dtype, self.weight.device):
            known = version, self.weight.detach().to(dtype), self.bias.detach().to(dtype)
            self._rounded = known if self.weight.device.type == "cpu" else None
        return known[1:]

    def merged_weight(self) -> Tensor:
        """W + scale * B A."""
        return torch.addmm(self.weight, self.lora_b, self.lora_a, alpha=self.scale)

    def merged(self) -> nn.Linear:
        """The plain layer with the adapter in its matrix."""
        plain = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        plain.weight = nn.Parameter(self.merged_weight().detach())
        plain.bias = self.bias
        return plain


class _LowRank(torch.autograd.Function):
    """x W^T + b + scale (x A^T) B^T as products that add to each other in place; W and b get no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
        rows = x.flatten(0, -2)  # [T, in]
        narrow = rows @ a.T  # [T, r]
        output = torch.addmm(bias, rows, weight.T).addmm_(narrow, b.T, alpha=scale)
        ctx.save_for_backward(x, weight, a, b, narrow)
        ctx.scale = scale
        return output.unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight, a, b, narrow = ctx.saved_tensors
        output = gradients[0].flatten(0, -2)  # [T, out]
        back = output @ b  # [T, r]
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (output @ weight).addmm_(back, a, alpha=ctx.scale).unflatten(0, x.shape[:-1])
        of_a = (back.T @ x.flatten(0, -2)).mul_(ctx.scale)
        return of_x, None, None, of_a, (output.T @ narrow).mul_(ctx.scale), None


class Lean:
    """Recompute the outputs of LayerNorm and the activation in the backward pass instead of keeping them.

    Only the last few of these outputs are known at a time, and held, so that no other tensor can be in their memory.
    """

    LAST = 3  # one layer's: LayerNorm, activation, LayerNorm

    def __init__(self, encoder: Encoder):
        self.last: deque[tuple[Tensor, Callable[[], Tensor]]] = deque(maxlen=self.LAST)
        self.activations = [block.activation for block in encoder.ffn]
        self.handles = [block.norm.register_forward_hook(self._norm) for block in (*encoder.attention, *encoder.ffn)]
        for block in encoder.ffn:
            block.activation = functools.partial(self._activate, block.activation)  # type: ignore[assignment, arg-type]
        encoder.keeping = self.keeping

    def remove(self, encoder: Encoder) -> None:
        """Leave the encoder as it was."""
        for handle in self.handles:
            handle.remove()
        for block, activation in zip(encoder.ffn, self.activations, strict=True):
            block.activation = activation
        encoder.keeping = None

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """During a pass through the layers, keep only what the backward pass needs."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            try:
                yield
            finally:
                self.last.clear()

    def _norm(self, module: nn.LayerNorm, inputs: tuple[Tensor], output: Tensor) -> None:
        settings = (module.normalized_shape, module.weight, module.bias, module.eps)
        self._note(lambda input: F.layer_norm(input, *settings), inputs[0], output)

    def _activate(self, function: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
        output = function(input)
        self._note(function, input, output)
        return output

    def _note(self, function: Callable[[Tensor], Tensor], input: Tensor, output: Tensor) -> None:
        if output.requires_grad and not torch.compiler.is_compiling():
            plain = input.detach()
            self.last.append((output, lambda: function(plain)))

    def _pack(self, tensor: Tensor) -> Any:
        for output, again in self.last:
            if tensor.data_ptr() == output.data_ptr() and tensor.shape == output.shape:
                return again
        return tensor

    @staticmethod
    def _unpack(kept: Any) -> Tensor:
        tensor: Tensor = kept if isinstance(kept, Tensor) else kept()
        return tensor


def add_adapter(model: Model, config: AdapterConfig) -> None:
    """Put a new adapter into a model, in place: the encoder freezes, the adapter and the head learn."""
    if any(isinstance(module, AdaptedLinear) for module in model.modules()):
        raise ConfigError("this model already has an adapter; merge it first (merge_adapter)")
    if not any(_targets(model, config.targets)):
        raise ConfigError(f"targets: this model ({model.head}) has no {', '.join(config.targets)}")
    for parameter in model.encoder.parameters():
        parameter.requires_grad_(False)
    rank = config.rank
    if config.per_application:
        applications = len(model.encoder.plan)
        if rank < applications:
            raise ConfigError(f"rank: must be >= {applications}, which the applications of the layer share; got {rank}")
        rank //= applications
        unroll(model)
    settings = config.scale, config.dropout, config.per_application, config.rslora
    for path, module in list(_targets(model, config.targets)):
        model.set_submodule(path, AdaptedLinear(module, rank, *settings))
    model.encoder.fast_layers = None  # whether they fit is to be asked again
    Lean(model.encoder)


def unroll(model: Model) -> None:
    """Give each application of a shared layer its own modules, in place; the parameters stay the same tensors."""
    encoder, plan = model.encoder, model.encoder.plan
    encoder.attention = nn.ModuleList(_twin(encoder.attention[step.attention]) for step in plan)
    encoder.ffn = nn.ModuleList(_twin(encoder.ffn[step.ffn]) for step in plan)
    model.config = encoder.config = vary(model.config, sharing="none")
    encoder.plan = plan_of(model.config)


def _twin(module: nn.Module) -> nn.Module:
    """Another module with the same parameters."""
    return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})


def merge_adapter(model: Model) -> None:
    """Turn an adapted model into a plain one with the same outputs, in place."""
    if model.encoder.keeping is not None:
        model.encoder.keeping.__self__.remove(model.encoder)  # type: ignore[attr-defined]
    for path, module in list(model.named_modules()):
        if isinstance(module, AdaptedLinear):
            model.set_submodule(path, module.merged())
    _untie(model)
    for parameter in model.parameters():
        parameter.requires_grad_(True)


def _untie(model: Model) -> None:
    """Give the modules of an unrolled layer their own parameters, so that they can change separately."""
    seen: set[int] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:
                setattr(module, name, nn.Parameter(parameter.detach().clone()))
            seen.add(id(parameter))


def base_fingerprint(model: Model) -> str:
    """A hash of the encoder's own weights (its pooler aside), by which an adapter knows the model it belongs to.

    Of the weights in half precision: a model that is stored so, as the package's is, stays the same model.
    """
    digest = hashlib.sha256()
    seen: set[int] = set()  # the applications of an unrolled layer have the same tensors
    for name, parameter in model.encoder.named_parameters(remove_duplicate=False):
        if id(parameter) not in seen and ".lora_" not in name and not name.startswith("pooler."):
            digest.update(parameter.detach().to("cpu", torch.float16).numpy().tobytes())
            seen.add(id(parameter))
    return digest.hexdigest()


def save_adapter(model: Model, folder: Path | str, base: str, dtype: torch.dtype = torch.float32) -> Path:
    """Write the adapter and the head as PEFT would; `base` is the model that they belong to.

    `dtype` is that of the numbers in the file; they are opened in float32.
    """
    adapted = {path: module for path, module in model.named_modules() if isinstance(module, AdaptedLinear)}
    if not adapted:
        raise ConfigError("this model has no adapter to save; add one first (add_adapter)")
    first = next(iter(adapted.values()))
    rank = first.lora_a.shape[0]
    names = _hub_modules(model)
    heads = sorted({name.rpartition(".")[0] for name in model.state_dict() if not name.startswith("encoder.")})
    tensors = {}
    for path, module in adapted.items():
        tensors[f"{PREFIX}{names[path]}.lora_A.weight"] = module.lora_a
        tensors[f"{PREFIX}{names[path]}.lora_B.weight"] = module.lora_b
    for name, tensor in model.state_dict().items():
        path, _, part = name.rpartition(".")
        if not name.startswith("encoder."):
            tensors[f"{PREFIX}{names[path]}.{part}"] = tensor
    data = {
        "peft_type": "LORA",
        "task_type": TASK_TYPES.get(model.head),
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": float(f"{first.scale * alpha_divisor(rank, first.rslora):.12g}"),  # 16, not 16.000000000000004
        "lora_dropout": first.dropout.p,
        "target_modules": sorted({names[path] for path in adapted}),
        "modules_to_save": [names[path] for path in heads] or None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    if first.rslora:
        data["use_rslora"] = True
    if first.own:
        data[OWN] = True  # PEFT opens it on a model whose layers are not shared, as `litebert adapter merge` writes one
    if model.config.pooling != "first":
        data[POOLING] = model.config.pooling
    with staged_folder(folder) as staging:
        plain = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in tensors.items()}
        save_file(plain, staging / WEIGHTS_FILE, metadata={"format": "pt", BASE: base_fingerprint(model)})
        (staging / WEIGHTS_FILE).chmod(0o644)  # safetensors writes for the owner alone
        (staging / CONFIG_FILE).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def load_adapter(
    model: Model, folder: Path | str, learning: bool = False, untrained: Collection[str] = ()
) -> AdapterConfig:
    """Load an adapter folder, ours or PEFT's, into its base model in place, with the adapter's head.

    `learning` prepares the model for further training, as `add_adapter` does. Training may also start from an adapter
    of other weights of the same shape; for use, that is an error. `untrained` are tensors of the head that the base
    lacks, so that the adapter must have them.
    """
    folder = Path(folder)
    settings = read_adapter_config(folder)
    try:
        tensors = load_file(folder / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / WEIGHTS_FILE}: not readable as an adapter's weights: {error}") from None
    if not learning and not belongs_to(folder, model):
        raise CheckpointError(
            f"{folder}: an adapter of another base model: it was trained on other weights than this model's; "
            "use it with its own base, or train one on this model (litebert finetune --adapter)"
        )
    if settings["own"]:
        unroll(model)
    if not learning:  # a run reads texts as its own config says
        model.config = model.encoder.config = vary(model.config, pooling=settings["pooling"])
    ours = {theirs: path for path, theirs in _hub_modules(model).items()}
    pairs: dict[str, dict[str, Tensor]] = {}
    heads: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        path, key = _split(name, ours, model.config, folder)
        if not tensor.isfinite().all():
            raise CheckpointError(f"{folder}: {name} holds NaN or infinity; train it again at a lower learning rate")
        if key in ("lora_A", "lora_B"):
            pairs.setdefault(path, {})[key] = tensor
        else:
            heads[f"{path}.{key}"] = tensor
    if lost := [name for name in untrained if name not in heads]:
        raise CheckpointError(
            f"{folder}: has no {lost[0]}, so its answers would be random; save the adapter with its head "
            "(modules_to_save in PEFT)"
        )
    for path in pairs:
        if _kind(path) not in ADAPTER_TARGETS:
            raise CheckpointError(f"{folder}: adapts {path}, which is not supported; merge the adapter with PEFT first")
    if not pairs:
        raise CheckpointError(f"{folder}: {WEIGHTS_FILE} has no adapter in it")
    rslora = settings["rslora"]
    scale = settings["lora_alpha"] / alpha_divisor(settings["r"], rslora)
    for path, pair in pairs.items():
        base = model.get_submodule(path)
        if len(pair) != 2 or not isinstance(base, nn.Linear) or isinstance(base, AdaptedLinear):
            raise CheckpointError(f"{folder}: no complete adapter for {path}, or the model has one already")
        a, b = pair["lora_A"], pair["lora_B"]
        if (a.shape[1], b.shape[0]) != (base.in_features, base.out_features) or a.shape[0] != b.shape[1]:
            raise CheckpointError(
                f"{folder}: an adapter for another base model: {path} is {base.out_features} x {base.in_features} "
                f"here, {b.shape[0]} x {a.shape[1]} in the adapter"
            )
        if a.shape[0] != settings["r"]:
            raise CheckpointError(f"{folder}: {path} has rank {a.shape[0]}, {CONFIG_FILE} says {settings['r']}")
        adapted = AdaptedLinear(base, a.shape[0], scale, settings["lora_dropout"], settings["own"], rslora)
        adapted.lora_a.data.copy_(a)
        adapted.lora_b.data.copy_(b)
        model.set_submodule(path, adapted)
    state = model.state_dict()
    for name, tensor in heads.items():
        if name not in state or state[name].shape != tensor.shape:
            raise CheckpointError(
                f"{folder}: its head has {name} {tuple(tensor.shape)}, this model "
                + (f"{tuple(state[name].shape)}" if name in state else "has no such tensor")
            )
    model.load_state_dict(heads, strict=False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name or not name.startswith("encoder."))
    model.encoder.fast_layers = None
    if learning:
        Lean(model.encoder)
    targets = tuple(dict.fromkeys(_kind(path) for path in pairs))
    rank = settings["r"] * (len(model.encoder.plan) if settings["own"] else 1)
    alpha = scale * alpha_divisor(rank, rslora) if settings["own"] else settings["lora_alpha"]
    return AdapterConfig(rank, alpha, settings["lora_dropout"], targets, settings["own"], rslora=rslora)


def trained_on(folder: Path) -> str:
    """The fingerprint of an adapter's base; "" where it has none, as those that PEFT wrote."""
    try:
        with safe_open(folder / WEIGHTS_FILE, "pt") as file:
            return str((file.metadata() or {}).get(BASE, ""))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / WEIGHTS_FILE}: not readable as an adapter's weights: {error}") from None


def belongs_to(folder: Path, model: Model) -> bool:
    """Whether an adapter was trained on this model's weights, as far as it knows."""
    known = trained_on(folder)
    return not known or known == base_fingerprint(model)


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """The settings of an adapter folder that determine its outputs; unsupported ones are refused."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise CheckpointError(f"{folder}: not an adapter folder (no {CONFIG_FILE}){adapter_hint(folder)}")
    data = read_object(path, CheckpointError)
    if data.get("peft_type") != "LORA":
        raise CheckpointError(f"{path}: peft_type {data.get('peft_type')!r} is not supported; use LORA")
    start = data.get("init_lora_weights")
    unsupported = [key for key in UNSUPPORTED if data.get(key)]
    if isinstance(start, str) and start not in PLAIN_STARTS:
        unsupported.append(f"init_lora_weights {start!r}")
    if data.get("bias", "none") != "none":
        unsupported.append(f"bias {data['bias']!r}")
    if unsupported:
        raise CheckpointError(f"{path}: {unsupported[0]} is not supported; merge the adapter with PEFT first")
    try:
        rank, alpha, dropout = int(data["r"]), float(data["lora_alpha"]), float(data.get("lora_dropout") or 0.0)
        AdapterConfig(rank, alpha, dropout)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise CheckpointError(f"{path}: not readable as an adapter's settings: {error}") from None
    base, pooling = data.get("base_model_name_or_path"), data.get(POOLING, "first")
    if not isinstance(base, str | None) or pooling not in ("first", "mean"):
        raise CheckpointError(f"{path}: not readable as an adapter's settings: its base or its pooling is not a name")
    named = {"r": rank, "lora_alpha": alpha, "lora_dropout": dropout}
    return {
        **named,
        "rslora": bool(data.get("use_rslora")),
        "base": base,
        "own": bool(data.get(OWN)),
        "pooling": pooling,
    }


def _targets(model: Model, targets: tuple[str, ...]) -> Iterator[tuple[str, nn.Linear]]:
    for path, module in model.named_modules():
        if path.startswith("encoder.") and isinstance(module, nn.Linear) and _kind(path) in targets:
            yield path, module


def _kind(path: str) -> str:
    """encoder.attention.0.query -> query; encoder.ffn.0.output -> ffn_output."""
    parts = path.split(".")
    if parts[1] == "ffn" or parts[-1] == "output":
        return f"{parts[1]}_{parts[-1]}"
    return parts[-1]


def _hub_modules(model: Model) -> dict[str, str]:
    """Our modules -> transformers', for a model with this head; our own if it has none (SQuAD 2.0)."""
    names = hub_names(model.config)
    strip = f"{model.config.model_type}." if model.head == "encoder" else ""
    return {
        ours.rpartition(".")[0]: names.get(ours, ours).rpartition(".")[0].removeprefix(strip)
        for ours in (*names, *(name for name in model.state_dict() if ".lora_" not in name))
    }


def _split(name: str, ours: Mapping[str, str], config: ModelConfig, folder: Path) -> tuple[str, str]:
    """A tensor of an adapter file as our module and its role there: lora_A, lora_B, weight or bias."""
    theirs = name.removeprefix(PREFIX).replace(".modules_to_save.default", "").replace(".default", "")
    for ending in (".lora_A.weight", ".lora_B.weight", ".weight", ".bias"):
        if theirs.endswith(ending):
            path = theirs.removesuffix(ending)
            # A file for the bare encoder leaves out the prefix of models with heads, and the other way round.
            for spelling in (path, f"{config.model_type}.{path}", path.removeprefix(f"{config.model_type}.")):
                if spelling in ours:
                    return ours[spelling], ending.split(".")[1]
    if ".lora_embedding_" in theirs:
        raise CheckpointError(f"{folder}: adapts embeddings, which is not supported; merge the adapter with PEFT first")
    raise CheckpointError(f"{folder}: {name} has no place in this model; is it an adapter of another base model?")
