"""The steps around the matrix products in plain torch: the readable version of `triton_ops.py`.

The fast path calls either module by the same names. This one runs anywhere, in any precision. Tests use it to compare
the hand-written layers with the reference model, and compare the Triton kernels with it.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Packing(NamedTuple):
    """Where sequences begin among packed tokens; queries may be fewer than keys. `max_*`: no sequence is longer."""

    q_starts: Tensor  # [N + 1] int32
    k_starts: Tensor
    max_q: int
    max_k: int

    @property
    def whole(self) -> bool:
        """Whether every token asks, so that queries and keys are the same tokens."""
        return self.q_starts is self.k_starts


class VectorSums:
    """Sums over tokens of `count` vectors, over all applications of a block: gradients of biases and LayerNorms.

    Also of thin products, as matrices [count, width]. Where an operation below takes None for its sums, nothing learns
    from them.
    """

    def __init__(self, count: int, width: int, dtype: torch.dtype, device: torch.device):
        self.total = torch.zeros(count, width, dtype=dtype, device=device)

    def add(self, *rows: Tensor) -> None:
        """Sum the rows of each and add them."""
        for total, x in zip(self.total, rows, strict=True):
            total += x.sum(0)

    def result(self) -> Tensor:
        """The sums, [count, width]."""
        return self.total


class Thin(NamedTuple):
    """A product with a tensor of few columns: `sums` += wide^T `factor`."""

    sums: Any  # VectorSums [width of the wide one, R]
    factor: Tensor  # [T, R]


def prepare(weight: Tensor) -> Tensor:
    """A weight as the products below take it."""
    return weight


def cut(weight: Tensor, rows: slice) -> Tensor:
    """Some rows of a weight."""
    return weight[rows]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b."""
    return F.linear(x, weight, bias)


def linear_backward(grad: Tensor, weight: Tensor) -> Tensor:
    """The gradient of `linear`'s x."""
    return grad @ weight


def add_weight_gradient(total: Tensor, grad: Tensor, x: Tensor) -> None:
    """total += grad^T x, in the precision of `total`: the sum over all applications of a shared layer."""
    total.addmm_(grad.to(total.dtype).T, x.to(total.dtype))


def add_thin_product(thin: Thin, wide: Tensor, first: int = 0) -> None:
    """sums += wide^T factor, in their own precision; `first`: the row of them where those of `wide` begin."""
    add_weight_gradient(thin.sums.total[first : first + wide.shape[1]], wide, thin.factor)


def attend(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """q [Q, A, D] over k and v [K, A, D] -> context [Q, A, D], and log2 of the softmax's sums [A, Q]."""
    context = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.zeros(q.shape[1], q.shape[0], dtype=_exact(q), device=q.device)
    for i, j in _sequences(packing):
        scores = _scores(q[i], k[j])  # [A, Q, K]
        lse[:, i] = scores.logsumexp(-1) / math.log(2)
        context[i] = torch.einsum("aqk,kad->qad", scores.softmax(-1), v[j].to(scores.dtype)).to(q.dtype)
    return context, lse


def attend_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Tensor,
    lse: Tensor,
    packing: Packing,
    out: tuple[Tensor, ...],
    sums: VectorSums | None,
) -> None:
    """Write the gradients of q, k and v into `out`, shaped like them, and add them to three `sums` over tokens."""
    dq, dk, dv = out
    for tensor in out:
        tensor.zero_()
    for i, j in _sequences(packing):
        weights = (_scores(q[i], k[j]) - lse[:, i, None] * math.log(2)).exp()
        g, v_, o = (x.to(weights.dtype) for x in (grad[i], v[j], context[i]))
        delta = (g * o).sum(-1).T  # [A, Q]
        dscores = weights * (torch.einsum("qad,kad->aqk", g, v_) - delta[..., None]) / math.sqrt(q.shape[-1])
        dv[j] = torch.einsum("aqk,qad->kad", weights, g).to(dv.dtype)
        dq[i] = torch.einsum("aqk,kad->qad", dscores, k[j].to(weights.dtype)).to(dq.dtype)
        dk[j] = torch.einsum("aqk,qad->kad", dscores, q[i].to(weights.dtype)).to(dk.dtype)
    if sums is not None:
        sums.add(*(x.to(_exact(x)).flatten(1) for x in (dq, dk, dv)))


def add_norm(
    residual: Tensor, branch: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm(residual + branch + bias); also the normalised rows, written over `branch`, and 1 / their deviation."""
    summed = residual.to(_exact(residual)) + branch + bias
    centred = summed - summed.mean(-1, keepdim=True)
    rstd = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    normed = centred * rstd
    branch.copy_(normed)
    return (normed * weight + shift).to(residual.dtype), branch, rstd.squeeze(-1)


def rescale(normed: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
    """What `add_norm` gave, again, from its normalised rows."""
    return (normed.to(_exact(normed)) * weight + shift).to(normed.dtype)


def add_norm_backward(
    grad: Tensor, grad2: Tensor | None, normed: Tensor, rstd: Tensor, weight: Tensor, sums: VectorSums | None
) -> Tensor:
    """The gradient of `add_norm`'s sum from one or two incoming ones (two: they are added).

    Those of weight, shift and bias are added to `sums`.
    """
    exact = _exact(grad)
    total = grad.to(exact) if grad2 is None else grad.to(exact) + grad2
    normed = normed.to(exact)
    dnormed = total * weight
    slope = (dnormed * normed).mean(-1, keepdim=True)
    dsum = (dnormed - dnormed.mean(-1, keepdim=True) - normed * slope) * rstd[:, None]
    if sums is not None:
        sums.add(total * normed, total, dsum)
    return dsum.to(grad.dtype)


def gelu(x: Tensor, tanh: bool) -> Tensor:
    """The activation."""
    return F.gelu(x, approximate="tanh" if tanh else "none")


def gelu_backward(
    x: Tensor,
    grad: Tensor,
    tanh: bool,
    sums: VectorSums | None,
    of_value: Thin | None = None,
    of_grad: Thin | None = None,
) -> None:
    """Overwrites `grad` with the gradient of x, which is added to `sums` over tokens, and x with gelu(x).

    `of_value` and `of_grad`: thin products of the two. x holds garbage after the first.
    """
    exact = _exact(x)
    with torch.enable_grad():
        leaf = x.to(exact, copy=True).requires_grad_()
        value = gelu(leaf, tanh)
        (dx,) = torch.autograd.grad(value, leaf, grad.to(exact))
    x.copy_(value.detach())
    grad.copy_(dx)
    if sums is not None:
        sums.add(dx)
    if of_value is not None:
        add_thin_product(of_value, x)
        x.fill_(torch.nan)  # so that using it shows
    if of_grad is not None:
        add_thin_product(of_grad, grad)


def quantize(x: Tensor, scale: Tensor, dtype: torch.dtype, turned: bool) -> Tensor:
    """x / scale in 8 bits, [rows, width] or turned round to [width, rows]."""
    limit = torch.finfo(dtype).max
    values = (x.float() / scale).clamp(-limit, limit).to(dtype)
    return values.T.contiguous() if turned else values


def _scores(q: Tensor, k: Tensor) -> Tensor:
    exact = _exact(q)
    return torch.einsum("qad,kad->aqk", q.to(exact), k.to(exact)) / math.sqrt(q.shape[-1])


def _sequences(packing: Packing) -> list[tuple[slice, slice]]:
    q, k = packing.q_starts.tolist(), packing.k_starts.tolist()
    return [
        (slice(*queries), slice(*keys))
        for queries, keys in zip(itertools.pairwise(q), itertools.pairwise(k), strict=True)
        if queries[0] < queries[1]
    ]


def _exact(x: Tensor) -> torch.dtype:
    """What statistics are kept in: float32, or float64 where the input is."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
