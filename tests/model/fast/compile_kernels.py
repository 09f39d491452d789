"""Every Triton kernel compiled for an H100/H200, the largest for RTX cards too; run by test_kernels.py.

The interpreter takes Python that the compiler refuses, and CI has no GPU: but the compiler needs none either.
"""

from __future__ import annotations

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from litebert.model.fast import attention_kernels, pointwise_kernels, triton_ops

SHARED_BYTES = {90: 227 * 1024, 89: 99 * 1024}  # that a block may use on an H100/H200, and on an RTX card
NUMBERS = {"scale", "scale_log2", "eps", "limit"}
COUNTS = {"width", "num_rows", "rows_per_program", "count"}
STARTS = {"q_starts", "k_starts", "starts", "ids", "segments", "positions"}
FULL_PRECISION = {"lse", "delta", "sums", "rstd", "bias", "weight", "shift", "partial", "value_partial", "grad_partial"}


def kind_of(name: str) -> str:
    """What the compiler is told of an argument; our names say it."""
    if name in NUMBERS:
        return "fp32"
    if name in COUNTS or name.endswith("_stride"):
        return "i32"
    if name in STARTS:
        return "*i32"
    return "*fp32" if name in FULL_PRECISION else "*bf16"


def compile_kernel(kernel, warps, stages=2, others=None, gpu=90, **constants):
    kinds = {name: "constexpr" if name in constants else kind_of(name) for name in kernel.arg_names} | (others or {})
    # As at a launch: addresses and strides are multiples of 16, without which nothing is loaded ahead.
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, (name, kind) in enumerate(kinds.items())
        if kind.startswith("*") or name == "width" or name.endswith("_stride")
    }
    source = ASTSource(kernel, kinds, constexprs=constants, attrs=attributes)
    target = GPUTarget("cuda", gpu, 32)
    done = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
    assert done.metadata.shared <= SHARED_BYTES[gpu], (kernel, constants, done.metadata.shared)
    return done


def main() -> None:
    for width in (64, 128):
        for keep, whole, table in (
            (True, False, triton_ops.ATTEND),
            (False, False, triton_ops.ATTEND_ONLY),
            (False, True, triton_ops.ATTEND_ONLY_WHOLE),
        ):
            blocks = table.get(width, triton_ops.ATTEND_ONLY[width])
            sizes = dict(D=width, BLOCK_Q=blocks.rows, BLOCK_K=blocks.columns)
            ways = dict(KEEP=keep, BIAS=not keep, PDL=not keep, WHOLE=whole)
            compile_kernel(attention_kernels.forward_kernel, blocks.warps, blocks.stages, **ways, **sizes)
        for kernel, table in (
            (attention_kernels.backward_query_kernel, triton_ops.ATTEND_BACKWARD_QUERY),
            (attention_kernels.backward_key_kernel, triton_ops.ATTEND_BACKWARD_KEY),
        ):
            blocks = table[width]
            sizes = dict(D=width, BLOCK_Q=blocks.rows, BLOCK_K=blocks.columns)
            for sums in (True, False):
                compile_kernel(kernel, blocks.warps, blocks.stages, SUMS=sums, **sizes)
    forward = {"KEEP": True, "BIAS": False, "PDL": False, "WHOLE": False}
    for kernel, table, more in (
        (attention_kernels.forward_kernel, triton_ops.ATTEND, forward),
        (attention_kernels.backward_query_kernel, triton_ops.ATTEND_BACKWARD_QUERY, {"SUMS": True}),
        (attention_kernels.backward_key_kernel, triton_ops.ATTEND_BACKWARD_KEY, {"SUMS": True}),
    ):
        blocks = table[128]
        sizes = dict(D=128, BLOCK_Q=blocks.rows, BLOCK_K=blocks.columns)
        compile_kernel(kernel, blocks.warps, triton_ops.SMALL_GPU_STAGES, gpu=89, **sizes, **more)
    whole = attention_kernels.backward_whole_kernel
    for sums in (True, False):
        compile_kernel(whole, triton_ops.WHOLE_WARPS, 1, SUMS=sums, D=64, BLOCK=triton_ops.WHOLE_MAX)
    for width in (1024, 4096):
        kernel, sizes = pointwise_kernels.add_norm_kernel, dict(BLOCK_WIDTH=width)
        rows = max(1, triton_ops.ADD_NORM_ELEMENTS // width)
        compile_kernel(kernel, triton_ops.ADD_NORM_WARPS, KEEP=True, PDL=False, BLOCK_ROWS=rows, **sizes)
        rows, warps = max(1, triton_ops.ADD_NORM_ONLY_ELEMENTS // width), triton_ops.ADD_NORM_ONLY_WARPS
        for pdl in (False, True):
            compile_kernel(kernel, warps, KEEP=False, PDL=pdl, BLOCK_ROWS=rows, **sizes)
        compile_kernel(pointwise_kernels.embed_norm_kernel, warps, BLOCK_ROWS=rows, **sizes)
        compile_kernel(pointwise_kernels.rescale_kernel, warps, BLOCK_ROWS=rows, **sizes)
        kernel = pointwise_kernels.add_norm_backward_kernel
        for sums in (True, False):
            compile_kernel(kernel, 8, TWO=True, SUMS=sums, BLOCK_ROWS=1, **sizes)
    for tanh in (True, False):
        compile_kernel(pointwise_kernels.gelu_kernel, 8, TANH=tanh, BLOCK=triton_ops.GELU.columns)
        blocks = triton_ops.GELU_BACKWARD
        sizes = dict(BLOCK_ROWS=blocks.rows, BLOCK_WIDTH=blocks.columns)
        kernel, ways = pointwise_kernels.gelu_backward_kernel, dict(TANH=tanh, VALUE=0, GRAD=0)
        for sums in (True, False):
            compile_kernel(kernel, blocks.warps, SUMS=sums, **ways, **sizes)
        blocks = triton_ops.GELU_BACKWARD_THIN
        sizes = dict(BLOCK_ROWS=blocks.rows, BLOCK_WIDTH=blocks.columns)
        for value, grad in ((16, 16), (64, 64), (0, 16), (16, 0)):
            ways = dict(TANH=tanh, SUMS=False, VALUE=value, GRAD=grad)
            compile_kernel(kernel, blocks.warps, blocks.stages, **ways, **sizes)
    blocks = triton_ops.THIN
    sizes = dict(BLOCK_ROWS=blocks.rows, BLOCK_WIDTH=blocks.columns)
    for rank in (16, 64):
        for gpu in SHARED_BYTES:
            compile_kernel(
                pointwise_kernels.thin_product_kernel, blocks.warps, blocks.stages, gpu=gpu, RANK=rank, **sizes
            )
    for kind, turned in (("*fp8e4nv", True), ("*fp8e5", False)):
        blocks = triton_ops.QUANTIZE
        sizes = dict(BLOCK_ROWS=blocks.rows, BLOCK_WIDTH=blocks.columns)
        others = {"scale": "*fp32", "out": kind}
        compile_kernel(pointwise_kernels.quantize_kernel, 4, others=others, TRANSPOSED=turned, **sizes)
    print("all kernels compile")


if __name__ == "__main__":
    main()
