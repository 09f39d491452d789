"""Attention within packed sequences in Triton; the softmax is never written to memory.

One program works on one block of rows of one head of one sequence. There may be fewer queries than keys (the last layer
only needs the predicted positions), so each has its own starts. Scores are kept in powers of two, since the
GPU's exponential is one: `scale_log2` = log2(e) / sqrt(D).

Names: Q queries and K keys of one sequence, D width of a head. `*_stride` is the distance between tokens.
The kernels also sum over tokens for the gradients of the biases (SUMS: if they learn): one sum per program, kept over
all applications of a shared layer.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

# Arguments are not annotated: Triton reads annotations as its own and stops at any other name.
# mypy: disable-error-code="no-untyped-def"


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def load_rows(pointer, first, rows, length, stride, head, D: tl.constexpr):
    """Rows [len(rows), D] of a head; those beyond the sequence's end are 0."""
    offsets = (first + rows).to(tl.int64)[:, None] * stride + head * D + tl.arange(0, D)[None, :]
    return tl.load(pointer + offsets, mask=(rows < length)[:, None], other=0.0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def store_rows(pointer, tile, first, rows, length, stride, head, D: tl.constexpr):
    """Write a tile where `load_rows` would read it."""
    offsets = (first + rows).to(tl.int64)[:, None] * stride + head * D + tl.arange(0, D)[None, :]
    tl.store(pointer + offsets, tile.to(pointer.dtype.element_ty), mask=(rows < length)[:, None])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def score(q_tile, k_tile, columns, k_length, scale_log2):
    """The scores of a tile of queries for some keys; those beyond the sequence's end have none."""
    scores = tl.dot(q_tile, tl.trans(k_tile)) * scale_log2
    return tl.where((columns < k_length)[None, :], scores, float("-inf"))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def add_to(where, values):
    """where += values."""
    tl.store(where, tl.load(where) + values)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def forward_kernel(
    q,
    k,
    v,
    q_bias,  # [A * D], added to the queries if BIAS
    out,
    lse,  # [A, all queries]: log2 of the sum of powers, written if KEEP
    q_starts,
    k_starts,
    q_stride,
    k_stride,
    out_stride,
    lse_stride,
    scale_log2,
    BIAS: tl.constexpr,
    KEEP: tl.constexpr,  # whether a backward pass follows
    PDL: tl.constexpr,  # whether it was launched while the kernel before still ran
    WHOLE: tl.constexpr,  # whether no sequence has more keys than a block
    D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    block, sequence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    q_first = tl.load(q_starts + sequence)
    q_length = tl.load(q_starts + sequence + 1) - q_first
    if block * BLOCK_Q >= q_length:
        return
    k_first = tl.load(k_starts + sequence)
    k_length = tl.load(k_starts + sequence + 1) - k_first

    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q_tile = load_rows(q, q_first, rows, q_length, q_stride, head, D)
    if BIAS:
        q_tile = (q_tile + tl.load(q_bias + head * D + tl.arange(0, D))[None, :]).to(q_tile.dtype)
    if WHOLE:
        columns = tl.arange(0, BLOCK_K)
        k_tile = load_rows(k, k_first, columns, k_length, k_stride, head, D)
        v_tile = load_rows(v, k_first, columns, k_length, k_stride, head, D)
        scores = score(q_tile, k_tile, columns, k_length, scale_log2)
        top = tl.max(scores, 1)
        powers = tl.exp2(scores - top[:, None])
        total = tl.sum(powers, 1)
        context = tl.dot(powers.to(v_tile.dtype), v_tile)
    else:
        top = tl.full([BLOCK_Q], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_Q], tl.float32)
        context = tl.zeros([BLOCK_Q, D], tl.float32)
        for start in range(0, k_length, BLOCK_K):
            columns = start + tl.arange(0, BLOCK_K)
            k_tile = load_rows(k, k_first, columns, k_length, k_stride, head, D)
            v_tile = load_rows(v, k_first, columns, k_length, k_stride, head, D)
            scores = score(q_tile, k_tile, columns, k_length, scale_log2)
            new_top = tl.maximum(top, tl.max(scores, 1))
            powers = tl.exp2(scores - new_top[:, None])
            shrink = tl.exp2(top - new_top)
            total = total * shrink + tl.sum(powers, 1)
            context = context * shrink[:, None] + tl.dot(powers.to(v_tile.dtype), v_tile)
            top = new_top
    store_rows(out, context / total[:, None], q_first, rows, q_length, out_stride, head, D)
    if KEEP:
        tl.store(lse + head * lse_stride + q_first + rows, top + tl.log2(total), mask=rows < q_length)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def backward_query_kernel(
    q,
    k,
    v,
    out,
    grad,  # of out
    lse,
    delta,  # [A, all queries], written here: the sum of grad * out over a row, which backward_key_kernel reads
    dq,
    sums,  # [programs, 3, A * D]: the first is dq's, added to
    q_starts,
    k_starts,
    q_stride,
    k_stride,
    out_stride,
    dq_stride,
    lse_stride,
    sums_stride,
    scale,
    scale_log2,
    SUMS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    block, sequence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    q_first = tl.load(q_starts + sequence)
    q_length = tl.load(q_starts + sequence + 1) - q_first
    if block * BLOCK_Q >= q_length:
        return
    k_first = tl.load(k_starts + sequence)
    k_length = tl.load(k_starts + sequence + 1) - k_first

    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q_tile = load_rows(q, q_first, rows, q_length, q_stride, head, D)
    grad_tile = load_rows(grad, q_first, rows, q_length, out_stride, head, D)
    out_tile = load_rows(out, q_first, rows, q_length, out_stride, head, D)
    row_delta = tl.sum(grad_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
    where = head * lse_stride + q_first + rows
    tl.store(delta + where, row_delta, mask=rows < q_length)
    row_lse = tl.load(lse + where, mask=rows < q_length, other=0.0)
    gathered = tl.zeros([BLOCK_Q, D], tl.float32)
    for start in range(0, k_length, BLOCK_K):
        columns = start + tl.arange(0, BLOCK_K)
        k_tile = load_rows(k, k_first, columns, k_length, k_stride, head, D)
        v_tile = load_rows(v, k_first, columns, k_length, k_stride, head, D)
        powers = tl.exp2(tl.dot(q_tile, tl.trans(k_tile)) * scale_log2 - row_lse[:, None])
        powers = tl.where((columns < k_length)[None, :], powers, 0.0)
        dscores = powers * (tl.dot(grad_tile, tl.trans(v_tile)) - row_delta[:, None])
        gathered += tl.dot(dscores.to(k_tile.dtype), k_tile)
    gathered *= scale
    store_rows(dq, gathered, q_first, rows, q_length, dq_stride, head, D)
    if SUMS:
        gathered = tl.where((rows < q_length)[:, None], gathered, 0.0)
        number = sequence * tl.num_programs(0) + block
        add_to(sums + number * sums_stride + head * D + tl.arange(0, D), tl.sum(gathered, 0))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def backward_key_kernel(
    q,
    k,
    v,
    grad,
    lse,
    delta,
    dk,
    dv,
    sums,  # [programs, 3, A * D]: the second and third are dk's and dv's, added to
    q_starts,
    k_starts,
    q_stride,
    k_stride,
    out_stride,
    dk_stride,
    lse_stride,
    sums_stride,
    width,  # A * D
    scale,
    scale_log2,
    SUMS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    block, sequence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    k_first = tl.load(k_starts + sequence)
    k_length = tl.load(k_starts + sequence + 1) - k_first
    if block * BLOCK_K >= k_length:
        return
    q_first = tl.load(q_starts + sequence)
    q_length = tl.load(q_starts + sequence + 1) - q_first

    columns = block * BLOCK_K + tl.arange(0, BLOCK_K)
    k_tile = load_rows(k, k_first, columns, k_length, k_stride, head, D)
    v_tile = load_rows(v, k_first, columns, k_length, k_stride, head, D)
    dk_tile = tl.zeros([BLOCK_K, D], tl.float32)
    dv_tile = tl.zeros([BLOCK_K, D], tl.float32)
    for start in range(0, q_length, BLOCK_Q):
        rows = start + tl.arange(0, BLOCK_Q)
        q_tile = load_rows(q, q_first, rows, q_length, q_stride, head, D)
        grad_tile = load_rows(grad, q_first, rows, q_length, out_stride, head, D)
        where = head * lse_stride + q_first + rows
        row_lse = tl.load(lse + where, mask=rows < q_length, other=float("inf"))  # rows beyond the end weigh nothing
        row_delta = tl.load(delta + where, mask=rows < q_length, other=0.0)
        # Transposed: one row per key, so that both products below need no further turn.
        powers = tl.exp2(tl.dot(k_tile, tl.trans(q_tile)) * scale_log2 - row_lse[None, :])
        dv_tile += tl.dot(powers.to(grad_tile.dtype), grad_tile)
        dscores = powers * (tl.dot(v_tile, tl.trans(grad_tile)) - row_delta[None, :])
        dk_tile += tl.dot(dscores.to(q_tile.dtype), q_tile)
    dk_tile *= scale
    store_rows(dk, dk_tile, k_first, columns, k_length, dk_stride, head, D)
    store_rows(dv, dv_tile, k_first, columns, k_length, dk_stride, head, D)
    if SUMS:
        inside = (columns < k_length)[:, None]
        where = sums + (sequence * tl.num_programs(0) + block) * sums_stride + head * D + tl.arange(0, D)
        add_to(where + width, tl.sum(tl.where(inside, dk_tile, 0.0), 0))
        add_to(where + 2 * width, tl.sum(tl.where(inside, dv_tile, 0.0), 0))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def backward_whole_kernel(
    q,
    k,
    v,
    out,
    grad,
    lse,
    dq,
    dk,
    dv,
    sums,  # [sequences, 3, A * D] for dq, dk and dv, added to
    starts,
    qkv_stride,
    out_stride,
    grads_stride,
    lse_stride,
    width,  # A * D
    scale,
    scale_log2,
    SUMS: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The three gradients of a sequence that fits into one block: everything is read and written once."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    if length <= 0:
        return
    rows = tl.arange(0, BLOCK)
    inside = rows < length
    q_tile = load_rows(q, first, rows, length, qkv_stride, head, D)
    k_tile = load_rows(k, first, rows, length, qkv_stride, head, D)
    v_tile = load_rows(v, first, rows, length, qkv_stride, head, D)
    grad_tile = load_rows(grad, first, rows, length, out_stride, head, D)
    out_tile = load_rows(out, first, rows, length, out_stride, head, D)
    delta = tl.sum(grad_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
    row_lse = tl.load(lse + head * lse_stride + first + rows, mask=inside, other=float("inf"))

    powers = tl.exp2(tl.dot(q_tile, tl.trans(k_tile)) * scale_log2 - row_lse[:, None])  # [Q, K]
    powers = tl.where(inside[None, :], powers, 0.0)
    dv_tile = tl.dot(tl.trans(powers.to(grad_tile.dtype)), grad_tile)
    dscores = powers * (tl.dot(grad_tile, tl.trans(v_tile)) - delta[:, None])
    dscores = dscores.to(q_tile.dtype)
    dq_tile = tl.dot(dscores, k_tile) * scale
    dk_tile = tl.dot(tl.trans(dscores), q_tile) * scale
    store_rows(dq, dq_tile, first, rows, length, grads_stride, head, D)
    store_rows(dk, dk_tile, first, rows, length, grads_stride, head, D)
    store_rows(dv, dv_tile, first, rows, length, grads_stride, head, D)
    if SUMS:
        # Rows beyond the end are 0 in all three: their powers are.
        where = sums + sequence * 3 * width + head * D + tl.arange(0, D)
        add_to(where, tl.sum(dq_tile, 0))
        add_to(where + width, tl.sum(dk_tile, 0))
        add_to(where + 2 * width, tl.sum(dv_tile, 0))
