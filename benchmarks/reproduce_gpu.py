"""The paper's tables on one GPU: what `docs/results/reproduction/` was made with.

    python benchmarks/reproduce_gpu.py all --text wiki-en-00.txt.xz --vocabulary spiece.model --work work
    python benchmarks/reproduce_gpu.py sharing --work work --jobs 4 --limit 560 --pack results.tar.gz
    python benchmarks/reproduce_gpu.py all --smoke --work work                           (a smoke run on a CPU)

Each part can be stopped (--limit seconds, Ctrl-C) and called again: finished runs are skipped, the others go on.

    corpus     a token store from text files                                             about a minute on 16 cores
    speed      Table 2: training steps of the paper's full shapes, twice in turn
    sharing    Tables 3, 4 and 5: 42 runs of 6 x 256, many of them shared by two tables
    depth      Table 11: 18 runs of up to 24 x 320, in chains of six
    same-depth the same chains with three layers in every row, into WORK/same-depth: what longer training does alone
    width      Table 12: 12 runs of up to 3 x 1920
    layers     Figure 1: 6 runs of 12 x 320

Parts that run at the same time need a --work each.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS: dict[str, list[str]] = {
    "speed": ["table2", "--measure", "speed_up"],
    "sharing": ["table5", "table4", "table3"],
    # At the scale's rate of 1e-3 one of three chains collapsed when it came to twelve layers.
    "depth": ["table11", "--set", "optim.lr=5e-4"],
    "same-depth": ["table11", "--set", "optim.lr=5e-4", "--set", "model.num_hidden_layers=3"],
    "width": ["table12"],
    # Twelve shared layers that begin at random collapse at the scale's rate of 1e-3 (docs/results/reproduction.md).
    "layers": ["figure1", "--set", "optim.lr=3e-4", "--set", "optim.warmup_steps=400"],
}
# Where the scale's 2,000 are too few: before that many, deep or wide models that begin at random, or learn at a low
# rate, know little but word frequencies.
STEPS = {"sharing": 6000, "depth": 3000, "same-depth": 3000, "width": 4000, "layers": 3000}
SPEED_SEEDS = 2  # timed twice
# Everything that shows a result, and nothing that only a further run needs.
PACKED = (".json", ".jsonl", ".yaml", ".txt", ".npz", ".md", ".tex", ".html")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["corpus", *PARTS, "all"])
    parser.add_argument("--work", type=Path, required=True, help="a folder for stores and results")
    parser.add_argument("--text", nargs="*", default=[], help="text files, one paragraph per line")
    parser.add_argument("--vocabulary", help="spiece.model or a tokenizer folder")
    parser.add_argument("--jobs", type=int, default=4, help="runs at the same time")
    parser.add_argument("--steps", type=int, help="steps of each run instead of the scale's")
    parser.add_argument("--seeds", type=int, help="runs of each row instead of the table's")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which everything is stopped")
    parser.add_argument("--pack", type=Path, help="write the results, without models, into this .tar.gz")
    parser.add_argument("--smoke", action="store_true", help="tiny runs on generated text on a CPU")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.limit
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.part in ("corpus", "all") and not arguments.smoke:
        build = ["corpus", "build", *arguments.text, "--format", "paragraphs"]
        run([*build, "--tokenizer", arguments.vocabulary, "--out", str(arguments.work / "store")], deadline)
        (arguments.work / "vocabulary.txt").write_text(str(Path(arguments.vocabulary).resolve()))
    for part in PARTS if arguments.part == "all" else [arguments.part]:
        if part != "corpus":
            run(["reproduce", *PARTS[part], *options(arguments, part)], deadline)
    if arguments.pack:
        pack(arguments.work, arguments.pack)


def options(arguments: argparse.Namespace, part: str) -> list[str]:
    """What all parts have in common; one folder, so that tables share their runs."""
    folder = "same-depth" if part == "same-depth" else "results"  # its rows are not the table's
    seeds = arguments.seeds or (SPEED_SEEDS if part == "speed" else 1 if arguments.smoke else None)
    chosen = ["--out", str(arguments.work / folder), "--jobs", str(arguments.jobs)]
    chosen += ["--seeds", str(seeds)] if seeds else []
    if arguments.smoke:
        return [*chosen, "--scale", "cpu", "--steps", str(arguments.steps or 2)]
    if not (arguments.work / "vocabulary.txt").exists():
        raise SystemExit(f"{arguments.work}: no corpus there; call the part corpus with --text and --vocabulary first")
    vocabulary = (arguments.work / "vocabulary.txt").read_text().strip()
    chosen += ["--scale", "gpu-minutes", "--store", str(arguments.work / "store"), "--tokenizer", vocabulary]
    steps = arguments.steps or STEPS.get(part)
    return [*chosen, "--steps", str(steps)] if steps else chosen


def run(command: list[str], deadline: float) -> None:
    """One litebert command; at the deadline it is asked to stop, writes its checkpoints, and so do we."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    began = time.monotonic()
    print("$ litebert", *command, flush=True)
    process = subprocess.Popen([sys.executable, "-m", "litebert", *command], env={**os.environ, "PYTHONPATH": path})
    try:
        code = process.wait(max(1.0, deadline - began))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGTERM)
        code = process.wait()
    print(f"exit code {code} after {time.monotonic() - began:.0f} s", flush=True)


def pack(work: Path, target: Path) -> None:
    """Results, logs and configs of all runs in one archive."""
    with tarfile.open(target, "w:gz") as archive:
        for path in sorted(work.glob("*/**/*")):
            inside = path.relative_to(work)
            if path.suffix in PACKED and not {"model", "corpus", "store", "checkpoints"} & set(inside.parts):
                archive.add(path, inside)
    print(f"{target}: {target.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
