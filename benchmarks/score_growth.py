"""Time and memory of a scoring run as the input grows: time should be linear, memory flat.

    python benchmarks/score_growth.py --rows 100000 1000000 10000000

A tiny random model embeds short generated texts from one Parquet file, in the processes that `litebert score` starts by
itself. Memory is the most that the run and its workers held together (proportional set size, sampled); processor time
is theirs together, which counts where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from score_kills import descendants, make_model


def make_input(path: Path, rows: int) -> None:
    """Short texts, all different, written in batches."""
    draw = np.random.default_rng(0)
    words = np.array("the a cat dog house river teacher walked saw old green never often in on under and but".split())
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64()), ("text", pa.string())])) as writer:
        for begin in range(0, rows, 100_000):
            count = min(100_000, rows - begin)
            picks = words[draw.integers(0, len(words), (count, 6))]
            texts = [f"{' '.join(row)} {number}" for number, row in enumerate(picks.tolist(), begin)]
            writer.write_table(pa.table({"id": range(begin, begin + count), "text": texts}))


def memory_of(pid: int) -> int:
    """Bytes that a process and all below it hold; pages that they share count once."""
    total = 0
    for number in (pid, *descendants(pid)):
        try:
            lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def measure(model: Path, source: Path, out: Path, part_rows: int) -> dict[str, float]:
    """One run: seconds as it counts them itself, processor time, and the peak of its memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-m", "litebert", "score", model, source, "--out", out, "--ability", "embed", "--json"]
    words += ["--device", "cpu", "--part-rows", part_rows, "--keep", "id"]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
    peak = 0
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout))
    reader.start()
    while process.poll() is None:
        peak = max(peak, memory_of(process.pid))
        time.sleep(0.5)
    reader.join()
    summary = json.loads(lines[-1])
    assert summary["errors"] == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "rows": summary["rows"],
        "seconds": round(summary["seconds"], 1),
        "rows per second": round(summary["rows"] / summary["seconds"]),
        "processor seconds": round(processor, 1),
        "peak memory, MB": round(peak / 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--part-rows", type=int, default=8192)
    parser.add_argument("--folder", help="for inputs and outputs; by default a temporary one")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, python {platform.python_version()}, pyarrow {pa.__version__}", flush=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        model = make_model(folder / "model")
        for rows in arguments.rows:
            make_input(folder / f"{rows}.parquet", rows)
            result = measure(model, folder / f"{rows}.parquet", folder / f"out-{rows}", arguments.part_rows)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
