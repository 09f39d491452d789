"""A task as task.json, and the head it needs."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import litebert
from litebert.errors import CheckpointError, ConfigError
from litebert.model.heads import MODELS
from litebert.predict.abilities import ABILITIES
from litebert.tasks.features import stride_for
from litebert.tasks.kinds import KINDS
from litebert.tasks.read import named_tasks
from litebert.tasks.task import (
    QuestionExample,
    TagExample,
    Task,
    TextExample,
    check_outputs,
    kind_of,
    load_task,
    save_task,
)


@pytest.mark.parametrize(
    "task", [*named_tasks().values(), Task("나", "classification", ("좋다", "싫다"), columns={"text": "문장"})]
)
def test_a_saved_task_is_read_back(tmp_path, task):
    save_task(task, tmp_path)
    assert load_task(tmp_path) == task
    assert [path.name for path in tmp_path.iterdir()] == ["task.json"]
    assert kind_of(task).head(task) in MODELS
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
    def head(task):
        return kind_of(task).head(task)

    heads = {kind: head(Task("t", kind)) for kind in KINDS}
    assert heads == {
        "classification": "classification",
        "regression": "classification",
        "multi-label": "classification",
        "token-classification": "token-classification",
        "multiple-choice": "multiple-choice",
        "question-answering": "span",
        "similarity": "encoder",
    }
    assert head(Task("t", "question-answering", answerable_head=True)) == "answer"
    assert all(kind.metrics for kind in KINDS.values())


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
        ("{}", r"task\.json: not a task file"),
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
    with pytest.raises(ConfigError, match="max_length: must be >= 8 to leave room for text, got 5"):
        Task("t", "classification", max_length=5)
    with pytest.raises(ConfigError, match="stride: must be >= 1"):
        Task("t", "question-answering", stride=0)


def test_is_labelled():
    assert TextExample("0", "a", None, 0, "f").is_labelled
    assert TextExample("0", "a", None, (), "f").is_labelled  # multi-label: none of them
    assert not TextExample("0", "a", None, None, "f").is_labelled
    assert not TagExample("0", ("a",), None, "f").is_labelled
    assert QuestionExample("0", "q", "c", (), (), True, "f").is_labelled
    assert not QuestionExample("0", "q", "c", (), (), False, "f").is_labelled


def test_only_the_kinds_themselves_ask_for_a_kind():
    """A new kind is one file: nothing else compares names of kinds, or has a table of them."""
    root, found = Path(litebert.__file__).parent, []
    # Those that neither a head nor an ability has.
    own_names = KINDS.keys() - MODELS.keys() - ABILITIES.keys()

    def names(node, known):
        return isinstance(node, ast.Constant) and node.value in known

    for path in root.rglob("*.py"):
        if path.is_relative_to(root / "tasks" / "kinds"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(root)}:{node.lineno}" if hasattr(node, "lineno") else ""
            if isinstance(node, ast.Dict):
                found += [where] * any(names(key, own_names) for key in node.keys)
            if isinstance(node, ast.Compare) and "problem_type" not in ast.unparse(node.left):
                asked = ast.unparse(node.left)
                known = KINDS.keys() if "kind" in asked and "head" not in asked else own_names
                found += [where] * any(names(part, known) for side in node.comparators for part in ast.walk(side))
    assert found == []


def test_no_answer_thresholds_by_depth_and_in_a_folder_of_before(tmp_path):
    task = Task("t", "question-answering", answerable_head=True, null_threshold=1.5, exit_thresholds={1: -2.0, 2: 0.5})
    save_task(task, tmp_path)
    assert load_task(tmp_path) == task
    assert [task.threshold_at(depth) for depth in (1, 2, 3, None)] == [-2.0, 0.5, 1.5, 1.5]
    old = {"format": 1, "name": "x", "kind": "question-answering", "answerable_head": True, "null_threshold": 1.5}
    (tmp_path / "task.json").write_text(json.dumps(old))
    assert [load_task(tmp_path).threshold_at(depth) for depth in (1, 3, None)] == [1.5, 1.5, 1.5]
    for wrong in ({"one": 1.0}, {"1": "x"}, [1.0]):
        (tmp_path / "task.json").write_text(json.dumps({**old, "exit_thresholds": wrong}))
        with pytest.raises(CheckpointError, match="exit_thresholds"):
            load_task(tmp_path)
