"""How long does one request take on a CPU: transformers, litebert in torch, and exported files in ONNX Runtime?

    python benchmarks/cpu_latency.py [--model FOLDER] [--threads 2] [--shapes 1x16 1x128 8x128] [--rounds 15]

The encoder of a random albert-base, or of the model folder named. All contenders are measured in one run, in turns,
round by round; a figure is the median over the rounds, `best` the fastest round, and a ratio the median of the rounds'
ratios to transformers. litebert is measured as the Predictor uses it: requests in, numpy out, padding and checks
included; transformers is given tensors and called in inference mode, as it comes ("eager": no torch.compile).

With one thread seconds are processor time, so that other work on the machine matters little; with more they are of the
wall clock, and other work matters: the load before and after is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers

import litebert
from litebert.export.onnx_file import export_onnx
from litebert.machine import cpu_name
from litebert.model.config import load_config, preset
from litebert.model.heads import EncoderModel
from litebert.model.hub import load_model, save_model
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.runtime import Request, Runtime
from litebert.predict.torch_runtime import TorchRuntime
from litebert.train.device import DeviceConfig, open_device

BASELINE = "transformers eager fp32"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model folder with an encoder that transformers can open")
    parser.add_argument("--preset", default="albert-base", help="the shape of the random model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", default=["1x16", "1x128", "8x128"], help="sequences x tokens")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(options.threads)

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "model")
        if options.model is None:
            torch.manual_seed(0)
            save_model(EncoderModel(preset(options.preset)), source)
        else:
            save_model(load_model(options.model, "encoder"), source)
        report = export_onnx(source, Path(folder, "onnx"), int8=True)
        runtimes = open_runtimes(source, Path(folder, "onnx"), options.threads)
        theirs = open_transformers(source)
        results = {
            shape: measure(theirs, runtimes, *map(int, shape.split("x")), options.rounds, options.threads)
            for shape in options.shapes
        }
    facts = {
        "machine": f"{cpu_name()}, {os.cpu_count()} cores, {options.threads} threads",
        "seconds": "processor time" if options.threads == 1 else "wall clock",
        "load": f"{os.getloadavg()[0]:.1f} at the end",
        "versions": {
            "litebert": litebert.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
        "files": {file.name: file.bytes for file in report.files},
    }
    print(json.dumps(facts, indent=2))
    for shape, rows in results.items():
        print(f"\n{shape} tokens {'median ms':>24} {'best ms':>10} {'x transformers':>15}")
        for name, row in rows.items():
            print(f"  {name:28} {row['median']:8.2f} {row['best']:10.2f} {row['ratio']:14.2f}x")


def open_runtimes(source: Path, exported: Path, threads: int) -> dict[str, Runtime]:
    device = open_device(DeviceConfig(device="cpu", threads=threads))
    return {
        "litebert torch fp32": TorchRuntime(load_model(source), device),
        "litebert onnx fp32": OnnxRuntime(exported, threads=threads, precision="fp32"),
        "litebert onnx int8": OnnxRuntime(exported, threads=threads, precision="int8"),
    }


def open_transformers(source: Path) -> Any:
    kind = transformers.BertModel if load_config(source).model_type == "bert" else transformers.AlbertModel
    return kind.from_pretrained(source).eval()


def measure(
    theirs: Any, runtimes: dict[str, Runtime], batch: int, length: int, rounds: int, threads: int
) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, theirs.config.vocab_size, (batch, length))
    requests = [Request(row.astype(np.int32), np.zeros(length, np.int8), frozenset({"mean"})) for row in ids]
    tensors = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.ones(batch, length, dtype=torch.long)}

    def call_theirs() -> object:
        with torch.inference_mode():
            return theirs(**tensors).last_hidden_state

    contenders: dict[str, Callable[[], object]] = {BASELINE: call_theirs}
    contenders |= {name: lambda runtime=runtime: runtime.run(requests) for name, runtime in runtimes.items()}
    clock = time.thread_time if threads == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            time.sleep(0.02)  # threads of the one before stop spinning
            call()  # its weights back into the cache
            begin = clock()
            call()
            if number:  # the first round warms up
                seconds[name].append(clock() - begin)
    return {
        name: {
            "median": 1e3 * statistics.median(values),
            "best": 1e3 * min(values),
            "ratio": statistics.median(a / b for a, b in zip(seconds[BASELINE], values, strict=True)),
        }
        for name, values in seconds.items()
    }


if __name__ == "__main__":
    main()
