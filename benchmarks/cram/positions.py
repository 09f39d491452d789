"""Which start lets absolute positions learn long sequences soonest? A small ALBERT on generated stories, on a CPU.

    python benchmarks/cram/positions.py --out FOLDER [--steps 1600] [--only "as in the paper" ...]

Every run has equal steps, depths (1, 2, 4) and rates; sequences of 96 tokens throughout, or 32 in the first half.
Prints the held-out masked-LM and order accuracy, at the length of the stage, as a table.
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

LENGTH = 96
GROWING = {"length": [{"until": 0.5, "value": 32}, {"until": 1.0, "value": LENGTH}]}
VARIANTS: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "sinusoidal": {"position_init": "sinusoidal"},
    "32 first, copies": GROWING,
    "32 first, sinusoidal, anywhere in the table": {
        **GROWING,
        "position_init": "sinusoidal",
        "position_offset": "random",
    },
    "32 first, anywhere in the table": {**GROWING, "position_offset": "random"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    make_data(options.out)
    common = merge(
        to_dict(quickstart_config(options.out, options.steps)),
        {
            "model": {"max_position_embeddings": LENGTH},
            "recipe": {"max_length": LENGTH},
            "batch_tokens": 2048,
            "micro_batch_tokens": 2048,
            "depth": [{"until": 0.3, "value": 1}, {"until": 0.6, "value": 2}, {"until": 1.0, "value": 4}],
            "optim": {"name": "muon"},
            "log": {"evaluate_every": max(1, options.steps // 8), "checkpoint_every": 0, "checkpoint_minutes": 0},
        },
    )
    for number, name in enumerate(options.only):
        folder = options.out / f"run-{number}"
        pretrain(run_config(merge(common, VARIANTS[name])), folder, quiet=True)
        scores = [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "eval"]
        curve = [(s["step"], round(100 * s["mlm_accuracy"], 1), round(100 * s["sentence_accuracy"], 1)) for s in scores]
        write_atomic(folder / "curve.json", json.dumps({"name": name, "curve": curve}) + "\n")
        print(f"| {name} | " + " | ".join(f"{mlm} / {order}" for _, mlm, order in curve) + " |", flush=True)


def make_data(out: Path) -> None:
    """The quickstart's stories, vocabulary and stores."""
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
