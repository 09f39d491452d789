"""Put a trained model into the package as `default`: fp16 weights, tokenizer, and a card with what it is and is not.

    python tools/default_model.py MODEL --run RUN [--run EARLIER] --scores 128=scores.json ...

MODEL: a model folder; RUN: folders of the pretraining runs that made it, the last one first (config.yaml, run.json,
metrics.jsonl); scores: what `litebert evaluate MODEL --text ... --max-length 128 --json` printed on unseen text.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import yaml

from litebert import Predictor
from litebert.files import write_atomic
from litebert.model.hub import load_model, save_model
from litebert.remote import DEFAULT_FOLDER as FOLDER
from litebert.text.tokenizer import Tokenizer
from litebert.train.log import read_metrics

SENTENCES = (  # written by us: what such a model knows, half knows and does not know
    ("the president of the united [MASK] lives in washington.", "states"),
    ("i have [MASK] brothers and two sisters.", "two, three, ..."),
    ("the cat sat on the [MASK].", "floor, table, ..."),
    ("she opened the [MASK] and walked in.", "door"),
    ("the book was [MASK] by an english writer.", "written"),
    ("albert einstein was a famous [MASK].", "physicist"),
    ("he studied law at the [MASK] of oxford.", "university"),
    ("the capital of france is [MASK].", "paris"),
    ("the opposite of hot is [MASK].", "cold"),
    ("a triangle has three [MASK].", "sides"),
    ("she went to the [MASK] to buy bread.", "shop, market, ..."),
    ("the sun rises in the [MASK].", "east"),
)

CARD = """\
---
library_name: litebert
language: en
tags: [albert, masked-language-modeling, sop]
pipeline_tag: fill-mask
---

# The default model: an English ALBERT-base after {minutes:.0f} minutes of training

Trained from random weights by litebert on one {hardware}: {minutes:.1f} minutes, {tokens:,.0f} million tokens,
masked LM with n-grams and sentence order{detection}.
It lets every command work offline, and shows that the recipe learns. It is **not** the released albert-base-v2, which
was trained for ten million steps and is better at everything; `--model albert/albert-base-v2` uses that one.

Text: English Wikipedia and Simple English Wikipedia (CC BY-SA), Project Gutenberg books (public domain in the US).
Vocabulary: 30,000 SentencePiece pieces, lower case, trained by us on the same text.

## How it was made

| run | minutes | tokens | depth | length | peak rate |
|---|---|---|---|---|---|
{runs}

Configs, logs and curves are in the repository (docs/results/default-model.md), with the commands.

## Scores

On text that no run has seen (n-gram masking at 15 %, pairs cut at sentence ends), with the number of predictions;
`litebert evaluate default --text FILE` scores any text.

| sequences up to | masked LM | sentence order | next sentence, by the same head |
|---|---|---|---|
{scores}

## A dozen sentences, good and bad

| text | expected | predicted |
|---|---|---|
{filled}

## Limits

- It knows little of the world, and reflects the texts above with their biases.
- English, lower case. Other languages break into single letters.
{notes}- Good for trying things out and as a start for fine-tuning on a small machine. For a product, use a released
  model or pretrain longer.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--run", type=Path, action="append", required=True)
    parser.add_argument("--scores", action="append", default=[], metavar="LENGTH=FILE")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--note", action="append", default=[], help="one more limit to say")
    options = parser.parse_args()
    runs = [facts_of(run) for run in reversed(options.run)]
    save_model(load_model(options.model), options.out, torch.float16)
    Tokenizer.load(options.model).save(options.out, max_length=runs[-1]["longest"])
    for name in ("model.safetensors", "spiece.model"):
        (options.out / name).chmod(0o644)
    named = [entry.split("=", 1) for entry in options.scores]
    scores = [{"length": length, **json.loads(Path(path).read_text(encoding="utf-8"))} for length, path in named]
    write_atomic(options.out / "README.md", card(runs, scores, fill(options.out), options.note))
    print(f"{options.out}: {sum(path.stat().st_size for path in options.out.iterdir()) / 1e6:.1f} MB")


def facts_of(run: Path) -> dict[str, Any]:
    """A run's config, and what its log says it took."""
    lines = read_metrics(run / "metrics.jsonl")
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    steps = [line for line in lines if line["kind"] == "train"]
    longest = max([stage["value"] for stage in config["length"]] or [config["recipe"]["max_length"]])
    return {"config": config, "hardware": facts["hardware"]["name"], "last": steps[-1], "longest": longest}


def fill(folder: Path) -> list[tuple[str, str, str]]:
    """A dozen sentences: text, what one would say, what the model says."""
    results = Predictor(str(folder), device="cpu").fill_mask([text for text, _ in SENTENCES], top=3)
    return [
        (text, wanted, ", ".join(f"{guess.word} {guess.probability:.0%}" for guess in result.masks[0].candidates))
        for (text, wanted), result in zip(SENTENCES, results, strict=True)
    ]


def card(
    runs: list[dict[str, Any]], scores: list[dict[str, Any]], filled: list[tuple[str, str, str]], notes: list[str]
) -> str:
    """The model card."""
    return CARD.format(
        hardware=runs[-1]["hardware"],
        detection=", in part with replaced-token detection" if any(detects(run) for run in runs) else "",
        minutes=sum(run["last"]["seconds"] for run in runs) / 60,
        tokens=sum(run["last"]["tokens"] for run in runs) / 1e6,
        runs="\n".join(run_row(number, run) for number, run in enumerate(runs, start=1)),
        scores="\n".join(
            f"| {score['length']} tokens | "
            + " | ".join(f"{score[f'{k}_accuracy']:.1%} of {score[f'{k}_count']:,}" for k in ("mlm", "sop", "nsp"))
            + " |"
            for score in scores
        ),
        filled="\n".join(f"| {text} | {wanted} | {said} |" for text, wanted, said in filled),
        notes="".join(f"- {note}\n" for note in notes),
    )


def detects(run: dict[str, Any]) -> bool:
    """Whether a run learned to find replaced tokens; configs of early runs do not know of it."""
    return bool((run["config"].get("detection") or {}).get("share"))


def run_row(number: int, run: dict[str, Any]) -> str:
    """A run as a row of the card's table."""
    config, last = run["config"], run["last"]
    depth = stages(config["depth"], config["model"]["num_hidden_layers"])
    length = stages(config["length"], config["recipe"]["max_length"])
    rate = f"{config['optim']['name']} {config['optim']['lr']:g}"
    return f"| {number} | {last['seconds'] / 60:.1f} | {last['tokens'] / 1e6:,.0f} M | {depth} | {length} | {rate} |"


def stages(entries: list[dict[str, Any]], otherwise: int) -> str:
    """[{until: .25, value: 3}, {until: 1, value: 12}] -> "3 until 25 %, 12"."""
    if not entries:
        return str(otherwise)
    *first, last = entries
    return ", ".join([*(f"{entry['value']} until {entry['until']:.0%}" for entry in first), str(last["value"])])


if __name__ == "__main__":
    main()
