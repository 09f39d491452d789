"""Find people, places and years in sentences: write tagged sentences, train a tagger, score it, ask it.

    python examples/tag_names.py                                          from the model in the package
    python examples/tag_names.py --model runs/example/model --lr 5e-4     from one that has read three kinds of story

No name and no wording of the test sentences is in the training sentences: what a name is, the model has to know from
its pretraining. On the command line: litebert finetune --task token-classification --train ..., then litebert predict
tag "some text" --model RUN/best
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from litebert import Predictor, evaluate, finetune, finetune_config

WORDINGS = """{PER} was born in {LOC} in {YEAR} .
{PER} , a teacher from {LOC} , died in {YEAR} .
In {YEAR} , {PER} moved from {LOC} to {LOC} .
The mayor of {LOC} was called {PER} .
{PER} and {PER} met at a school in {LOC} .
The river near {LOC} froze in {YEAR} .
From {YEAR} to {YEAR} the bridge was closed .
He wrote to {PER} about the fire in {LOC} .
It was {PER} who built the mill in {YEAR} .
After the war {PER} lived with {PER} in {LOC} .""".splitlines()
UNSEEN_WORDINGS = """{PER} opened a shop in {LOC} before {YEAR} .
Nobody in {LOC} had heard of {PER} until {YEAR} .
Since {YEAR} the trains stop at {LOC} , said {PER} .
The painter {PER} was a friend of {PER} .""".splitlines()
NAMES = {
    "train": {
        "first": "Anna John Mary Paul Ruth George Emma Henry Clara Peter Alice Frank Helen Carl Laura Max".split(),
        "last": "Reed Berg Hill Stone Novak Marsh Lane Fischer Wood Silva Grant Moore Holt Weber Cole Diaz".split(),
        "place": "Ashby,Leeds,Boston,Turin,Cairo,Lyon,New York,Quebec,Malmo,Porto,San Diego,Vienna,Kyoto".split(","),
    },
    "test": {
        "first": "Maria David Elena Oscar Julia Walter Nina Simon".split(),
        "last": "Lopez Brown Keller Rossi Palmer Young Larsen Fox".split(),
        "place": "Lima,Oxford,Munich,Los Angeles,Dublin,Havana,Geneva,Milan".split(","),
    },
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--out", type=Path, default=Path("runs/example-tags"))
    parser.add_argument("--train", type=int, default=240, help="number of training sentences")
    parser.add_argument("--lr", type=float, default=1e-4, help="small models need larger steps")
    parser.add_argument("--text", default="Maria Lopez was born in Lima and moved to Los Angeles in 1948.")
    options = parser.parse_args(arguments)

    data = options.out.with_name(options.out.name + "-data")
    train, dev, test = data / f"train-{options.train}.jsonl", data / "dev.jsonl", data / "test.jsonl"
    write_lines(train, sentences(options.train, "train", WORDINGS, "train"))
    write_lines(dev, sentences(60, "dev", WORDINGS, "train"))
    write_lines(test, sentences(200, "test", UNSEEN_WORDINGS, "test"))
    config = finetune_config(
        {
            "task": "token-classification",
            "model": options.model,
            "data": {"train": str(train), "dev": str(dev)},
            "preset": "cpu",
            "optim": {"lr": options.lr},
            "device": {"threads": 1},
        }
    )
    result = finetune(config, options.out)
    if not result.completed:
        raise SystemExit("interrupted; the same command goes on from here")

    [scored] = evaluate([result.model], data=test)
    f1 = scored.evaluations[0].scores["entity_f1"]
    print(f"entities with names and wordings it never saw: F1 {f1.value:.1%} ({f1.low:.1%} to {f1.high:.1%})")
    print(options.text)
    for entity in Predictor(result.model).tag(options.text).entities:
        print(f"{entity.label:5s} {entity.probability:4.0%}  {entity.text}")


def sentences(count: int, seed: str, wordings: list[str], names: str) -> Iterator[dict[str, list[str]]]:
    """Words with their tags: {"words": ["Anna", "Reed", "was", ...], "tags": ["B-PER", "I-PER", "O", ...]}."""
    draw, lists = random.Random(seed), NAMES[names]
    for _ in range(count):
        words, tags = [], []
        for word in draw.choice(wordings).split():
            slot = re.fullmatch(r"\{(\w+)\}", word)
            said = {
                "PER": draw.choice(lists["first"]) + draw.choice(["", " " + draw.choice(lists["last"])]),
                "LOC": draw.choice(lists["place"]),
                "YEAR": str(draw.randint(1700, 2020)),
            }
            new = said[slot[1]].split() if slot else [word]
            words += new
            tags += [f"B-{slot[1]}", *[f"I-{slot[1]}"] * (len(new) - 1)] if slot else ["O"]
        yield {"words": words, "tags": tags}


def write_lines(path: Path, rows: Iterator[dict[str, list[str]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
