"""The Triton kernels against plain torch, on a CPU through Triton's interpreter; run by test_kernels.py.

A script of its own, since the interpreter is chosen when the kernels are first imported.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import copy
import itertools

import torch
import torch.nn.functional as F

from litebert.model.adapter import add_adapter
from litebert.model.config import ADAPTER_TARGETS, AdapterConfig, ModelConfig
from litebert.model.fast import plain_ops, triton_ops
from litebert.model.fast.layers import FastLayers
from litebert.model.fast.plain_ops import Packing, Thin
from litebert.model.heads import PretrainingModel


def starts_of(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


def compare(found, expected, what):
    # A fixed share of the largest value: sums that cancel, such as the keys' bias gradient, have no other scale.
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        scale = float(b.abs().max()) + 1e-3
        torch.testing.assert_close(
            a, b, rtol=0, atol=5e-6 * max(1.0, scale), msg=lambda m, n=number: f"{what} {n}: {m}"
        )


def new_sums(count, width):
    return [ops.VectorSums(count, width, torch.float32, torch.device("cpu")) for ops in (plain_ops, triton_ops)]


def check_attention(lengths, heads, width, asked=None):
    torch.manual_seed(0)
    k_starts = starts_of(lengths)
    q_starts = k_starts if asked is None else starts_of(asked)
    unused = 0 if asked is None else 3
    used = int(q_starts[-1])
    if asked is None:
        q, k, v = torch.randn(sum(lengths), 3, heads, width).unbind(1)
    else:
        q = torch.randn(used + unused, heads, width)
        k, v = torch.randn(sum(lengths), 2, heads, width).unbind(1)
    packing = Packing(q_starts, k_starts, max(lengths if asked is None else asked), max(lengths))
    expected, expected_lse = plain_ops.attend(q, k, v, packing)
    found, lse = triton_ops.attend(q, k, v, packing)
    compare([found, lse[:, :used]], [expected, expected_lse[:, :used]], f"attend {lengths}")
    assert torch.equal(triton_ops.attend_only(q, k, v, packing, blocks=triton_ops.ATTEND[64]), found)
    bias = torch.randn(heads * width)
    shifted, _ = plain_ops.attend(q + bias.view(heads, width), k, v, packing)
    compare([triton_ops.attend_only(q, k, v, packing, bias)[:used]], [shifted[:used]], f"attend_only {lengths}")

    grad = torch.randn_like(expected)
    grad[used:] = 0
    buffers = []
    for _ in range(2):  # filled with nonsense: every place must be written
        joint = torch.full((sum(lengths), 3 if asked is None else 2, heads, width), 7.0)
        buffers.append(joint.unbind(1) if asked is None else (torch.full_like(q, 7.0), *joint.unbind(1)))
    sums, found_sums = new_sums(3, heads * width)
    for _ in range(2):  # sums go on from one call to the next
        plain_ops.attend_backward(grad, q, k, v, expected, expected_lse, packing, buffers[0], sums)
        triton_ops.attend_backward(grad, q, k, v, found, lse, packing, buffers[1], found_sums)
    compare(buffers[1], buffers[0], f"attend_backward {lengths}")
    compare([found_sums.result()], [sums.result()], f"attend_backward's sums {lengths}")
    alone = [torch.full_like(x, 7.0) for x in buffers[1]]
    triton_ops.attend_backward(grad, q, k, v, found, lse, packing, tuple(alone), None)
    assert all(torch.equal(a, b) for a, b in zip(alone, buffers[1], strict=True))


def check_pointwise(rows, width):
    torch.manual_seed(0)
    residual, branch, grad, grad2 = torch.randn(4, rows, width)
    bias, weight, shift = torch.randn(3, width)
    branches = branch.clone(), branch.clone()
    alone = triton_ops.add_norm_only(residual, branches[0], bias, weight, shift, 1e-12)
    assert torch.equal(branches[0], branch)
    expected = plain_ops.add_norm(residual, branches[0], bias, weight, shift, 1e-12)
    found = triton_ops.add_norm(residual, branches[1], bias, weight, shift, 1e-12)
    assert found[1] is branches[1]
    compare([alone], found[:1], "add_norm_only")
    compare(found, expected, "add_norm")
    sums, found_sums = new_sums(3, width)
    for second, part in ((None, slice(rows // 2)), (grad2, slice(None))):  # fewer rows first: sums must grow
        arguments = [None if x is None else x[part].contiguous() for x in (grad, second, *found[1:])]
        expected_arguments = [None if x is None else x[part] for x in (grad, second, *expected[1:])]
        compare(
            [triton_ops.add_norm_backward(*arguments, weight, found_sums)],
            [plain_ops.add_norm_backward(*expected_arguments, weight, sums)],
            "add_norm_backward",
        )
    compare([found_sums.result()], [sums.result()], "add_norm_backward's sums")
    assert torch.equal(
        triton_ops.add_norm_backward(*arguments, weight, None),
        triton_ops.add_norm_backward(*arguments, weight, found_sums),
    )
    rescaled = triton_ops.rescale(found[1], weight, shift)
    compare([rescaled], [plain_ops.rescale(found[1], weight, shift)], "rescale")
    compare([rescaled], found[:1], "rescale beside add_norm")
    for tanh in (True, False):
        compare([triton_ops.gelu(residual, tanh)], [plain_ops.gelu(residual, tanh)], "gelu")
        results = []
        for ops, sums in zip((plain_ops, triton_ops), new_sums(1, width), strict=True):
            for _ in range(2):
                x, dx = residual.clone(), grad.clone()
                ops.gelu_backward(x, dx, tanh, sums)
            results.append([sums.result(), x, dx])
        compare(results[1], results[0], "gelu_backward")


def check_thin(rows, width, rank):
    """Thin products alone, into some rows of their sums, and beside the activation's backward pass."""
    torch.manual_seed(0)
    wide, x, dx = torch.randn(3, rows, width)
    factors = torch.randn(2, rows, rank)
    sums, found_sums = new_sums(width + 5, rank)
    for part in (slice(rows // 2), slice(None)):  # fewer rows first: sums must grow
        for ops, total in ((plain_ops, sums), (triton_ops, found_sums)):
            ops.add_thin_product(Thin(total, factors[0][part].contiguous()), wide[part].contiguous(), 5)
    compare([found_sums.result()], [sums.result()], f"thin product of rank {rank}")
    assert not found_sums.result()[:5].any()
    for ways in ((True, True), (True, False), (False, True)):
        results = []
        for ops, number in ((plain_ops, 0), (triton_ops, 1)):
            totals, bias = [new_sums(width, rank)[number] for _ in ways], new_sums(1, width)[number]
            thin = [Thin(t, f) if way else None for t, f, way in zip(totals, factors, ways, strict=True)]
            values, grads = x.clone(), dx.clone()
            for total in (bias, None):
                values, grads = x.clone(), dx.clone()
                ops.gelu_backward(values, grads, True, total, *thin)
            results.append([grads, bias.result(), *(total.result() for total in totals)])
            results[-1] += [] if ways[0] else [values]
        compare(results[1], results[0], f"gelu_backward with thin products of rank {rank}")


def check_embeddings(rows, width):
    torch.manual_seed(0)
    ids, segments, positions = (torch.randint(0, size, (rows,), dtype=torch.int32) for size in (50, 2, 20))
    tables = tuple(torch.randn(size, width) for size in (50, 2, 20))
    weight, shift = torch.randn(2, width)
    found = triton_ops.embed_norm(ids, segments, positions, tables, weight, shift, 1e-12)
    summed = sum(table[places] for table, places in zip(tables, (ids, segments, positions), strict=True))
    compare([found], [F.layer_norm(summed, (width,), weight, shift, eps=1e-12)], "embed_norm")


def check_quantize():
    x = torch.randn(70, 96) * 3
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        scale = x.abs().max() / torch.finfo(dtype).max
        for turned in (False, True):
            expected = plain_ops.quantize(x, scale, dtype, turned)
            found = triton_ops.quantize(x, scale, dtype, turned)
            assert found.shape == expected.shape
            found, expected = found.float(), expected.float()
            # Triton 3.9's interpreter loses the carry where rounding reaches the next power of two: it gives half.
            wrong = found != expected
            assert wrong.float().mean() < 0.06
            assert torch.equal(2 * found[wrong], expected[wrong])


def check_layers():
    """A whole model's gradients through the kernels, of two exits or of the last state alone."""
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=40,
        embedding_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
    )
    model = PretrainingModel(config)
    lengths = [9, 20, 3]
    inputs = dict(
        input_ids=torch.randint(5, 40, (32,)),
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        starts=starts_of(lengths),
        max_length=20,
        positions=torch.tensor([3, 11, 15, 30]),
    )
    for adapter in (None, AdapterConfig(9, targets=ADAPTER_TARGETS), AdapterConfig(4, per_application=True)):
        adapted = copy.deepcopy(model)
        if adapter is not None:
            add_adapter(adapted, adapter)
            for name, parameter in adapted.named_parameters():
                if name.endswith("lora_b"):  # as after some training
                    torch.nn.init.normal_(parameter, std=0.3)
        gradients = []
        for ops in (None, plain_ops, triton_ops):
            adapted.encoder.fast_layers = FastLayers(adapted.encoder, torch.float32, ops) if ops else None
            exits = adapted.at_exits(depths=(1, 2) if adapter is None else (2,), **inputs)
            outputs = [adapted(inputs["input_ids"], at=exit) for exit in exits]
            adapted.zero_grad()
            sum(out.masked_lm.log_softmax(-1)[:, 3].sum() + out.sentence.square().sum() for out in outputs).backward()
            learned = [(name, p.grad) for name, p in adapted.named_parameters() if p.grad is not None]
            gradients.append([gradient.clone() for name, gradient in learned if not name.endswith("key.bias")])
        compare(gradients[1], gradients[0], f"plain layers, {adapter}")
        compare(gradients[2], gradients[0], f"layers through the kernels, {adapter}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    check_attention([7, 13, 1, 0, 19], heads=2, width=16)  # one block per sequence
    check_attention([100, 128, 3], heads=1, width=64)
    check_attention([150, 260, 3, 0], heads=1, width=32)  # several blocks
    check_attention([70, 20], heads=2, width=128)
    check_attention([30, 140, 2, 5], heads=2, width=16, asked=[4, 11, 1, 0])
    check_pointwise(5, 24)
    check_pointwise(37, 48)
    check_pointwise(130, 768)
    check_thin(37, 24, 16)
    check_thin(700, 200, 32)  # several programs
    check_thin(37, 24, 128)  # more than the kernels take
    check_embeddings(37, 48)
    check_quantize()
    check_layers()
    print("all kernels agree")
