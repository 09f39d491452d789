"""The steps between the matrix products in Triton: each tensor is read once and written once.

The gradients of biases and LayerNorms are sums over all tokens. Every program sums the rows it handles anyway and adds
them to its own partial sum, kept over all applications of a shared layer (kernels run one after the other, so nothing
else writes there). Until its last row, a sum stays in the registers
of the thread that made it: a sum across threads in every round took four times as long. SUMS: whether they are made.

An adapter's gradients are sums over tokens too, of a wide tensor times one of few columns (`thin_product_kernel`). The
backward pass of GELU, which has two wide tensors at hand, takes theirs without reading them again.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

# Arguments are not annotated: Triton reads annotations as its own and stops at any other name.
# mypy: disable-error-code="no-untyped-def"


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def add_to(where, values, mask):
    """where += values."""
    tl.store(where, tl.load(where, mask=mask, other=0.0) + values, mask=mask)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def layer_norm(summed, mask, weight, shift, columns, in_row, width, eps):
    """Rows normalised and scaled, normalised only, and 1 / their deviation."""
    mean = tl.sum(summed, 1) / width
    centred = tl.where(mask, summed - mean[:, None], 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
    normed = centred * rstd[:, None]
    scaled = normed * tl.load(weight + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    scaled += tl.load(shift + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    return scaled, normed, rstd


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def add_norm_kernel(
    residual,
    branch,  # read, then, if KEEP, overwritten with the normalised rows
    bias,
    weight,
    shift,
    out,
    rstd,
    num_rows,
    width,
    eps,
    KEEP: tl.constexpr,  # whether a backward pass follows
    PDL: tl.constexpr,  # whether it was launched while the kernel before still ran
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """out = LayerNorm(residual + branch + bias)."""
    if PDL:
        tl.extra.cuda.gdc_wait()
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < width
    mask = (rows < num_rows)[:, None] & in_row[None, :]
    offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]
    summed = tl.load(residual + offsets, mask=mask, other=0.0).to(tl.float32)
    summed += tl.load(branch + offsets, mask=mask, other=0.0).to(tl.float32)
    summed += tl.load(bias + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    scaled, normed, row_rstd = layer_norm(summed, mask, weight, shift, columns, in_row, width, eps)
    tl.store(out + offsets, scaled.to(out.dtype.element_ty), mask=mask)
    if KEEP:
        tl.store(branch + offsets, normed.to(branch.dtype.element_ty), mask=mask)
        tl.store(rstd + rows, row_rstd, mask=rows < num_rows)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def embedding_sum(ids, segments, positions, word, segment, position, rows, there, columns, mask, width):
    """word[ids] + position[positions] + segment[segments] of some rows, in float32; `there`: which of them exist."""
    number = tl.load(ids + rows, mask=there, other=0).to(tl.int64)[:, None] * width + columns[None, :]
    summed = tl.load(word + number, mask=mask, other=0.0).to(tl.float32)
    number = tl.load(positions + rows, mask=there, other=0).to(tl.int64)[:, None] * width + columns[None, :]
    summed += tl.load(position + number, mask=mask, other=0.0).to(tl.float32)
    number = tl.load(segments + rows, mask=there, other=0).to(tl.int64)[:, None] * width + columns[None, :]
    return summed + tl.load(segment + number, mask=mask, other=0.0).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def embed_norm_kernel(
    ids,
    segments,
    positions,
    word,
    segment,
    position,
    weight,
    shift,
    out,
    num_rows,
    width,
    eps,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """out = LayerNorm(word[ids] + position[positions] + segment[segments])."""
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < width
    inside = rows < num_rows
    mask = inside[:, None] & in_row[None, :]
    summed = embedding_sum(ids, segments, positions, word, segment, position, rows, inside, columns, mask, width)
    scaled, _, _ = layer_norm(summed, mask, weight, shift, columns, in_row, width, eps)
    offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]
    tl.store(out + offsets, scaled.to(out.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def add_norm_backward_kernel(
    grad,
    grad2,  # a second gradient of the same rows, added to the first (the residual's)
    normed,
    rstd,
    weight,
    dsum,
    partial,  # [programs, 3, width]: sums for weight, shift and bias, added to
    num_rows,
    width,
    rows_per_program,
    TWO: tl.constexpr,
    SUMS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < width
    row_weight = tl.load(weight + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    dweight = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], tl.float32)
    dshift = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], tl.float32)
    dbias = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], tl.float32)
    first = tl.program_id(0) * rows_per_program
    for start in range(0, rows_per_program, BLOCK_ROWS):
        rows = first + start + tl.arange(0, BLOCK_ROWS)
        mask = (rows < num_rows)[:, None] & in_row[None, :]
        offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]
        total = tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32)
        if TWO:
            total += tl.load(grad2 + offsets, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(normed + offsets, mask=mask, other=0.0).to(tl.float32)
        row_rstd = tl.load(rstd + rows, mask=rows < num_rows, other=0.0)
        if SUMS:
            dweight += total * x
            dshift += total
        dnormed = total * row_weight
        mean = tl.sum(dnormed, 1) / width
        slope = tl.sum(dnormed * x, 1) / width
        dx = (dnormed - mean[:, None] - x * slope[:, None]) * row_rstd[:, None]
        if SUMS:
            dbias += tl.where(mask, dx, 0.0)
        tl.store(dsum + offsets, dx.to(dsum.dtype.element_ty), mask=mask)
    if SUMS:
        where = partial + tl.program_id(0) * 3 * width + columns
        add_to(where, tl.sum(dweight, 0), in_row)
        add_to(where + width, tl.sum(dshift, 0), in_row)
        add_to(where + 2 * width, tl.sum(dbias, 0), in_row)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def rescale_kernel(
    normed,
    weight,
    shift,
    out,
    num_rows,
    width,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """out = normed * weight + shift."""
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < width
    mask = (rows < num_rows)[:, None] & in_row[None, :]
    offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]
    scaled = tl.load(normed + offsets, mask=mask, other=0.0).to(tl.float32)
    scaled *= tl.load(weight + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    scaled += tl.load(shift + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    tl.store(out + offsets, scaled.to(out.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def gelu_value_and_slope(x, TANH: tl.constexpr):
    """GELU and its derivative at x (fp32)."""
    if TANH:
        # 0.5 (1 + tanh u) = sigmoid(2 u)
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        gate = 1.0 / (1.0 + tl.exp(-2.0 * inner))
        slope = gate + x * gate * (1.0 - gate) * 1.5957691216057308 * (1.0 + 0.134145 * x * x)
    else:
        gate = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        slope = gate + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    return x * gate, slope


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def gelu_kernel(x, out, count, TANH: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    value, _ = gelu_value_and_slope(tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32), TANH)
    tl.store(out + offsets, value.to(out.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def load_thin(factor, rows, there, RANK: tl.constexpr):
    """Rows [len(rows), RANK] of a thin factor; those beyond the end are 0."""
    offsets = rows.to(tl.int64)[:, None] * RANK + tl.arange(0, RANK)[None, :]
    return tl.load(factor + offsets, mask=there[:, None], other=0.0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def add_thin(partial, total, columns, in_row, RANK: tl.constexpr):
    """Add a program's sums [len(columns), RANK] to its partial ones."""
    add_to(partial + columns[:, None] * RANK + tl.arange(0, RANK)[None, :], total, in_row[:, None])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def gelu_backward_kernel(
    x,  # before the activation; overwritten with the activation itself, unless VALUE takes what needs it
    grad,  # of the activation; overwritten with that of x
    partial,  # [row programs, width]: sums of the gradient of x, for the bias, added to
    value_factor,  # [num_rows, VALUE]
    value_partial,  # [row programs, width, VALUE]: activation^T value_factor, added to
    grad_factor,  # [num_rows, GRAD]
    grad_partial,  # [row programs, width, GRAD]: (gradient of x)^T grad_factor, added to
    num_rows,
    width,
    rows_per_program,
    TANH: tl.constexpr,
    SUMS: tl.constexpr,
    VALUE: tl.constexpr,  # columns of the thin factor; 0: none
    GRAD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    columns = tl.program_id(0) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    in_row = columns < width
    dbias = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], tl.float32)
    if VALUE > 0:
        value_total = tl.zeros([BLOCK_WIDTH, VALUE], tl.float32)
    if GRAD > 0:
        grad_total = tl.zeros([BLOCK_WIDTH, GRAD], tl.float32)
    first = tl.program_id(1) * rows_per_program
    for start in range(0, rows_per_program, BLOCK_ROWS):
        rows = first + start + tl.arange(0, BLOCK_ROWS)
        there = rows < num_rows
        mask = there[:, None] & in_row[None, :]
        offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]
        value, slope = gelu_value_and_slope(tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32), TANH)
        dx = tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32) * slope
        if SUMS:
            dbias += dx
        value = value.to(x.dtype.element_ty)
        dx = dx.to(grad.dtype.element_ty)
        tl.store(grad + offsets, dx, mask=mask)
        if VALUE > 0:
            factor = load_thin(value_factor, rows, there, VALUE)
            value_total += tl.dot(tl.trans(value), factor)
        else:
            tl.store(x + offsets, value, mask=mask)
        if GRAD > 0:
            factor = load_thin(grad_factor, rows, there, GRAD)
            grad_total += tl.dot(tl.trans(dx), factor)
    if SUMS:
        add_to(partial + tl.program_id(1) * width + columns, tl.sum(dbias, 0), in_row)
    if VALUE > 0:
        add_thin(value_partial + tl.program_id(1) * width * VALUE, value_total, columns, in_row, VALUE)
    if GRAD > 0:
        add_thin(grad_partial + tl.program_id(1) * width * GRAD, grad_total, columns, in_row, GRAD)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def thin_product_kernel(
    wide,
    factor,  # [num_rows, RANK]
    partial,  # [row programs, rows of the sums, RANK], from the first of these rows on; added to
    num_rows,
    width,
    partial_stride,
    rows_per_program,
    RANK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """partial += wide^T factor."""
    columns = tl.program_id(0) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    in_row = columns < width
    total = tl.zeros([BLOCK_WIDTH, RANK], tl.float32)
    first = tl.program_id(1) * rows_per_program
    for start in range(0, rows_per_program, BLOCK_ROWS):
        rows = first + start + tl.arange(0, BLOCK_ROWS)
        there = rows < num_rows
        offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]
        tile = tl.load(wide + offsets, mask=there[:, None] & in_row[None, :], other=0.0)
        total += tl.dot(tl.trans(tile), load_thin(factor, rows, there, RANK))
    add_thin(partial + tl.program_id(1) * partial_stride, total, columns, in_row, RANK)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def quantize_kernel(
    x,
    scale,  # one number: the value of a stored 1
    out,  # [rows, width], or [width, rows] if transposed
    num_rows,
    width,
    x_stride,
    limit,  # the largest number that the 8-bit type holds
    TRANSPOSED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.program_id(1) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    mask = (rows < num_rows)[:, None] & (columns < width)[None, :]
    offsets = rows.to(tl.int64)[:, None] * x_stride + columns[None, :]
    value = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32) / tl.load(scale)
    value = tl.minimum(tl.maximum(value, -limit), limit).to(out.dtype.element_ty)
    if TRANSPOSED:
        offsets = columns.to(tl.int64)[:, None] * num_rows + rows[None, :]
        tl.store(out + offsets, tl.trans(value), mask=(columns < width)[:, None] & (rows < num_rows)[None, :])
    else:
        tl.store(out + rows.to(tl.int64)[:, None] * width + columns[None, :], value, mask=mask)
