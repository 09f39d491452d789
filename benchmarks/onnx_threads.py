"""How long should ONNX Runtime's threads wait awake, and how many tokens should one pass hold?

    python benchmarks/onnx_threads.py FOLDER [--threads 2] [--rounds 9] [--busy 4]

FOLDER: an exported model. Prints the wall-clock time of one request for several settings, in turns: first with the
machine as it is, then while `--busy` processes compute beside. Then the processor time of passes of more and more
tokens on one thread.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

SETTINGS: dict[str, dict[str, str]] = {
    "as ONNX Runtime comes": {},
    "never": {"session.intra_op.allow_spinning": "0"},
    **{f"{us} us": {"session.intra_op.spin_duration_us": str(us)} for us in (20, 100, 500)},
}


PASSES = [(batch, 12) for batch in (1, 2, 8, 16, 32, 64)] + [(batch, 64) for batch in (1, 2, 4, 8, 16, 32)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--busy", type=int, default=4, help="processes beside")
    options = parser.parse_args()
    path = next(p for p in (options.folder / "model.int8.onnx", options.folder / "model.onnx") if p.is_file())
    print(f"{path.name}, onnxruntime {onnxruntime.__version__}, {options.threads} threads, {os.cpu_count()} cores")
    sessions = {name: open_session(path, options.threads, entries) for name, entries in SETTINGS.items()}
    measure("as it is", sessions, options.rounds)
    beside = [multiprocessing.Process(target=compute, daemon=True) for _ in range(options.busy)]
    for process in beside:
        process.start()
    try:
        measure(f"{options.busy} processes beside", sessions, options.rounds)
    finally:
        for process in beside:
            process.terminate()
    measure_passes(open_session(path, 1, {}), options.rounds)


def open_session(path: Path, threads: int, entries: dict[str, str]) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = threads, 3
    for key, value in entries.items():
        settings.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def measure(title: str, sessions: dict[str, Any], rounds: int) -> None:
    print(f"\n{title}\n{'waiting awake':>22} {'tokens':>8} {'median ms':>10} {'best ms':>10}")
    for length in (12, 128):
        seconds: dict[str, list[float]] = {name: [] for name in sessions}
        for _ in range(rounds):
            for name, session in sessions.items():
                time.sleep(0.01)  # threads of the one before go to sleep
                given = feeds(session, 1, length)
                session.run(["hidden"], given)
                begin = time.perf_counter()
                session.run(["hidden"], given)
                seconds[name].append(time.perf_counter() - begin)
        for name, values in seconds.items():
            print(f"{name:>22} {length:8} {1e3 * statistics.median(values):10.1f} {1e3 * min(values):10.1f}")


def measure_passes(session: Any, rounds: int) -> None:
    print(f"\n{'shape':>8} {'tokens':>8} {'ms':>10} {'ms per token':>14}")
    for batch, length in PASSES:
        given, seconds = feeds(session, batch, length), []
        for _ in range(rounds):
            begin = time.thread_time()
            session.run(["hidden"], given)
            seconds.append(time.thread_time() - begin)
        best = 1e3 * min(seconds)
        print(f"{f'{batch}x{length}':>8} {batch * length:8} {best:10.1f} {best / (batch * length):14.3f}")


def feeds(session: Any, batch: int, length: int) -> dict[str, Any]:
    ids = np.random.default_rng(0).integers(0, 100, (batch, length))
    known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    known |= {"positions": np.zeros(1, np.int64), "outside": np.zeros_like(ids)}
    return {entry.name: known[entry.name] for entry in session.get_inputs()}


def compute() -> None:
    matrix = np.random.default_rng(0).normal(size=(256, 256))
    while True:
        matrix = np.tanh(matrix @ matrix)


if __name__ == "__main__":
    main()
