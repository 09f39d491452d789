"""The kernels of small_kernels.py as functions, and how each product is cut into tiles.

`tests/predict` runs them in Triton's interpreter against plain torch in float64; `benchmarks/predict_kernels.py` times
them and tries other tiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from litebert.model.fast.plain_ops import Packing
from litebert.model.fast.triton_ops import Blocks, attend_only, launch_options
from litebert.predict import small_kernels
from litebert.predict.table import Table


class Tile(NamedTuple):
    """How a product is cut: a program's rows and columns of the result, its step along the sum, Triton's two knobs."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    split: int = 1  # programs that share a tile's sum


# From large to small: the first that gives enough programs is taken, else the last.
TILES = (
    Tile(128, 128, 64, 8, 4),
    Tile(128, 64, 64, 4, 4),
    Tile(64, 64, 64, 4, 4),
    Tile(64, 32, 64, 4, 5),
    Tile(32, 32, 128, 4, 4),
    Tile(16, 32, 128, 4, 4),
    Tile(16, 16, 128, 2, 4),
)
ENOUGH = 90  # programs: most of the multiprocessors of a large GPU
# What benchmarks/predict_kernels.py --tune found better on an H200, by the product's columns and depth and then by its
# rows; a tile also serves fewer rows, down to half as many.
TUNED: dict[tuple[int, int], dict[int, Tile]] = {
    (2304, 768): {128: Tile(64, 64, 128, 4, 3)},
    (768, 768): {128: Tile(16, 64, 128, 4, 3)},
    (3072, 768): {128: Tile(64, 64, 64, 4, 4)},
    (768, 3072): {128: Tile(32, 64, 128, 4, 3, split=2)},
}
MULTIPLE = 64  # of which a model's widths have to be, so that tiles divide them
ATTEND = Blocks(16, 128, 4, 2)  # queries and keys
MAX_TILES = 16_384  # of a split sum
NORM_ELEMENTS, NORM_WARPS = 2048, 4  # of a block of `embed` and `normalize`
PDL = False  # whether a kernel is set up while the one before still runs (programmatic launch), where a GPU can


class Norm(NamedTuple):
    """A LayerNorm's parameters in float32."""

    scale: Tensor
    shift: Tensor


class Weights(NamedTuple):
    """A product with the LayerNorm before it folded in; without one, `sums` is None."""

    weight: Tensor  # [N, K] in the working precision
    bias: Tensor  # [N] float32
    sums: Tensor | None = None  # [N] float32


class Rows(NamedTuple):
    """Rows that wait for their LayerNorm, with the parts of their statistics; without `norm` they wait for nothing."""

    values: Tensor  # [rows, width]
    parts: Tensor | None = None  # [tiles, 2, rows] float32
    norm: Norm | None = None


def fold(weight: Tensor, bias: Tensor, norm: Norm | None, dtype: torch.dtype) -> Weights:
    """A product's weight [N, K] and bias behind a LayerNorm.

    The sums are those of the rounded weights: what a row's mean adds to a product has to be taken from it exactly.
    """
    weight, bias = weight.detach().float(), bias.detach().float()
    if norm is None:
        return Weights(weight.to(dtype), bias)
    scaled = (weight * norm.scale).to(dtype)
    return Weights(scaled, bias + weight @ norm.shift, scaled.float().sum(1))


def choose_tile(rows: int, columns: int, depth: int) -> Tile:
    """The tuned tile, or the largest that keeps a GPU busy: (128 rows, 1024 columns, 1024) -> 32 x 32."""
    for most, tile in TUNED.get((columns, depth), {}).items():
        if most < 2 * rows <= 2 * most:
            return tile
    fitting = [tile for tile in TILES if columns % tile.columns == 0 and tile.rows < max(17, 2 * rows)]
    enough = (tile for tile in fitting if _cdiv(rows, tile.rows) * (columns // tile.columns) >= ENOUGH)
    tile = next(enough, fitting[-1])
    return tile if depth % (tile.depth * tile.split) == 0 else tile._replace(depth=MULTIPLE, split=1)


def embed(table: Table, word: Tensor, segment: Tensor, position: Tensor, norm: Norm) -> Rows:
    """The three embeddings' sum of every token, to be normalised."""
    rows, width = len(table.ids), word.shape[1]
    out, parts = word.new_empty(rows, width), word.new_empty(1, 2, rows, dtype=torch.float32)
    block_width = _power_of_two(width)
    block_rows = max(1, NORM_ELEMENTS // block_width)
    small_kernels.embed_kernel[(_cdiv(rows, block_rows),)](
        table.ids,
        table.segments,
        table.positions,
        word,
        segment,
        position,
        out,
        parts,
        rows,
        width,
        PDL=False,  # what comes before is a copy
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=NORM_WARPS,
    )
    return Rows(out, parts, norm)


def product(
    x: Rows,
    weights: Weights,
    eps: float,
    activation: str = "none",
    residual: Rows | None = None,
    norm: Norm | None = None,
    starts: Tensor | None = None,
    arrived: Tensor | None = None,
    tile: Tile | None = None,
) -> Rows:
    """activation(LN(x) W^T + b) + residual, to be normalised by `norm`; with `starts` only of the rows there.

    LN(x) is x where nothing is folded into the weights; `residual` is normalised if it waits for that. `arrived` are
    zeros, one for each tile, which a split sum needs.
    """
    columns, depth = weights.weight.shape
    rows = len(x.values) if starts is None else len(starts) - 1
    tile = tile or choose_tile(rows, columns, depth)
    tiles = columns // tile.columns
    assert tile.split == 1 or (arrived is not None and tiles * _cdiv(rows, tile.rows) <= len(arrived))
    out = x.values.new_empty(rows, columns)
    parts = None if norm is None else out.new_empty(tiles, 2, rows, dtype=torch.float32)
    partial = out if tile.split == 1 else out.new_empty(tile.split, rows, columns, dtype=torch.float32)
    beside = residual or Rows(out)
    beside_norm = beside.norm or Norm(weights.bias, weights.bias)
    small_kernels.product_kernel[(_cdiv(rows, tile.rows), tiles, tile.split)](
        x.values,
        weights.weight,
        weights.bias,
        _or(weights.sums, out),
        _or(x.parts, out),
        _or(starts, out),
        beside.values,
        _or(beside.parts, out),
        *beside_norm,
        out,
        _or(parts, out),
        partial,
        _or(arrived, out),
        rows,
        len(x.values),
        columns,
        depth,
        eps,
        NORM=weights.sums is not None,
        GATHER=starts is not None,
        RESIDUAL="none" if residual is None else "plain" if residual.norm is None else "normed",
        ACTIVATION=activation,
        PARTS=parts is not None,
        **_tiles_of(x),
        **{f"RESIDUAL_{name}": value for name, value in _tiles_of(beside).items()},
        SPLIT=tile.split,
        BLOCK_M=tile.rows,
        BLOCK_N=tile.columns,
        BLOCK_K=tile.depth,
        num_warps=tile.warps,
        num_stages=tile.stages,
        **_launch(out.device),
    )
    return Rows(out, parts, norm)


def attend(qkv: Tensor, heads: int, packing: Packing) -> Tensor:
    """[T, 3 H] -> context [T, H]."""
    q, k, v = qkv.view(len(qkv), 3, heads, -1).unbind(1)
    return attend_only(q, k, v, packing, blocks=ATTEND, **_launch(qkv.device)).flatten(1)


def normalize(x: Rows, starts: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The rows behind their LayerNorm, and those at `starts` once more: [T, H] and [N, H]."""
    assert x.norm is not None
    rows, width = x.values.shape
    sequences = len(starts) - 1
    out, first = torch.empty_like(x.values), x.values.new_empty(sequences, width)
    block_width = _power_of_two(width)
    block_rows = max(1, NORM_ELEMENTS // block_width)
    small_kernels.norm_kernel[(_cdiv(rows, block_rows) + _cdiv(sequences, block_rows),)](
        x.values,
        x.parts,
        *x.norm,
        starts,
        out,
        first,
        rows,
        sequences,
        width,
        eps,
        **_tiles_of(x),
        BLOCK_ROWS=block_rows,
        BLOCK_WIDTH=block_width,
        num_warps=NORM_WARPS,
        **_launch(out.device),
    )
    return out, first


def _launch(device: torch.device) -> dict[str, Any]:
    return launch_options(PDL, device)


def _tiles_of(rows: Rows) -> dict[str, int]:
    tiles = 1 if rows.parts is None else len(rows.parts)
    return {"TILES": tiles, "TILE_WIDTH": rows.values.shape[1] // tiles, "TILES_BLOCK": _power_of_two(tiles)}


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A tensor, or one that stands for it where the kernel reads nothing."""
    return other if tensor is None else tensor


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _power_of_two(a: int) -> int:
    return 1 << (a - 1).bit_length()
