"""Training rates of our models on this GPU, for the cost model of `litebert plan`.

    python benchmarks/pretrain_rates.py --out src/litebert/pretraining/rates.json
    python benchmarks/pretrain_rates.py --models albert-tiny --lengths 64 --tokens 1024     (a smoke run on a CPU)

Full sequences of random ids, packed, masked LM at 15 % and sentence order, LAMB, the package's own training step.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from typing import Any

import torch

from litebert.files import write_atomic
from litebert.model.config import ModelConfig, preset
from litebert.model.count import forward_flops
from litebert.pretraining.config import RunConfig
from litebert.pretraining.dry_run import time_micro_batch
from litebert.pretraining.recipes import Recipe
from litebert.train.device import Device, DeviceConfig, measure_peak, open_device


def measure_rates(
    models: dict[str, ModelConfig], lengths: tuple[int, ...], tokens: int, device: Device
) -> dict[str, Any]:
    """Training rates of some models on this device: what `rates.json` holds."""
    ceiling = measure_peak(device, seconds=2.0)
    rows = []
    for name, model in models.items():
        for length in lengths:
            config = RunConfig(
                model=model, recipe=Recipe(max_length=length), batch_tokens=tokens, micro_batch_tokens=tokens
            )
            seconds = time_micro_batch(config, device, model.num_hidden_layers, tokens, repeats=10)
            rate = tokens / seconds
            share = 3 * forward_flops(model, length) * rate / ceiling
            rows.append(
                {
                    "model": name,
                    "hidden_size": model.hidden_size,
                    "length": length,
                    "tokens_per_second": round(rate),
                    "share_of_ceiling": round(share, 4),
                }
            )
    return {"gpu": device.name, "ceiling": ceiling, "rates": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = ["albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"]
    parser.add_argument("--models", nargs="+", default=models)
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--out", help="write JSON here")
    arguments = parser.parse_args()
    device = open_device(DeviceConfig())
    chosen = {name: preset(name) for name in arguments.models}
    result = measure_rates(chosen, tuple(arguments.lengths), arguments.tokens, device)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    result["measured"] = f"benchmarks/pretrain_rates.py, {arguments.tokens:,} tokens per micro-batch, {versions}"
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        write_atomic(arguments.out, text + "\n")


if __name__ == "__main__":
    main()
