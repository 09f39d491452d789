"""The kernels for few tokens compiled for an H100/H200, the largest tile for RTX cards too; run by test_triton.py.

The interpreter takes Python that the compiler refuses, and CI has no GPU: but the compiler needs none either.
"""

from __future__ import annotations

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from litebert.model.fast.attention_kernels import forward_kernel
from litebert.predict import small_kernels, small_ops
from litebert.predict.small_ops import Tile

SHARED_BYTES = {90: 227 * 1024, 89: 99 * 1024}  # that a block may use on an H100/H200, and on an RTX card
HALF = {"q", "k", "v", "x", "weight", "residual", "out", "first", "word", "segment", "position"}
WHOLE = {"starts", "q_starts", "k_starts", "arrived", "ids", "segments", "positions"}
COUNTS = {"num_rows", "x_rows", "N", "K", "width", "num_sequences"}


def kind_of(name: str) -> str:
    """What the compiler is told of an argument; our names say it."""
    if name in ("eps", "scale_log2"):
        return "fp32"
    if name in COUNTS or name.endswith("_stride"):
        return "i32"
    return "*bf16" if name in HALF else "*i32" if name in WHOLE else "*fp32"


def compile_kernel(kernel, warps, stages=2, gpu=90, **constants):
    kinds = {name: "constexpr" if name in constants else kind_of(name) for name in kernel.arg_names}
    # As at a launch: addresses and counts are multiples of 16, which makes wide loads possible.
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, (name, kind) in enumerate(kinds.items())
        if kind.startswith("*") or name in ("N", "K", "width") or name.endswith("_stride")
    }
    source = ASTSource(kernel, kinds, constexprs=constants, attrs=attributes)
    target = GPUTarget("cuda", gpu, 32)
    done = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
    assert done.metadata.shared <= SHARED_BYTES[gpu], (kernel, constants, done.metadata.shared)
    return done


def compile_product(tile, norm=True, gather=False, residual="none", activation="none", parts=False, pdl=False, **more):
    tiles = {"TILES": 24, "TILE_WIDTH": 32, "TILES_BLOCK": 32}
    return compile_kernel(
        small_kernels.product_kernel,
        tile.warps,
        tile.stages,
        NORM=norm,
        GATHER=gather,
        RESIDUAL=residual,
        ACTIVATION=activation,
        PARTS=parts,
        **tiles,
        **{f"RESIDUAL_{name}": value for name, value in tiles.items()},
        SPLIT=tile.split,
        PDL=pdl,
        BLOCK_M=tile.rows,
        BLOCK_N=tile.columns,
        BLOCK_K=tile.depth,
        **more,
    )


def main() -> None:
    for number, tile in enumerate(small_ops.TILES):
        compile_product(tile, activation=("gelu", "gelu_tanh", "relu")[number % 3], pdl=number % 2 == 1)
    for tiles in small_ops.TUNED.values():
        for tile in tiles.values():
            compile_product(tile)
    largest = max(small_ops.TILES, key=lambda tile: (tile.rows + tile.columns) * tile.depth * tile.stages)
    compile_product(largest, norm=False, residual="normed", parts=True, gpu=89)
    compile_product(Tile(32, 32, 128, 4, 4), norm=False, residual="normed", parts=True)
    compile_product(Tile(64, 64, 64, 4, 4, split=4), norm=False, residual="plain", parts=True, pdl=True)
    compile_product(small_ops.TILES[-1], gather=True, activation="tanh", num_rows=1)  # a launch makes 1 a constant
    for width in (1024, 4096):
        sizes = dict(BLOCK_ROWS=max(1, small_ops.NORM_ELEMENTS // width), BLOCK_WIDTH=width, PDL=width == 4096)
        compile_kernel(small_kernels.embed_kernel, small_ops.NORM_WARPS, **sizes)
        tiles = dict(TILES=24, TILE_WIDTH=32, TILES_BLOCK=32)
        compile_kernel(small_kernels.norm_kernel, small_ops.NORM_WARPS, num_sequences=1, **tiles, **sizes)
    for width in (64, 128):
        blocks = small_ops.ATTEND
        sizes = dict(D=width, BLOCK_Q=blocks.rows, BLOCK_K=blocks.columns)
        for whole in (False, True):
            ways = dict(KEEP=False, BIAS=False, PDL=False, WHOLE=whole)
            compile_kernel(forward_kernel, blocks.warps, blocks.stages, **ways, **sizes)
    print("all right")


if __name__ == "__main__":
    main()
