"""`litebert corpus build` as a user meets it: a real vocabulary, real processes, messages and exit codes."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys

import pytest
from small_vocabularies import train_spiece

from litebert.cli.terminal import ProgressView
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer

TEXT = """Dr. Lee bought 3.5 kg of apples. She paid $7,250 for them! Was it worth it?
“No,” he said. “It was not.”

나는 오늘 식당에 가서 밥을 먹었다. 맛있었다.

今天天气很好。我们去公园吧！
"""
SENTENCES = [
    [
        "Dr. Lee bought 3.5 kg of apples.",
        "She paid $7,250 for them!",
        "Was it worth it?",
        "“No,” he said.",
        "“It was not.”",
    ],
    ["나는 오늘 식당에 가서 밥을 먹었다.", "맛있었다."],
    ["今天天气很好。", "我们去公园吧！"],
]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A small spiece.model with ALBERT's special pieces, trained by sentencepiece itself."""
    path = tmp_path_factory.mktemp("vocabulary") / "spiece.model"
    path.write_bytes(train_spiece(TEXT.splitlines() * 20, vocab_size=150, hard_vocab_limit=False))
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_from_a_text_file_to_a_store(cli, vocabulary, text, tmp_path):
    out = tmp_path / "store"
    result = cli("corpus", "build", text, "--tokenizer", vocabulary, "--out", out, "--workers", 1)
    assert result.code == 0, result
    rows = dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in result.out.splitlines())
    assert (rows["documents"], rows["sentences"]) == ("3", "9")
    assert (rows["read as"], rows["skipped"]) == ("paragraphs (1 file)", "nothing")
    tokenizer = Tokenizer.load(vocabulary)
    store = TokenStore.open(out, tokenizer)
    assert [[s.tolist() for s in document] for document in store.documents()] == [
        [tokenizer.encode(sentence) for sentence in document] for document in SENTENCES
    ]
    again = cli("corpus", "build", text, "--tokenizer", vocabulary, "--out", out)
    assert again.code == 0
    assert "all built before" in again.out


def test_text_that_the_vocabulary_does_not_know_is_warned_about(cli, vocabulary, text, tmp_path):
    """Korean through the English vocabulary gives a store of unknown tokens, from which no model learns."""
    korean = tmp_path / "korean.txt"
    korean.write_text("나는 오늘 식당에 가서 밥을 먹었다.\n" * 50, encoding="utf-8")
    warned = cli("corpus", "build", korean, "--tokenizer", "default", "--out", tmp_path / "unknown", "--workers", 1)
    assert warned.code == 0, warned
    assert re.search(r"warning: [3-9]\d % of the tokens are unknown to default; was it trained on another", warned.err)
    again = ["--tokenizer", "default", "--out", tmp_path / "unknown", "--json"]
    assert "unknown to default" in json.loads(cli("corpus", "build", korean, *again).out)["notes"][-1]
    quiet = cli("corpus", "build", text, "--tokenizer", vocabulary, "--out", tmp_path / "store", "--workers", 1)
    assert "unknown" not in quiet.err


def test_the_tokenizer_of_the_default_model_in_every_command(cli, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    english = tmp_path / "english.txt"
    english.write_text("The old mill was sold. It stood empty for years.\n\n" * 20, encoding="utf-8")
    build = ("corpus", "build", english, "--tokenizer", "default", "--out", "store", "--workers", 1)
    for command in (
        build,
        ("corpus", "verify", "store", "--tokenizer", "default"),
        ("tokenizer", "show", "default", "a"),
    ):
        result = cli(*command)
        assert result.code == 0, result
    (tmp_path / "default").mkdir()  # a folder of the user's comes first
    cli("tokenizer", "show", "default", "a").assert_refused("default: no tokenizer here")


def test_json_and_standard_input(vocabulary, tmp_path):
    """In a process of its own, with two workers, through a pipe."""
    command = [sys.executable, "-c", "from litebert.cli import main; main()", "corpus", "build", "-"]
    options = ["--tokenizer", vocabulary, "--out", tmp_path / "store", "--workers", "2", "--json", "--deduplicate"]
    done = subprocess.run([*command, *options], input=gzip.compress((TEXT + "\n" + TEXT).encode()), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["documents"] == 3
    assert report["duplicates"] == 3
    assert report["formats"] == {"paragraphs": 1}
    assert report["text_bytes"] == 2 * len(TEXT.encode()) + 1
    assert TokenStore.open(tmp_path / "store").num_sentences == 9


def test_mistakes_end_with_one_message(cli, vocabulary, text, tmp_path):
    out = tmp_path / "store"

    def fails(*arguments, message):
        result = cli("corpus", "build", *arguments, "--tokenizer", vocabulary, "--out", out, "--workers", 1)
        result.assert_refused(message)

    fails(tmp_path / "nothing.txt", message="nothing.txt: no such file or folder")
    fails(text, "--language", "klingon", message="klingon")
    fails(text, "--format", "xml", message="xml")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "Fine."}\n{"text": 5}\n')
    fails(bad, message="bad.jsonl:2: field 'text' is int, not text (on_error='skip' skips such documents)")
    result = cli("corpus", "build", bad, "--tokenizer", vocabulary, "--out", out, "--workers", 1, "--on-error", "skip")
    assert result.code == 0
    assert "1 no text" in result.out
    assert "skipped: " in result.err
    fails(text, message="already contains a store built from other sources")
    result = cli("corpus", "build", text, "--tokenizer", vocabulary, "--out", out, "--workers", 1, "--overwrite")
    assert result.code == 0


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_names_the_speed(cli, vocabulary, text, tmp_path, monkeypatch, terminal):
    monkeypatch.setattr(ProgressView, "interval", 0.0)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    result = cli("corpus", "build", text, "--tokenizer", vocabulary, "--out", tmp_path / "store", "--workers", 1)
    assert result.code == 0
    assert "MB/s" in result.err
    assert ("\x1b[" in result.err) == terminal
    assert "MB/s" not in result.out


def test_verify_lists_all_damage(cli, tmp_path):
    for name in ("a", "b"):
        TokenStore.write(tmp_path / name, [[[1, 2, 3], [4]], [[5]]], "f" * 64, 10)
    result = cli("corpus", "verify", tmp_path / "a", tmp_path / "b")
    assert result.code == 0, result
    assert re.search(r"a: intact \(2 documents, 5 tokens, [\d,]+ bytes, 0\.\d s\)\n.*b: intact", result.out)
    files = [tmp_path / "a" / "part-00000.arrow", tmp_path / "b" / "index" / "batches.npy"]
    for file in files:
        file.write_bytes(file.read_bytes()[::-1])
    result = cli("corpus", "verify", tmp_path / "a", tmp_path / "b")
    assert result.code == 2
    assert all(f"{file}: damaged" in result.err for file in files)
    (tmp_path / "b" / "manifest.json").write_text("{")
    result = cli("corpus", "verify", "--json", tmp_path / "a", tmp_path / "b")
    assert result.code == 2
    assert [len(messages) for messages in json.loads(result.out).values()] == [1, 1]
    assert "not valid JSON" in result.err
    assert "no such token store" in cli("corpus", "verify", tmp_path / "none").err


def test_verify_knows_the_tokenizer(cli, tmp_path, vocabulary):
    TokenStore.write(tmp_path / "a", [[[1, 2, 3]]], "f" * 64, 10)
    result = cli("corpus", "verify", tmp_path / "a", "--tokenizer", vocabulary)
    assert result.code == 2
    assert "built with another tokenizer" in result.err
