"""Rows of the "to add" table in docs/design.md, added from outside: a kind of task, a head, a public task."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toy_tasks import rows_of, tiny_config, write_rows

from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.finetuning.results import read_predictions, read_scores
from litebert.finetuning.run import finetune
from litebert.model.encoder import pad_packed
from litebert.model.heads import MODELS, Model, initialize_heads
from litebert.model.hub import load_model
from litebert.predict.predictor import Predictor
from litebert.tasks import read
from litebert.tasks.decode import Prediction, softmax
from litebert.tasks.kinds import KINDS, register
from litebert.tasks.kinds.classification import Classification, ClassReader, cross_entropy, mean_probabilities
from litebert.tasks.kinds.kind import TextKind, text_columns
from litebert.tasks.metrics import accuracy, share
from litebert.tasks.read import find_task, read_task
from litebert.tasks.task import Task, TaskData, TextExample, kind_of, load_task

LEVELS = ("1", "2", "3")
SPLITS = ((0, "train"), (2, "dev"))  # seeds


# -- a kind of task ----------------------------------------------------------------------------------------------------


class Ordinal(TextKind):
    """Ordered labels (stars): a model is right to be near, and decides for the label next to the mean."""

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


# -- a head ------------------------------------------------------------------------------------------------------------


class LoudestModel(Model):
    """The greatest state of any token -> one logit per label."""

    head, labelled, pooler = "loudest", True, False

    def __init__(self, config):
        super().__init__(config)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        initialize_heads(self)

    def forward(self, input_ids, **inputs):
        hidden = self.encode(input_ids, **inputs).hidden
        if "starts" in inputs:
            hidden = pad_packed(hidden, inputs["starts"], inputs["position_ids"], inputs["max_length"], -1e9)
        elif "attention_mask" in inputs:
            hidden = hidden.masked_fill(inputs["attention_mask"][..., None] == 0, -1e9)
        return self.classifier(hidden.amax(1))


class Loud(Classification):
    name, aliases = "loud", ()

    def head(self, task):
        return "loudest"


@pytest.fixture
def loudest(monkeypatch):
    monkeypatch.setitem(MODELS, "loudest", LoudestModel)
    monkeypatch.setitem(KINDS, "loud", Loud())


def test_a_head_from_outside(loudest, toy_model, tmp_path, monkeypatch):
    made = {split: str(write_rows(tmp_path / f"{split}.csv", rows_of("classification", 80, n))) for n, split in SPLITS}
    config = tiny_config(toy_model, made, "loud", steps=80, log={"evaluate_every": 40})
    result = finetune(config, tmp_path / "run", quiet=True)
    assert result.scores.value > 0.9

    model = load_model(result.model)  # its config.json says which head
    assert type(model) is LoudestModel
    assert model.config.labels == ("neg", "pos")
    model.save_pretrained(tmp_path / "copy")
    ids = torch.tensor([[2, 9, 8, 3], [2, 7, 3, 0]])
    mask = (ids > 0).long()
    again = Model.from_pretrained(tmp_path / "copy")
    assert torch.equal(again(ids, attention_mask=mask), model(ids, attention_mask=mask))
    # transformers has no such head, so the folder says that it is not one of its models.
    assert json.loads((tmp_path / "copy" / "config.json").read_text())["model_type"] == "litebert"
    assert "opens in litebert only" in (result.model / "README.md").read_text()

    monkeypatch.delitem(MODELS, "loudest")
    with pytest.raises(CheckpointError, match=r"architecture .* is unknown; choose a head: encoder"):
        load_model(tmp_path / "copy")


# -- a public task -----------------------------------------------------------------------------------------------------


def read_moods(name, folder, files, encoding):
    """One text per line, "+" or "-" before it: what a module `tasks/moods.py` would bring."""
    found = {path.stem: path for path in sorted(folder.iterdir())} if folder else files
    splits = {}
    for split, path in found.items():
        lines = enumerate(path.read_text(encoding=encoding).splitlines())
        splits[split] = [TextExample(str(n), line[1:], None, "-+".index(line[0]), f"{path}:{n}") for n, line in lines]
    return TaskData.of(MOODS[name], splits)


MOODS = {"moods": Task("moods", "classification", ("bad", "good"), ("accuracy",), max_length=32)}


@pytest.fixture
def moods(monkeypatch):
    monkeypatch.setattr(read, "PUBLIC", [*read.PUBLIC, SimpleNamespace(TASKS=MOODS, read=read_moods)])


def test_a_public_task_from_outside(moods, cli, toy_model, tmp_path):
    folder = tmp_path / "moods"
    folder.mkdir()
    for number, split in SPLITS:
        rows = rows_of("classification", 60, number)
        lines = (("+" if row["label"] == "pos" else "-") + row["text"] for row in rows)
        (folder / f"{split}.txt").write_text("\n".join(lines), encoding="utf-8")
    assert find_task("Moods") == "moods"
    assert [len(read_task("moods", folder=folder).train), *read_task("moods", folder=folder).dev] == [60, "dev"]
    settings = ("steps=60", "batch=8", "optim.lr=0.01", "log.evaluate_every=30", "device.threads=1")
    done = cli(
        *["finetune", "--task", "moods", "--data", folder, "--model", toy_model, "--out", tmp_path / "run"],
        *(part for setting in settings for part in ("--set", setting)),
    )
    assert done.code == 0, done
    assert read_scores(tmp_path / "run").value > 0.7
    assert load_task(tmp_path / "run" / "best").labels == ("bad", "good")
    with pytest.raises(DataError, match="moods: not on the Hub; give a folder"):
        read_task("moods")
