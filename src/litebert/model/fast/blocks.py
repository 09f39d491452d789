"""The blocks of the fast layers: working weights, what is kept for a backward pass, and sums of gradients.

A block learns through matrix products: their matrices, or the adapters beside them (adapter.py). The working matrix has
its adapter merged, W + scale B A, so a pass and the gradient of its input cost what they cost without one. The
gradients of A and B need no product as large as the matrix:

    narrow = X A^T              back = dY B            [T, R] each
    dA = scale back^T X         dB = scale dY^T narrow

Queries, keys and values are one product of three parts, whose adapters are stored side by side.

Shapes: T packed tokens, H hidden, A heads, D = H / A, I intermediate, Q rows asked for in the last layer, R the ranks
of a product's adapters together, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from litebert.model.adapter import AdaptedLinear
from litebert.model.encoder import Attention, FeedForward
from litebert.model.fast.plain_ops import Thin

LEAST_RANK = 16  # a product's: the hardware multiplies tiles of 16 x 16

Block = Attention | FeedForward
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


# -- blocks ------------------------------------------------------------------------------------------------------------


class AttentionWeights(NamedTuple):
    """An attention block's working weights."""

    qkv: Tensor  # [3 H, H]: queries, keys and values, one under the other
    qkv_bias: Tensor
    output: Tensor  # [H, H]
    output_bias: Tensor
    norm: Tensor
    norm_bias: Tensor
    qkv_branch: Branch | None = None
    output_branch: Branch | None = None

    @classmethod
    def of(cls, block: Attention, dtype: torch.dtype) -> AttentionWeights:
        """The block's parameters, merged; the branches in `dtype`."""
        parts = (block.query, block.key, block.value)
        return cls(
            matrix_of(parts),
            torch.cat([part.bias for part in parts]),
            matrix_of([block.output]),
            block.output.bias,
            block.norm.weight,
            block.norm.bias,
            branch_of(parts, dtype),
            branch_of([block.output], dtype),
        )


class FeedForwardWeights(NamedTuple):
    """An FFN block's working weights."""

    input: Tensor  # [I, H]
    input_bias: Tensor
    output: Tensor  # [H, I]
    output_bias: Tensor
    norm: Tensor
    norm_bias: Tensor
    input_branch: Branch | None = None
    output_branch: Branch | None = None

    @classmethod
    def of(cls, block: FeedForward, dtype: torch.dtype) -> FeedForwardWeights:
        """The block's parameters, adapters merged; the branches in `dtype`."""
        return cls(
            matrix_of([block.input]),
            block.input.bias,
            matrix_of([block.output]),
            block.output.bias,
            block.norm.weight,
            block.norm.bias,
            branch_of([block.input], dtype),
            branch_of([block.output], dtype),
        )


@dataclass
class AttentionSums:
    """An attention block's gradients, summed over its applications."""

    qkv: ProductSums
    output: ProductSums
    biases: Any | None  # three vectors: of queries, keys and values; None: frozen
    norm: Any | None  # three vectors: the LayerNorm's weight and bias, the output projection's bias

    @classmethod
    def of(cls, block: Attention, weights: AttentionWeights, ops: Any, dtype: torch.dtype) -> AttentionSums:
        """Nothing summed yet, in `dtype`."""
        parts, like = (block.query, block.key, block.value), (weights.norm.shape[0], dtype, weights.norm.device)
        return cls(
            ProductSums(parts, weights.qkv_branch, weights.qkv, ops, dtype),
            ProductSums([block.output], weights.output_branch, weights.output, ops, dtype),
            ops.VectorSums(3, *like) if learns(parts, "bias") else None,
            ops.VectorSums(3, *like) if _norm_learns(block) else None,
        )

    def by_parameter(self) -> Gradients:
        """In the order of `parameters_of`."""
        norm, norm_bias, output_bias = _vectors_of(self.norm, 3)
        qkv = self.qkv.by_parameter(_vectors_of(self.biases, 3))
        return [*qkv, *self.output.by_parameter([output_bias]), norm, norm_bias]


@dataclass
class FeedForwardSums:
    """An FFN block's gradients, summed over its applications."""

    input: ProductSums
    output: ProductSums
    bias: Any | None  # one vector: the input projection's bias
    norm: Any | None  # three vectors, as above

    @classmethod
    def of(cls, block: FeedForward, weights: FeedForwardWeights, ops: Any, dtype: torch.dtype) -> FeedForwardSums:
        """Nothing summed yet, in `dtype`."""
        (inner, width), device = weights.input.shape, weights.norm.device
        return cls(
            ProductSums([block.input], weights.input_branch, weights.input, ops, dtype),
            ProductSums([block.output], weights.output_branch, weights.output, ops, dtype),
            ops.VectorSums(1, inner, dtype, device) if learns([block.input], "bias") else None,
            ops.VectorSums(3, width, dtype, device) if _norm_learns(block) else None,
        )

    def by_parameter(self) -> Gradients:
        """In the order of `parameters_of`."""
        norm, norm_bias, output_bias = _vectors_of(self.norm, 3)
        into = self.input.by_parameter(_vectors_of(self.bias, 1))
        return [*into, *self.output.by_parameter([output_bias]), norm, norm_bias]


def _vectors_of(sums: Any | None, count: int) -> Gradients:
    return [None] * count if sums is None else list(sums.result())


def parameters_of(block: Block) -> list[nn.Parameter]:
    """A block's parameters in the order of its gradients."""
    if isinstance(block, FeedForward):
        parts: tuple[nn.Module, ...] = (block.input, block.output, block.norm)
    else:
        parts = (block.query, block.key, block.value, block.output, block.norm)
    return [parameter for part in parts for parameter in part.parameters()]  # weight, bias; A, B


@dataclass
class AttentionSaved:
    """What an attention block's backward needs."""

    hidden: Tensor | None  # [T, H] its input; None: to be made again
    rows: Tensor | None  # [Q] of the input that asked, None for all
    q: Tensor  # [Q, A, D]
    k: Tensor  # [T, A, D]
    v: Tensor
    context: Tensor  # [Q, A, D]
    lse: Tensor  # [A, Q]
    normed: Tensor  # [Q, H]
    rstd: Tensor  # [Q]
    narrow: Tensor | None  # [T, R] the input in the branches of queries, keys and values; None: they have none
    narrow_context: Tensor | None  # [Q, R]


@dataclass
class FeedForwardSaved:
    """What an FFN block's backward needs."""

    hidden: Tensor | None  # [Q, H] its input; None: to be made again
    inner: Tensor | None  # [Q, I] before the activation; None: to be made again
    normed: Tensor
    rstd: Tensor
    narrow: Tensor | None  # [Q, R] the input in the first product's branch
    narrow_inner: Tensor | None  # [Q, R]


def block_learns(block: Block, adapters: bool = True) -> bool:
    """Whether a block has parameters that learn; `adapters`: whether those of adapters count."""
    for part in block.children():
        if not isinstance(part, AdaptedLinear):
            learning = any(parameter.requires_grad for parameter in part.parameters(recurse=False))
        else:
            learning = adapters and (part.lora_a.requires_grad or part.lora_b.requires_grad)
        if learning:
            return True
    return False


def _norm_learns(block: Block) -> bool:
    return learns([block.norm], "weight") or learns([block.norm, block.output], "bias")
