"""benchmarks/mrpc_folds.py on a few pairs: nothing that is scored was learnt from, and what is done is left alone."""

from __future__ import annotations

import importlib
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from toy_tasks import WORDS

from litebert.tasks.task import TextExample

HEADERS = {
    "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tsentence1\tsentence2\tscore",
}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("mrpc_folds")


def write_table(folder, split, rows):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [HEADERS[folder.name], *("\t".join(map(str, row)) for row in rows)]
    (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def glue(tmp_path):
    """40 pairs, of which the last two share a sentence with the first; STS-B knows three of their sentences."""
    draw = random.Random(0)
    texts = [(" ".join(draw.sample(WORDS, 6)), " ".join(draw.sample(WORDS, 6))) for _ in range(38)]
    texts += [(texts[0][0], "a new story ."), (f'" {texts[0][1].upper()} "', "one more day .")]
    rows = [(n % 2, n, n, *pair) for n, pair in enumerate(texts)]
    write_table(tmp_path / "glue" / "MRPC", "train", rows[:30])
    write_table(tmp_path / "glue" / "MRPC", "dev", rows[30:])
    known = [(n, texts[n][0].upper(), "we saw it .", 2.5) for n in (0, 5)]
    known += [(35, texts[35][1], texts[35][0].upper(), 2.5)]  # a pair of dev, the other way round
    unknown = [(n, f"film {n} was good", f"film {n} was bad", n % 5) for n in range(10, 30)]
    write_table(tmp_path / "glue" / "STS-B", "train", known + unknown)
    return tmp_path


def run(script, monkeypatch, glue, model, *more):
    call = ["mrpc_folds.py", model, glue, "--out", glue / "out", "--folds", 4, "--steps", 2, "--device", "cpu", *more]
    monkeypatch.setattr(sys, "argv", [str(part) for part in call])
    script.main()
    return json.loads((glue / "out" / "FOLDS.json").read_text())


def test_every_pair_is_scored_once_by_what_has_not_seen_it(script, monkeypatch, glue, toy_model, capsys):
    contenders = ("--contenders", "majority", "overlap", "tfidf", "sts-b", "--seeds", 2)
    found = run(script, monkeypatch, glue, toy_model, *contenders)
    names = [f"sts-b lr 5e-05, {what}" for what in ("seed 0", "seed 1", "mean of 2")]
    votes = [f"vote of tfidf, overlap and {name}" for name in names]
    assert [row["contender"] for row in found["rows"]] == ["majority", "overlap", "tfidf", *names, *votes]
    assert [row["sure"] is None for row in found["rows"]] == [True] * 3 + [False] * 3 + [True] * 3
    assert found["rows"][0]["scores"]["accuracy"]["value"] == 0.5
    assert found["dev_pairs_with_a_sentence_of_train"] == 2
    assert found["dev_pairs_in_sts_b"] == 1
    files = sorted((glue / "out").glob("sts-b*seed-1-fold-*.json"))
    results = [json.loads(path.read_text()) for path in files]
    assert sorted(row for result in results for row in result["rows"]) == list(range(40))
    assert any({0, 38, 39} <= set(result["rows"]) for result in results), "they share sentences"
    assert all(result["first"]["sts-b"] == {"learnt": 20, "left_out_of_mrpc": 3, "steps": 2} for result in results)

    times = [path.stat().st_mtime_ns for path in files]
    again = run(script, monkeypatch, glue, toy_model, *contenders)
    assert again == found
    assert [path.stat().st_mtime_ns for path in files] == times
    with pytest.raises(SystemExit, match="other settings"):
        run(script, monkeypatch, glue, toy_model, *contenders, "--epochs", 7)
    capsys.readouterr()


def test_folds_have_as_many_of_each_label(script):
    pairs = [TextExample(str(n), f"left {n}", f"right {n}", int(n % 3 == 0), "") for n in range(60)]
    folds = script.cut_folds(pairs, 5)
    assert sorted(row for fold in folds for row in fold) == list(range(60))
    assert [sum(pairs[row].label for row in fold) for fold in folds] == [4] * 5
    assert [len(fold) for fold in folds] == [12] * 5


def test_a_comparison_counts_the_pairs_that_only_one_gets_right(script):
    gold = np.array([1, 1, 1, 1, 1, 1, 0, 0])
    own, other = np.array([1, 1, 1, 1, 1, 1, 1, 0]), np.array([0, 0, 0, 0, 0, 1, 0, 0])
    found = script.compare(own, other, gold)
    assert (found["better"], found["worse"], found["agree"]) == (5, 1, 0.25)
    assert found["p"] == pytest.approx(2 * (1 + 6) / 2**6)
    assert found["points"] == pytest.approx(0.5)


def test_a_vote_is_what_two_of_three_say(script):
    decided = {"tfidf": np.array([0, 1, 1]), "overlap": np.array([0, 0, 1]), "default": np.array([1, 1, 0])}
    assert script.with_votes(decided)["vote of tfidf, overlap and default"].tolist() == [0, 1, 1]
    assert script.with_votes({"default": decided["default"]}).keys() == {"default"}
