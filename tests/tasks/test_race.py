"""RACE from its official folders."""

from __future__ import annotations

import json

import pytest

from litebert.errors import DataError
from litebert.tasks.read import read_task
from litebert.tasks.task import ChoiceExample


def passage(id, *answers):
    options = [["one", "two", "three", "four"]] * len(answers)
    questions = [f"Question {number} is _ ." for number in range(len(answers))]
    return {"answers": [*answers], "options": options, "questions": questions, "article": f"Article {id}", "id": id}


@pytest.fixture
def race(tmp_path):
    for split, level, name, data in [
        ("train", "middle", "10.txt", passage("middle10.txt", "C")),
        ("train", "middle", "2.txt", passage("middle2.txt", "A", "D")),
        ("train", "high", "3.txt", passage("high3.txt", "B")),
        ("dev", "middle", "1.txt", passage("middle1.txt", "A")),
        ("dev", "high", "1.txt", passage("high1.txt", "A")),
    ]:
        (tmp_path / split / level).mkdir(parents=True, exist_ok=True)
        (tmp_path / split / level / name).write_text(json.dumps(data))
    return tmp_path


def test_all_levels(race):
    data = read_task("race", folder=race)
    assert (data.task.kind, data.task.num_choices, data.task.max_length) == ("multiple-choice", 4, 512)
    assert [(e.id, e.label, e.group) for e in data.train] == [
        ("middle2.txt-1", 0, "middle"),
        ("middle2.txt-2", 3, "middle"),
        ("middle10.txt-1", 2, "middle"),
        ("high3.txt-1", 1, "high"),
    ]
    where = f"{race}/train/middle/2.txt:1, question 1"
    options = ("one", "two", "three", "four")
    assert data.train[0] == ChoiceExample(
        "middle2.txt-1", "Article middle2.txt", "Question 0 is _ .", options, 0, where, "middle"
    )
    assert len(data.dev["dev"]) == 2
    assert data.test == {}


@pytest.mark.parametrize(("level", "count"), [("middle", 3), ("high", 1)])
def test_one_level(race, level, count):
    data = read_task(f"race-{level}", folder=race)
    assert len(data.train) == count
    assert {e.group for e in data.train + data.dev["dev"]} == {level}


def test_the_authors_all_txt_stands_for_its_folder(race):
    lines = [json.dumps(passage("high7.txt", "D")), json.dumps(passage("high8.txt", "C"))]
    (race / "train" / "high" / "all.txt").write_text("\n".join(lines) + "\n")
    data = read_task("race-high", folder=race)
    assert [(e.id, e.label) for e in data.train] == [("high7.txt-1", 3), ("high8.txt-1", 2)]
    assert data.train[1].where.endswith("all.txt:2, question 1")


def test_the_hubs_columns(tmp_path):
    row = {"example_id": "high3.txt", "article": "A", "answer": "B", "question": "Q", "options": ["a", "b", "c", "d"]}
    path = tmp_path / "a.jsonl"
    path.write_text((json.dumps(row) + "\n") * 2)
    examples = read_task("race", train=path).train
    assert [(e.id, e.label, e.group, e.passage) for e in examples] == [
        ("high3.txt-1", 1, "high", "A"),
        ("high3.txt-2", 1, "high", "A"),
    ]


def test_files_of_another_shape(race):
    file = race / "dev" / "high" / "1.txt"
    file.write_text(json.dumps(passage("high1.txt", "E")))
    with pytest.raises(
        DataError, match=r"1\.txt:1, question 1: expected 4 options and an answer A to D, got 4 and 'E'"
    ):
        read_task("race", folder=race)
    file.write_text(json.dumps({**passage("high1.txt", "A"), "questions": [["?"]]}))
    with pytest.raises(DataError, match=r"1\.txt:1, question 1: expected text, got \['\?'\]"):
        read_task("race", folder=race)
    file.write_text("{}")
    with pytest.raises(DataError, match=r"1\.txt:1: not in RACE's format \(JSON with article, questions"):
        read_task("race", folder=race)
    with pytest.raises(DataError, match="no folder train, dev or test; RACE has"):
        read_task("race", folder=race / "dev")
    with pytest.raises(DataError, match=r"no \*\.txt in middle"):
        read_task("race-middle", dev=race / "dev" / "high")
    table = race / "a.jsonl"
    table.write_text('{"article": "A", "question": "Q"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:1: no options; RACE has article"):
        read_task("race", dev=table)
