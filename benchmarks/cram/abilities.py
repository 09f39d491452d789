"""The adapters that come with the default model, trained and scored: sentiment, questions, entailment, similarity.

    python benchmarks/cram/abilities.py MODEL DATA --corpus simplewiki-00.txt.xz --out abilities
    python benchmarks/cram/abilities.py default DATA --corpus text.txt --out /tmp/a --limit 64 --steps 2   # a smoke run
    python tools/ship_adapters.py abilities/sentiment abilities/questions abilities/entailment abilities/similarity

DATA holds glue/ (SST-2, RTE, QNLI, STS-B), squad/ (1.1) and pairs/ (mnli, snli, qqp as CSV). Each ability is one run
folder under --out with its adapter and its dev scores; runs that are complete are not run again. Settings are fixed
before: nothing is chosen on dev, which is scored once, with the weights of the last step.

`similarity` is trained in stages, each going on from the adapter of the one before; every stage is scored:

    simcse      no labels: a sentence of the corpus with itself under other dropout
    neighbours  no labels: a sentence of the corpus with the next one
    pairs       from neighbours: what follows from what (SNLI, MNLI), the same question (QQP), a question with its
                sentence (QNLI) and its paragraph (SQuAD), each against a hard negative where the data have one
    scored      from pairs: STS-B's scores, which helps similarity and hurts search
    similarity  the mean of pairs and scored, which keeps most of both; this is the one to ship

Beside them stand BM25 and TF-IDF, and the model as it is. SCORES.json and SCORES.md are written on the way.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import lzma
import platform
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from litebert.baselines.table import score_baselines
from litebert.config import merge
from litebert.files import write_atomic
from litebert.finetuning.config import finetune_config
from litebert.finetuning.data import make_pairs
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.results import read_scores, write_scores
from litebert.finetuning.run import finetune
from litebert.model.adapter import WEIGHTS_FILE
from litebert.tasks.metrics import Metric, score, show_interval, show_value
from litebert.tasks.read import read_task
from litebert.tasks.task import Task, TaskData, TextExample

Row = Mapping[str, Mapping[str, Metric]]  # split -> metric -> value

NLI = ("entailment", "neutral", "contradiction")
ABILITIES = ("sentiment", "questions", "entailment", "similarity")
# Settings on top of the common ones (a new adapter, one evaluation at the end).
SETTINGS: dict[str, dict[str, Any]] = {
    "sentiment": {"batch": 64, "epochs": 2.0, "max_length": 128},
    "questions": {"batch": 48, "epochs": 2.0, "max_length": 384},
    "entailment": {"batch": 64, "epochs": 3.0, "max_length": 192},
    "simcse": {"batch": 128, "optim": {"lr": 2e-4}},
    "neighbours": {"batch": 256, "similarity": {"symmetric": True}},
    "pairs": {"batch": 256},
    "scored": {"batch": 32, "epochs": 2.0, "optim": {"lr": 2e-4}},
}
DEV = {"sentiment": "SST-2 dev", "questions": "SQuAD 1.1 dev"}
STAGES = {"simcse": None, "neighbours": None, "pairs": "neighbours", "scored": "pairs"}  # and where each goes on
CORPUS_BYTES = 24_000_000  # of the corpus are enough for the sentences that are drawn
PARAGRAPH_QUESTIONS = 2  # of each of SQuAD's paragraphs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder, or default")
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--corpus", type=Path, help="plain text, one paragraph per line; without it, `pairs` is the first stage"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=ABILITIES, default=ABILITIES)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-4, help="where a stage has no rate of its own")
    parser.add_argument("--share", type=float, default=1.0, help="of the epochs and of the sentences: 0.5 is half")
    parser.add_argument("--sentences", type=int, default=50_000, help="or pairs of them, drawn from the corpus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, default=0, help="examples per file, for a smoke run")
    parser.add_argument("--steps", type=int, help="of every run, in batches of 8, for a smoke run")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Row] = {}
    for ability in arguments.only:
        steps = {"similarity": similarity, "entailment": entailment}.get(ability, plain)
        for name, found in steps(ability, arguments):
            rows[name] = found
            write(arguments, rows)


def train(name: str, arguments: argparse.Namespace, data: TaskData, start: str | None = None) -> Row:
    """The dev scores of a run with these examples, in OUT/NAME; `start` is the adapter to go on from."""
    began = time.monotonic()
    settings: dict[str, Any] = {
        "task": data.task.kind,
        "model": arguments.model,
        "seed": arguments.seed,
        "epochs": 1.0,
        "optim": {"lr": arguments.lr},
        "adapter": {"rank": arguments.rank, "start": start},
        "device": {"device": arguments.device},
        "log": {"evaluate_every": 0, "report_every": 50},
    }
    settings = merge(settings, SETTINGS[name])
    settings["epochs"] *= arguments.share
    if arguments.steps:
        settings |= {"steps": arguments.steps, "batch": 8}
    result = finetune(finetune_config(settings), arguments.out / name, quiet=True, data=data)
    print(f"{name}: {result.step:,} steps, {time.monotonic() - began:.0f} s with reading and scoring", flush=True)
    return result.scores.splits


def plain(name: str, arguments: argparse.Namespace) -> Iterator[tuple[str, Row]]:
    """SST-2 with labels that are words, or SQuAD 1.1."""
    if (done := read_scores(arguments.out / name)) is not None:
        yield name, done.splits
        return
    if name == "questions":
        data = read_task("squad-1.1", folder=arguments.data / "squad")
    else:
        data = read_task("sst-2", folder=arguments.data / "glue" / "SST-2")
        assert data.task.labels == ("0", "1")
        data = dataclasses.replace(
            data, task=dataclasses.replace(data.task, name=name, labels=("negative", "positive"))
        )
    data = dataclasses.replace(data, dev={DEV[name]: data.dev["dev"]})
    yield name, train(name, arguments, shortened(data, arguments))


def shortened(data: TaskData, arguments: argparse.Namespace) -> TaskData:
    """Without the test split, and in a smoke run with a few examples alone."""
    most = arguments.limit or None
    dev = {name: examples[:most] for name, examples in data.dev.items()}
    return dataclasses.replace(data, train=data.train[:most], dev=dev, test={})


# -- entailment --------------------------------------------------------------------------------------------------------


def entailment(name: str, arguments: argparse.Namespace) -> Iterator[tuple[str, Row]]:
    """MNLI and SNLI by their three labels, RTE with `neutral` for what is not entailed; RTE's dev with two labels."""
    if (done := read_scores(arguments.out / name)) is not None and "RTE dev" in done.splits:
        yield name, done.splits
        return
    folder, glue = arguments.data / "pairs", arguments.data / "glue" / "RTE"
    learned = [example for kind in ("mnli", "snli") for example in nli(folder / f"{kind}-train.csv")]
    rte = read_task("rte", folder=glue)
    learned += [dataclasses.replace(example, label=int(example.label != 0)) for example in of_texts(rte.train)]
    random.Random(arguments.seed).shuffle(learned)
    task = Task(name, "classification", NLI, ("accuracy",), pair=True)
    data = TaskData(task, list(learned), {"MNLI dev": list(nli(folder / "mnli-dev.csv"))})
    splits = dict(train(name, arguments, shortened(data, arguments)))
    judged = of_texts(rte.dev["dev"])[: arguments.limit or None]
    best = str(arguments.out / name / "best")
    said = evaluate_task([best], data=TaskData(task, dev={"RTE dev": list(judged)}), device=arguments.device)
    two = [int(prediction.value != 0) for prediction in said[0].evaluations[0].predictions]
    splits["RTE dev"] = score(rte.task, judged, two)
    done = read_scores(arguments.out / name)
    assert done is not None
    write_scores(arguments.out / name, dataclasses.replace(done, splits=splits))
    yield name, splits


def nli(path: Path) -> Iterator[TextExample]:
    """The rows of a CSV file with premise, hypothesis and label."""
    for number, (a, b, label) in enumerate(read_csv(path)):
        yield TextExample(str(number), a, b, NLI.index(label), f"{path.name}:{number + 2}")


def of_texts(examples: list[Any]) -> list[TextExample]:
    return [example for example in examples if isinstance(example, TextExample)]


def read_csv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


# -- similarity --------------------------------------------------------------------------------------------------------


def similarity(name: str, arguments: argparse.Namespace) -> Iterator[tuple[str, Row]]:
    """The stages, each with its scores, after words alone and the model as it is."""
    sts = read_task("similarity", dev=arguments.data / "glue" / "STS-B" / "dev.tsv")
    search = read_task("similarity", dev=list(questions(arguments, "dev")))
    dev = TaskData(sts.task, dev={"STS-B dev": sts.dev["dev"], "SQuAD dev search": search.dev["dev"]})
    dev = shortened(dev, arguments)
    yield "words (TF-IDF, BM25)", {split: by_words(dev, split) for split in dev.dev}
    untrained = evaluate_task([arguments.model], task="similarity", data=dev, device=arguments.device)[0]
    yield "the model as it is", {each.split.name: each.scores for each in untrained.evaluations}
    scored: set[str | None] = set()
    for stage, origin in STAGES.items():
        if origin is None and arguments.corpus is None:
            continue
        start = str(arguments.out / str(origin) / "adapter") if origin in scored else None
        done = read_scores(arguments.out / stage)
        if done is None:
            learned = read_task("similarity", train=examples(stage, arguments))
            task = dataclasses.replace(dev.task, scale=learned.task.scale, max_length=256)
            data = TaskData(task, learned.train[: arguments.limit or None], dev.dev)
            yield stage, train(stage, arguments, data, start=start)
        else:
            yield stage, done.splits
        scored.add(stage)
    yield name, mean(arguments.out / name, [arguments.out / "pairs", arguments.out / "scored"], dev, arguments.device)


def mean(out: Path, runs: list[Path], dev: TaskData, device: str) -> Row:
    """A run folder like the last of `runs`, with the mean of their adapters, and its dev scores."""
    if (done := read_scores(out)) is not None:
        return done.splits
    shutil.copytree(runs[-1], out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("best", "scores.json"))
    weights = [load_file(run / "adapter" / WEIGHTS_FILE) for run in runs]
    averaged = {name: torch.stack([each[name] for each in weights]).mean(0) for name in weights[0]}
    with safe_open(runs[-1] / "adapter" / WEIGHTS_FILE, "pt") as file:
        save_file(averaged, out / "adapter" / WEIGHTS_FILE, file.metadata())
    facts = {**json.loads((out / "run.json").read_text(encoding="utf-8")), "mean_of": [run.name for run in runs]}
    write_atomic(out / "run.json", json.dumps(facts, indent=1))
    found = evaluate_task([str(out / "adapter")], task="similarity", data=dev, device=device)[0]
    splits = {each.split.name: each.scores for each in found.evaluations}
    done = read_scores(runs[-1])
    assert done is not None
    write_scores(out, dataclasses.replace(done, splits=splits, baselines=()))
    return splits


def examples(stage: str, arguments: argparse.Namespace) -> Any:
    """The training rows of a stage."""
    if stage == "scored":
        read = read_task("similarity", train=arguments.data / "glue" / "STS-B" / "train.tsv").train
        return [{"text": each.texts[0], "pair": each.texts[1], "score": each.score} for each in read]  # type: ignore[attr-defined]
    if stage == "pairs":
        return list(triplets(arguments))
    how = {"simcse": "sentences", "neighbours": "adjacent"}[stage]
    most = max(2, int(arguments.share * arguments.sentences))
    return make_pairs(beginning(arguments), how, min(most, arguments.limit or most), arguments.seed)


def beginning(arguments: argparse.Namespace) -> Path:
    """The beginning of the corpus as a plain file."""
    out: Path = arguments.out / "corpus.txt"
    if not out.exists():
        open_file = lzma.open if arguments.corpus.suffix == ".xz" else open
        with open_file(arguments.corpus, "rb") as file:
            text = file.read(CORPUS_BYTES).decode("utf-8", "ignore")
        write_atomic(out, text.rpartition("\n")[0] + "\n")
    return out


def triplets(arguments: argparse.Namespace) -> Iterator[dict[str, str]]:
    """A text, one that belongs to it, and one that does not: of its own data where there is one, else at random."""
    draw = random.Random(arguments.seed)
    folder = arguments.data / "pairs"
    for name in ("snli", "mnli", "qqp"):
        by_text: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for a, b, label in read_csv(folder / f"{name}-train.csv"):
            by_text[a]["near" if label in ("entailment", "duplicate") else label].append(b)
        yield from contrasted(by_text, ("contradiction", "different"), draw)
    by_text = defaultdict(lambda: defaultdict(list))
    for line in (arguments.data / "glue" / "QNLI" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        _, question, sentence, label = line.split("\t")
        by_text[question]["near" if label == "entailment" else label].append(sentence)
    both = {question: found for question, found in by_text.items() if len(found) == 2}
    yield from contrasted(both, ("not_entailment",), draw)
    for article in articles(arguments, "train"):
        paragraphs = [paragraph["context"] for paragraph in article["paragraphs"]]
        for number, paragraph in enumerate(article["paragraphs"]):
            others = [*range(number), *range(number + 1, len(paragraphs))]
            asked = draw.sample(paragraph["qas"], min(PARAGRAPH_QUESTIONS, len(paragraph["qas"])))
            for each in asked if others else ():
                negative = paragraphs[draw.choice(others)]
                yield {"text": each["question"], "pair": paragraphs[number], "negative": negative}


def contrasted(
    by_text: Mapping[str, Mapping[str, list[str]]], far: tuple[str, ...], draw: random.Random
) -> Iterator[dict[str, str]]:
    every = [text for found in by_text.values() for label in far for text in found.get(label, [])]
    for text, found in by_text.items():
        for near in found.get("near", []):
            own = [each for label in far for each in found.get(label, [])]
            yield {"text": text, "pair": near, "negative": draw.choice(own or every)}


def questions(arguments: argparse.Namespace, split: str) -> Iterator[dict[str, str]]:
    """Every question of SQuAD with its paragraph."""
    for article in articles(arguments, split):
        for paragraph in article["paragraphs"]:
            for each in paragraph["qas"]:
                yield {"question": each["question"], "passage": paragraph["context"]}


def articles(arguments: argparse.Namespace, split: str) -> list[dict[str, Any]]:
    [path] = (arguments.data / "squad").glob(f"{split}*1.1*.json")
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["data"]
    return found


def by_words(dev: TaskData, split: str) -> Mapping[str, Metric]:
    """TF-IDF of words for scored pairs, BM25 for search."""
    first = "recall_at_10" if "search" in split else "spearman"
    chosen = TaskData(dataclasses.replace(dev.task, metrics=(first,)), dev.dev[split], {split: dev.dev[split]})
    return score_baselines(chosen, ["tfidf"]).methods[-1].scores[split]


# -- results -----------------------------------------------------------------------------------------------------------


def write(arguments: argparse.Namespace, rows: Mapping[str, Row]) -> None:
    """SCORES.json and SCORES.md, and the last row on the screen."""
    name, row = list(rows.items())[-1]
    for split, found in row.items():
        shown = ", ".join(f"{metric} {show_value(value.value, metric)}" for metric, value in found.items())
        print(f"  {name}, {split}: {shown}", flush=True)
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    facts = {
        "machine": machine,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "settings": {key: value.name if isinstance(value, Path) else value for key, value in vars(arguments).items()},
        "scores": {
            name: {split: {key: value.as_dict() for key, value in found.items()} for split, found in row.items()}
            for name, row in rows.items()
        },
    }
    write_atomic(arguments.out / "SCORES.json", json.dumps(facts, indent=1, default=str))
    lines = ["| adapter | data | metric | score | 95 % interval |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        for split, found in row.items():
            lines += [
                f"| {name} | {split} | {metric} | {show_value(value.value, metric)} | {show_interval(value, metric)} |"
                for metric, value in found.items()
            ]
    note = f"{machine}, torch {torch.__version__}, {facts['date']}; intervals over examples."
    write_atomic(arguments.out / "SCORES.md", "\n".join([*lines, "", note, ""]))


if __name__ == "__main__":
    main()
