"""Encoder latency and throughput beside transformers, in one interleaved run on one device.

    python benchmarks/predict_speed.py --out result.json [--texts FILE --tokenizer FOLDER]
    python benchmarks/predict_speed.py --preset albert-tiny --rounds 2 --device cpu     (does the script work?)

A random model in the Hub's layout, opened by both. On a GPU: bf16, transformers compiled with CUDA graphs
(mode="reduce-overhead") and eager, litebert with recorded graphs. On a CPU: fp32, transformers eager; ONNX Runtime is
in cpu_latency.py. Ids lie on the device already, and the last hidden states stay there.

Workloads: 1 x 128, 32 x 128, and mixed lengths: those of the lines of --texts (or of the generated corpus, one token
per word and [CLS], [SEP]), cut at 512, 32 texts per batch in their order. transformers pads each batch to its longest,
on a GPU up to the next of 64, 128, 256, 512, since every shape costs it a recording; litebert packs the same 32 texts.
Full batches are given to it without a mask, and it is kept from making one, which would cost it its fast attention.
Seconds are medians over rounds; each round measures every contender in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from litebert.bench import choose_mask
from litebert.files import write_atomic
from litebert.model.config import preset
from litebert.model.heads import EncoderModel
from litebert.model.hub import load_model, save_model
from litebert.predict.fused import lay_out
from litebert.predict.torch_runtime import TorchRuntime
from litebert.text.generate import generate_documents
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device, DeviceConfig, open_device

STEPS = (64, 128, 256, 512)
WORKLOADS = ("1 x 128", "32 x 128", "mixed")
Run = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="albert-base")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--texts", type=Path, help="one text per line, for the mixed lengths")
    parser.add_argument("--tokenizer", type=Path, help="for --texts")
    parser.add_argument("--num-texts", type=int, default=512)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each contender in each round, at least")
    parser.add_argument("--out", type=Path, help="write JSON here")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    device = open_device(DeviceConfig(device=options.device, threads=options.threads))
    lengths = read_lengths(options.texts, options.tokenizer, options.num_texts)
    parts = ([[128]], [[128] * 32], [lengths[i : i + 32] for i in range(0, len(lengths), 32)])
    workloads = {name: part for name, part in zip(WORKLOADS, parts, strict=True) if name in options.workloads}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        torch.manual_seed(0)
        save_model(EncoderModel(preset(options.preset)), folder)
        contenders = {"litebert": Packed(folder, device), **peers(folder, device)}
        rows: list[dict[str, Any]] = []
        for name, batches in workloads.items():
            rows += measure(name, batches, contenders, device, options.rounds, options.seconds)
            if options.out:  # after every workload: a run that is cut short has lost nothing
                write_atomic(options.out, json.dumps(report(options, device, lengths, rows), indent=1) + "\n")
    print(f"{device.name}, {device.precision}, torch {torch.__version__}, transformers {transformers.__version__}")


def report(
    options: argparse.Namespace, device: Device, lengths: list[int], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """Rows with where they were measured."""
    return {
        "preset": options.preset,
        "device": device.name,
        "precision": device.precision,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "mixed_lengths": {"mean": statistics.mean(lengths), "max": max(lengths), "count": len(lengths)},
        "rows": rows,
    }


class Packed:
    """litebert: sequences laid end to end, through the runtime's own encoder."""

    def __init__(self, folder: str, device: Device):
        self.encoder = TorchRuntime(load_model(folder), device).encoder
        self.device = device

    def prepare(self, sequences: list[torch.Tensor]) -> Run:
        lengths = [len(ids) for ids in sequences]
        room = self.encoder.room(sum(lengths), len(lengths), max(lengths))
        arrays = [ids.numpy() for ids in sequences]
        table = lay_out(arrays, [np.zeros_like(ids) for ids in arrays], room).to(self.device.device)
        return lambda: self.encoder(**self.encoder.take(table).inputs()).hidden

    def states(self, output: torch.Tensor, sequences: list[torch.Tensor]) -> torch.Tensor:
        return output.float().cpu()


class Padded:
    """transformers: sequences padded to one length with a mask."""

    def __init__(self, model: Any, device: Device, compiled: bool):
        self.device, self.compiled, self.plain = device, compiled, model
        self.model = torch.compile(model, mode="reduce-overhead", dynamic=False) if compiled else model

    def prepare(self, sequences: list[torch.Tensor]) -> Run:
        size = max(map(len, sequences))
        if self.device.is_cuda:
            size = next(step for step in STEPS if step >= size)
        ids, mask = (torch.zeros(len(sequences), size, dtype=torch.int64) for _ in range(2))
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)], mask[row, : len(sequence)] = sequence, 1
        full = bool(mask.all())
        ids, mask = ids.to(self.device.device), None if full else mask.to(self.device.device)

        def run() -> Any:
            choose_mask(self.plain, needed=not full)
            if self.compiled:
                torch.compiler.cudagraph_mark_step_begin()
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

        return run

    def states(self, output: torch.Tensor, sequences: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([row[: len(sequence)] for row, sequence in zip(output, sequences, strict=True)]).float().cpu()


def peers(folder: str, device: Device) -> dict[str, Padded]:
    """transformers as its users would run it for speed, and as it comes."""
    dtype = torch.bfloat16 if device.precision == "bf16" else torch.float32
    torch._dynamo.config.cache_size_limit = 64  # one entry per padded shape

    def load() -> Any:
        return transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval().to(device.device)

    eager = {"transformers eager": Padded(load(), device, compiled=False)}
    if not device.is_cuda:
        return eager
    return {"transformers compiled": Padded(load(), device, compiled=True), **eager}


def measure(
    name: str,
    batches: list[list[int]],
    contenders: dict[str, Any],
    device: Device,
    rounds: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Seconds of one pass over the batches for each contender, in turns."""
    generator = torch.Generator().manual_seed(1)
    drawn = [[torch.randint(5, 1000, (length,), generator=generator) for length in batch] for batch in batches]
    runs = {who: [contender.prepare(batch) for batch in drawn] for who, contender in contenders.items()}
    differences = {}
    expected = None
    for who, contender in contenders.items():
        for _ in range(3):  # compilation and recordings happen here
            for run in runs[who]:
                output = run()
        states = contender.states(output, drawn[-1])
        expected = states if expected is None else expected
        differences[who] = float((states - expected).abs().max())
    times: dict[str, list[float]] = {who: [] for who in contenders}
    for _ in range(rounds):
        for who in contenders:
            times[who].append(clock(runs[who], device, seconds))
    tokens = sum(map(sum, batches))
    baseline = next(who for who in contenders if who.startswith("transformers"))
    rows = []
    for who, taken in times.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(times[baseline], taken, strict=True))
        middle = statistics.median(taken)
        rows.append(
            {
                "workload": name,
                "who": who,
                "milliseconds": middle * 1e3,
                "best_milliseconds": min(taken) * 1e3,
                "tokens_per_second": tokens / middle,
                f"times_{baseline.replace(' ', '_')}": ratio,
                "difference": differences[who],
            }
        )
        print(
            f"{name:10s} {who:24s} {middle * 1e3:9.3f} ms  {tokens / middle:12,.0f} tokens/s  {ratio:5.2f}x {baseline}"
            f"  (largest difference {differences[who]:.1e})",
            flush=True,
        )
    return rows


def clock(runs: list[Run], device: Device, seconds: float) -> float:
    """Seconds of one pass; a single batch is waited for each time, as one who wants its answer would."""
    passes = 0
    device.synchronize()
    start = time.perf_counter()
    while True:
        for run in runs:
            run()
        if len(runs) == 1 or not device.is_cuda:
            device.synchronize()
        passes += 1
        if time.perf_counter() - start > seconds:
            break
    device.synchronize()
    return (time.perf_counter() - start) / passes


def read_lengths(texts: Path | None, tokenizer: Path | None, count: int) -> list[int]:
    """Tokens of each text with [CLS] and [SEP], at most 512."""
    if texts is not None:
        if tokenizer is None:
            raise SystemExit("--texts needs --tokenizer")
        lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()][:count]
        return [min(512, len(ids) + 2) for ids in Tokenizer.load(tokenizer).encode_batch(lines)]
    documents = generate_documents(count, seed=0)
    return [min(512, len(" ".join(document).split()) + 2) for document in documents]


if __name__ == "__main__":
    main()
