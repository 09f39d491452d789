"""The layers' matrix products in 8 bits, for the wide models, where they take most of the time.

Every operand is scaled so that its largest number just fits: weights and activations with four bits of exponent,
gradients with five. Products are summed in float32 by the hardware; everything between them stays as it was. Weights
are cast once and used by every application of a shared layer. A weight gradient sums over tokens, which needs both
operands transposed; `quantize` does that too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

FORWARD, GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16  # the hardware's products take sides of multiples of this


class Quantized(NamedTuple):
    """8-bit numbers and their scale (the value of a stored 1)."""

    values: Tensor
    scale: Tensor


class Fp8Weight(NamedTuple):
    """A matrix [N, K] for both of its products, and itself for shapes that the hardware does not take."""

    exact: Tensor
    rows: Tensor  # [N, K]
    turned: Tensor  # [K, N]
    scale: Tensor

    @property
    def shape(self) -> torch.Size:
        """Of the matrix."""
        return self.exact.shape

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.exact.device

    def cut(self, rows: slice) -> Fp8Weight:
        """Some of its rows."""
        return Fp8Weight(self.exact[rows], self.rows[rows], self.turned[:, rows], self.scale)


class Fp8Ops:
    """The operations of `base` (plain or Triton) with 8-bit matrix products."""

    def __init__(self, base: Any):
        self.base = base

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def prepare(self, weight: Tensor) -> Fp8Weight:
        """A weight, cast both ways."""
        scale = _scale(weight, FORWARD)
        rows = self.base.quantize(weight, scale, FORWARD, False)
        return Fp8Weight(weight, rows, rows.T.contiguous(), scale)

    def cut(self, weight: Fp8Weight, rows: slice) -> Fp8Weight:
        """Some rows of a weight."""
        return weight.cut(rows)

    def linear(self, x: Tensor, weight: Fp8Weight, bias: Tensor | None = None) -> Tensor:
        """x W^T + b."""
        if not _fits(x.shape, weight.shape):
            return self.base.linear(x, weight.exact, bias)
        x8 = self._quantize(x, FORWARD)
        return _product(x8, Quantized(weight.rows.T, weight.scale), x.dtype, bias)

    def linear_backward(self, grad: Tensor, weight: Fp8Weight) -> Tensor:
        """The gradient of `linear`'s x."""
        if not _fits(grad.shape, weight.shape):
            return self.base.linear_backward(grad, weight.exact)
        grad8 = self._quantize(grad, GRADIENT)
        return _product(grad8, Quantized(weight.turned.T, weight.scale), grad.dtype, None)

    def add_weight_gradient(self, total: Tensor, grad: Tensor, x: Tensor) -> None:
        """total += grad^T x."""
        if not _fits(grad.shape, x.shape):
            self.base.add_weight_gradient(total, grad, x)
            return
        grad8, x8 = self._quantize(grad, GRADIENT, turned=True), self._quantize(x, FORWARD, turned=True)
        total.add_(_product(grad8, Quantized(x8.values.T, x8.scale), torch.float32, None))

    def _quantize(self, x: Tensor, dtype: torch.dtype, turned: bool = False) -> Quantized:
        scale = _scale(x, dtype)
        return Quantized(self.base.quantize(x, scale, dtype, turned), scale)


def _scale(x: Tensor, dtype: torch.dtype) -> Tensor:
    largest = torch.linalg.vector_norm(x, ord=torch.inf, dtype=torch.float32)
    return largest.clamp(min=1e-30) / torch.finfo(dtype).max


def _fits(*shapes: torch.Size) -> bool:
    return all(side % MULTIPLE == 0 for shape in shapes for side in shape)


def _product(a: Quantized, b: Quantized, dtype: torch.dtype, bias: Tensor | None) -> Tensor:
    """a [M, K] rows, b [K, N] columns: both as they lie, which is what the hardware wants."""
    return torch._scaled_mm(
        a.values, b.values, scale_a=a.scale, scale_b=b.scale, bias=bias, out_dtype=dtype, use_fast_accum=True
    )
