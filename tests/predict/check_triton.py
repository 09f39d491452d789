"""The encoder for inference with Triton's kernels, on a CPU through Triton's interpreter; run by test_triton.py.

A script of its own, since the interpreter is chosen when the kernels are first imported.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from small_models import packed, small_model

from litebert.predict.fused import FusedEncoder

# By what is special: heads of a width that the attention kernel knows, and of one that it does not.
KINDS = {
    "all": {"hidden_size": 32, "num_attention_heads": 2},
    "other heads": {},
    "bert": {
        "hidden_size": 32,
        "embedding_size": 32,
        "num_attention_heads": 1,
        "sharing": "none",
        "hidden_act": "gelu",
    },
}


@torch.inference_mode()
def check_fused(kind):
    encoder = small_model("encoder", **KINDS[kind]).encoder
    batch = packed([9, 4, 0, 17, 1], torch.Generator().manual_seed(1))
    expected = encoder.double()(**batch)
    output = FusedEncoder(encoder.float(), triton=True)(**batch)
    torch.testing.assert_close(output.hidden, expected.hidden.float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(output.pooled[[0, 1, 3, 4]], expected.pooled[[0, 1, 3, 4]].float(), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for kind in KINDS:
        check_fused(kind)
    print("all right")
