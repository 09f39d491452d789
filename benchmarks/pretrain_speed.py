"""The table of docs/results/speed.md: every preset beside transformers, in one interleaved run on one GPU.

    python benchmarks/pretrain_speed.py --out result.json [--store STORE --tokenizer TOKENIZER]
    python benchmarks/pretrain_speed.py --smoke                (a CPU, a tiny model: does the script work?)

bf16, no dropout on either side, the same tokens, 32,768 per micro-batch; transformers with sdpa and torch.compile, for
base also without. With a store: real document lengths (transformers pads to the full length), and whether the loader
keeps up. BERT's rows are for the paper's Table 2: its speed-up column, measured again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from litebert.bench import BenchResult, Case, bench_pretrain
from litebert.files import write_atomic
from litebert.train.device import DeviceConfig, open_device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write JSON here, after every case")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--only", nargs="*", help="cases whose name holds one of these")
    parser.add_argument("--alone", action="store_true", help="without transformers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    device = open_device(DeviceConfig())
    cases = [
        Case("albert-base", 128, peers=("compiled", "eager")),
        Case("albert-base", 512, peers=("compiled", "eager")),
        Case("albert-large", 512),
        Case("albert-xlarge", 512, fp8=True),
        Case("albert-xxlarge", 512, fp8=True),
        Case("bert-base", 512, peers=()),
        Case("bert-large", 512, peers=()),
    ]
    if options.smoke:
        cases = [Case("albert-tiny", 64, 512, ("eager",))]
    if options.store:
        shape = ("albert-tiny", 64, 1024) if options.smoke else ("albert-base", 512, 32_768)
        peers = ("eager",) if options.smoke else ("compiled",)
        cases.insert(0, Case(*shape, peers, str(options.store), str(options.tokenizer)))
    if options.alone:
        cases = [replace(case, peers=()) for case in cases]
    if options.only:
        cases = [case for case in cases if any(part in case.name for part in options.only)]
    everything: BenchResult | None = None
    for case in cases:
        result = bench_pretrain([case], device, options.rounds, options.seconds)
        if everything is None:
            everything = result
        else:
            everything.rows += result.rows
            everything.loader += result.loader
        print(result.table(), flush=True)
        if options.out:
            write_atomic(options.out, json.dumps(everything.as_dict(), indent=1) + "\n")
    if everything:
        print(everything.hardware)
        print(speed_up_column(everything))


def speed_up_column(result: BenchResult) -> str:
    """Table 2's last column: how many times as fast as BERT-large each model is to train."""
    speeds = {row.case: row.tokens_per_second for row in result.rows if row.side == "litebert"}
    if "bert-large 512" not in speeds:
        return ""
    return "\n".join(f"{case}: {speed / speeds['bert-large 512']:.1f}x BERT-large" for case, speed in speeds.items())


if __name__ == "__main__":
    main()
