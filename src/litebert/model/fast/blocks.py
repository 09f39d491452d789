"""The blocks of the fast layers: working weights, what is kept for a backward pass, and sums of gradients.

Shapes: T packed tokens, H hidden, A heads, D = H / A, I intermediate, Q rows asked for in the last layer, R ranks of a
product's adapters together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from litebert.model.adapter import AdaptedLinear
from litebert.model.encoder import Attention, FeedForward
from litebert.model.fast.products import Branch, Gradients, ProductSums, branch_of, learns, matrix_of

Block = Attention | FeedForward


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
