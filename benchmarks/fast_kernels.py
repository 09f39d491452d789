"""The fast path's kernels one by one on this GPU: errors, times, and shares of the memory's or the ceiling's limit.

    python benchmarks/fast_kernels.py [--tune attention pointwise] [--out result.json]

Attention beside torch's own kernels (varlen, cuDNN, FlexAttention); the kernels between matrix products with the
bandwidth they reach; the matrix products themselves in bf16, with the float32 sum of weight gradients, and in FP8.
`--tune` tries other block sizes and prints the best of each, for the table in src/litebert/model/fast/triton_ops.py.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

from litebert.files import write_atomic
from litebert.model.fast import plain_ops, triton_ops
from litebert.model.fast.fp8_ops import Fp8Ops
from litebert.model.fast.plain_ops import Packing, Thin
from litebert.model.fast.triton_ops import Blocks

TOKENS = 32_768
SHAPES = {  # name: heads, head width, length
    "base 128": (12, 64, 128),
    "base 512": (12, 64, 512),
    "large 512": (16, 64, 512),
    "xlarge 512": (16, 128, 512),
    "xxlarge 512": (64, 64, 512),
}

CANDIDATES = [  # rows, columns, warps, stages; wider searches found nothing better than their like
    *itertools.product((64, 128), (32, 64), (4,), (2, 3, 4)),
    *itertools.product((64, 128), (128,), (4, 8), (2,)),
    (128, 64, 8, 3),
]


def milliseconds(function: Callable[[], Any]) -> float:
    """The median time of a call, caches flushed between."""
    return float(triton.testing.do_bench(function, warmup=5, rep=25, return_mode="median"))


def attention_case(heads: int, width: int, length: int) -> tuple[torch.Tensor, torch.Tensor, Packing]:
    torch.manual_seed(0)
    qkv = torch.randn(TOKENS, 3, heads, width, device="cuda", dtype=torch.bfloat16)
    grad = torch.randn(TOKENS, heads, width, device="cuda", dtype=torch.bfloat16)
    starts = torch.arange(0, TOKENS + 1, length, device="cuda", dtype=torch.int32)
    return qkv, grad, Packing(starts, starts, length, length)


def new_sums(count: int, width: int, ops: Any = triton_ops) -> Any:
    return ops.VectorSums(count, width, torch.float32, torch.device("cuda"))


def ours(qkv: torch.Tensor, grad: torch.Tensor, packing: Packing) -> tuple[Callable[[], Any], Callable[[], Any]]:
    q, k, v = qkv.unbind(1)
    context, lse = triton_ops.attend(q, k, v, packing)
    out = torch.empty_like(qkv).unbind(1)
    sums = new_sums(3, q.shape[1] * q.shape[2])
    return (
        lambda: triton_ops.attend(q, k, v, packing),
        lambda: triton_ops.attend_backward(grad, q, k, v, context, lse, packing, out, sums),
    )


def check_attention(name: str, length: int) -> dict[str, float]:
    """Largest errors against plain torch in float32, on sequences of many lengths."""
    heads, width, _ = SHAPES[name]
    torch.manual_seed(1)
    lengths = [*torch.randint(1, length + 1, (40,)).tolist(), 0, 1, length]
    starts = torch.tensor([0, *itertools.accumulate(lengths)], device="cuda", dtype=torch.int32)
    packing = Packing(starts, starts, length, length)
    qkv = torch.randn(sum(lengths), 3, heads, width, device="cuda", dtype=torch.bfloat16)
    grad = torch.randn(sum(lengths), heads, width, device="cuda", dtype=torch.bfloat16)
    errors = {}
    for what, ops in (("kernel", triton_ops), ("plain", plain_ops)):
        q, k, v = qkv.unbind(1)
        context, lse = ops.attend(q, k, v, packing)
        out = torch.empty_like(qkv)
        sums = new_sums(3, heads * width, ops)
        ops.attend_backward(grad, q, k, v, context, lse, packing, out.unbind(1), sums)
        errors[what] = [context, lse, out, *sums.result()]
    return {
        part: float((a.float() - b.float()).norm() / b.float().norm())
        for part, a, b in zip(
            ("context", "lse", "gradients", "q sum", "k sum", "v sum"), errors["kernel"], errors["plain"], strict=True
        )
        if part != "k sum"  # truly 0
    }


def torch_kernels(qkv: torch.Tensor, grad: torch.Tensor, packing: Packing, flex: bool) -> dict[str, float]:
    """Forward + backward of torch's own, through autograd, on the same shape."""
    length = packing.max_k
    leaf = qkv.clone().requires_grad_()

    def run(attend: Callable[..., torch.Tensor]) -> float:
        def step() -> None:
            leaf.grad = None
            attend(*leaf.unbind(1)).backward(grad)

        return milliseconds(step)

    def batched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.view(-1, length, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1)

    found = {
        "varlen": run(lambda q, k, v: varlen_attn(q, k, v, packing.k_starts, packing.k_starts, length, length)),
        "cudnn": run(batched),
    }
    if flex:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        document = torch.arange(TOKENS, device="cuda") // length
        mask = create_block_mask(lambda b, h, i, j: document[i] == document[j], None, None, TOKENS, TOKENS)
        compiled = torch.compile(flex_attention, dynamic=False)

        def flexible(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
            return compiled(q, k, v, block_mask=mask)[0].transpose(0, 1)

        found["flex"] = run(flexible)
    return found


def tune(table: str, shape: str, backward: bool) -> tuple[Blocks, float]:
    """The best blocks of an attention kernel for a shape, all else as it is."""
    heads, width, length = SHAPES[shape]
    qkv, grad, packing = attention_case(heads, width, length)
    key = 64 if width <= 64 else 128
    kept = dict(getattr(triton_ops, table))
    best: tuple[Blocks, float] = (kept[key], float("inf"))
    for rows, columns, warps, stages in CANDIDATES:
        getattr(triton_ops, table)[key] = Blocks(rows, columns, warps, stages)
        try:
            forward, back = ours(qkv, grad, packing)
            took = milliseconds(back if backward else forward)
        except Exception:  # too much shared memory or registers: not a candidate
            continue
        if took < best[1]:
            best = Blocks(rows, columns, warps, stages), took
    getattr(triton_ops, table)[key] = kept[key]
    return best


def pointwise(hidden: int, only: str | None = None) -> dict[str, dict[str, float]]:
    """Time and bandwidth of the kernels between matrix products, or of `only` one."""
    inner = 4 * hidden
    x, y, g, g2 = (torch.randn(TOKENS, hidden, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    wide, wide2 = (torch.randn(TOKENS, inner, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    bias, weight, shift = (torch.randn(hidden, device="cuda") for _ in range(3))
    _, normed, rstd = triton_ops.add_norm(x, y.clone(), bias, weight, shift, 1e-12)
    scale = torch.ones((), device="cuda")
    sums, wide_sums = new_sums(3, hidden), new_sums(1, inner)
    factor = torch.randn(TOKENS, 16, device="cuda", dtype=torch.bfloat16)  # of an adapter of rank 16
    thin, wide_thin, wide_thin2 = (Thin(new_sums(width, 16), factor) for width in (hidden, inner, inner))
    total = torch.zeros(inner, 16, device="cuda")
    narrowing = torch.randn(inner, 16, device="cuda", dtype=torch.bfloat16)
    cases: dict[str, tuple[Callable[[], Any], float]] = {
        "add_norm": (lambda: triton_ops.add_norm(x, y, bias, weight, shift, 1e-12), 4 * x.nbytes),
        "add_norm_backward": (lambda: triton_ops.add_norm_backward(g, g2, normed, rstd, weight, sums), 4 * x.nbytes),
        "gelu": (lambda: triton_ops.gelu(wide, True), 2 * wide.nbytes),
        "gelu_backward": (lambda: triton_ops.gelu_backward(wide, wide2, True, wide_sums), 4 * wide.nbytes),
        "gelu_backward with thin products": (
            lambda: triton_ops.gelu_backward(wide, wide2, True, None, wide_thin, wide_thin2),
            3 * wide.nbytes,
        ),
        "thin product": (lambda: triton_ops.add_thin_product(thin, x), x.nbytes),
        "wider thin product": (lambda: triton_ops.add_thin_product(wide_thin, wide), wide.nbytes),
        "wider thin product by cuBLAS": (lambda: triton_ops.add_weight_gradient(total, wide, factor), wide.nbytes),
        "narrow": (lambda: wide @ narrowing, wide.nbytes),
        "rescale": (lambda: triton_ops.rescale(normed, weight, shift), 2 * x.nbytes),
        "quantize": (lambda: triton_ops.quantize(wide, scale, torch.float8_e4m3fn, False), 1.5 * wide.nbytes),
        "quantize turned": (lambda: triton_ops.quantize(wide, scale, torch.float8_e4m3fn, True), 1.5 * wide.nbytes),
    }
    return {
        name: {"ms": (took := milliseconds(function)), "TB/s": moved / took / 1e9}
        for name, (function, moved) in cases.items()
        if only in (None, name)
    }


def tune_pointwise(hidden: int) -> dict[str, dict[str, float]]:
    """Milliseconds of the kernels between matrix products by the knobs of each."""
    found: dict[str, dict[str, float]] = {}

    def attempt(name: str, **knobs: Any) -> None:
        kept = {knob: getattr(triton_ops, knob) for knob in knobs}
        for knob, value in knobs.items():
            setattr(triton_ops, knob, value)
        took = pointwise(hidden, only=name)[name]["ms"]
        found.setdefault(name, {})[" ".join(str(value) for value in knobs.values())] = took
        for knob, value in kept.items():
            setattr(triton_ops, knob, value)

    for elements, warps in itertools.product((2048, 4096, 8192), (4, 8)):
        attempt("add_norm", ADD_NORM_ELEMENTS=elements, ADD_NORM_WARPS=warps)
        attempt("add_norm_backward", ADD_NORM_BACKWARD_ELEMENTS=elements, ADD_NORM_BACKWARD_WARPS=warps)
    for programs in (264, 528, 2048):
        attempt("add_norm_backward", ROW_PROGRAMS=programs)
        attempt("gelu_backward", ROW_PROGRAMS=programs)
    for columns, warps in itertools.product((1024, 2048, 4096), (4, 8)):
        attempt("gelu", GELU=Blocks(1, columns, warps))
    for rows, columns, warps in itertools.product((4, 8, 16), (256, 512), (4, 8)):
        attempt("gelu_backward", GELU_BACKWARD=Blocks(rows, columns, warps))
    for side, warps in itertools.product((64, 128), (4, 8)):
        attempt("quantize", QUANTIZE=Blocks(side, side, warps))
        attempt("quantize turned", QUANTIZE=Blocks(side, side, warps))
    return found


def products(hidden: int) -> dict[str, dict[str, float]]:
    """The four weights' products, in bf16 and FP8."""
    fp8 = Fp8Ops(triton_ops)
    found = {}
    for name, n, k in (
        ("qkv", 3 * hidden, hidden),
        ("output", hidden, hidden),
        ("ffn in", 4 * hidden, hidden),
        ("ffn out", hidden, 4 * hidden),
    ):
        weight = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
        x = torch.randn(TOKENS, k, device="cuda", dtype=torch.bfloat16)
        grad = torch.randn(TOKENS, n, device="cuda", dtype=torch.bfloat16)
        total = torch.zeros(n, k, device="cuda")
        prepared = fp8.prepare(weight)
        flops = 2.0 * TOKENS * n * k
        for kind, function in (
            ("forward", lambda x=x, w=weight, b=bias: triton_ops.linear(x, w, b)),
            ("backward", lambda g=grad, w=weight: triton_ops.linear_backward(g, w)),
            ("weight", lambda t=total, g=grad, x=x: triton_ops.add_weight_gradient(t, g, x)),
            ("fp8 forward", lambda x=x, w=prepared, b=bias: fp8.linear(x, w, b)),
            ("fp8 backward", lambda g=grad, w=prepared: fp8.linear_backward(g, w)),
            ("fp8 weight", lambda t=total, g=grad, x=x: fp8.add_weight_gradient(t, g, x)),
        ):
            took = milliseconds(function)
            found[f"{name} {kind}"] = {"ms": took, "TFLOP/s": flops / took / 1e9}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tune", nargs="*", choices=["attention", "pointwise"], default=[])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["base 128", "base 512", "xlarge 512"])
    parser.add_argument("--flex", action="store_true", help="time FlexAttention too (compiles for each shape)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[768, 4096])
    options = parser.parse_args()
    result: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "tokens": TOKENS}
    result["date"] = time.strftime("%Y-%m-%d")

    def keep(part: str, value: Any) -> None:
        result[part] = value
        print(part, json.dumps(value), flush=True)
        if options.out:
            write_atomic(options.out, json.dumps(result, indent=1) + "\n")

    for name in ("base 128", "base 512", "xlarge 512"):
        keep(f"errors {name}", check_attention(name, SHAPES[name][2]))
    if "attention" in options.tune:
        for shape in options.shapes:
            keep(f"tune ATTEND {shape}", tune("ATTEND", shape, backward=False))
            if SHAPES[shape][2] > triton_ops.WHOLE_MAX:
                for table in ("ATTEND_BACKWARD_QUERY", "ATTEND_BACKWARD_KEY"):
                    keep(f"tune {table} {shape}", tune(table, shape, backward=True))
        for warps in (4, 8):
            triton_ops.WHOLE_WARPS = warps
            keep(f"whole, {warps} warps", milliseconds(ours(*attention_case(*SHAPES["base 128"]))[1]))
        triton_ops.WHOLE_WARPS = 8
    if "pointwise" in options.tune:
        for hidden in options.hidden:
            keep(f"tune pointwise {hidden}", tune_pointwise(hidden))
    for name, shape in SHAPES.items():
        case = attention_case(*shape)
        forward, backward = ours(*case)
        times = {"forward": milliseconds(forward), "backward": milliseconds(backward)}
        keep(f"attention {name}", {**times, "both": sum(times.values()), **torch_kernels(*case, flex=options.flex)})
    for hidden in options.hidden:
        keep(f"pointwise {hidden}", pointwise(hidden))
        keep(f"products {hidden}", products(hidden))


if __name__ == "__main__":
    main()
