"""Two trees of litebert in turn on one machine: is the newer one as fast? Pretraining, fine-tuning, prediction.

    git worktree add --detach ../old COMMIT
    python benchmarks/trees.py ../old . --store STORE --sst2 glue/SST-2 [--rounds 2]
    python benchmarks/trees.py ../old . --store STORE --sst2 glue/SST-2 --small        # some seconds on any machine

Both trees use this interpreter, the model and the vocabulary of the second tree's package, and only what both have:
`litebert pretrain` and `litebert finetune` with plain settings, whose logs say how fast the steps were (medians of the
second half, so that compiling does not count), and `Predictor`. Runs take turns, so that a busy machine is busy for
both; the table has each tree's best round and the median ratio over rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PREDICT = """
import sys, time, litebert
predictor = litebert.Predictor(sys.argv[1])
text = "the old river was never seen by the teacher "
texts = [text * (1 + n % 12) + str(n) for n in range(int(sys.argv[2]))]
found = []
for _ in range(4):
    begin = time.perf_counter()
    predictor.embed(texts)
    found.append(len(texts) / (time.perf_counter() - begin))
print(max(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--store", type=Path, required=True, help="a token store made with the package's vocabulary")
    parser.add_argument("--sst2", type=Path, required=True, help="GLUE's folder SST-2")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="few steps of a tiny model")
    parser.add_argument("--out", type=Path, help="write JSON here")
    options = parser.parse_args()
    model = (options.new / "src" / "litebert" / "default_model").resolve()
    sides = {"old": options.old, "new": options.new}
    rates: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for side in sorted(sides, reverse=bool(number % 2)):
                for work in (pretrain, finetune, predict):
                    rate = work(sides[side], model, options, Path(folder, f"{work.__name__}-{side}-{number}"))
                    rates.setdefault(work.__name__, {}).setdefault(side, []).append(rate)
                    print(f"round {number}, {side}, {work.__name__}: {rate:.2f}/s", flush=True)
    for work, found in rates.items():
        ratio = statistics.median(new / old for old, new in zip(found["old"], found["new"], strict=True))
        print(
            f"{work:10} old {max(found['old']):.2f}/s  new {max(found['new']):.2f}/s  new is {ratio:.3f} times as fast"
        )
    report = {"rates": rates, "python": platform.python_version(), "small": options.small}
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def pretrain(tree: Path, model: Path, options: argparse.Namespace, out: Path) -> float:
    """Steps per second of 65,536 tokens, ALBERT-base at 512 tokens."""
    batch = 2048 if options.small else 65_536
    settings = {
        "data.stores": f"[{options.store.resolve()}]",
        "data.tokenizer": model,
        "depth": "[]",
        "steps": 12 if options.small else 300,
        "batch_tokens": batch,
        "micro_batch_tokens": batch,
        "log.report_every": 2 if options.small else 25,
        "log.evaluate_every": 0,
    }
    if options.small:
        settings |= {"data.workers": 0, "data.held_out": 10}
    call(tree, "pretrain", "cpu/albert-tiny" if options.small else "gpu/albert-base", *pairs(settings), "--out", out)
    return steps_per_second(out)


def finetune(tree: Path, model: Path, options: argparse.Namespace, out: Path) -> float:
    """Steps per second of 32 sentences of SST-2."""
    settings = {"steps": 12 if options.small else 1500, "batch": 4 if options.small else 32, "optim.lr": 5e-5}
    settings |= {"log.report_every": 2 if options.small else 100, "log.num_evaluations": 1}
    given = ("--task", "sst-2", "--data", options.sst2.resolve(), "--model", model)
    call(tree, "finetune", *given, *pairs(settings), "--out", out)
    return steps_per_second(out)


def predict(tree: Path, model: Path, options: argparse.Namespace, out: Path) -> float:
    """Texts per second of `Predictor.embed` on a list."""
    command = [sys.executable, "-c", PREDICT, str(model), "40" if options.small else "20000"]
    return float(subprocess.run(command, env=environment(tree), check=True, capture_output=True, text=True).stdout)


def steps_per_second(run: Path) -> float:
    """The median over the second half of a run's reports."""
    logs = [json.loads(line) for path in run.rglob("metrics.jsonl") for line in path.read_text().splitlines()]
    reports = [line for line in logs if line["kind"] == "train"]
    gaps = [
        (after["step"] - before["step"]) / (after["seconds"] - before["seconds"])
        for before, after in itertools.pairwise(reports)
    ]
    return statistics.median(gaps[len(gaps) // 2 :])


def call(tree: Path, *arguments: object) -> None:
    """A command of a tree; its words are shown if it fails."""
    command = [sys.executable, "-m", "litebert", *map(str, arguments)]
    done = subprocess.run(command, env=environment(tree), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{tree}: {' '.join(command)}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")


def pairs(settings: dict[str, object]) -> list[str]:
    return [f"--set={key}={value}" for key, value in settings.items()]


def environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str((tree / "src").resolve())}


if __name__ == "__main__":
    main()
