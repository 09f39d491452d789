"""`litebert tokenizer` as a user meets it."""

from __future__ import annotations

import io
import itertools
import json
import sys

from small_vocabularies import RARE
from transformers import AutoTokenizer

ENGLISH = [f"In {year}, {who} read {count} old books and slept." for year in range(1990, 2010) for who in
           ("Anna", "Ben", "the teacher") for count in ("two", "1,000", "no")]  # fmt: skip
ENGLISH = [f"{line} {word}" for line, word in zip(ENGLISH, itertools.cycle(RARE))]
KOREAN = [
    f"나는 {place}에 가서 {thing}을 먹었다." for place in ("식당", "학교", "서울") for thing in ("밥", "빵", "떡")
] * 20


def test_train_then_show(cli, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(ENGLISH + KOREAN), encoding="utf-8")
    folder = tmp_path / "vocabulary"
    trained = cli("tokenizer", "train", text, "--vocab-size", 90, "--lower", "--out", folder)
    assert trained.code == 0, trained
    assert trained.out.strip() == f"{folder}: 90 pieces from 360 of 360 lines ({_characters():,} characters)"
    assert "reading" in trained.err
    assert "training" in trained.err
    assert "trainer_interface" not in trained.err

    shown = cli("tokenizer", "show", folder, "나는 식당에 가서 밥을 먹었다", "--json")
    content = json.loads(shown.out)
    assert {"는", "에", "을"} <= set(content["pieces"])
    assert content["decoded"] == "나는 식당에 가서 밥을 먹었다"
    assert (
        AutoTokenizer.from_pretrained(folder)("Anna slept", add_special_tokens=False)["input_ids"]
        == json.loads(cli("tokenizer", "show", folder, "Anna slept", "--json").out)["ids"]
    )

    again = cli("tokenizer", "train", text, "--vocab-size", 95, "--out", folder)
    assert again.code == 2
    assert "already holds a tokenizer; --overwrite replaces it" in again.err
    replaced = cli("tokenizer", "train", text, "--vocab-size", 95, "--out", folder, "--overwrite", "--json")
    assert replaced.code == 0, replaced
    facts = json.loads(replaced.out)
    assert facts["vocab_size"] == 95
    assert facts["lines_used"] == facts["lines_read"] == 360


def test_two_trainings_into_one_folder(cli, tmp_path, monkeypatch):
    """The one that comes second is refused, and the first one's vocabulary stands."""
    from litebert.text import train_vocab

    text = tmp_path / "text.txt"
    text.write_text("\n".join(ENGLISH), encoding="utf-8")
    folder = tmp_path / "deep" / "vocabulary"
    train, seconds = train_vocab.train_vocab, []

    def train_beside_another(*arguments):
        seconds.append(cli("tokenizer", "train", text, "--vocab-size", 65, "--out", folder, "--overwrite"))
        return train(*arguments)

    monkeypatch.setattr(train_vocab, "train_vocab", train_beside_another)
    first = cli("tokenizer", "train", text, "--vocab-size", 70, "--out", folder, "--json")
    assert first.code == 0, first
    (second,) = seconds
    assert second.code == 2, second
    assert "another process is training a tokenizer there" in second.err
    assert json.loads(first.out)["vocab_size"] == 70
    assert len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]) == 70
    assert [path.name for path in folder.parent.iterdir()] == ["vocabulary"], "no lock is left"


def test_show_prints_pieces_ids_and_offsets(cli, tmp_path, monkeypatch):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es", "["]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    shown = cli("tokenizer", "show", tmp_path, "The  foxes [MASK]")
    assert shown.code == 0, shown
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[0] == ["the", "fox", "##es", "[", "[UNK]", "[UNK]"]
    assert lines[1] == ["piece", "id", "characters", "text"]
    assert lines[2:5] == [["the", "5", "0-3", "The"], ["fox", "6", "5-8", "fox"], ["##es", "7", "8-10", "es"]]
    assert "6 pieces, 2 unknown, 17 characters" in shown.out
    special = cli("tokenizer", "show", tmp_path, "The [MASK]", "--special")
    assert ["[MASK]", "4", "4-10", "[MASK]"] in [line.split() for line in special.out.splitlines()]
    monkeypatch.setattr(sys, "stdin", io.StringIO("the fox\n"))
    assert json.loads(cli("tokenizer", "show", tmp_path, "-", "--json").out) == {
        "ids": [5, 6],
        "pieces": ["the", "fox"],
        "offsets": [[0, 3], [4, 7]],
        "decoded": "the fox",
    }


def test_mistakes_end_with_one_message(cli, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(ENGLISH), encoding="utf-8")
    out = tmp_path / "out"
    for arguments, message in (
        (("show", tmp_path / "nowhere", "x"), "no such tokenizer file or folder"),
        (("train", text, "--out", out), "vocab_size 30000 is too large for this text, which yields at most"),
        (("train", text, "--out", out, "--normalization", "gogle"), "did you mean 'google'"),
        (("train", tmp_path / "nowhere.txt", "--out", out), "nowhere.txt: no such file"),
    ):
        cli("tokenizer", *arguments).assert_refused(message)
    assert not out.exists()


def _characters() -> int:
    return sum(map(len, ENGLISH + KOREAN))
