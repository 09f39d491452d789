"""Inference by Triton's kernels, on a CPU through Triton's interpreter; run by test_triton.py.

A script of its own, since the interpreter is chosen when the kernels are first imported.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from small_models import packed, small_model

from litebert.predict.fused import FusedEncoder

HEADS = {"hidden_size": 32, "num_attention_heads": 2}
FUSED = {
    "all": HEADS,
    "heads of a width that the attention kernel does not know": {},
    "bert": HEADS | {"model_type": "bert", "embedding_size": 32, "sharing": "none", "hidden_act": "gelu"},
}


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


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.inference_mode():
        for kind in FUSED:
            check_fused(kind)
    print("all right")
