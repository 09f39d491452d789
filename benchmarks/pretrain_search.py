"""Many short pretraining runs that differ in one thing each, one after the other, with one table at the end.

    python benchmarks/pretrain_search.py SEARCH.yaml --out RESULTS [--only NAME ...] [--minutes 2]

SEARCH.yaml names what all runs have in common and what each of them changes, in the form of a run's config:

    common: {preset: gpu/albert-base, max_minutes: 2, data: {stores: [wiki, books], tokenizer: tok, held_out: 300}}
    score: {texts: [unseen.txt], length: 512, num_tokens: 400000}
    variants:
      as it is: {}
      lr 5e-4: {optim: {lr: 0.0005}}
      depth 2 4 12: {depth: [{until: 0.33, value: 2}, {until: 0.66, value: 4}, {until: 1.0, value: 12}]}

With `score`, every model is also asked about the same text in the same way (`litebert evaluate`); its own held-out
scores do not compare where a variant changes the masks or the text.

Written for each run: RESULTS/NAME/{config.yaml, metrics.jsonl, scores.json}; for all: RESULTS/results.json and
results.md, after every run, so that a search that is cut short has lost nothing. What is there already is not done
again.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from litebert.config import merge
from litebert.errors import LitebertError
from litebert.files import write_atomic
from litebert.pretraining.config import run_config
from litebert.pretraining.evaluate import evaluate_model
from litebert.pretraining.run import pretrain
from litebert.train.log import read_metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("search", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="names of variants")
    parser.add_argument("--minutes", type=float, help="of each run, instead of what the file says")
    options = parser.parse_args()
    search = yaml.safe_load(options.search.read_text(encoding="utf-8"))
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for name, changes in search["variants"].items():
        if options.only and name not in options.only:
            continue
        folder = options.out / re.sub(r"[^\w.-]+", "-", name)
        if not (folder / "metrics.jsonl").exists():
            data = merge(search["common"], changes or {})
            if options.minutes:
                data["max_minutes"] = options.minutes
            print(f"=== {name}", flush=True)
            try:
                run_variant(data, search.get("score"), folder)
            except LitebertError as error:  # one bad variant does not end the search
                results.append({"name": name, "error": str(error)})
                print(error, flush=True)
                continue
        results.append({"name": name, **summarize(folder)})
        write_atomic(options.out / "results.json", json.dumps(results, indent=1) + "\n")
        write_atomic(options.out / "results.md", table(results) + "\n")
        print(table(results[-1:]), flush=True)
    print(table(results))


def run_variant(data: dict[str, Any], score: dict[str, Any] | None, folder: Path) -> None:
    """Train in a temporary folder and score the model; only the small files are kept."""
    data = merge({"log": {"checkpoint_every": 0}}, data)
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        pretrain(run_config(data), run, quiet=True)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("config.yaml", "run.json", "samples.json", "metrics.jsonl"):
            if (run / name).exists():
                shutil.copy(run / name, folder / name)
        if score:
            scores = evaluate_model(run / "model", **score)
            write_atomic(folder / "scores.json", json.dumps(scores.as_dict(), indent=1) + "\n")


def summarize(folder: Path) -> dict[str, Any]:
    """The last scores of a run, and what it took."""
    lines = read_metrics(folder / "metrics.jsonl")
    evaluations = [line for line in lines if line["kind"] == "eval"]
    last = evaluations[-1] if evaluations else {}
    scores = folder / "scores.json"
    return {
        "steps": lines[-1]["step"],
        "minutes": last.get("seconds", 0) / 60,
        "tokens": last.get("tokens", 0),
        "mlm_accuracy": last.get("mlm_accuracy"),
        "sentence_accuracy": last.get("sentence_accuracy"),
        "scores": json.loads(scores.read_text(encoding="utf-8")) if scores.exists() else None,
        "curve": [
            [line["step"], line.get("mlm_accuracy"), line.get("sentence_accuracy"), line.get("mlm_loss")]
            for line in evaluations
        ],
        "date": time.strftime("%Y-%m-%d"),
    }


def table(results: list[dict[str, Any]]) -> str:
    """Markdown, best masked LM first."""
    lines = [
        "| run | steps | minutes | tokens | own held-out MLM | order | same text: MLM | order |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(results, key=goodness, reverse=True):
        if "error" in row:
            lines.append(f"| {row['name']} | {row['error']} | | | | | | |")
            continue
        scores = row["scores"] or {}
        values = (
            row["mlm_accuracy"],
            row["sentence_accuracy"],
            scores.get("mlm_accuracy"),
            scores.get("sop_accuracy"),
        )
        shown = " | ".join("" if value is None else f"{100 * value:.1f} %" for value in values)
        tokens = f"{row['tokens'] / 1e6:.0f} M"
        lines.append(f"| {row['name']} | {row['steps']:,} | {row['minutes']:.1f} | {tokens} | {shown} |")
    return "\n".join(lines)


def goodness(row: dict[str, Any]) -> float:
    """Masked LM accuracy on the common text, or on what the run held out."""
    return ((row.get("scores") or {}).get("mlm_accuracy") or row.get("mlm_accuracy")) or 0.0


if __name__ == "__main__":
    main()
