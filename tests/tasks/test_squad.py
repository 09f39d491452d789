"""SQuAD 1.1 and 2.0 from small files of the official shape, and answers that are not at their stated place."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.errors import DataError
from litebert.tasks.read import read_task
from litebert.tasks.squad import parse_answers, place_answer
from litebert.tasks.task import kind_of

CONTEXT = "The 1973 oil crisis began in October 1973. It ended in March 1974."


def squad(*qas, version="1.1"):
    return json.dumps(
        {"version": version, "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": [*qas]}]}]}
    )


def qa(id, *answers, **more):
    return {"id": id, "question": f"{id}?", "answers": [{"text": t, "answer_start": s} for t, s in answers], **more}


def test_one_point_one(tmp_path):
    (tmp_path / "train-v1.1.json").write_text(squad(qa("a", ("October 1973", 29))))
    (tmp_path / "dev-v1.1.json").write_text(
        "\ufeff" + squad(qa("b", ("1973", 4), ("October 1973", 29)), qa("c", ("It", 43)))
    )
    data = read_task("squad-1.1", folder=tmp_path)
    assert kind_of(data.task).head(data.task) == "span"
    assert (data.task.max_length, data.task.stride) == (384, None)  # which is 128 at that length
    assert data.train[0].answers == ("October 1973",)
    assert data.train[0].where == f"{tmp_path}/train-v1.1.json:1"
    assert [(e.id, e.starts, e.context == CONTEXT) for e in data.dev["dev"]] == [
        ("b", (4, 29), True),
        ("c", (43,), True),
    ]
    assert data.notes == []


def test_two_point_zero_ignores_plausible_answers(tmp_path):
    impossible = qa("no", is_impossible=True, plausible_answers=[{"text": "1973", "answer_start": 4}])
    path = tmp_path / "dev-v2.0.json"
    path.write_text(squad(qa("yes", ("1973", 4), is_impossible=False), impossible, version="v2.0"))
    data = read_task("squad-2.0", folder=tmp_path)
    assert kind_of(data.task).head(data.task) == "answer"
    assert [(e.id, e.impossible, e.answers) for e in data.dev["dev"]] == [("yes", False, ("1973",)), ("no", True, ())]
    with pytest.raises(DataError, match=r"dev-v2\.0\.json:2: a question without an answer; use squad-2\.0"):
        read_task("squad-1.1", dev=path)


def test_the_same_data_as_jsonl_in_the_hubs_columns(tmp_path):
    row = {"id": "a", "title": "t", "context": CONTEXT, "question": "When?"}
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        file.write(json.dumps({**row, "answers": {"text": ["1973"], "answer_start": [4]}}) + "\n")
        file.write(json.dumps({**row, "answers": {"text": [], "answer_start": []}}) + "\n")
    data = read_task("squad-2.0", train=path, dev=path)
    assert [(e.impossible, e.starts) for e in data.train] == [(False, (4,)), (True, ())]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_is_impossible_as_text(tmp_path, suffix):
    """A table stores it as "False" as well, which is no truth for being a text that is not empty."""
    path = tmp_path / f"train.{suffix}"

    def write(*flags):
        rows = [
            {"id": str(i), "question": "When?", "context": CONTEXT, "answers": "1973", "is_impossible": flag}
            for i, flag in enumerate(flags)
        ]
        if suffix == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)

    write("False", "True", "0", "")
    data = read_task("squad-2.0", train=path)
    assert [(e.impossible, e.answers) for e in data.train] == [
        (False, ("1973",)),
        (True, ()),
        (False, ("1973",)),
        (False, ("1973",)),
    ]
    write("perhaps")
    with pytest.raises(DataError, match=r"column 'is_impossible': expected 0 or 1, got 'perhaps'"):
        read_task("squad-2.0", train=path)


def test_moved_and_lost_answers_are_counted_with_their_place(tmp_path):
    path = tmp_path / "train-v1.1.json"
    path.write_text(squad(qa("a", ("1973", 6)), qa("b", ("1973", 40)), qa("c", ("1999", 4))))
    data = read_task("squad-1.1", folder=tmp_path)
    assert [e.starts for e in data.train] == [(4,), (37,)]
    assert data.notes == [
        "1 questions skipped in training: their answer is not in their context",
        f"2 answers moved to where their text is, first: {path}:1",
        f"1 answers not in their context, first: {path}:3",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "not in SQuAD's format"),
        ('{"data": [{"paragraphs": [{"context": "x", "qas": [{"id": 1}]}]}]}', "question 1: .*'question'"),
        ('{"data": [{"paragraphs": []}]}', "no questions in the file"),
        ('{"data": [', r"dev\.json:1: not valid JSON"),
    ],
)
def test_files_of_another_shape(tmp_path, text, message):
    path = tmp_path / "dev.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_task("squad-1.1", dev=path)
    with pytest.raises(DataError, match=r"no train-v1\.1\.json or dev-v1\.1\.json$"):
        read_task("squad-1.1", folder=tmp_path)


@given(st.text("ab", min_size=1, max_size=12), st.text("ab", min_size=1, max_size=3), st.integers(0, 15))
def test_an_answer_is_put_at_its_nearest_place(context, answer, start):
    places = [i for i in range(len(context)) if context.startswith(answer, i)]
    nearest = min(places, key=lambda place: (abs(place - start), place), default=-1)
    assert place_answer(context, answer, start) == nearest


def test_answers_of_a_cell():
    assert parse_answers(None, "f:1") == parse_answers("", "f:1") == []
    with pytest.raises(DataError, match="f:1: expected answers as text"):
        parse_answers(7, "f:1")
