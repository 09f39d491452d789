"""Put trained adapters into the package, beside the default model: fp16 weights, task and a card each.

    python benchmarks/cram/abilities.py MODEL DATA --corpus simplewiki-00.txt.xz --out abilities      # trains them
    python tools/default_model.py MODEL ...                                                           # ships their base
    python tools/ship_adapters.py abilities/sentiment abilities/questions abilities/entailment abilities/similarity

RUN: the folder of a fine-tuning run with an adapter; its name is that of the ability: sentiment, questions, entailment
or similarity. The adapter must have been trained on the model that is in the package now (its fp32 folder counts as the
same); another one is refused. The card takes its scores from the run's scores.json, and the stages of its training
from the runs that it went on from (adapter.start), where they lie beside it. Folders that are there are replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
import yaml

from litebert.files import write_atomic
from litebert.finetuning.results import Scores, read_scores
from litebert.model.adapter import load_adapter, read_adapter_config, save_adapter, trained_on
from litebert.model.hub import load_model
from litebert.remote import ADAPTERS, DEFAULT, DEFAULT_FOLDER
from litebert.tasks.metrics import show_interval, show_value
from litebert.tasks.task import Task, kind_of, load_task, save_task

# What each is for, how to ask for it, what it learned from (with licences), and what to expect of it.
ABOUT: dict[str, dict[str, Any]] = {
    "sentiment": {
        "does": "Says whether an English sentence is `positive` or `negative`.",
        "use": ('litebert.Predictor().classify("a warm and funny film.").label', "litebert predict classify TEXT"),
        "data": [("Stanford Sentiment Treebank, as SST-2 of GLUE: sentences of film reviews", "no licence is named")],
        "limits": "It knows film reviews. It has no neutral label, so plain facts get one of the two anyway; it often "
        "misreads irony and mixed opinions.",
    },
    "questions": {
        "does": "Finds the answer to a question as a span of a given text.",
        "use": (
            'litebert.Predictor().answer("who lives in oslo?", "anna lives in oslo.").text',
            "litebert predict answer QUESTION CONTEXT",
        ),
        "data": [("SQuAD 1.1: questions about paragraphs of Wikipedia", "CC BY-SA 4.0")],
        "limits": "Every training question has an answer in its text, so it always gives one, even if there is none.",
    },
    "entailment": {
        "does": "Says whether a second text follows from the first: `entailment`, `neutral` or `contradiction`.",
        "use": (
            'litebert.Predictor("default:entailment").classify("a man sleeps.", "nobody is awake.").label',
            "litebert predict classify TEXT --pair TEXT",
        ),
        "data": [
            ("a sample of MultiNLI", "OANC; parts CC BY 3.0 and CC BY-SA 3.0"),
            ("a sample of SNLI", "CC BY-SA 4.0"),
            ("RTE of GLUE, with `neutral` for pairs that are not entailed", "no licence is named"),
        ],
        "limits": "Trained on about 30,000 pairs. Word overlap still sways it; RTE is scored by whether it says "
        "`entailment` or not.",
    },
    "similarity": {
        "does": "Turns texts into vectors whose cosine measures similarity of meaning, for search and comparison.",
        "use": (
            'litebert.Predictor().search("how do plants grow?", ["a seed needs water.", "the train leaves."])',
            *("litebert predict similarity A B", "litebert predict search QUERY TEXTS", "litebert predict embed TEXT"),
        ),
        "data": [
            ("sentences and paragraphs of Simple English Wikipedia, without labels", "CC BY-SA"),
            ("entailed pairs of samples of SNLI and MultiNLI", "CC BY-SA 4.0; OANC"),
            ("duplicates of a sample of Quora Question Pairs", "Quora's terms, for research"),
            ("questions with sentences and paragraphs of SQuAD 1.1 and QNLI", "CC BY-SA 4.0"),
            ("scored pairs of STS-B", "the licences of its sources, CC BY-SA 4.0 as a whole"),
        ],
        "limits": "English, texts of up to 256 tokens (longer ones are averaged over windows). Cosines rank texts; "
        "they are not probabilities, so to decide by them, set a threshold on your own data. Where a question "
        "repeats the words of its answer, as in SQuAD, words alone (BM25) may find more than vectors alone; `search` "
        "weighs both.",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, default=DEFAULT_FOLDER / ADAPTERS)
    options = parser.parse_args()
    for run in options.runs:
        folder = ship(run, options.out)
        print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.2f} MB")


def ship(run: Path, out: Path) -> Path:
    """Write the package's folder of one run."""
    name, source = run.resolve().name, run / "adapter"
    if name not in ABOUT:
        sys.exit(f"{run}: the folder's name must be one of {', '.join(ABOUT)}")
    scores, task = read_scores(run), load_task(source)
    if scores is None or task is None:
        sys.exit(f"{run}: not a complete run with an adapter")
    if not trained_on(source):
        print(f"{run}: an old adapter that does not know its base; make sure that it is the package's", file=sys.stderr)
    kind = kind_of(task)
    model = load_model(DEFAULT, kind.head(task), new_head=True, labels=task.labels, problem_type=kind.problem_type)
    load_adapter(model, source)  # refuses an adapter of other weights
    folder = save_adapter(model, out / name, base=DEFAULT, dtype=torch.float16)
    save_task(task, folder)
    write_atomic(folder / "README.md", card(name, task, scores, stages(run), trained_on(folder), folder))
    return folder


def stages(run: Path) -> list[dict[str, Any]]:
    """The config and the facts of a run, after those of the runs that it went on from."""
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    before = Path(config["adapter"].get("start") or "/").parent.name
    earlier = run.parent / before if before else None
    found = stages(earlier) if earlier is not None and (earlier / "run.json").is_file() else []
    return [*found, {"name": run.name, "config": config, "facts": facts}]


def card(name: str, task: Task, scores: Scores, trained: list[dict[str, Any]], base: str, folder: Path) -> str:
    """The README of an adapter."""
    about, last = ABOUT[name], trained[-1]
    settings, hardware = read_adapter_config(folder), last["facts"]["hardware"]
    once = last["config"]["log"]["evaluate_every"] == 0
    chosen = "the weights of the last step; dev was scored once" if once else f"chosen on dev by {scores.metric}"
    earlier = " It went on from the adapter of this model's earlier weights."
    lines = [
        "---",
        "library_name: litebert",
        "language: en",
        f"tags: [albert, lora, {task.kind}]",
        f"pipeline_tag: {kind_of(task).pipeline}",
        "---",
        "",
        f"# {DEFAULT}:{name}",
        "",
        about["does"],
        f"A LoRA of rank {settings['r']} with its head, in PEFT's format, for the model in litebert's package.",
        "",
        *([f"Labels: {', '.join(f'`{label}`' for label in task.labels)}.", ""] if task.labels else []),
        "```python",
        "import litebert",
        "",
        about["use"][0],
        "```",
        "",
        f"On the command line: {', '.join(f'`{words}`' for words in about['use'][1:])}.",
        "",
        "## Data",
        "",
        "| data | licence |",
        "|---|---|",
        *(f"| {what} | {licence} |" for what, licence in about["data"]),
        "",
        "## Training",
        "",
        f"On {hardware['name']} ({hardware['precision']}), litebert {last['facts']['litebert']}, torch "
        f"{last['facts']['torch']}; {chosen}.{earlier if trained[0]['config']['adapter'].get('start') else ''}",
        "",
        "| stage | examples | steps | batch | peak rate |",
        "|---|---|---|---|---|",
        *map(stage_row, trained),
        "",
        "## Scores",
        "",
        "| data | metric | score | 95 % interval |",
        "|---|---|---|---|",
        *(
            f"| {split} | {metric} | {show_value(value.value, metric)} | {show_interval(value, metric)} |"
            for split, found in scores.splits.items()
            for metric, value in found.items()
        ),
        "",
        *baseline_lines(scores),
        "## Limits",
        "",
        f"- {about['limits']}",
        "- It only works with the weights of the default model: `adapter_model.safetensors` stores their fingerprint "
        f"({base[:16]}…), and any other model is refused.",
        "",
    ]
    return "\n".join(lines)


def stage_row(stage: dict[str, Any]) -> str:
    """One run as a row of the card's table."""
    config, facts = stage["config"], stage["facts"]
    numbers = f"{facts['train_examples']:,} | {facts['num_steps']:,} | {config['batch']} | {config['optim']['lr']:g}"
    return f"| {stage['name']} | {numbers} |"


def baseline_lines(scores: Scores) -> list[str]:
    """Simple methods on the first dev set."""
    shown = [
        f"{each.baseline}: {each.metric} {show_value(each.score.value, each.metric)}"
        for each in scores.baselines
        if each.metric == scores.metric
    ]
    return [f"Simple methods on {next(iter(scores.splits))}: {'; '.join(shown)}.", ""] if shown else []


if __name__ == "__main__":
    main()
