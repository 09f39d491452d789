"""Pretraining through NCCL on one GPU: a process group of one, whose gradients, totals and barriers go through it.

    LITEBERT_PROCESS_GROUP=1 torchrun --standalone --nproc-per-node 1 benchmarks/nccl_check.py
    LITEBERT_PROCESS_GROUP=1 torchrun --standalone --nproc-per-node 1 benchmarks/nccl_check.py --device cpu     (gloo)

Twenty steps of a small model with the group, then without it; the weights must agree. Some seconds. This opens NCCL
and no more: several GPUs were not at hand, and several processes are tested over gloo on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from tiny import tiny_run

from litebert.pretraining.run import pretrain
from litebert.text.generate import generate_documents
from litebert.text.store import TokenStore
from litebert.text.train_vocab import VocabConfig, train_vocab
from litebert.train import checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if os.environ.get("LITEBERT_PROCESS_GROUP") != "1" or "RANK" not in os.environ:
        parser.error("start it with LITEBERT_PROCESS_GROUP=1 and torchrun, as shown above")
    messages: dict[str, int] = {}
    for name in ("all_reduce", "broadcast", "barrier"):
        count(name, messages)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = make_run(folder, options.device, options.steps)
        weights, seconds = {}, {}
        for kind in ("group", "alone"):
            os.environ["LITEBERT_PROCESS_GROUP"] = "1" if kind == "group" else "0"
            began = time.perf_counter()
            pretrain(config, folder / kind, quiet=True)
            seconds[kind] = round(time.perf_counter() - began, 2)
            weights[kind] = load_file(checkpoint.load(folder / kind).folder / "model.safetensors")
    apart = max(float((weights["alone"][key] - value).abs().max()) for key, value in weights["group"].items())
    device = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    backends = sorted({key.split()[0] for key in messages})
    version = ".".join(map(str, torch.cuda.nccl.version())) if options.device == "cuda" else None
    found = {"device": device, "torch": torch.__version__, "nccl": version, "steps": options.steps}
    print(json.dumps({**found, "messages": messages, "seconds": seconds, "largest difference": apart}))
    assert backends == ["nccl" if options.device == "cuda" else "gloo"], backends
    assert messages[f"{backends[0]} all_reduce"] >= options.steps, messages
    assert apart < 1e-3, apart


def count(name: str, messages: dict[str, int]) -> None:
    """Count the calls of a function of torch.distributed, by backend."""
    function = getattr(dist, name)

    def counted(*arguments, **named):
        key = f"{dist.get_backend()} {name}"
        messages[key] = messages.get(key, 0) + 1
        return function(*arguments, **named)

    setattr(dist, name, counted)


def make_run(folder: Path, device: str, steps: int):
    """A small corpus of generated text, and a run over it."""
    texts = list(generate_documents(200, seed=3))
    (folder / "text.txt").write_text("\n\n".join("\n".join(text) for text in texts), encoding="utf-8")
    tokenizer = train_vocab([folder / "text.txt"], VocabConfig(vocab_size=300)).tokenizer
    tokenizer.save(folder / "tokenizer")
    encoded = [tokenizer.encode_batch(text) for text in texts]
    TokenStore.write(folder / "store", encoded, tokenizer.fingerprint, tokenizer.vocab_size)
    return tiny_run(
        folder / "store",
        folder / "tokenizer",
        model={"hidden_size": 64, "embedding_size": 32, "intermediate_size": 128, "hidden_dropout_prob": 0.0},
        data={"held_out": 20},
        optim={"lr": 1e-3},
        steps=steps,
        batch_tokens=1024,
        micro_batch_tokens=512,
        device={"device": device, "threads": 0, "graphs": "off", "precision": "fp32"},
        log={"report_every": 5},
    )


if __name__ == "__main__":
    main()
