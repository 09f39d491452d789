"""How many tokens should one pass of an exported model hold on a CPU?

    python benchmarks/onnx_passes.py FOLDER [--rounds 4]

FOLDER: an exported model. Prints, for fp32 and int8, the processor time of one pass on one thread and of each of its
tokens, for short and long sequences and more and more of them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from litebert.predict.exported import ONNX_FILES
from litebert.predict.onnx_runtime import open_session

SHAPES = [
    (1, 12),
    (2, 12),
    (8, 12),
    (16, 12),
    (32, 12),
    (64, 12),
    (1, 64),
    (2, 64),
    (4, 64),
    (8, 64),
    (16, 64),
    (32, 64),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    for precision, name in ONNX_FILES.items():
        if not (options.folder / name).is_file():
            continue
        session = open_session(options.folder / name, threads=1)
        print(f"\n{precision}\n{'shape':>8} {'tokens':>8} {'ms':>10} {'ms per token':>14}")
        for batch, length in SHAPES:
            ids = np.random.default_rng(0).integers(0, 100, (batch, length))
            feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
            feeds |= {"positions": np.zeros(1, np.int64), "outside": np.zeros_like(ids)}
            feeds = {entry.name: feeds[entry.name] for entry in session.get_inputs()}
            seconds = []
            for _ in range(options.rounds):
                begin = time.thread_time()
                session.run(["hidden"], feeds)
                seconds.append(time.thread_time() - begin)
            best = 1e3 * min(seconds)
            print(f"{f'{batch}x{length}':>8} {batch * length:8} {best:10.1f} {best / (batch * length):14.3f}")


if __name__ == "__main__":
    main()
