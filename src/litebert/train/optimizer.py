"""LAMB and AdamW as ALBERT's authors released them, Muon, and which parameters each rule applies to.

LAMB and AdamW differ from the textbook: no bias correction, eps outside the root, and biases and LayerNorms outside
decay *and* outside LAMB's adaptation. A shared layer is one tensor, so it has one trust ratio however often
it is applied. Muon orthogonalises the updates of the encoder's matrices and leaves everything else to AdamW.

    optimizer = make_optimizer(model, OptimConfig(name="lamb"), lr=0.00176)
    norm = clip_gradients(model.parameters(), max_norm=1.0)
    optimizer.step()
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from litebert.errors import CheckpointError, ConfigError, InputError, did_you_mean
from litebert.model.heads import Model
from litebert.train.config import Freeze, OptimConfig
from litebert.train.schedule import check


class AdamW(Optimizer):
    """Adam with decoupled weight decay; `bias_correction=True` gives the textbook's (and torch's) AdamW."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
    ):
        # Named as in a run's config, with our own name where it differs.
        check(lr >= 0, f"optim.lr: must be >= 0, got {lr}")
        for number, beta in enumerate(betas, 1):
            check(0 <= beta < 1, f"optim.beta{number} (betas): must be in [0, 1), got {beta}")
        check(eps > 0, f"optim.eps: must be > 0, got {eps}")
        check(weight_decay >= 0, f"optim.weight_decay: must be >= 0, got {weight_decay}")
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "bias_correction": bias_correction,
                "adapt": True,  # read by LAMB only
            },
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take further parameters in; they must be float32."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for index, param in enumerate(group["params"]):
            name = group["param_names"][index] if "param_names" in group else f"parameter {index}"
            if param.dtype not in (torch.float32, torch.float64):
                # Small updates vanish in bf16, and so does the second moment.
                raise InputError(f"{name}: the optimiser needs a float32 master copy, got {param.dtype}")

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if params:
                update = self._update(group, params)
                self._adapt(group, params, update)
                torch._foreach_add_(params, update, alpha=-group["lr"])
        return loss

    def _update(self, group: dict[str, Any], params: list[Tensor]) -> list[Tensor]:
        """Advance the moments; the step for each parameter, before the learning rate."""
        grads = [param.grad for param in params if param.grad is not None]
        states = [self._state(param, counted=group["bias_correction"]) for param in params]
        m = [state["m"] for state in states]
        v = [state["v"] for state in states]
        beta1, beta2 = group["betas"]
        torch._foreach_mul_(m, beta1)
        torch._foreach_add_(m, grads, alpha=1 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, grads, grads, value=1 - beta2)
        root = torch._foreach_sqrt(v)
        if group["bias_correction"]:
            for state in states:
                state["step"] += 1  # on the CPU: no sync
            counts = [state["step"].item() for state in states]
            m = list(torch._foreach_div(m, [1 - beta1**count for count in counts]))
            torch._foreach_div_(root, [(1 - beta2**count) ** 0.5 for count in counts])
        torch._foreach_add_(root, group["eps"])
        update = list(torch._foreach_div(m, root))
        if group["weight_decay"]:
            torch._foreach_add_(update, params, alpha=group["weight_decay"])
        return update

    def _adapt(self, group: dict[str, Any], params: list[Tensor], update: list[Tensor]) -> None:
        """AdamW takes the update as it is."""

    def _state(self, param: Tensor, counted: bool) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[param]
        if not state:
            state["m"] = torch.zeros_like(param)
            state["v"] = torch.zeros_like(param)
            if counted:
                state["step"] = torch.zeros(())
        return state


class Lamb(AdamW):
    """LAMB (You et al. 2020) as released with ALBERT: update *= ||param|| / ||update||, never clipped."""

    def _adapt(self, group: dict[str, Any], params: list[Tensor], update: list[Tensor]) -> None:
        if not group["adapt"]:
            return
        param_norm, update_norm = norms(params), norms(update)
        ratio = torch.where((param_norm > 0) & (update_norm > 0), param_norm / update_norm, 1.0)
        torch._foreach_mul_(update, list(ratio.unbind()))


# Newton-Schulz coefficients (Jordan et al. 2024): five rounds take any singular value in (0.01, 1] close to 1.
QUINTIC = (3.4445, -4.7750, 2.0315)
ROUNDS = 5


class Muon(AdamW):
    """Muon for groups marked `orthogonal`, AdamW for the rest (parameter_groups(..., muon=True) marks them).

    The momentum of a matrix is replaced by the nearest orthogonal matrix, scaled so that its entries have the root
    mean square of an Adam update (0.2): one learning rate then suits both rules. `torch.optim.Muon` computes the
    same, but in bfloat16 on every device and for matrices only.
    """

    def __init__(self, params: Iterable[Any], momentum: float = 0.95, **settings: Any):
        check(0 <= momentum < 1, f"optim.momentum: must be in [0, 1), got {momentum}")
        super().__init__(params, **settings)
        for group in self.param_groups:
            group.setdefault("orthogonal", False)
            group["momentum"] = momentum

    def _update(self, group: dict[str, Any], params: list[Tensor]) -> list[Tensor]:
        if not group["orthogonal"]:
            return super()._update(group, params)
        grads = [param.grad for param in params if param.grad is not None]
        m = [self.state[param].setdefault("m", torch.zeros_like(param)) for param in params]
        torch._foreach_lerp_(m, grads, 1 - group["momentum"])
        update = orthogonalize(list(torch._foreach_lerp(grads, m, group["momentum"])))  # Nesterov
        torch._foreach_mul_(update, [0.2 * max(param.shape) ** 0.5 for param in params])
        if group["weight_decay"]:
            torch._foreach_add_(update, params, alpha=group["weight_decay"])
        return update


def orthogonalize(matrices: list[Tensor]) -> list[Tensor]:
    """About U V^T for each matrix U S V^T, by Newton-Schulz iterations on stacks of equal shape.

    In bfloat16 on a GPU, as the method tolerates; in the matrices' own precision elsewhere.
    """
    stacks: dict[tuple[int, ...], list[int]] = {}
    for index, matrix in enumerate(matrices):
        stacks.setdefault(tuple(sorted(matrix.shape)), []).append(index)
    results = list(matrices)
    a, b, c = QUINTIC
    for indices in stacks.values():
        # Wide, so that the products below are of the smaller side.
        x = torch.stack([m.mT if m.shape[0] > m.shape[1] else m for m in (matrices[i] for i in indices)])
        x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)  # singular values at most 1
        if x.is_cuda:
            x = x.bfloat16()
        for _ in range(ROUNDS):
            gram = x @ x.mT
            x = a * x + (b * gram + c * gram @ gram) @ x
        for index, result in zip(indices, x, strict=True):
            matrix = matrices[index]
            results[index] = (result.mT if matrix.shape[0] > matrix.shape[1] else result).to(matrix.dtype)
    return results


def parameter_groups(model: nn.Module, weight_decay: float = 0.01, muon: bool = False) -> list[dict[str, Any]]:
    """A model's parameters by role: matrices; biases and norms (without decay and adaptation).

    `muon` separates the encoder's hidden matrices (attention, FFN, projection; neither embeddings nor heads).
    The groups carry the parameters' names, by which `moments` saves them.
    """
    hidden = {
        id(module.weight)
        for path, module in model.named_modules()
        if muon and isinstance(module, nn.Linear) and _is_hidden(path)
    }
    exempt = {
        id(param)
        for module in model.modules()
        if isinstance(module, nn.LayerNorm) or type(module).__name__.endswith("Norm")
        for param in module.parameters(recurse=False)
    }
    orthogonal: list[tuple[str, Tensor]] = []
    matrices: list[tuple[str, Tensor]] = []
    rest: list[tuple[str, Tensor]] = []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        leaf = name.rpartition(".")[2]
        is_exempt = id(param) in exempt or leaf == "bias" or leaf.endswith("_bias")
        (rest if is_exempt else orthogonal if id(param) in hidden else matrices).append((name, param))
    groups: list[dict[str, Any]] = [
        {"params": orthogonal, "weight_decay": weight_decay, "adapt": True, "orthogonal": True},
        {"params": matrices, "weight_decay": weight_decay, "adapt": True},
        {"params": rest, "weight_decay": 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]


def _is_hidden(path: str) -> bool:
    parts = path.split(".")
    return "encoder" in parts and "pooler" not in parts


def freeze(model: Model, what: Freeze, new: Iterable[str] = ()) -> None:
    """Stop parts of the encoder from learning.

    Adapters and `new` parameters (a pooler that the file lacks) always learn.
    """
    new = set(new)
    for name, parameter in model.named_parameters():
        frozen = name.startswith("encoder.") and what == "encoder" and ".lora_" not in name
        frozen |= name.startswith(("encoder.embeddings.", "encoder.projection.")) and what == "embeddings"
        parameter.requires_grad_(not frozen or name in new)


def learning_groups(
    model: Model,
    weight_decay: float,
    head_factor: float = 1.0,
    block_decay: float = 1.0,
    adam_factor: float | None = None,
    beside: Mapping[str, float] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The optimiser's groups, each with the factor `lr_factor` on the learning rate.

    `adam_factor` is for Muon: the factor of all that it does not orthogonalise. `beside` has the factors of what learns
    beside the model, by the beginning of its names.
    """
    blocks = {"attention": len(model.encoder.attention), "ffn": len(model.encoder.ffn)}
    if block_decay != 1 and set(blocks.values()) == {1}:
        raise ConfigError(
            "optim.block_decay: this model has one block, applied at every depth, so there are no lower layers to slow "
            "down; use optim.head_factor or optim.freeze: embeddings (it is for sharing none, groups and BERT)"
        )
    groups: list[dict[str, Any]] = []
    for group in parameter_groups(model, weight_decay, muon=adam_factor is not None):
        by_role = 1.0 if adam_factor is None or group.get("orthogonal") else adam_factor
        by_factor: dict[float, list[Any]] = {}
        for name, parameter in group["params"]:
            own = [factor for prefix, factor in beside.items() if name.startswith(prefix)]
            factor = by_role * (own[0] if own else _factor(name, blocks, head_factor, block_decay))
            by_factor.setdefault(factor, []).append((name, parameter))
        groups += [{**group, "params": params, "lr_factor": factor} for factor, params in by_factor.items()]
    return groups


def _factor(name: str, blocks: dict[str, int], head_factor: float, block_decay: float) -> float:
    """Head: head_factor. Block b of n: decay ** (n - 1 - b); one that serves all depths: 1. Embeddings: decay ** n."""
    if not name.startswith("encoder."):
        return head_factor
    parts = name.split(".")
    if parts[1] in blocks:
        return float(block_decay ** (blocks[parts[1]] - 1 - int(parts[2])))
    return 1.0 if parts[1] == "pooler" else float(block_decay ** max(blocks.values()))


def make_optimizer(
    model: Model,
    optim: OptimConfig,
    lr: float,
    new: Iterable[str] = (),
    beside: Mapping[str, float] = MappingProxyType({}),
) -> AdamW:
    """The config's optimiser over the parameters that learn; those in `new` always do."""
    freeze(model, optim.freeze, new)
    adam_factor = optim.adam_factor if optim.name == "muon" else None
    groups = learning_groups(model, optim.weight_decay, optim.head_factor, optim.block_decay, adam_factor, beside)
    settings: dict[str, Any] = {
        "lr": lr,
        "betas": (optim.beta1, optim.beta2),
        "eps": optim.eps,
        "bias_correction": optim.bias_correction,
    }
    if optim.name == "muon":
        return Muon(groups, optim.momentum, **settings)
    return (Lamb if optim.name == "lamb" else AdamW)(groups, **settings)


class Average:
    """The moving average of a model's weights over about the last 1 / (1 - decay) steps, which removes noise.

    It begins as a plain mean, so that the random weights of the start do not linger.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay, self.steps = decay, 0
        self._live = {name: param for name, param in model.named_parameters() if param.requires_grad}
        self.weights = {name: param.detach().clone() for name, param in self._live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step."""
        self.steps += 1
        share = max(1 - self.decay, 1 / self.steps)
        torch._foreach_lerp_(list(self.weights.values()), list(self._live.values()), share)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the averaged weights, in its own memory (recorded steps read it), until the block ends."""
        live = {name: param.detach().clone() for name, param in self._live.items()}
        self.apply()
        try:
            yield
        finally:
            self._copy(live)

    def apply(self) -> None:
        """Put the averaged weights into the model for good."""
        self._copy(self.weights)

    def restore(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Continue from a checkpoint."""
        if weights.keys() != self.weights.keys():
            raise CheckpointError("the checkpoint's averaged weights do not fit this model")
        for name, tensor in weights.items():
            self.weights[name].copy_(tensor)
        self.steps = steps

    @torch.no_grad()
    def _copy(self, source: Mapping[str, Tensor]) -> None:
        for name, param in self._live.items():
            param.copy_(source[name])


@torch.no_grad()
def clip_gradients(params: Iterable[Tensor], max_norm: float = 1.0) -> Tensor:
    """Scale all gradients to a global norm of at most `max_norm`; the norm before, as a tensor (no sync)."""
    grads = [param.grad for param in params if param.grad is not None]
    if not grads:
        return torch.zeros(())
    total: Tensor = torch.linalg.vector_norm(norms(grads))
    if max_norm < math.inf:  # infinity over infinity is NaN
        torch._foreach_mul_(grads, max_norm / total.clamp(min=max_norm))  # exactly 1 below the limit
    return total


def norms(tensors: Iterable[Tensor]) -> Tensor:
    """The Euclidean norm of each tensor, as one vector."""
    tensors = list(tensors)
    if tensors[0].is_cuda:
        return torch.stack(torch._foreach_norm(tensors))
    # On a CPU torch's float32 norm adds up naively, which is off by far more than rounding for large matrices
    # (tests/train/test_optimizer.py); its sum is pairwise.
    return torch.stack([tensor.square().sum() for tensor in tensors]).sqrt()


def moments(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter name, for a checkpoint: {"encoder.query.weight.m": ..., ...}."""
    return {
        f"{name}.{key}": value
        for name, param in _named(optimizer).items()
        for key, value in optimizer.state.get(param, {}).items()
    }


def load_moments(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `moments` gave, bit for bit; a name or shape that does not fit is an error."""
    params = _named(optimizer)
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition(".")
        if name not in params or kind not in ("m", "v", "step"):
            raise CheckpointError(
                f"optimiser state: {key}: the model has no such parameter{did_you_mean(name, params)}"
            )
        param = params[name]
        if kind != "step" and tensor.shape != param.shape:
            shapes = f"has shape {tuple(tensor.shape)}, the parameter {tuple(param.shape)}"
            raise CheckpointError(f"optimiser state: {key} {shapes}")
        place = {"device": "cpu"} if kind == "step" else {"device": param.device, "dtype": param.dtype}
        states.setdefault(name, {})[kind] = tensor.detach().to(**place, copy=True)
    orthogonal = {id(param) for group in optimizer.param_groups if group.get("orthogonal") for param in group["params"]}
    for name, state in states.items():
        needed = {"m"} if id(params[name]) in orthogonal else {"m", "v"}
        if missing := needed - set(state):
            raise CheckpointError(f"optimiser state: {name} lacks {', '.join(sorted(missing))}")
    optimizer.state.clear()
    optimizer.state.update({params[name]: state for name, state in states.items()})


def _named(optimizer: Optimizer) -> dict[str, Tensor]:
    if not all("param_names" in group for group in optimizer.param_groups):
        raise InputError(
            "the optimiser's parameters have no names to save its state by; build it with parameter_groups(model)"
        )
    return {
        name: param
        for group in optimizer.param_groups
        for name, param in zip(group["param_names"], group["params"], strict=True)
    }
