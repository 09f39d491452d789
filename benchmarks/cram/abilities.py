"""The adapters that come with the default model, trained and scored: sentiment, questions, entailment, similarity.

    python benchmarks/cram/abilities.py MODEL DATA --corpus simplewiki-00.txt.xz --out abilities --jobs 4
    python benchmarks/cram/abilities.py default DATA --corpus text.txt --out /tmp/a --limit 64 --steps 2   # a smoke run
    python tools/ship_adapters.py abilities/sentiment abilities/questions abilities/entailment abilities/similarity

DATA holds glue/ (SST-2, RTE, QNLI, STS-B), squad/ (1.1) and pairs/ (mnli, snli, qqp as CSV). Each ability is one run
folder under --out with its adapter and its dev scores; runs that are complete are not run again, and a stopped one is
resumed. With --jobs, abilities are trained side by side, each in a process of its own with a log in OUT/logs (the same
as several commands with --only at once). Settings are fixed before: nothing is chosen on dev, which is scored once,
with the weights of the last step.

`similarity` is trained in two stages, both scored:

    text        no labels: three kinds of examples made from the corpus (unlabelled.py)
    similarity  from text: what follows from what (SNLI, MNLI), the same question (QQP), a question with its sentence
                (QNLI) and its paragraph (SQuAD), each against a hard negative where the data have one, and in the same
                batches STS-B's scores, so that it learns them without losing search

Beside them stand BM25 and TF-IDF, and the model as it is. SCORES.json and SCORES.md are written on the way.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import dataclasses
import itertools
import json
import lzma
import platform
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from unlabelled import FILLER, Triplet, make_examples, read_articles

from litebert.baselines.table import score_baselines
from litebert.config import merge
from litebert.files import write_atomic
from litebert.finetuning.config import finetune_config
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.results import read_scores, write_scores
from litebert.finetuning.run import finetune
from litebert.model.adapter import read_adapter_config
from litebert.tasks.metrics import Metric, score, show_interval, show_value
from litebert.tasks.read import read_task
from litebert.tasks.task import SimilarityExample, Task, TaskData, TextExample

Row = Mapping[str, Mapping[str, Metric]]  # split -> metric -> value

NLI = ("entailment", "neutral", "contradiction")
ABILITIES = ("questions", "similarity", "sentiment", "entailment")  # the longest first
RANK = 24  # on all six matrices: 0.7 MB in fp16
TARGETS = ("query", "key", "value", "attention_output", "ffn_input", "ffn_output", "pooler")
# Settings on top of the common ones (a new adapter, one evaluation at the end).
SETTINGS: dict[str, dict[str, Any]] = {
    "sentiment": {"batch": 32, "epochs": 3.0, "max_length": 128},
    "questions": {"batch": 48, "epochs": 2.0, "max_length": 384},
    "entailment": {"batch": 64, "epochs": 3.0, "max_length": 192},
    "text": {"batch": 256, "similarity": {"symmetric": True}},
    "similarity": {"batch": 256},
}
STAGES = {"text": None, "similarity": "text"}  # of similarity, and where each goes on
# Examples of `text` by their kind (unlabelled.py): about 25 million tokens.
TEXT = {"neighbours": 160_000, "echoes": 80_000, "cloze": 60_000}
SCORED_EPOCHS = 5  # of STS-B within the one epoch of `similarity`
PARAGRAPH_QUESTIONS = 2  # of each of SQuAD's paragraphs
CORPUS_BYTES = 48_000_000  # of the corpus are read
DEV = {"sentiment": "SST-2 dev", "questions": "SQuAD 1.1 dev"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder, or default")
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--corpus", type=Path, help="plain text, one paragraph per line; without it, the stage `text` is left out"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=ABILITIES, default=ABILITIES)
    parser.add_argument("--jobs", type=int, default=1, help="abilities that are trained side by side")
    parser.add_argument("--start", type=Path, metavar="FOLDER", help="go on from the adapters there, by their names")
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--batch", type=int, help="examples per step, other than the ability's own")
    parser.add_argument("--lr", type=float, default=5e-4, help="where a stage has no rate of its own")
    parser.add_argument("--share", type=float, default=1.0, help="of the epochs and of TEXT: 0.5 is half")
    parser.add_argument("--text", nargs="+", metavar="KIND=N", help="examples of the stage `text`, other than TEXT")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES), help="of similarity")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto", help="of training")
    parser.add_argument("--limit", type=int, default=0, help="examples per file, for a smoke run")
    parser.add_argument("--steps", type=int, help="of every run, in batches of 8, for a smoke run")
    arguments = parser.parse_args()
    (arguments.out / "rows").mkdir(parents=True, exist_ok=True)
    if arguments.jobs > 1:
        run_jobs(arguments)
        return
    for ability in arguments.only:
        steps = {"similarity": similarity, "entailment": entailment}.get(ability, plain)
        rows: dict[str, Row] = {}
        for name, found in steps(ability, arguments):
            rows[name] = found
            write(arguments, ability, rows)


def run_jobs(arguments: argparse.Namespace) -> None:
    """Train each ability in a process of its own; exit code 1 if one fails."""
    logs = arguments.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    options = {key: value for key, value in vars(arguments).items() if key not in ("model", "data", "only", "jobs")}
    given = []
    for key, value in options.items():
        if value is not None:
            given += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]

    def run(ability: str) -> int:
        command = [sys.executable, __file__, arguments.model, str(arguments.data), *given, "--only", ability]
        with (logs / f"{ability}.log").open("w", encoding="utf-8") as log:
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
        print(f"{ability}: {'done' if code == 0 else f'failed, see {log.name}'}", flush=True)
        return code

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        codes = list(pool.map(run, [ability for ability in ABILITIES if ability in arguments.only]))
    if any(codes):
        raise SystemExit(1)
    print((arguments.out / "SCORES.md").read_text(encoding="utf-8"))


def train(name: str, arguments: argparse.Namespace, data: TaskData, start: str | None = None) -> Row:
    """The dev scores of a run with these examples, in OUT/NAME; `start` is the adapter to go on from."""
    began = time.monotonic()
    adapter: dict[str, Any] = {"rank": arguments.rank, "targets": TARGETS, "start": start}
    if start is None and arguments.start is not None:
        earlier = read_adapter_config(arguments.start / name)
        adapter = {"rank": earlier["r"], "alpha": earlier["lora_alpha"], "start": str(arguments.start / name)}
    settings: dict[str, Any] = {
        "task": data.task.kind,
        "model": arguments.model,
        "seed": arguments.seed,
        "epochs": 1.0,
        "optim": {"lr": arguments.lr},
        "adapter": adapter,
        "device": {"device": arguments.device, "precision": arguments.precision},
        "log": {"evaluate_every": 0, "report_every": 50},
    }
    settings = merge(settings, SETTINGS[name])
    settings["epochs"] *= arguments.share
    if arguments.batch:
        settings["batch"] = arguments.batch
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
    if all(read_scores(arguments.out / stage) is not None for stage in arguments.stages):
        saved = json.loads((arguments.out / "rows" / f"{name}.json").read_text(encoding="utf-8"))
        yield from ((row, from_plain(splits)) for row, splits in saved.items())
        return
    sts = read_task("similarity", dev=arguments.data / "glue" / "STS-B" / "dev.tsv")
    search = read_task("similarity", dev=list(questions(arguments, "dev")))
    task = dataclasses.replace(sts.task, max_length=256)
    dev = TaskData(task, dev={"STS-B dev": sts.dev["dev"], "SQuAD dev search": search.dev["dev"]})
    dev = shortened(dev, arguments)
    yield "words (TF-IDF, BM25)", {split: by_words(dev, split) for split in dev.dev}
    untrained = evaluate_task([arguments.model], task="similarity", data=dev, device=arguments.device)[0]
    yield "the model as it is", {each.split.name: each.scores for each in untrained.evaluations}
    for stage in arguments.stages:
        origin = STAGES[stage]
        if stage == "text" and arguments.corpus is None:
            continue
        start = str(arguments.out / origin / "adapter") if origin is not None and arguments.corpus is not None else None
        done = read_scores(arguments.out / stage)
        if done is None:
            data = dataclasses.replace(dev, train=list(examples(stage, arguments)))
            yield stage, train(stage, arguments, data, start=start)
        else:
            yield stage, done.splits


def examples(stage: str, arguments: argparse.Namespace) -> Iterator[SimilarityExample]:
    """The training examples of a stage, as triplets of which some have a score."""
    found = unlabelled(arguments) if stage == "text" else labelled(arguments)
    for number, (*texts, nearness) in enumerate(found):
        yield SimilarityExample(str(number), tuple(texts), nearness, f"{stage}:{number + 1}", "triplets")


def unlabelled(arguments: argparse.Namespace) -> Iterator[Triplet]:
    """The examples made from the corpus."""
    wanted = dict(TEXT)
    if arguments.text:
        wanted = {kind: int(size) for kind, _, size in (each.partition("=") for each in arguments.text)}
    most = arguments.limit or max(wanted.values())
    sizes = {kind: min(most, max(2, int(arguments.share * size))) for kind, size in wanted.items()}
    return make_examples(read_articles(beginning(arguments)), sizes, arguments.seed)


def labelled(arguments: argparse.Namespace) -> Iterator[Triplet]:
    """The triplets of all data, and STS-B's pairs with their scores."""
    most = arguments.limit or None
    read = read_task("similarity", train=arguments.data / "glue" / "STS-B" / "train.tsv").train
    for _ in range(SCORED_EPOCHS):
        for each in read[:most]:
            assert isinstance(each, SimilarityExample)
            yield each.texts[0], each.texts[1], FILLER, each.score
    for row in itertools.islice(triplets(arguments), most):
        yield row["text"], row["pair"], row["negative"], None


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


def write(arguments: argparse.Namespace, ability: str, rows: Mapping[str, Row]) -> None:
    """The rows of an ability, SCORES.json and SCORES.md of all that are there, and the last row on the screen."""
    name, row = list(rows.items())[-1]
    for split, found in row.items():
        shown = ", ".join(f"{metric} {show_value(value.value, metric)}" for metric, value in found.items())
        print(f"  {name}, {split}: {shown}", flush=True)
    folder = arguments.out / "rows"
    write_atomic(folder / f"{ability}.json", json.dumps(to_plain(rows), indent=1))
    plain_rows: dict[str, Any] = {}
    for each in sorted(folder.glob("*.json"), key=lambda path: ABILITIES.index(path.stem)):
        plain_rows |= json.loads(each.read_text(encoding="utf-8"))
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    facts = {
        "machine": machine,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "settings": {key: value.name if isinstance(value, Path) else value for key, value in vars(arguments).items()},
        "scores": plain_rows,
    }
    write_atomic(arguments.out / "SCORES.json", json.dumps(facts, indent=1, default=str))
    lines = ["| adapter | data | metric | score | 95 % interval |", "|---|---|---|---|---|"]
    for name, row in ((name, from_plain(splits)) for name, splits in plain_rows.items()):
        for split, found in row.items():
            lines += [
                f"| {name} | {split} | {metric} | {show_value(value.value, metric)} | {show_interval(value, metric)} |"
                for metric, value in found.items()
            ]
    note = f"{machine}, torch {torch.__version__}, {facts['date']}; intervals over examples."
    write_atomic(arguments.out / "SCORES.md", "\n".join([*lines, "", note, ""]))


def to_plain(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Rows as JSON holds them."""
    return {
        name: {split: {key: value.as_dict() for key, value in found.items()} for split, found in row.items()}
        for name, row in rows.items()
    }


def from_plain(splits: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Row:
    """A row as it was."""
    return {split: {key: Metric(**value) for key, value in found.items()} for split, found in splits.items()}


if __name__ == "__main__":
    main()
