"""What helps a small ALBERT on the quickstart's generated stories, on a CPU: optimisers, and starts of positions.

    python benchmarks/stories.py optimizers --out FOLDER [--steps 1800] [--only "adamw 2e-3" ...]
    python benchmarks/stories.py positions --out FOLDER [--steps 1600]

Optimisers: the quickstart's own run, with another optimiser. Positions: which start lets them learn long sequences
soonest; sequences of 96 tokens throughout, or 32 in the first half. All runs have equal steps and depths. Prints the
held-out masked-LM and order accuracy, at the length and depth of the stage, as a table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from litebert.config import merge, to_dict
from litebert.files import write_atomic
from litebert.pretraining.config import run_config
from litebert.pretraining.run import pretrain
from litebert.quickstart import SPLITS, VOCABULARY, quickstart_config
from litebert.text.build import BuildOptions, build_store
from litebert.text.generate import generate_documents, join_documents
from litebert.text.train_vocab import VocabConfig, train_vocab
from litebert.train.log import read_metrics


def muon(lr: float, **more: Any) -> dict[str, Any]:
    """Muon, with what AdamW updates at AdamW's own best rate."""
    return {"optim": {"name": "muon", "lr": lr, "adam_factor": 2e-3 / lr}, **more}


LENGTH = 96
GROWING = {"length": [{"until": 0.5, "value": 32}, {"until": 1.0, "value": LENGTH}]}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "optimizers": {
        "adamw 2e-3": {"optim": {"name": "adamw", "lr": 2e-3, "adam_factor": 1.0}},
        "muon 2e-3": muon(2e-3),
        "muon 5e-3": muon(5e-3),
        "muon 5e-3, lower at greater depth": muon(
            5e-3,
            lr_factor=[{"until": 0.4, "value": 1}, {"until": 0.75, "value": 0.7}, {"until": 1, "value": 0.4}],
        ),
        "muon 1e-2": muon(1e-2),
    },
    "positions": {
        "as in the paper": {},
        "sinusoidal": {"position_init": "sinusoidal"},
        "32 first, copies": GROWING,
        "32 first, sinusoidal, anywhere in the table": {
            **GROWING,
            "position_init": "sinusoidal",
            "position_offset": "random",
        },
        "32 first, anywhere in the table": {**GROWING, "position_offset": "random"},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--only", nargs="+", help="names of variants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if unknown := set(options.only or ()) - set(VARIANTS[options.what]):
        parser.error(f"--only: no variant {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS[options.what])}")
    options.out.mkdir(parents=True, exist_ok=True)
    make_data(options.out)
    common = merge(to_dict(quickstart_config(options.out, options.steps)), {"seed": options.seed})
    common["device"] = {"device": "cpu", "threads": options.threads}
    common["log"] |= {"checkpoint_every": 0, "checkpoint_minutes": 0}
    if options.what == "positions":
        common = merge(common, long_sequences(options.steps or 1600))
    for number, (name, changes) in enumerate(VARIANTS[options.what].items()):
        if options.only and name not in options.only:
            continue
        folder = options.out / f"run-{options.what}-{number}-{options.seed}"
        pretrain(run_config(merge(common, changes)), folder, quiet=True)
        scores = [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "eval"]
        curve = [(s["step"], round(100 * s["mlm_accuracy"], 1), round(100 * s["sentence_accuracy"], 1)) for s in scores]
        write_atomic(folder / "curve.json", json.dumps({"name": name, "curve": curve}) + "\n")
        print(f"| {name} | " + " | ".join(f"{mlm} / {order}" for _, mlm, order in curve) + " |", flush=True)


def long_sequences(steps: int) -> dict[str, Any]:
    """What the comparison of positions changes in the quickstart's run."""
    return {
        "model": {"max_position_embeddings": LENGTH},
        "recipe": {"max_length": LENGTH},
        "steps": steps,
        "batch_tokens": 2048,
        "micro_batch_tokens": 2048,
        "depth": [{"until": 0.3, "value": 1}, {"until": 0.6, "value": 2}, {"until": 1.0, "value": 4}],
        "optim": {"name": "muon", "lr": 2e-3, "adam_factor": 1.0},
        "log": {"evaluate_every": max(1, steps // 8)},
    }


def make_data(out: Path) -> None:
    """The quickstart's stories, vocabulary and stores."""
    if (out / "store-held-out" / "manifest.json").exists():
        return
    tokenizer = None
    for split in SPLITS:  # the training text comes first
        path = out / f"{split}.txt"
        stories = generate_documents(6000 if split == "train" else 600, seed=1, split=split, excerpts=True)
        write_atomic(path, join_documents(stories))
        if tokenizer is None:
            tokenizer = train_vocab([path], VocabConfig(vocab_size=VOCABULARY)).tokenizer
            tokenizer.save(out / "vocabulary")
        build_store([path], tokenizer, out / f"store-{split}", BuildOptions(format="lines"), workers=1)


if __name__ == "__main__":
    main()
