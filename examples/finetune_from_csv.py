"""Fine-tune on a CSV file with a text and a label column: train, score on unseen rows, ask.

    python examples/finetune_from_csv.py                                        after examples/pretrain_on_text.py
    python examples/finetune_from_csv.py --data FOLDER --model albert/albert-base-v2
                                                                your own train.csv, dev.csv and test.csv

The columns are guessed and shown. On the command line: litebert finetune --task classification --train ..., then
litebert evaluate RUN/best --data test.csv and litebert predict classify "some text" --model RUN/best
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from litebert import Predictor, evaluate, finetune, finetune_config
from litebert.text.generate import generate_documents

KINDS = ("baking", "repair", "growing")  # what the model of pretrain_on_text.py has read about


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="runs/example/model")
    parser.add_argument("--data", type=Path, help="a folder with the three files; made where there is none")
    parser.add_argument("--out", type=Path, default=Path("runs/example-csv"))
    parser.add_argument("--epochs", type=float, default=8)
    options = parser.parse_args(arguments)
    data = options.data or write_csv(options.out.with_name(options.out.name + "-data"))

    config = finetune_config(
        {
            "task": "classification",
            "model": options.model,
            "data": {"train": str(data / "train.csv"), "dev": str(data / "dev.csv")},
            "preset": "cpu",
            "epochs": options.epochs,
            "optim": {"lr": 5e-4},  # small models need larger steps than the 2e-5 of released ones
            "device": {"threads": 1},
        }
    )
    result = finetune(config, options.out)
    if not result.completed:
        raise SystemExit("interrupted; the same command goes on from here")

    [scored] = evaluate([result.model], data=data / "test.csv")
    accuracy = scored.evaluations[0].scores["accuracy"]
    print(f"test accuracy {accuracy.value:.1%}, with 95 % confidence {accuracy.low:.1%} to {accuracy.high:.1%}")

    predictor = Predictor(result.model)
    for example in scored.evaluations[0].split.examples[:3]:
        said = predictor.classify(example.a)
        print(f"{said.label:10s} {said.probabilities[said.label]:4.0%}   {example.a}")


def write_csv(folder: Path) -> Path:
    """A sentence of a story, and the part of the story it is from; no test sentence stands in any training text."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, rows, split) in enumerate(
        [("train", 60, "train"), ("dev", 40, "train"), ("test", 300, "held-out")]
    ):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["sentence", "part"])
            for number, story in enumerate(generate_documents(rows, seed=100 + seed, split=split, kinds=KINDS)):
                place = number % len(story)
                part = "beginning" if place < 3 else "middle" if place < len(story) - 3 else "end"
                writer.writerow([story[place], part])
    return folder


if __name__ == "__main__":
    main()
