"""How fast a store is built, against transformers, and how much memory a build takes as its input grows.

    python benchmarks/corpus_build.py speed  TEXT... --tokenizer spiece.model
    python benchmarks/corpus_build.py memory TEXT... --tokenizer spiece.model

TEXT: text files (compressed or not), one paragraph per line, a blank line between documents.

speed: `build_store` from file to finished store in one process, and transformers' AutoTokenizer in batch mode on the
paragraphs of the same file, already in memory; one core each, in turns. Seconds are processor time, so that other
work on the machine matters little.
memory: resident memory of the whole process tree (shared pages counted once per process) while
`litebert corpus build --workers 2` reads 100 MB and 400 MB of text, seen every 50 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"

from litebert.machine import cpu_name
from litebert.text.build import build_store
from litebert.text.readers import open_text
from litebert.text.tokenizer import Tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "memory"])
    parser.add_argument("text", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=5, help="speed: turns of each")
    parser.add_argument(
        "--megabytes", type=float, nargs="+", help="speed: per round (10); memory: the two inputs (100 400)"
    )
    arguments = parser.parse_args()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu_name()}, {os.cpu_count()} cores, Python {platform.python_version()}, ",
        end="",
    )
    print(", ".join(f"{name} {version(name)}" for name in ("sentencepiece", "tokenizers", "transformers", "pyarrow")))
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "speed":
            measure_speed(
                arguments.text, arguments.tokenizer, arguments.rounds, (arguments.megabytes or [10])[0], Path(folder)
            )
        else:
            measure_memory(arguments.text, arguments.tokenizer, arguments.megabytes or [100, 400], Path(folder))


def measure_speed(texts: list[str], tokenizer_path: str, rounds: int, megabytes: float, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = Tokenizer.load(tokenizer_path)
    tokenizer.save(folder / "tokenizer")
    reference = AutoTokenizer.from_pretrained(folder / "tokenizer")
    lines = paragraphs_of(texts)
    ours, theirs = [], []
    print(f"{'round':>5}  {'MB':>6}  {'litebert MB/s':>14}  {'transformers MB/s':>18}  {'ratio':>6}")
    for number in range(rounds):
        file = folder / f"{number}.txt"
        size = write_text(file, lines, megabytes)
        paragraphs = [line for line in file.read_text(encoding="utf-8").split("\n") if line]

        began = time.process_time()
        build_store([file], tokenizer, folder / f"store{number}", workers=1)
        ours.append(size / (time.process_time() - began))

        began = time.process_time()
        for start in range(0, len(paragraphs), 1000):
            reference(paragraphs[start : start + 1000], add_special_tokens=False)
        theirs.append(size / (time.process_time() - began))
        print(
            f"{number:>5}  {size:>6.1f}  {ours[-1]:>14.2f}  {theirs[-1]:>18.2f}  {ours[-1] / theirs[-1]:>6.2f}",
            flush=True,
        )
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(
        f"median {'':>6}  {statistics.median(ours):>14.2f}  {statistics.median(theirs):>18.2f}  "
        f"{statistics.median(ratios):>6.2f}   (lowest ratio {min(ratios):.2f})"
    )


def measure_memory(texts: list[str], tokenizer: str, sizes: list[float], folder: Path) -> None:
    peaks = []
    print(f"{'MB of text':>10}  {'peak MB':>8}  {'seconds':>8}  {'MB/s':>6}  {'documents':>10}  {'tokens':>13}")
    for number, megabytes in enumerate(sizes):
        file = folder / f"{number}.txt"
        size = write_text(file, paragraphs_of(texts), megabytes)
        program = "from litebert.cli import main; main()"
        options = ["--tokenizer", tokenizer, "--out", str(folder / f"store{number}"), "--workers", "2", "--json"]
        process = subprocess.Popen(
            [sys.executable, "-c", program, "corpus", "build", str(file), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, tree_memory(process.pid))
            time.sleep(0.05)
        assert process.stdout is not None
        report = json.load(process.stdout)
        if process.returncode or abs(report["text_bytes"] / 1e6 - size) > 1:
            sys.exit(f"the build failed: {process.returncode}")
        peaks.append(peak)
        print(
            f"{size:>10.1f}  {peak:>8.0f}  {report['seconds']:>8.1f}  {size / report['seconds']:>6.2f}  "
            f"{report['documents']:>10,}  {report['tokens']:>13,}",
            flush=True,
        )
        file.unlink()
    print(f"largest / smallest peak: {max(peaks) / min(peaks):.3f}")


def paragraphs_of(texts: list[str]):
    """All lines of all files; starts over when they are used up."""
    while True:
        for text in texts:
            yield from open_text(text)
            yield ""


def write_text(file: Path, lines, megabytes: float) -> float:
    """Write so many megabytes of whole documents; gives the size."""
    size = 0
    with open(file, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(line + "\n")
            size += len(line.encode()) + 1
            if not line and size >= megabytes * 1e6:
                return size / 1e6
    return size / 1e6


def tree_memory(session: int) -> float:
    """Resident megabytes of all processes of a session."""
    pages = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == session:
                pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
