"""A task of one's own, with examples that no file holds: trained, scored, used and evaluated like any other."""

from __future__ import annotations

import json

import pytest
from toy_tasks import make_model, rows_of, tiny_config, write_rows

from litebert import finetune
from litebert.errors import DataError
from litebert.finetuning.evaluate import evaluate_task
from litebert.predict.predictor import Predictor
from litebert.tasks.examples import TextExample
from litebert.tasks.task import Task, TaskData, load_task

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


def test_an_export_is_checked_on_a_file_of_its_kind(trained, tmp_path, cli):
    file = write_rows(tmp_path / "dev.csv", rows_of("classification", 20, 6))
    result = cli("export", trained.model, "--to", "onnx", "--out", tmp_path / "onnx", "--check-data", file)
    assert result.code == 0, result
    assert "accuracy" in result.out


def test_nothing_to_score_is_said(trained):
    with pytest.raises(DataError, match="mood: neither a dev nor a test split"):
        evaluate_task([trained.model], data=TaskData(TASK))
