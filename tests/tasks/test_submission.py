"""Prediction files in the names and formats of the leaderboards."""

from __future__ import annotations

import json

import numpy as np
import pytest

from litebert.tasks.decode import Prediction, write_submission
from litebert.tasks.read import named_tasks
from litebert.tasks.spans import Answers, Span
from litebert.tasks.task import ChoiceExample, QuestionExample, TagExample, Task, TextExample

TASKS = named_tasks()


@pytest.mark.parametrize(
    ("name", "split", "value", "file", "cell"),
    [
        ("cola", "test", 1, "CoLA.tsv", "1"),
        ("sst-2", "test", 0, "SST-2.tsv", "0"),
        ("mrpc", "test", 1, "MRPC.tsv", "1"),
        ("sts-b", "test", 4.25, "STS-B.tsv", "4.250"),
        ("sts-b", "test", 5.7, "STS-B.tsv", "5.000"),
        ("qqp", "test", 1, "QQP.tsv", "1"),
        ("mnli", "test-matched", 0, "MNLI-m.tsv", "contradiction"),
        ("mnli", "test-mismatched", 1, "MNLI-mm.tsv", "entailment"),
        ("qnli", "test", 1, "QNLI.tsv", "not_entailment"),
        ("rte", "test", 0, "RTE.tsv", "entailment"),
        ("wnli", "test", 0, "WNLI.tsv", "0"),
        ("ax", "test", 2, "AX.tsv", "neutral"),
        ("rte", "dev", 0, "RTE-dev.tsv", "entailment"),
    ],
)
def test_glue(tmp_path, name, split, value, file, cell):
    examples = [TextExample("17", "a", "b", None, "f:1")]
    (path,) = write_submission(TASKS[name], split, examples, [Prediction(value)], tmp_path / "new")
    assert path == tmp_path / "new" / file
    assert path.read_text() == f"index\tprediction\n17\t{cell}\n"


def test_squad(tmp_path):
    examples = [
        QuestionExample("a", "?", "In 로마", (), (), False, "f:1"),
        QuestionExample("b", "?", "x", (), (), False, "f:2"),
    ]
    answers = Answers((Span("로마", 3, 5, 1.0), Span("In", 0, 2, 1.0)), -2.0)
    predictions = [Prediction("로마", answers=answers), Prediction("", answers=Answers((), 3.0))]
    paths = write_submission(TASKS["squad-2.0"], "dev", examples, predictions, tmp_path)
    texts, odds, n_best = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    assert texts == {"a": "로마", "b": ""}
    assert odds == {"a": -2.0, "b": 3.0}
    assert [line["probability"] for line in n_best["a"]] == pytest.approx([0.5, 0.5])
    assert n_best["a"][0]["text"] == "로마"
    assert n_best["b"] == []
    names = [path.name for path in write_submission(TASKS["squad-1.1"], "dev", examples, predictions, tmp_path)]
    assert names == ["squad-1.1-dev-predictions.json", "squad-1.1-dev-nbest.json"]


def test_race_and_the_users_own(tmp_path):
    choice = [ChoiceExample("high1.txt-1", "p", "q", ("a", "b", "c", "d"), None, "f:1", "high")]
    (path,) = write_submission(TASKS["race"], "test", choice, [Prediction(2)], tmp_path)
    assert json.loads(path.read_text()) == {"high1.txt-1": "C"}
    many = [ChoiceExample("0", "p", "q", tuple(map(str, range(30))), None, "f:1")]
    (path,) = write_submission(Task("own", "multiple-choice"), "test", many, [Prediction(26)], tmp_path)
    assert json.loads(path.read_text()) == {"0": "27"}  # after Z they are counted
    text = [TextExample("x", "a", None, None, "f:1")]
    several = Task("multi-label", "multi-label", ("red", "big"))
    (path,) = write_submission(several, "test", text, [Prediction((0, 1), np.ones(2))], tmp_path)
    assert (path.name, path.read_text()) == ("multi-label-test.tsv", "index\tprediction\nx\tred|big\n")
    tags = Task("token-classification", "token-classification", ("O", "B-X"))
    (path,) = write_submission(tags, "test", [TagExample("0", ("a", "b"), None, "f:1")], [Prediction((1, 0))], tmp_path)
    assert path.read_text() == "index\tprediction\n0\tB-X O\n"
    number = Task("regression", "regression")
    (path,) = write_submission(number, "test", text, [Prediction(123.25)], tmp_path)
    assert path.read_text() == "index\tprediction\nx\t123.25\n"
