"""A task of one's own, with examples that no file holds: trained, scored, used and evaluated like any other."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np
import pandas
import pyarrow as pa
import pytest
import torch
from toy_tasks import make_model, rows_of, tiny_config, write_rows

from litebert import evaluate, finetune
from litebert.config import read_yaml, to_dict
from litebert.errors import ConfigError, DataError
from litebert.finetuning.config import finetune_config
from litebert.finetuning.evaluate import evaluate_task
from litebert.model.hub import load_model
from litebert.predict.predictor import Predictor
from litebert.tasks.task import Task, TaskData, TextExample, load_task

TASK = Task("mood", "classification", labels=("neg", "pos"))


def examples(count, seed):
    rows = rows_of("classification", count, seed)
    return [
        TextExample(str(i), row["text"], None, TASK.labels.index(row["label"]), f"row {i}")
        for i, row in enumerate(rows)
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    data = TaskData(TASK, examples(48, 0), {"dev": examples(24, 2)})
    config = tiny_config(make_model(folder / "model"), {}, steps=120, log={"evaluate_every": 30})
    return finetune(config, folder / "run", data=data, quiet=True)


def test_it_learns_and_remembers_its_task(trained):
    assert trained.scores.metric == "accuracy", "the usual one of its kind, where the task names none"
    assert trained.scores.value > 0.9
    task = load_task(trained.model)
    assert (task.name, task.labels) == ("mood", ("neg", "pos"))
    assert json.loads((trained.folder / "run.json").read_text())["task"] == "mood"
    assert Predictor(trained.model, threads=1).classify("the film was very great").label == "pos"


def test_it_is_evaluated_on_examples_and_on_a_file_of_its_kind(trained, tmp_path, cli):
    unseen = examples(40, 4)
    [scored] = evaluate_task([trained.model], data=TaskData(TASK, dev={"unseen": unseen}), threads=1)
    evaluation = scored.evaluations[0]
    right = sum(p.value == e.label for p, e in zip(evaluation.predictions, unseen, strict=True))
    assert evaluation.scores["accuracy"].value == pytest.approx(right / 40)
    file = write_rows(tmp_path / "unseen.csv", rows_of("classification", 40, 4))
    result = cli("evaluate", trained.model, "--data", file, "--threads", 1, "--json")
    assert result.code == 0, result
    assert json.loads(result.out)[0]["scores"]["accuracy"]["value"] == pytest.approx(right / 40)


def frames(rows):
    """The same rows as everything that people hold them in."""
    arrow = pa.Table.from_pylist(rows)
    yield "dictionaries", rows
    yield "tuples", [tuple(row.values()) for row in rows]
    yield "columns", {name: np.array([row[name] for row in rows]) for name in rows[0]}
    yield "pandas", pandas.DataFrame(rows, index=[f"row {i}" for i in range(len(rows))])
    yield "arrow", arrow
    yield "datasets", datasets.Dataset(arrow)


def test_rows_in_memory_are_learnt_as_those_of_a_file(toy_model, tmp_path):
    train, dev = rows_of("classification", 24, 0), rows_of("classification", 12, 2)
    files = {"train": write_rows(tmp_path / "train.csv", train), "dev": write_rows(tmp_path / "dev.csv", dev)}
    config = to_dict(tiny_config(toy_model, {}, steps=2))
    told = finetune(config, tmp_path / "file", quiet=True, **files)
    expected = load_model(told.model).state_dict()
    others = dict(frames(dev))
    for name, rows in frames(train):
        result = finetune(config, tmp_path / name, task="classification", train=rows, dev=others[name], quiet=True)
        assert result.scores == told.scores, name
        for key, tensor in load_model(result.model).state_dict().items():
            assert torch.equal(tensor, expected[key]), (name, key)
    again = finetune(config, tmp_path / "mixed", train=train, dev=files["dev"], quiet=True)
    assert again.scores == told.scores
    assert finetune(config, tmp_path / "mixed", train=train, dev=dev, quiet=True).completed  # complete: left alone


def test_rows_in_memory_are_scored_as_those_of_a_file(trained, tmp_path):
    rows = rows_of("classification", 20, 6)
    (told,) = evaluate(trained.model, data=write_rows(tmp_path / "test.csv", rows))
    for name, held in frames(rows):
        (scored,) = evaluate(trained.model, data=held)
        columns = {"text": "1", "label": "2"} if name == "tuples" else {"text": "text", "label": "label"}
        assert scored.evaluations[0].scores == told.evaluations[0].scores, name
        assert scored.notes[0].startswith(f"test: text = {columns['text']!r}, label = {columns['label']!r}"), name
        assert scored.evaluations[0].split.name == "data"


def test_a_task_or_data_in_the_place_of_the_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="classification: no such config file; to name a task: task='classification'"):
        finetune("classification", train="train.csv")
    with pytest.raises(
        ConfigError, match=r"config: expected a YAML file or settings, got DataFrame; name the data: tr"
    ):
        finetune(pandas.DataFrame(rows_of("classification", 4, 0)))
    with pytest.raises(ConfigError, match=r"^no\.yaml: no such config file$"):
        finetune("no.yaml")


def test_what_is_named_stands_over_the_config(toy_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = rows_of("regression", 12, 0)
    config = tiny_config(toy_model, {}, "regression", steps=2)
    more = dict(epochs=1, batch=4, lr=0.002, max_length=24, device="cpu", seed=3, settings=["patience=2"])
    result = finetune(config, train=rows, columns={"text": "text", "label": "score"}, quiet=True, **more)
    assert (result.folder, result.step) == (Path("runs/regression"), 3)
    made = finetune_config(read_yaml("runs/regression/config.yaml"))
    assert (made.epochs, made.steps, made.batch, made.optim.lr, made.max_length) == (1, None, 4, 0.002, 24)
    assert (made.seed, made.patience, made.device.device, made.preset) == (3, 2, "cpu", "base")


def test_rows_that_cannot_be_learnt_from(toy_model, tmp_path):
    def run(**data):
        finetune(tiny_config(toy_model, {}), tmp_path / "run", quiet=True, **data)

    with pytest.raises(DataError, match="train: cannot tell which column is the label; the columns are 'text'"):
        run(train={"text": ["a", "b"]})
    with pytest.raises(DataError, match="sst-2: train: expected a file; for rows in memory use its kind"):
        run(task="sst-2", train=[("a", 1)])
    assert not (tmp_path / "run").exists()


def test_an_export_is_checked_on_a_file_of_its_kind(trained, tmp_path, cli):
    file = write_rows(tmp_path / "dev.csv", rows_of("classification", 20, 6))
    result = cli("export", trained.model, "--to", "onnx", "--out", tmp_path / "onnx", "--check-data", file)
    assert result.code == 0, result
    assert "accuracy" in result.out


def test_nothing_to_score_is_said(trained):
    with pytest.raises(DataError, match="mood: no dev or test split found"):
        evaluate_task([trained.model], data=TaskData(TASK))
