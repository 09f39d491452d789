"""A task of your own, made in Python: which of three sentences comes next in a story?

    python examples/custom_task.py                        after examples/pretrain_on_text.py
    python examples/custom_task.py --train 5000 --model FOLDER

A task is a `Task` (its kind, its labels, its metric) and examples from wherever you have them: a database, an API, a
file in a format of its own. The rest is the same for all: fine-tuning, scores with intervals, the Predictor.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from litebert import Predictor, evaluate, finetune, finetune_config
from litebert.tasks.task import ChoiceExample, Task, TaskData
from litebert.text.generate import generate_documents

KINDS = ("baking", "repair", "growing")  # what the model of pretrain_on_text.py has read about
TASK = Task("next-sentence", "multiple-choice", metrics=("accuracy",), num_choices=3)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="runs/example/model")
    parser.add_argument("--out", type=Path, default=Path("runs/example-custom"))
    parser.add_argument("--train", type=int, default=300, help="number of training questions")
    options = parser.parse_args(arguments)

    data = TaskData(TASK, train=list(questions(options.train, 1)), dev={"dev": list(questions(100, 2))})
    settings = {"preset": "cpu", "optim": {"lr": 5e-4}, "device": {"threads": 1}}
    config = finetune_config({"model": options.model, **settings})
    result = finetune(config, options.out, data=data)
    if not result.completed:
        raise SystemExit("interrupted; the same command goes on from here")

    unseen = list(questions(200, 3, split="held-out"))
    [scored] = evaluate([result.model], data=TaskData(TASK, dev={"unseen": unseen}))
    accuracy = scored.evaluations[0].scores["accuracy"]
    print(f"right on unseen stories: {accuracy.value:.1%} ({accuracy.low:.1%} to {accuracy.high:.1%}); a guess: 33 %")

    predictor, example = Predictor(result.model), unseen[0]
    answer = predictor.choose(example.passage, example.question, example.options)
    print(f"\n{example.passage} ...")
    for number, (option, probability) in enumerate(zip(example.options, answer.probabilities, strict=True)):
        print(f"{probability:4.0%}  {option}" + ("     <- right" if number == example.label else ""))


def questions(count: int, seed: int, split: str = "train") -> Iterator[ChoiceExample]:
    """A sentence, what follows it, and two other sentences of the same story, in any order."""
    draw = random.Random(seed)
    for number, story in enumerate(generate_documents(count, seed=200 + seed, split=split, kinds=KINDS)):
        place = draw.randrange(len(story) - 1)
        others = draw.sample([text for text in story if text not in story[place : place + 2]], 2)
        options = draw.sample([story[place + 1], *others], 3)
        where = f"story {number}"  # for messages about this example
        yield ChoiceExample(str(number), story[place], "", tuple(options), options.index(story[place + 1]), where)


if __name__ == "__main__":
    main()
