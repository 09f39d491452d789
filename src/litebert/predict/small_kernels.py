"""A pass over few tokens in Triton: five kernels per layer, no LayerNorm among them.

LayerNorm comes between every two products, and alone it takes as long as one of them when there is little to do. But
LN(x) W^T + b is rstd (x V^T - mean s) + c with V = gamma W, s the sums of V's rows and c = beta W^T + b, all of them
known before. So a product takes rows that are not normalised yet and needs two numbers for each. The kernel that wrote
the rows left them in parts: for every tile of columns the mean and the sum of squares around it, `[tiles, 2, rows]`.

Names: `x` [rows, K] through `weight` [N, K] to `out` [rows, N]. K and N are multiples of the blocks, rows are not.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

from litebert.model.fast.pointwise_kernels import embedding_sum, gelu_value_and_slope

# Arguments are not annotated: Triton reads annotations as its own and stops at any other name.
# mypy: disable-error-code="no-untyped-def"


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def load_parts(parts, rows, stride, TILES: tl.constexpr, BLOCK: tl.constexpr):
    """Means and squares of the tiles of some rows, [BLOCK, rows] each; BLOCK is a power of two that holds TILES."""
    tiles = tl.arange(0, BLOCK)[:, None]
    where = parts + tiles * 2 * stride + rows[None, :]
    means = tl.load(where, mask=tiles < TILES, other=0.0)
    return means, tl.load(where + stride, mask=tiles < TILES, other=0.0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def mean_and_rstd(means, squares, eps, TILES: tl.constexpr, TILE_WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Of whole rows, from the parts of their tiles."""
    mean = tl.sum(means, 0) / TILES
    apart = tl.where((tl.arange(0, BLOCK) < TILES)[:, None], means - mean[None, :], 0.0)
    squares = tl.sum(squares, 0) + TILE_WIDTH * tl.sum(apart * apart, 0)
    return mean, 1.0 / tl.sqrt(squares / (TILES * TILE_WIDTH) + eps)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def store_parts(parts, tile, values, inside, rows, num_rows, width):
    """The mean of some columns of each row and the sum of squares around it; `inside`: which columns count."""
    mean = tl.sum(tl.where(inside[None, :], values, 0.0), 1) / width
    apart = tl.where(inside[None, :], values - mean[:, None], 0.0)
    where = parts + tile * 2 * num_rows + rows
    tl.store(where, mean, mask=rows < num_rows)
    tl.store(where + num_rows, tl.sum(apart * apart, 1), mask=rows < num_rows)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def activate(x, KIND: tl.constexpr):
    if KIND == "gelu_tanh":
        x, _ = gelu_value_and_slope(x, True)
    if KIND == "gelu":
        x, _ = gelu_value_and_slope(x, False)
    if KIND == "relu":
        x = tl.maximum(x, 0.0)
    if KIND == "tanh":
        x = 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0
    return x


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def embed_kernel(
    ids,
    segments,
    positions,
    word,
    segment,
    position,
    out,
    out_parts,
    num_rows,
    width,
    PDL: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """The three embeddings' sum, not normalised yet."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    there = rows < num_rows
    columns = tl.arange(0, BLOCK_WIDTH)
    inside = columns < width
    mask = there[:, None] & inside[None, :]
    summed = embedding_sum(ids, segments, positions, word, segment, position, rows, there, columns, mask, width)
    rounded = summed.to(out.dtype.element_ty)
    tl.store(out + rows[:, None] * width + columns[None, :], rounded, mask=mask)
    store_parts(out_parts, 0, rounded.to(tl.float32), inside, rows, num_rows, width)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def product_kernel(
    x,
    weight,  # W, or V if NORM
    bias,  # b, or c if NORM
    sums,  # s; read if NORM
    parts,  # of x; read if NORM
    starts,  # which rows of x to take, if GATHER; else all
    residual,  # [rows, N]; added to the product if RESIDUAL
    residual_parts,  # if RESIDUAL == "normed", its LayerNorm is what is added
    scale,  # of that LayerNorm
    shift,
    out,
    out_parts,  # written if PARTS
    partial,  # [SPLIT, rows, N] and
    arrived,  # [tiles of out], zeros: work space if SPLIT > 1
    num_rows,  # of out
    x_rows,
    N,
    K,
    eps,
    NORM: tl.constexpr,
    GATHER: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PARTS: tl.constexpr,
    TILES: tl.constexpr,
    TILE_WIDTH: tl.constexpr,
    TILES_BLOCK: tl.constexpr,
    RESIDUAL_TILES: tl.constexpr,
    RESIDUAL_TILE_WIDTH: tl.constexpr,
    RESIDUAL_TILES_BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,  # programs that share a tile's sum over K
    PDL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """out = activation(LN(x) W^T + b) + residual, where LayerNorm, activation and residual are there if asked for."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    # What the end needs is asked for now and comes while the product is made; parameters first, which wait for nobody.
    row_bias = tl.load(bias + columns)[None, :]
    if NORM:
        row_sums = tl.load(sums + columns)[None, :]
    if RESIDUAL == "normed":
        row_scale, row_shift = tl.load(scale + columns)[None, :], tl.load(shift + columns)[None, :]
    if PDL:
        tl.extra.cuda.gdc_wait()  # until what was launched before has written everything
        tl.extra.cuda.gdc_launch_dependents()  # what comes next may be set up meanwhile, and waits there itself
    # Rows beyond the end repeat the last one, so that no load needs a mask.
    taken = tl.minimum(rows, num_rows - 1)
    if GATHER:
        taken = tl.minimum(tl.load(starts + taken), x_rows - 1)
    mask = (rows < num_rows)[:, None]
    offsets = rows[:, None] * N + columns[None, :]
    if NORM:
        means, squares = load_parts(parts, taken, x_rows, TILES, TILES_BLOCK)
    if RESIDUAL != "none":
        beside = tl.load(residual + offsets, mask=mask, other=0.0)
    if RESIDUAL == "normed":
        beside_means, beside_squares = load_parts(residual_parts, taken, num_rows, RESIDUAL_TILES, RESIDUAL_TILES_BLOCK)

    depth = tl.multiple_of(tl.program_id(2) * (K // SPLIT), BLOCK_K) + tl.arange(0, BLOCK_K)
    x_tile = x + taken[:, None] * K + depth[None, :]
    weight_tile = weight + columns[None, :].to(tl.int64) * K + depth[:, None]
    product = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(0, K // SPLIT, BLOCK_K):
        product = tl.dot(tl.load(x_tile), tl.load(weight_tile), product)
        x_tile += BLOCK_K
        weight_tile += BLOCK_K

    if SPLIT > 1:
        # Whoever comes last adds up, always in the same order.
        tl.store(partial + tl.program_id(2) * num_rows * N + offsets, product, mask=mask)
        tl.debug_barrier()
        place = arrived + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
        before = tl.atomic_add(place, 1, sem="acq_rel")
        if before < SPLIT - 1:
            return
        tl.store(place, 0)  # for the next launch
        product = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for part in range(SPLIT):
            product += tl.load(partial + part * num_rows * N + offsets, mask=mask, other=0.0, cache_modifier=".cg")

    if NORM:
        mean, rstd = mean_and_rstd(means, squares, eps, TILES, TILE_WIDTH, TILES_BLOCK)
        product = rstd[:, None] * (product - mean[:, None] * row_sums)
    product = activate(product + row_bias, ACTIVATION)
    if RESIDUAL == "plain":
        product += beside.to(tl.float32)
    if RESIDUAL == "normed":
        mean, rstd = mean_and_rstd(
            beside_means, beside_squares, eps, RESIDUAL_TILES, RESIDUAL_TILE_WIDTH, RESIDUAL_TILES_BLOCK
        )
        product += (beside.to(tl.float32) - mean[:, None]) * rstd[:, None] * row_scale + row_shift
    rounded = product.to(out.dtype.element_ty)
    tl.store(out + offsets, rounded, mask=mask)
    if PARTS:
        store_parts(out_parts, tl.program_id(1), rounded.to(tl.float32), columns < N, rows, num_rows, BLOCK_N)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def norm_kernel(
    x,
    parts,
    scale,
    shift,
    starts,
    out,  # all rows
    first,  # those at `starts`
    num_rows,
    num_sequences,
    width,
    eps,
    TILES: tl.constexpr,
    TILE_WIDTH: tl.constexpr,
    TILES_BLOCK: tl.constexpr,
    PDL: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """The last LayerNorm, which no product takes over: of all rows, and by further programs of each [CLS] once more."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    blocks = tl.cdiv(num_rows, BLOCK_ROWS)
    block = tl.program_id(0)
    if block < blocks:
        rows = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
        taken = tl.minimum(rows, num_rows - 1)
        place, there = out, rows < num_rows
    else:
        rows = (block - blocks) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
        taken = tl.minimum(tl.load(starts + tl.minimum(rows, num_sequences - 1)), num_rows - 1)
        place, there = first, rows < num_sequences
    columns = tl.arange(0, BLOCK_WIDTH)
    inside = columns < width
    mask = there[:, None] & inside[None, :]
    means, squares = load_parts(parts, taken, num_rows, TILES, TILES_BLOCK)
    mean, rstd = mean_and_rstd(means, squares, eps, TILES, TILE_WIDTH, TILES_BLOCK)
    values = tl.load(x + taken[:, None] * width + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    values = (values - mean[:, None]) * rstd[:, None] * tl.load(scale + columns, mask=inside, other=0.0)[None, :]
    values += tl.load(shift + columns, mask=inside, other=0.0)[None, :]
    tl.store(place + rows[:, None] * width + columns[None, :], values.to(out.dtype.element_ty), mask=mask)
