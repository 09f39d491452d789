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

import torch

from litebert.files import write_atomic
from litebert.model.config import preset
from litebert.pretraining.dry_run import measure_rates
from litebert.train.device import DeviceConfig, open_device


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
