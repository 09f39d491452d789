"""The steps of `plain_ops.py` by Triton kernels: same names, same meaning, same shapes.

`tests/model/fast` runs them in Triton's interpreter against the plain ones; `benchmarks/fast_kernels.py` times them and
tries other block sizes.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from litebert.model.fast import attention_kernels, pointwise_kernels
from litebert.model.fast.plain_ops import (
    Packing,
    Thin,
    cut,
    linear,
    linear_backward,
    prepare,
)

__all__ = [
    "VectorSums",
    "add_norm",
    "add_norm_backward",
    "add_norm_only",
    "add_thin_product",
    "add_weight_gradient",
    "attend",
    "attend_backward",
    "attend_only",
    "cut",
    "embed_norm",
    "gelu",
    "gelu_backward",
    "linear",
    "linear_backward",
    "prepare",
    "quantize",
    "rescale",
]


class Blocks(NamedTuple):
    """How a kernel divides its work: rows and columns of a block, and Triton's two knobs."""

    rows: int
    columns: int
    warps: int
    stages: int = 2


# By head width. Blocks shrink to the longest sequence of a batch, and to a small GPU's memory; see `_fitted`.
ATTEND = {64: Blocks(64, 64, 4, 3), 128: Blocks(64, 64, 4, 3)}
ATTEND_ONLY = {64: Blocks(64, 64, 4, 2), 128: Blocks(64, 64, 4, 3)}  # where no backward pass follows
ATTEND_ONLY_WHOLE = {64: Blocks(64, 128, 4, 1)}  # nor a second block of keys
ATTEND_BACKWARD_QUERY = {64: Blocks(128, 64, 8, 3), 128: Blocks(128, 64, 8, 3)}
ATTEND_BACKWARD_KEY = {64: Blocks(128, 64, 4), 128: Blocks(64, 64, 4)}
SMALL_GPU_STAGES = 2
WHOLE_WARPS = 8  # of the backward pass of sequences that fit into one block
WHOLE_MAX = 128
ADD_NORM_ELEMENTS = 8192  # of a block; its width is that of a row
ADD_NORM_WARPS = 8
ADD_NORM_ONLY_ELEMENTS = 4096  # where no backward pass follows
ADD_NORM_ONLY_WARPS = 4
# Whether a kernel without a backward pass is set up while the product before it still runs (programmatic launch), where
# a GPU can. Off: on an H200 nothing is gained (benchmarks/predict_pass.py --pdl).
ONLY_PDL = False
ADD_NORM_BACKWARD_ELEMENTS = 2048
ADD_NORM_BACKWARD_WARPS = 4
GELU = Blocks(1, 2048, 4)
GELU_BACKWARD = Blocks(8, 512, 4)
GELU_BACKWARD_THIN = Blocks(64, 64, 4)  # with thin products
QUANTIZE = Blocks(64, 64, 4)
THIN = Blocks(64, 64, 4, 3)
THIN_MAX = 64  # columns of a thin factor that the kernels take; beyond, it is cuBLAS's work
THIN_PROGRAMS = 512  # that share a thin product: a few for each multiprocessor
ROW_PROGRAMS = 1024  # programs that share the rows of a sum over tokens: a few for each multiprocessor


class VectorSums:
    """Sums over tokens of `count` vectors, over all applications of a block: gradients of biases and LayerNorms.

    Also of thin products, as matrices [count, width]. Every program of a kernel adds to its own row. The rows are
    summed once, at the end.
    """

    def __init__(self, count: int, width: int, dtype: torch.dtype, device: torch.device):
        self._shape, self._dtype, self._device = (count, width), dtype, device
        self._partial: list[Tensor] = []

    def of_programs(self, programs: int) -> Tensor:
        """Rows to add to, at least as many: [programs, count, width]."""
        if not self._partial or len(self._partial[-1]) < programs:
            self._partial.append(torch.zeros(programs, *self._shape, dtype=self._dtype, device=self._device))
        return self._partial[-1]

    def result(self) -> Tensor:
        """The sums, [count, width]."""
        sums = [rows.sum(0) for rows in self._partial]
        return sum(sums[1:], sums[0]) if sums else torch.zeros(self._shape, dtype=self._dtype, device=self._device)


def add_weight_gradient(total: Tensor, grad: Tensor, x: Tensor) -> None:
    """total += grad^T x: half-precision operands, summed and kept in float32."""
    if grad.dtype == total.dtype:
        total.addmm_(grad.T, x)
    else:
        torch.addmm(total, grad.T, x, out_dtype=total.dtype, out=total)  # type: ignore[call-overload, unused-ignore]


def add_thin_product(thin: Thin, wide: Tensor, first: int = 0) -> None:
    """sums += wide^T factor, in float32; `first`: the row of them where those of `wide` begin."""
    rows, width = wide.shape
    rank = thin.factor.shape[1]
    if rank > THIN_MAX:
        add_weight_gradient(thin.sums.of_programs(1)[0, first : first + width], wide, thin.factor)
        return
    column_programs, row_programs, per_program = _thin_grid(rows, width, THIN)
    partial = thin.sums.of_programs(row_programs)[:, first:]
    pointwise_kernels.thin_product_kernel[(column_programs, row_programs)](
        wide,
        thin.factor,
        partial,
        rows,
        width,
        partial.stride(0),
        per_program,
        RANK=rank,
        BLOCK_ROWS=THIN.rows,
        BLOCK_WIDTH=THIN.columns,
        num_warps=THIN.warps,
        num_stages=THIN.stages,
    )


def _thin_grid(rows: int, width: int, blocks: Blocks) -> tuple[int, int, int]:
    """Programs by columns and by rows of a wide tensor, and the rows of each."""
    column_programs = _cdiv(width, blocks.columns)
    per_program = _round_up(_cdiv(rows, max(1, THIN_PROGRAMS // column_programs)), blocks.rows)
    return column_programs, _cdiv(rows, per_program), per_program


def attend(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """q [Q, A, D] over k and v [K, A, D] -> context [Q, A, D], and log2 of the softmax's sums [A, Q]."""
    lse = torch.empty(q.shape[1], len(q), dtype=torch.float32, device=q.device)
    return _attend(q, k, v, None, packing, lse, ATTEND[_table_width(q)], {"PDL": False}), lse


def attend_only(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: Packing,
    q_bias: Tensor | None = None,
    *,
    blocks: Blocks | None = None,
    **launch: bool,
) -> Tensor:
    """`attend` where no backward pass follows: the context alone. `q_bias` [A D] is added to the queries."""
    if blocks is None:
        width = _table_width(q)
        whole = ATTEND_ONLY_WHOLE.get(width)
        blocks = whole if whole is not None and packing.max_k <= whole.columns else ATTEND_ONLY[width]
    return _attend(q, k, v, q_bias, packing, None, blocks, launch or launch_options(ONLY_PDL, q.device))


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_bias: Tensor | None,
    packing: Packing,
    lse: Tensor | None,
    blocks: Blocks,
    launch: dict[str, bool],
) -> Tensor:
    _, heads, width = q.shape
    blocks = _fitted(blocks, packing, q.device)
    # Zeros where some rows may belong to no sequence (unused places among the predicted positions).
    context = torch.empty if packing.whole else torch.zeros
    out = context(q.shape, dtype=q.dtype, device=q.device)
    grid = (_cdiv(packing.max_q, blocks.rows), packing.q_starts.numel() - 1, heads)
    attention_kernels.forward_kernel[grid](
        q,
        k,
        v,
        q if q_bias is None else q_bias,
        out,
        out if lse is None else lse,
        packing.q_starts,
        packing.k_starts,
        q.stride(0),
        k.stride(0),
        out.stride(0),
        0 if lse is None else lse.stride(0),
        math.log2(math.e) / math.sqrt(width),
        BIAS=q_bias is not None,
        KEEP=lse is not None,
        WHOLE=packing.max_k <= blocks.columns,
        D=width,
        BLOCK_Q=blocks.rows,
        BLOCK_K=blocks.columns,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
        **launch,
    )
    return out


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
    _, heads, width = q.shape
    sequences = packing.q_starts.numel() - 1
    scale = 1 / math.sqrt(width)
    scale_log2 = math.log2(math.e) * scale
    if packing.whole and packing.max_k <= WHOLE_MAX and width <= 64:
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
            q if sums is None else sums.of_programs(sequences),
            packing.q_starts,
            q.stride(0),
            grad.stride(0),
            dq.stride(0),
            lse.stride(0),
            heads * width,
            scale,
            scale_log2,
            SUMS=sums is not None,
            D=width,
            BLOCK=max(16, _power_of_two(packing.max_k)),
            num_warps=WHOLE_WARPS,
            num_stages=1,
        )
        return

    tables = (ATTEND_BACKWARD_QUERY, ATTEND_BACKWARD_KEY)
    by_query, by_key = (_fitted(table[_table_width(q)], packing, q.device) for table in tables)
    q_blocks, k_blocks = _cdiv(packing.max_q, by_query.rows), _cdiv(packing.max_k, by_key.columns)
    partial = q if sums is None else sums.of_programs(sequences * max(q_blocks, k_blocks))
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
        partial,
        packing.q_starts,
        packing.k_starts,
        q.stride(0),
        k.stride(0),
        grad.stride(0),
        dq.stride(0),
        lse.stride(0),
        partial.stride(0),
        scale,
        scale_log2,
        SUMS=sums is not None,
        D=width,
        BLOCK_Q=by_query.rows,
        BLOCK_K=by_query.columns,
        num_warps=by_query.warps,
        num_stages=by_query.stages,
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
        partial,
        packing.q_starts,
        packing.k_starts,
        q.stride(0),
        k.stride(0),
        grad.stride(0),
        dk.stride(0),
        lse.stride(0),
        partial.stride(0),
        heads * width,
        scale,
        scale_log2,
        SUMS=sums is not None,
        D=width,
        BLOCK_Q=by_key.rows,
        BLOCK_K=by_key.columns,
        num_warps=by_key.warps,
        num_stages=by_key.stages,
    )


def add_norm(
    residual: Tensor, branch: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm(residual + branch + bias); also the normalised rows, written over `branch`, and 1 / their deviation."""
    rstd = torch.empty(len(residual), dtype=torch.float32, device=residual.device)
    return _add_norm(residual, branch, bias, weight, shift, eps, rstd), branch, rstd


def add_norm_only(residual: Tensor, branch: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, eps: float) -> Tensor:
    """`add_norm` where no backward pass follows: `branch` stays as it is."""
    return _add_norm(residual, branch, bias, weight, shift, eps, None)


def _add_norm(
    residual: Tensor, branch: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, eps: float, rstd: Tensor | None
) -> Tensor:
    rows, width = residual.shape
    out = torch.empty_like(residual)
    block_width = _power_of_two(width)
    elements, warps = (
        (ADD_NORM_ELEMENTS, ADD_NORM_WARPS) if rstd is not None else (ADD_NORM_ONLY_ELEMENTS, ADD_NORM_ONLY_WARPS)
    )
    block_rows = max(1, elements // block_width)
    pointwise_kernels.add_norm_kernel[(_cdiv(rows, block_rows),)](
        residual,
        branch,
        bias,
        weight,
        shift,
        out,
        out if rstd is None else rstd,
        rows,
        width,
        eps,
        KEEP=rstd is not None,
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=warps,
        **launch_options(ONLY_PDL and rstd is None, out.device),
    )
    return out


def launch_options(programmatic: bool, device: torch.device) -> dict[str, Any]:
    """How a kernel that knows both ways is launched: while the one before ends, or after it."""
    return {"PDL": True, "launch_pdl": True} if programmatic and is_hopper(device) else {"PDL": False}


@functools.cache
def is_hopper(device: torch.device) -> bool:
    """Whether a GPU has programmatic launches: NVIDIA's do, from Hopper on."""
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    return is_nvidia and torch.cuda.get_device_capability(device) >= (9, 0)


def embed_norm(
    ids: Tensor,
    segments: Tensor,
    positions: Tensor,
    tables: tuple[Tensor, Tensor, Tensor],
    weight: Tensor,
    shift: Tensor,
    eps: float,
) -> Tensor:
    """LayerNorm of the sum of three embeddings; `tables` are those of words, segments and positions."""
    rows, width = len(ids), tables[0].shape[1]
    out = torch.empty(rows, width, dtype=tables[0].dtype, device=ids.device)
    block_width = _power_of_two(width)
    block_rows = max(1, ADD_NORM_ONLY_ELEMENTS // block_width)
    pointwise_kernels.embed_norm_kernel[(_cdiv(rows, block_rows),)](
        ids,
        segments,
        positions,
        *tables,
        weight,
        shift,
        out,
        rows,
        width,
        eps,
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=ADD_NORM_ONLY_WARPS,
    )
    return out


def rescale(normed: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
    """What `add_norm` gave, again, from its normalised rows."""
    rows, width = normed.shape
    out = torch.empty_like(normed)
    block_width = _power_of_two(width)
    block_rows = max(1, ADD_NORM_ONLY_ELEMENTS // block_width)
    pointwise_kernels.rescale_kernel[(_cdiv(rows, block_rows),)](
        normed,
        weight,
        shift,
        out,
        rows,
        width,
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=ADD_NORM_ONLY_WARPS,
    )
    return out


def add_norm_backward(
    grad: Tensor, grad2: Tensor | None, normed: Tensor, rstd: Tensor, weight: Tensor, sums: VectorSums | None
) -> Tensor:
    """The gradient of `add_norm`'s sum from one or two incoming ones (two: they are added).

    Those of weight, shift and bias are added to `sums`.
    """
    rows, width = grad.shape
    block_width = _power_of_two(width)
    block_rows = max(1, ADD_NORM_BACKWARD_ELEMENTS // block_width)
    per_program = _round_up(_cdiv(rows, ROW_PROGRAMS), block_rows)
    programs = _cdiv(rows, per_program)
    dsum = torch.empty_like(grad)
    pointwise_kernels.add_norm_backward_kernel[(programs,)](
        grad,
        grad if grad2 is None else grad2,
        normed,
        rstd,
        weight,
        dsum,
        grad if sums is None else sums.of_programs(programs),
        rows,
        width,
        per_program,
        TWO=grad2 is not None,
        SUMS=sums is not None,
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=ADD_NORM_BACKWARD_WARPS if block_width <= 1024 else 2 * ADD_NORM_BACKWARD_WARPS,
    )
    return dsum


def gelu(x: Tensor, tanh: bool) -> Tensor:
    """The activation."""
    out = torch.empty_like(x)
    grid = (_cdiv(x.numel(), GELU.columns),)
    pointwise_kernels.gelu_kernel[grid](
        x, out, x.numel(), TANH=tanh, BLOCK=GELU.columns, num_warps=GELU.warps, num_stages=GELU.stages
    )
    return out


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
    if any(thin is not None and thin.factor.shape[1] > THIN_MAX for thin in (of_value, of_grad)):
        gelu_backward(x, grad, tanh, sums)
        for thin, wide in ((of_value, x), (of_grad, grad)):
            if thin is not None:
                add_thin_product(thin, wide)
        return
    rows, width = x.shape
    if of_value is None and of_grad is None:
        blocks = Blocks(GELU_BACKWARD.rows, min(GELU_BACKWARD.columns, _power_of_two(width)), *GELU_BACKWARD[2:])
        column_programs = _cdiv(width, blocks.columns)
        per_program = _round_up(_cdiv(rows, max(1, 4 * ROW_PROGRAMS // column_programs)), blocks.rows)
        row_programs = _cdiv(rows, per_program)
    else:
        blocks = GELU_BACKWARD_THIN
        column_programs, row_programs, per_program = _thin_grid(rows, width, blocks)

    def factor_and_sums(thin: Thin | None) -> tuple[Tensor, Tensor]:
        return (x, x) if thin is None else (thin.factor, thin.sums.of_programs(row_programs))

    pointwise_kernels.gelu_backward_kernel[(column_programs, row_programs)](
        x,
        grad,
        x if sums is None else sums.of_programs(row_programs),
        *factor_and_sums(of_value),
        *factor_and_sums(of_grad),
        rows,
        width,
        per_program,
        TANH=tanh,
        SUMS=sums is not None,
        VALUE=0 if of_value is None else of_value.factor.shape[1],
        GRAD=0 if of_grad is None else of_grad.factor.shape[1],
        BLOCK_ROWS=blocks.rows,
        BLOCK_WIDTH=blocks.columns,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )


def quantize(x: Tensor, scale: Tensor, dtype: torch.dtype, turned: bool) -> Tensor:
    """x / scale in 8 bits, [rows, width] or turned round to [width, rows]."""
    rows, width = x.shape
    out = torch.empty((width, rows) if turned else (rows, width), dtype=dtype, device=x.device)
    grid = (_cdiv(rows, QUANTIZE.rows), _cdiv(width, QUANTIZE.columns))
    pointwise_kernels.quantize_kernel[grid](
        x,
        scale,
        out,
        rows,
        width,
        x.stride(0),
        torch.finfo(dtype).max,
        TRANSPOSED=turned,
        BLOCK_ROWS=QUANTIZE.rows,
        BLOCK_WIDTH=QUANTIZE.columns,
        num_warps=QUANTIZE.warps,
        num_stages=QUANTIZE.stages,
    )
    return out


def _table_width(q: Tensor) -> int:
    """Under which width the tables have heads like these."""
    return 64 if q.shape[-1] <= 64 else 128


def _fitted(blocks: Blocks, packing: Packing, device: torch.device) -> Blocks:
    """Blocks no larger than the longest sequence needs, and no more of them at a time than the device has room for."""
    rows = min(blocks.rows, max(16, _power_of_two(packing.max_q)))
    columns = min(blocks.columns, max(16, _power_of_two(packing.max_k)))
    small = rows * columns <= 64 * 64
    stages = min(blocks.stages, SMALL_GPU_STAGES) if _is_small(device) else blocks.stages
    return Blocks(rows, columns, min(blocks.warps, 4) if small else blocks.warps, stages)


@functools.cache
def _is_small(device: torch.device) -> bool:
    """Whether a GPU has less shared memory than the tables are for: RTX cards give a block 99 KB, an A100 163 KB."""
    if device.type != "cuda":
        return False
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0) < 160 * 1024


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _round_up(a: int, b: int) -> int:
    return _cdiv(a, b) * b


def _power_of_two(a: int) -> int:
    return 1 << (a - 1).bit_length()
