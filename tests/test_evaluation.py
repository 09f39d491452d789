"""`litebert.evaluate`: one function for labelled data, raw text and minimal pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_run import make_corpus, tiny_config

import litebert
from litebert.errors import ConfigError, DataError
from litebert.evaluation import check_job
from litebert.finetuning.evaluate import evaluate_task
from litebert.pretraining.evaluate import evaluate_model
from litebert.pretraining.minimal_pairs import evaluate_pairs


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("world")
    make_corpus(folder)
    litebert.pretrain(tiny_config(folder, steps=2, log={"evaluate_every": 0}), folder / "run", quiet=True)
    pair = {"sentence_good": "a dog sleeps.", "sentence_bad": "a dog sleep."}
    (folder / "pairs.jsonl").write_text(json.dumps(pair) + "\n", encoding="utf-8")
    rows = "".join(f"day {number},{number % 2}\n" for number in range(8))
    (folder / "rows.csv").write_text("text,label\n" + rows, encoding="utf-8")
    return folder


def test_raw_text_and_minimal_pairs(world):
    model = world / "run" / "model"
    scores = litebert.evaluate(model, text=world / "text.txt", tokens=2000, device="cpu")
    assert scores == evaluate_model(model, texts=[world / "text.txt"], tokens=2000, device="cpu")
    assert scores.mlm_count > 0
    assert litebert.evaluate(model, blimp=world / "pairs.jsonl", device="cpu") == evaluate_pairs(
        model, world / "pairs.jsonl", device="cpu"
    )


def test_text_without_words_is_named(world, tmp_path):
    (tmp_path / "one.txt").write_text("\u200b\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"one\.txt: no documents"):
        litebert.evaluate(world / "run" / "model", text=tmp_path / "one.txt", device="cpu")


def test_labelled_data(world):
    data = {"train": str(world / "rows.csv"), "dev": str(world / "rows.csv")}
    settings = {"model": str(world / "run" / "model"), "data": data, "steps": 1, "device": {"device": "cpu"}}
    tuned = litebert.finetune(litebert.finetune_config(settings), world / "tuned", quiet=True).model
    [scored] = litebert.evaluate(tuned, data=world / "rows.csv", device="cpu", threads=1)
    [same] = evaluate_task([tuned], data=world / "rows.csv", device="cpu", threads=1)
    assert scored.evaluations[0].scores == same.evaluations[0].scores
    *_, ensemble = litebert.evaluate([tuned, tuned], data=world / "rows.csv", device="cpu", threads=1)
    assert ensemble.name == "ensemble"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "say what to score on"),
        ({"data": "a.csv", "text": "a.txt"}, "data and text: give one of them"),
        ({"data": "a.csv", "tokens": 5}, "tokens: goes with text or store, not with data"),
        ({"text": "a.txt", "columns": {"text": "a"}}, "columns: goes with data, not with text"),
    ],
)
def test_what_does_not_go_together(given, message):
    with pytest.raises(ConfigError, match=message):
        litebert.evaluate("model", **given)


def test_text_and_store_go_together():
    assert check_job({"text": ["a.txt"], "store": ["s"], "tokenizer": "t"}) == "text"
