"""Inference by Triton's kernels, on a CPU through Triton's interpreter; run by test_triton.py.

A script of its own, since the interpreter is chosen when the kernels are first imported.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import itertools

import numpy as np
import torch
import torch.nn.functional as F
from small_models import packed, small_model

from litebert.predict import small_ops
from litebert.predict.fused import FusedEncoder
from litebert.predict.small import SmallEncoder
from litebert.predict.small_ops import Norm, Rows, Tile
from litebert.predict.table import lay_out

HEADS = {"hidden_size": 32, "num_attention_heads": 2}
FUSED = {
    "all": HEADS,
    "heads of a width that the attention kernel does not know": {},
    "bert": HEADS | {"model_type": "bert", "embedding_size": 32, "sharing": "none", "hidden_act": "gelu"},
}
WIDE = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128, "embedding_size": 64}
SMALL = {
    "all": WIDE | {"hidden_size": 128},  # the only one with a projection, and with two tiles of columns
    "attention": WIDE | {"sharing": "attention", "hidden_act": "relu"},
    "groups": WIDE | {"num_hidden_groups": 2, "inner_group_num": 2},
    "bert": WIDE | {"model_type": "bert", "sharing": "none", "hidden_act": "gelu"},
}
EPS = 1e-12


def close(found, expected, what):
    torch.testing.assert_close(
        found.double(), expected.double(), rtol=3e-4, atol=1e-4, msg=lambda message: f"{what}: {message}"
    )


def check_fused(kind):
    encoder = small_model("encoder", **FUSED[kind]).encoder
    batch = packed([9, 4, 0, 17, 1], torch.Generator().manual_seed(1))
    expected = encoder.double()(**batch)
    output = FusedEncoder(encoder.float(), triton=True)(**batch)
    close(output.hidden, expected.hidden, kind)
    real = batch["starts"].diff() > 0
    close(output.pooled[real], expected.pooled[real], kind)


def check_small(kind, head="encoder"):
    """A whole pass over a table with places to spare against the plain encoder in float64."""
    model = small_model(head, **SMALL[kind])
    small = SmallEncoder(model.encoder, torch.float32)
    assert small.fits(model.config)
    rng = np.random.default_rng(0)
    for lengths in ([9, 4, 17, 1], [30]) if kind == "all" else ([3, 20, 2],):
        ids, segments = ([rng.integers(*ends, length) for length in lengths] for ends in ((5, 100), (0, 2)))
        table = lay_out(ids, segments, (48, 5))
        expected = model.encoder.double()(**table.inputs())
        hidden, first, pooled = small(table)
        assert len(hidden) == 48
        assert len(first) == 5
        close(hidden[: sum(lengths)], expected.hidden, kind)
        close(first[: len(lengths)], expected.hidden[table.starts[: len(lengths)]], kind)
        assert (pooled is None) == (model.encoder.pooler is None)
        if pooled is not None:
            close(pooled[: len(lengths)], expected.pooled, kind)


def check_half_precision():
    """In float16, since the interpreter takes the bits of bfloat16 for numbers when it multiplies."""
    model = small_model("encoder", **SMALL["all"])
    small = SmallEncoder(model.encoder, torch.float16)
    table = lay_out([np.arange(5, 35)], [np.zeros(30, np.int8)], (32, 1))
    expected = model.encoder.double()(**table.inputs())
    hidden, first, pooled = small(table)
    for found, exact in ((hidden[:30], expected.hidden), (first, expected.hidden[:1]), (pooled, expected.pooled)):
        assert found.dtype == torch.float16
        assert (found - exact).norm() < 0.02 * exact.norm()


def waiting_rows(rows, width, tiles):
    """Random rows with a mean of their own, and the parts of their statistics as a kernel would leave them."""
    values = torch.randn(rows, width) * torch.rand(rows, 1) + 3 * torch.randn(rows, 1)
    norm = Norm(*(1 + 0.3 * torch.randn(2, width)))
    cut = values.view(rows, tiles, -1)
    parts = torch.stack([cut.mean(-1), cut.var(-1, correction=0) * cut.shape[-1]]).permute(2, 0, 1).contiguous()
    exact = F.layer_norm(values.double(), (width,), *(x.double() for x in norm), eps=EPS)
    return Rows(values, parts, norm), exact


def check_product(tile, rows, columns, depth, activation, norm, residual, gather):
    torch.manual_seed(0)
    x, exact = waiting_rows(rows, depth, 2)
    weight, bias = torch.randn(columns, depth) / depth**0.5, torch.randn(columns)
    if not norm:
        x, exact = Rows(x.values), x.values.double()
    starts = torch.tensor([0, 3, rows - 1, rows, rows], dtype=torch.int32) if gather else None
    if gather:
        exact = exact[starts[:-1].clamp(max=rows - 1)]
    folded = small_ops.fold(weight, bias, x.norm, torch.float32)
    beside, exact_beside = waiting_rows(rows, columns, 1)
    if residual == "plain":
        beside, exact_beside = Rows(beside.values), beside.values.double()
    functions = {
        "none": lambda y: y,
        "gelu": F.gelu,
        "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
        "relu": F.relu,
        "tanh": torch.tanh,
    }
    expected = functions[activation](exact @ weight.double().T + bias.double())
    if residual != "none":
        expected = expected + exact_beside
    arrived = torch.zeros(64, dtype=torch.int32)
    for _ in range(2):  # a split sum leaves its counters as it found them
        found = small_ops.product(
            x, folded, EPS, activation, beside if residual != "none" else None, Norm(bias, bias), starts, arrived, tile
        )
        close(found.values, expected, f"{tile} {activation} {residual}")
    cut = expected.view(len(expected), columns // tile.columns, tile.columns)
    close(found.parts[:, 0].T, cut.mean(-1), "means of tiles")
    close(found.parts[:, 1].T, cut.var(-1, correction=0) * tile.columns, "squares of tiles")


def check_products():
    for activation, norm, residual, gather in (
        ("none", True, "none", False),
        ("gelu", False, "normed", False),
        ("gelu_tanh", True, "none", False),
        ("relu", True, "plain", False),
        ("tanh", True, "none", True),
    ):
        check_product(Tile(16, 32, 64, 4, 2), 37, 64, 128, activation, norm, residual, gather)
    for rows, columns, split in ((16, 32, 1), (32, 64, 1), (32, 32, 2), (16, 64, 4)):
        check_product(Tile(rows, columns, 32, 4, 2, split), 37, 64, 128, "none", True, "normed", False)


def check_tiles():
    """The widest tile that gives enough programs; none that does not divide the product."""
    tuned, small_ops.TUNED = small_ops.TUNED, {}
    for rows, columns, depth in itertools.product(
        (16, 48, 128, 512, 1024), (64, 768, 2304, 4096), (64, 192, 768, 3072)
    ):
        tile = small_ops.choose_tile(rows, columns, depth)
        assert columns % tile.columns == 0
        assert tile.rows == 16 or tile.rows < 2 * rows
        assert depth % (tile.depth * tile.split) == 0
    programs = [-(-128 // tile.rows) * (768 // tile.columns) for tile in small_ops.TILES]
    chosen = small_ops.TILES.index(small_ops.choose_tile(128, 768, 3072))
    assert programs[chosen] >= small_ops.ENOUGH > max(programs[:chosen])
    small_ops.TUNED = {(768, 3072): {32: Tile(16, 32, 64, 4, 3), 128: Tile(64, 64, 64, 4, 4, 4)}}
    assert [small_ops.choose_tile(rows, 768, 3072).rows for rows in (17, 32, 65, 128)] == [16, 16, 64, 64]
    assert small_ops.choose_tile(64, 768, 3072).split == 1
    assert small_ops.choose_tile(128, 768, 768).split == 1
    assert small_ops.choose_tile(160, 768, 3072).split == 1
    small_ops.TUNED = tuned
    for (columns, depth), tiles in tuned.items():
        for rows, tile in tiles.items():
            assert small_ops.choose_tile(rows, columns, depth) == tile
            assert columns % tile.columns == 0 == depth % (tile.depth * tile.split)


def check_rows_of_large_mean():
    """Statistics in parts lose nothing where the mean is far larger than what lies around it."""
    rows, _ = waiting_rows(5, 64, 2)
    values = rows.values + 1000
    cut = values.double().view(5, 2, 32)
    parts = torch.stack([cut.mean(-1), cut.var(-1, correction=0) * 32]).permute(2, 0, 1).float().contiguous()
    out, _ = small_ops.normalize(Rows(values, parts, rows.norm), torch.tensor([0, 5], dtype=torch.int32), EPS)
    expected = F.layer_norm(values.double(), (64,), *(x.double() for x in rows.norm), eps=EPS)
    torch.testing.assert_close(out.double(), expected, rtol=1e-2, atol=1e-2)  # of values that are rounded at 1000


if __name__ == "__main__":
    torch.set_num_threads(1)
    check_tiles()
    # The interpreter takes its time for every program.
    small_ops.TILES = (Tile(32, 64, 64, 4, 2), Tile(16, 64, 64, 4, 2))
    with torch.inference_mode():
        for kind in FUSED:
            check_fused(kind)
        for kind in SMALL:
            check_small(kind)
        check_small("all", head="span")  # without a pooler
        check_half_precision()
        check_products()
        check_rows_of_large_mean()
    print("all right")
