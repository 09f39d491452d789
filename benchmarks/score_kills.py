"""Kill a scoring run again and again, and compare its output with an undisturbed run's.

    python benchmarks/score_kills.py --kills 100
    python benchmarks/score_kills.py --kills 20 --engine ray

A tiny random model embeds generated rows from Parquet and JSON lines. `local`: the whole run (or, every third time, one
of its workers) gets SIGKILL at a random moment, and the same command is started again. `ray`: one of Ray's workers gets
it, and the run goes on by itself. Whenever a run finishes, every part must have the bytes of the undisturbed run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PART_ROWS = 128


def make_model(folder: Path) -> Path:
    """A random ALBERT of two small layers, with the default model's vocabulary."""
    import torch

    from litebert.model.config import ModelConfig
    from litebert.model.heads import MODELS
    from litebert.model.hub import save_model
    from litebert.remote import find_folder
    from litebert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(find_folder("default"))
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    save_model(MODELS["encoder"](config), folder)
    tokenizer.save(folder)
    return folder


def make_inputs(folder: Path, rows: int, seed: int = 0) -> list[Path]:
    """Generated sentences, half of them in a Parquet file and half in JSON lines; a few rows are bad."""
    draw = random.Random(seed)
    words = "the a cat dog house river teacher walked saw old green never often in on under and but 2010 1,000".split()
    texts = [" ".join(draw.choices(words, k=draw.randrange(3, 30))) for _ in range(rows)]
    for number in range(0, rows, 97):
        texts[number] = ""
    half = rows // 2
    pq.write_table(pa.table({"id": range(half), "text": texts[:half]}), folder / "a.parquet", row_group_size=500)
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts[half:], half)]
    (folder / "b.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [folder / "a.parquet", folder / "b.jsonl"]


def command(model: Path, inputs: list[Path], out: Path, engine: str, workers: int) -> list[str]:
    """The run that is killed."""
    words = [sys.executable, "-m", "litebert", "score", model, *inputs, "--out", out, "--ability", "embed", "--dedupe"]
    words += ["--part-rows", PART_ROWS, "--engine", engine, "--workers", workers, "--device", "cpu"]
    return list(map(str, words))


def digests(out: Path) -> dict[str, str]:
    """Every part with the checksum of its bytes."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.glob("part-*"))}


def compare(out: Path, expected: dict[str, str]) -> None:
    """A finished run has the parts and the bytes of the undisturbed one."""
    if digests(out) != expected:
        raise SystemExit("rows were lost, doubled or changed")


def descendants(pid: int) -> dict[int, str]:
    """The processes below one of ours, and their command lines."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = (int(fields[1]), (entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:  # it has just ended
                continue
    found: dict[int, str] = {}
    below = {pid}
    while below:
        below = {child for child, (parent, _) in parents.items() if parent in below}
        found |= {child: parents[child][1] for child in below}
    return found


def kill_local(
    words: list[str], kills: int, out: Path, typical: float, seed: int, expected: dict[str, str]
) -> dict[str, int]:
    """Start the command and kill it until it has been killed often enough; then let it finish.

    When it finishes before its kill comes, its parts are deleted and it starts anew, so that every kill hits work.
    """
    draw = random.Random(seed)
    counts = {"kills of the run": 0, "kills of a worker": 0, "runs from the start": 1, "parts found whole": 0}
    while counts["kills of the run"] + counts["kills of a worker"] < kills:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        begin, moment = time.monotonic(), draw.uniform(0.0, typical)
        only_worker = draw.random() < 1 / 3
        while process.poll() is None and time.monotonic() - begin < moment:
            time.sleep(0.005)
        if process.poll() is None:
            workers = [pid for pid, line in descendants(process.pid).items() if "litebert.bulk.local" in line]
            if only_worker and workers:
                os.kill(draw.choice(workers), signal.SIGKILL)
                counts["kills of a worker"] += 1
                time.sleep(draw.uniform(0.0, typical / 4))
            if process.poll() is None:
                process.kill()
                counts["kills of the run"] += 1
            process.wait()
            process.stderr.close()
            counts["parts found whole"] = max(counts["parts found whole"], len(digests(out)))
            continue
        errors = process.stderr.read().decode()
        process.stderr.close()
        if process.returncode != 0:
            raise SystemExit(f"the run failed by itself: {errors}")
        compare(out, expected)
        for part in out.glob("part-*"):
            part.unlink()
        counts["runs from the start"] += 1
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return counts


def kill_ray(
    words: list[str], kills: int, out: Path, typical: float, seed: int, expected: dict[str, str]
) -> dict[str, int]:
    """Kill Ray's actors under a run that goes on; start it anew until there were kills enough."""
    draw = random.Random(seed)
    counts = {"kills of an actor": 0, "runs": 0}
    while counts["kills of an actor"] < kills:
        for part in out.glob("part-*"):
            part.unlink()
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        counts["runs"] += 1
        here = 0
        while process.poll() is None:
            actors = [
                pid for pid, line in descendants(process.pid).items() if line.startswith("ray::") and "Span" in line
            ]
            if actors and here < 4 and counts["kills of an actor"] < kills:
                time.sleep(draw.uniform(0.0, typical))
                try:
                    os.kill(draw.choice(actors), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                counts["kills of an actor"] += 1
                here += 1
            time.sleep(0.05)
        errors = process.stderr.read().decode()
        process.stderr.close()
        if process.returncode != 0:
            raise SystemExit(f"the run failed: {errors}")
        compare(out, expected)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, inputs = make_model(folder / "model"), make_inputs(folder, arguments.rows)
        begin = time.monotonic()
        subprocess.run(
            command(model, inputs, folder / "calm", "local", arguments.workers), check=True, stdout=subprocess.DEVNULL
        )
        typical = time.monotonic() - begin
        expected = digests(folder / "calm")
        kill = kill_local if arguments.engine == "local" else kill_ray
        words = command(model, inputs, folder / "killed", arguments.engine, arguments.workers)
        pause = 1.1 * typical if arguments.engine == "local" else typical / 4
        counts = kill(words, arguments.kills, folder / "killed", pause, arguments.seed, expected)
        found = digests(folder / "killed")
        rows = sum(pq.read_metadata(folder / "killed" / part).num_rows for part in found)
    result = {
        "engine": arguments.engine,
        **counts,
        "undisturbed run, seconds": round(typical, 1),
        "rows": rows,
        "parts": len(found),
        "same parts": found.keys() == expected.keys(),
        "same bytes": found == expected,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
    }
    print(json.dumps(result, indent=2))
    if found != expected or rows != arguments.rows:
        raise SystemExit("rows were lost, doubled or changed")


if __name__ == "__main__":
    main()
