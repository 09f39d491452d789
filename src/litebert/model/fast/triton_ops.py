"""The steps of `plain_ops.py` by Triton kernels: same names, same meaning, same shapes.

`tests/model/fast` runs them in Triton's interpreter against the plain ones; `benchmarks/fast_kernels.py` times them and
tries other block sizes.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.model.fast import attention_kernels, pointwise_kernels
from litebert.model.fast.plain_ops import NormGradients, Packing

ROW_PROGRAMS = 1024  # programs that share the rows of a sum over tokens: a few for each multiprocessor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b; cuBLAS adds the bias on the way out."""
    return F.linear(x, weight, bias)


def linear_backward(grad: Tensor, weight: Tensor) -> Tensor:
    """The gradient of `linear`'s x."""
    return grad @ weight


def add_weight_gradient(total: Tensor, grad: Tensor, x: Tensor) -> None:
    """total += grad^T x: half-precision operands, summed and kept in float32."""
    if grad.dtype == total.dtype:
        total.addmm_(grad.T, x)
    else:
        torch.addmm(total, grad.T, x, out_dtype=total.dtype, out=total)  # type: ignore[call-overload, unused-ignore]


def attend(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """q [Q, A, D] over k and v [K, A, D] -> context [Q, A, D], and log2 of the softmax's sums [A, Q]."""
    queries, heads, width = q.shape
    # Zeros where some rows may belong to no sequence (unused places among the predicted positions).
    context = torch.empty if packing.whole else torch.zeros
    out = context(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(heads, queries, dtype=torch.float32, device=q.device)
    block_q, block_k = _forward_blocks(packing, width)
    grid = (_cdiv(packing.max_q, block_q), packing.q_starts.numel() - 1, heads)
    attention_kernels.forward_kernel[grid](
        q,
        k,
        v,
        out,
        lse,
        packing.q_starts,
        packing.k_starts,
        q.stride(0),
        k.stride(0),
        out.stride(0),
        lse.stride(0),
        math.log2(math.e) / math.sqrt(width),
        D=width,
        BLOCK_Q=block_q,
        BLOCK_K=block_k,
        num_warps=4 if block_q <= 64 else 8,
        num_stages=2,
    )
    return out, lse


def attend_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Tensor,
    lse: Tensor,
    packing: Packing,
    out: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """Write the gradients of q, k and v into `out`, shaped like them; returns their sums over tokens, [A * D] each."""
    dq, dk, dv = out
    _, heads, width = q.shape
    sequences = packing.q_starts.numel() - 1
    scale = 1 / math.sqrt(width)
    scale_log2 = math.log2(math.e) * scale
    if packing.whole and packing.max_k <= 128 and width <= 64:
        sums = torch.zeros(sequences, 3, heads * width, dtype=torch.float32, device=q.device)
        attention_kernels.backward_whole_kernel[(sequences, heads)](
            q,
            k,
            v,
            context,
            grad,
            lse,
            dq,
            dk,
            dv,
            sums,
            packing.q_starts,
            q.stride(0),
            grad.stride(0),
            dq.stride(0),
            lse.stride(0),
            heads * width,
            scale,
            scale_log2,
            D=width,
            BLOCK=max(16, _power_of_two(packing.max_k)),
            num_warps=8,
            num_stages=1,
        )
        dq_sum, dk_sum, dv_sum = sums.sum(0).unbind()
        return dq_sum, dk_sum, dv_sum

    block = 64 if width > 64 else min(128, max(16, _power_of_two(max(packing.max_q, packing.max_k))))
    q_blocks, k_blocks = _cdiv(packing.max_q, block), _cdiv(packing.max_k, block)
    q_sums = torch.zeros(sequences * q_blocks, heads * width, dtype=torch.float32, device=q.device)
    k_sums = torch.zeros(2, sequences * k_blocks, heads * width, dtype=torch.float32, device=q.device)
    delta = torch.empty_like(lse)
    if not packing.whole:
        for tensor in (dq, dk, dv):  # rows of no sequence, and keys of sequences that nothing is asked of
            tensor.zero_()
    attention_kernels.backward_query_kernel[(q_blocks, sequences, heads)](
        q,
        k,
        v,
        context,
        grad,
        lse,
        delta,
        dq,
        q_sums,
        packing.q_starts,
        packing.k_starts,
        q.stride(0),
        k.stride(0),
        grad.stride(0),
        dq.stride(0),
        lse.stride(0),
        q_sums.stride(0),
        scale,
        scale_log2,
        D=width,
        BLOCK_Q=block,
        BLOCK_K=min(block, 64),
        num_warps=8 if block > 64 else 4,
        num_stages=2,
    )
    attention_kernels.backward_key_kernel[(k_blocks, sequences, heads)](
        q,
        k,
        v,
        grad,
        lse,
        delta,
        dk,
        dv,
        k_sums[0],
        k_sums[1],
        packing.q_starts,
        packing.k_starts,
        q.stride(0),
        k.stride(0),
        grad.stride(0),
        dk.stride(0),
        lse.stride(0),
        k_sums.stride(1),
        scale,
        scale_log2,
        D=width,
        BLOCK_Q=min(block, 64),
        BLOCK_K=block,
        num_warps=8 if block > 64 else 4,
        num_stages=2,
    )
    dk_sum, dv_sum = k_sums.sum(1).unbind()
    return q_sums.sum(0), dk_sum, dv_sum


def add_norm(
    residual: Tensor, branch: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm(residual + branch + bias); also the normalised rows, written over `branch`, and 1 / their deviation."""
    rows, width = residual.shape
    out = torch.empty_like(residual)
    rstd = torch.empty(rows, dtype=torch.float32, device=residual.device)
    block_width = _power_of_two(width)
    block_rows = max(1, 4096 // block_width)
    pointwise_kernels.add_norm_kernel[(_cdiv(rows, block_rows),)](
        residual,
        branch,
        bias,
        weight,
        shift,
        out,
        rstd,
        rows,
        width,
        eps,
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=8,
    )
    return out, branch, rstd


def add_norm_backward(
    grad: Tensor, grad2: Tensor | None, normed: Tensor, rstd: Tensor, weight: Tensor
) -> NormGradients:
    """Gradients of `add_norm` from one or two incoming ones (two: they are added)."""
    rows, width = grad.shape
    block_width = _power_of_two(width)
    block_rows = max(1, 2048 // block_width)
    per_program = _round_up(_cdiv(rows, ROW_PROGRAMS), block_rows)
    programs = _cdiv(rows, per_program)
    dsum = torch.empty_like(grad)
    partial = torch.empty(programs, 3, width, dtype=torch.float32, device=grad.device)
    pointwise_kernels.add_norm_backward_kernel[(programs,)](
        grad,
        grad if grad2 is None else grad2,
        normed,
        rstd,
        weight,
        dsum,
        partial,
        rows,
        width,
        per_program,
        TWO=grad2 is not None,
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=4 if block_width <= 1024 else 8,
    )
    return NormGradients(dsum, *partial.sum(0).unbind())


def gelu(x: Tensor, tanh: bool) -> Tensor:
    """The activation."""
    out = torch.empty_like(x)
    block = 2048
    pointwise_kernels.gelu_kernel[(_cdiv(x.numel(), block),)](x, out, x.numel(), TANH=tanh, BLOCK=block, num_warps=8)
    return out


def gelu_backward(x: Tensor, grad: Tensor, tanh: bool) -> Tensor:
    """Overwrites x with gelu(x) and `grad` with the gradient of x; returns the sum of the latter over tokens."""
    rows, width = x.shape
    block_rows, block_width = 8, min(256, _power_of_two(width))
    column_programs = _cdiv(width, block_width)
    per_program = _round_up(_cdiv(rows, max(1, 4 * ROW_PROGRAMS // column_programs)), block_rows)
    row_programs = _cdiv(rows, per_program)
    partial = torch.empty(row_programs, width, dtype=torch.float32, device=x.device)
    pointwise_kernels.gelu_backward_kernel[(column_programs, row_programs)](
        x,
        grad,
        partial,
        rows,
        width,
        per_program,
        TANH=tanh,
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=8,
    )
    return partial.sum(0)


def _forward_blocks(packing: Packing, width: int) -> tuple[int, int]:
    """Rows and columns of a block: no larger than the longest sequence needs."""
    rows = min(128, max(16, _power_of_two(packing.max_q)))
    columns = min(128 if width <= 64 else 64, max(16, _power_of_two(packing.max_k)))
    return rows, columns


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _round_up(a: int, b: int) -> int:
    return _cdiv(a, b) * b


def _power_of_two(a: int) -> int:
    return 1 << (a - 1).bit_length()
