"""A kind of task from outside: registered in one line, it is read, learnt, scored, shown, exported and predicted.

Ordinal labels (stars): a model is right to be near, and decides for the label next to the mean.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from toy_tasks import rows_of, write_rows

from litebert.errors import ConfigError
from litebert.finetuning.results import read_predictions, read_scores
from litebert.predict.predictor import Predictor
from litebert.tasks.decode import Prediction, softmax
from litebert.tasks.kinds import KINDS, register
from litebert.tasks.kinds.classification import ClassReader, cross_entropy, mean_probabilities
from litebert.tasks.kinds.texts import TextKind, text_columns
from litebert.tasks.metrics import accuracy, share
from litebert.tasks.task import Task, kind_of, load_task

LEVELS = ("1", "2", "3")


class Ordinal(TextKind):
    name = "ordinal"
    aliases = ("ordered",)
    says = "label"
    columns = text_columns("level")
    reader = ClassReader
    metrics = ("within_one", "accuracy")

    def targets(self, task, sequences, places):
        return {"labels": places.per_row([sequence.target for sequence in sequences])}, len(sequences)

    def loss(self, head, forward, targets, num_rows):
        logits, labels = forward().float(), targets["labels"]
        loss, right = cross_entropy(logits, labels)
        means = logits.softmax(-1) @ torch.arange(logits.shape[-1]).float()
        return loss + ((means - labels) * (labels >= 0)).square().sum(), right

    def decide(self, task, logits):
        return self._nearest(softmax(logits))

    def average(self, task, votes):
        return self._nearest(mean_probabilities(votes))

    def _nearest(self, probabilities):
        return Prediction(round(float(probabilities @ np.arange(len(probabilities)))), probabilities)

    def measures(self, task, examples, values):
        gold, found = np.array([example.label for example in examples]), np.array(values)
        known = {"within_one": share(abs(gold - found) <= 1), "accuracy": accuracy(gold, found)}
        return {name: known[name] for name in task.metrics}

    def constant(self, task, train, examples):
        middle = int(np.median([example.label for example in train]))
        return f"always the middle, {task.labels[middle]}", [middle] * len(examples)

    def cell(self, task, value):
        return task.labels[value]

    def say(self, task, example, value):
        return task.labels[value]

    def badness(self, task, example, gold, prediction):
        return abs(gold - prediction.value) + 1 - float(prediction.probabilities[gold])


@pytest.fixture
def ordinal(monkeypatch):
    monkeypatch.setitem(KINDS, "ordinal", None)  # so that it is taken back afterwards
    register(Ordinal())


def files(folder):
    made = {}
    for number, (split, count) in enumerate({"train": 60, "dev": 30}.items()):
        rows = rows_of("classification", count, number)
        for row in rows:
            good, bad = row.pop("label") == "pos", "story" in row["text"]
            row["level"] = "3" if good else "1" if bad else "2"
        made[split] = write_rows(folder / f"{split}.csv", rows)
    return made


def test_a_kind_from_outside(ordinal, cli, toy_model, tmp_path):
    made, run = files(tmp_path), tmp_path / "run"
    settings = ("steps=40", "batch=16", "max_length=40", "optim.lr=0.01", "log.evaluate_every=20", "device.threads=1")
    done = cli(
        *["finetune", "--task", "ordered", "--train", made["train"], "--dev", made["dev"], "--test", made["dev"]],
        *["--model", toy_model, "--out", run, *(part for setting in settings for part in ("--set", setting))],
    )
    assert done.code == 0, done
    assert "always the middle, 3: within_one" in done.out
    task = load_task(run / "best")
    assert (task.kind, task.labels, task.metrics) == ("ordinal", LEVELS, ("within_one", "accuracy"))
    scores = read_scores(run).splits["dev"]
    assert scores["accuracy"].value > 0.7 > 1 - scores["within_one"].value
    assert "Accuracy on dev" in (run / "report.html").read_text()
    assert (run / "predictions" / "ordinal-test.tsv").read_text().startswith("index\tprediction\n0\t")
    assert 'predictor.classify("a text")' in (run / "best" / "README.md").read_text()

    again = cli("evaluate", run / "best", run / "best", "--data", made["dev"], "--json", "--threads", "1")
    first, _, ensemble = json.loads(again.out)
    assert first["scores"]["accuracy"]["value"] == ensemble["scores"]["accuracy"]["value"] == scores["accuracy"].value
    table = cli("baseline", "--task", "ordinal", "--train", made["train"], "--dev", made["dev"], "--method", "bow")
    assert "within one" in table.out

    predictor = Predictor(run / "best", device="cpu", threads=1)
    for line in read_predictions(run / "predictions" / "dev.jsonl")[:10]:
        assert predictor.classify(line["text"]).label == line["prediction"]


def test_a_kind_that_nobody_registered_is_refused():
    with pytest.raises(ConfigError, match="kind: 'ordinal' is not one of: classification, regression"):
        kind_of(Task("mine", "ordinal"))
