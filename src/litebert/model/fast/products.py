"""What the matrix products of the fast layers learn: their matrices, or the adapters beside them (adapter.py).

The working matrix has its adapter merged, W + scale B A, so a pass and the gradient of its input cost what they cost
without one. The gradients of A and B need no product as large as the matrix:

    narrow = X A^T              back = dY B            [T, R] each
    dA = scale back^T X         dB = scale dY^T narrow

Queries, keys and values are one product of three parts, whose adapters are stored side by side.

Shapes: T tokens, R the ranks of a product's adapters together, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from litebert.model.adapter import AdaptedLinear
from litebert.model.fast.plain_ops import Thin

LEAST_RANK = 16  # a product's: the hardware multiplies tiles of 16 x 16

Gradients = list[Tensor | None]  # of a module's parameters, in their order; None: nothing to learn


class Branch(NamedTuple):
    """The adapters of one product, in working precision."""

    a: Tensor  # [R, in]
    b: Tensor  # [out, R]: an adapter's columns are 0 beside the rows of other parts

    def narrow(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, R]."""
        return x @ self.a.T


def branch_of(parts: Sequence[nn.Linear], dtype: torch.dtype) -> Branch | None:
    """The branch of a product of these parts; None if none has an adapter."""
    rank = sum(part.lora_a.shape[0] for part in parts if isinstance(part, AdaptedLinear))
    if not rank:
        return None
    rank = max(LEAST_RANK, 1 << (rank - 1).bit_length())  # kernels know powers of two
    weight = parts[0].weight
    a = torch.zeros(rank, weight.shape[1], dtype=dtype, device=weight.device)
    b = torch.zeros(sum(part.out_features for part in parts), rank, dtype=dtype, device=weight.device)
    for part, rows, columns in _places(parts):
        if isinstance(part, AdaptedLinear):
            a[columns] = part.lora_a
            b[rows, columns] = part.lora_b
    return Branch(a, b)


def matrix_of(parts: Sequence[nn.Linear]) -> Tensor:
    """The parts' matrices, one under the other, with their adapters merged."""
    merged = [part.merged_weight() if isinstance(part, AdaptedLinear) else part.weight for part in parts]
    return torch.cat(merged) if len(merged) > 1 else merged[0]


def learns(modules: Sequence[nn.Module], name: str) -> bool:
    """Whether a parameter of this name learns in any of them; an adapted layer's own never do."""
    return any(getattr(each, name).requires_grad for each in modules if not isinstance(each, AdaptedLinear))


class ProductSums:
    """The gradients of one product, summed over the applications of its block; those of frozen parts are not made."""

    def __init__(self, parts: Sequence[nn.Linear], branch: Branch | None, weight: Any, ops: Any, dtype: torch.dtype):
        self._parts, self._ops = parts, ops
        outs, ins = weight.shape
        self.matrix = torch.zeros(outs, ins, dtype=dtype, device=weight.device) if learns(parts, "weight") else None
        adapted = [part for part in parts if isinstance(part, AdaptedLinear)]
        self._branch = branch if any(p.lora_a.requires_grad or p.lora_b.requires_grad for p in adapted) else None
        if self._branch is not None:
            rank = len(self._branch.a)
            self._a = ops.VectorSums(ins, rank, dtype, weight.device)  # A's gradient, transposed
            self._b = ops.VectorSums(outs, rank, dtype, weight.device)

    def add(self, grad: Tensor, x: Tensor, narrow: Tensor | None, first: int = 0) -> None:
        """Add those of some rows of the matrix, from `first` on: of their outputs' gradient and the input."""
        self.add_matrix(grad, x, first)
        self.add_a(x, self.to_a(grad, first))
        self.add_b(grad, self.to_b(narrow), first)

    def add_matrix(self, grad: Tensor, x: Tensor, first: int = 0) -> None:
        """The matrix's part of it."""
        if self.matrix is not None:
            self._ops.add_weight_gradient(self.matrix[first : first + grad.shape[1]], grad, x)

    def to_a(self, grad: Tensor, first: int = 0) -> Thin | None:
        """What the input is to be multiplied with for A's gradient."""
        if self._branch is None:
            return None
        return Thin(self._a, grad @ self._branch.b[first : first + grad.shape[1]])

    def to_b(self, narrow: Tensor | None) -> Thin | None:
        """What the outputs' gradient is to be multiplied with for B's gradient."""
        return None if self._branch is None or narrow is None else Thin(self._b, narrow)

    def add_a(self, x: Tensor, thin: Thin | None) -> None:
        """A's part of it."""
        if thin is not None:
            self._ops.add_thin_product(thin, x)

    def add_b(self, grad: Tensor, thin: Thin | None, first: int = 0) -> None:
        """B's part of it."""
        if thin is not None:
            self._ops.add_thin_product(thin, grad, first)

    def by_parameter(self, biases: Sequence[Tensor | None]) -> Gradients:
        """Of each part: weight, bias and, where it has an adapter, A and B."""
        found: Gradients = []
        a, b = (None, None) if self._branch is None else (self._a.result(), self._b.result())
        for (part, rows, columns), bias in zip(_places(self._parts), biases, strict=True):
            if not isinstance(part, AdaptedLinear):
                found += [None if self.matrix is None else self.matrix[rows], bias]
            elif a is None or b is None:
                found += [None] * 4
            else:
                found += [None, None, _scaled(a[:, columns].T, part.scale), _scaled(b[rows, columns], part.scale)]
        return found


def _scaled(gradient: Tensor, scale: float) -> Tensor:
    """In memory as the parameter is, so that nothing copies it."""
    return torch.mul(gradient, scale, out=gradient.new_empty(gradient.shape))


def _places(parts: Sequence[nn.Linear]) -> Iterator[tuple[nn.Linear, slice, slice]]:
    """Each part's rows of the matrix and of B, and its adapter's rows of A and columns of B."""
    row = column = 0
    for part in parts:
        rank = part.lora_a.shape[0] if isinstance(part, AdaptedLinear) else 0
        yield part, slice(row, row + part.out_features), slice(column, column + rank)
        row, column = row + part.out_features, column + rank
