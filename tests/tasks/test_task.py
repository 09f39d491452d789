"""A task as task.json, and the head it needs."""

from __future__ import annotations

import json

import pytest

from litebert.errors import CheckpointError, ConfigError
from litebert.model.heads import MODELS
from litebert.tasks.examples import QuestionExample, TagExample, TextExample, is_labelled
from litebert.tasks.own import METRICS
from litebert.tasks.read import named_tasks
from litebert.tasks.task import KINDS, Task, check_outputs, head_of, load_task, save_task
from litebert.tasks.windows import stride_for


@pytest.mark.parametrize(
    "task", [*named_tasks().values(), Task("나", "classification", ("좋다", "싫다"), columns={"text": "문장"})]
)
def test_a_saved_task_is_read_back(tmp_path, task):
    save_task(task, tmp_path)
    assert load_task(tmp_path) == task
    assert [path.name for path in tmp_path.iterdir()] == ["task.json"]
    assert head_of(task) in MODELS
    assert task.metrics or task.name == "나"


def test_lengths_are_those_of_the_released_scripts():
    """run_squad_v1.py, run_squad_v2.py: 384 tokens, stride 128, question 64, answer 30; run_race.py: option 128."""
    for name in ("squad-1.1", "squad-2.0"):
        task = named_tasks()[name]
        assert (task.max_length, task.max_question, task.max_answer) == (384, 64, 30), name
        rooms = range(384 - 3 - 64, 384 - 3)  # beside the longest and the shortest question
        assert {stride_for(room, task.max_answer) for room in rooms} == {128}, name
    for name in ("race", "race-middle", "race-high"):
        assert (named_tasks()[name].max_length, named_tasks()[name].max_option) == (512, 128), name


def test_heads():
    heads = {kind: head_of(Task("t", kind)) for kind in KINDS}
    assert heads == {
        "classification": "classification",
        "regression": "classification",
        "multi-label": "classification",
        "token-classification": "token-classification",
        "multiple-choice": "multiple-choice",
        "question-answering": "span",
    }
    assert head_of(Task("t", "question-answering", answerable_head=True)) == "answer"
    assert set(METRICS) == set(KINDS)


def test_a_folder_of_before_keeps_its_stride(tmp_path):
    """Windows once began 128 tokens apart whatever their length; a model's answers stay as they were scored."""
    old = {"format": 1, "name": "x", "kind": "question-answering", "max_length": 128, "stride": 128}
    (tmp_path / "task.json").write_text(json.dumps(old))
    assert load_task(tmp_path).stride == 128


def test_a_folder_without_or_with_a_damaged_task(tmp_path):
    assert load_task(tmp_path) is None
    path = tmp_path / "task.json"
    for text, message in [
        ("{", r"task\.json:1: not valid JSON"),
        ("[]", r"task\.json: expected a JSON object"),
        ("{}", r"task\.json: not a description of a task"),
        ("[" * 5000, "nested more than 64 levels deep"),
        (json.dumps({"format": 2}), "written by a newer litebert"),
        (json.dumps({"format": 1, "name": "x", "kind": "guessing"}), "kind: 'guessing' is not one of"),
        (json.dumps({"format": 1, "name": "x", "kind": "regression", "lables": []}), "did you mean 'labels'"),
    ]:
        path.write_text(text)
        with pytest.raises(CheckpointError, match=message):
            load_task(tmp_path)


def test_a_task_that_does_not_fit_its_model():
    task = Task("t", "classification", ("a", "b"))
    check_outputs(task, "classification", 2, "m")
    check_outputs(Task("t", "regression"), "classification", 1, "m")
    check_outputs(Task("t", "multiple-choice"), "multiple-choice", 2, "m")
    with pytest.raises(CheckpointError, match=r"^m: task\.json names 2 labels, the model has 3 outputs"):
        check_outputs(task, "classification", 3, "m")
    with pytest.raises(CheckpointError, match=r"describes classification, which needs .*; the model has span"):
        check_outputs(task, "span", 2, "m")


def test_lengths_that_cannot_be():
    with pytest.raises(ConfigError, match="max_length: 5 tokens leave no room"):
        Task("t", "classification", max_length=5)
    with pytest.raises(ConfigError, match="stride: must be at least 1"):
        Task("t", "question-answering", stride=0)


def test_is_labelled():
    assert is_labelled(TextExample("0", "a", None, 0, "f"))
    assert is_labelled(TextExample("0", "a", None, (), "f"))  # multi-label: none of them
    assert not is_labelled(TextExample("0", "a", None, None, "f"))
    assert not is_labelled(TagExample("0", ("a",), None, "f"))
    assert is_labelled(QuestionExample("0", "q", "c", (), (), True, "f"))
    assert not is_labelled(QuestionExample("0", "q", "c", (), (), False, "f"))
