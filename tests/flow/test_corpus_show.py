"""From a text file to batches with the command line: train a vocabulary, build a store, look at it."""

from __future__ import annotations

import json

import pytest

from litebert.pretraining.batches import Batches
from litebert.pretraining.recipes import named_recipe
from litebert.text.generate import generate_documents
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with text, a tokenizer and a store, made by the commands a newcomer types."""
    from litebert.cli import main

    folder = tmp_path_factory.mktemp("corpus")
    documents = generate_documents(400, seed=1)
    (folder / "text.txt").write_text("\n\n".join("\n".join(sentences) for sentences in documents), encoding="utf-8")
    text, tokenizer, store = folder / "text.txt", folder / "tokenizer", folder / "store"
    train = ["tokenizer", "train", text, "--vocab-size", 400, "--lower", "--out", tokenizer]
    build = ["corpus", "build", text, "--tokenizer", tokenizer, "--format", "lines", "--workers", 1, "--out", store]
    for command in (train, build):
        with pytest.raises(SystemExit) as stopped:
            main([str(part) for part in command])
        assert not stopped.value.code
    return folder


def test_show_as_json(cli, built):
    result = cli("corpus", "show", built / "store", "--tokenizer", built / "tokenizer", "--examples", 5, "--json")
    assert result.code == 0, result
    facts = json.loads(result.out)
    store = TokenStore.open(built / "store")
    assert facts["documents"] == store.num_documents == 400
    assert facts["sentences"] == store.num_sentences
    assert facts["tokens"] == store.num_tokens
    assert facts["recipe"]["max_length"] == 512
    assert sum(entry["sequences"] for entry in facts["histogram"]) == facts["sequences"]
    assert abs(facts["order"]["1"] - 0.5) < 0.1
    assert facts["text_used"] > 0.99  # what is left out: a last sentence that stands alone
    assert facts["packing_efficiency"] > 0.9
    masks = facts["masks"]
    assert abs(masks["predicted"] - 0.15) < 0.01
    expected = [masks["ngrams"][n]["expected"] for n in "123"]
    assert expected == [round(6 / 11, 5), round(3 / 11, 5), round(2 / 11, 5)]
    assert all(abs(share["realised"] - share["expected"]) < 0.06 for share in masks["ngrams"].values())
    assert all(abs(share["realised"] - share["expected"]) < 0.02 for share in masks["replaced"].values())
    assert len(facts["examples"]) == 5


def test_examples_read_as_the_text_does(cli, built):
    result = cli("corpus", "show", built / "store", "--tokenizer", built / "tokenizer", "--examples", 8, "--json")
    text = " ".join((built / "text.txt").read_text().lower().split())
    for example in json.loads(result.out)["examples"]:
        assert example["order"] in (0, 1)
        assert example["meaning"] == ("swapped: A follows B" if example["order"] else "in order: B follows A")
        segments = ["".join(t["piece"] for t in pieces).replace("▁", " ").strip() for pieces in example["segments"]]
        in_order = " ".join(reversed(segments) if example["order"] else segments)
        assert in_order in text
        for token in (token for pieces in example["segments"] for token in pieces):
            same = token["piece"] == token["seen"]
            assert {"text": same, "kept": same, "mask": token["seen"] == "[MASK]", "random": not same}[token["kind"]]


def test_show_for_people(cli, built):
    result = cli("corpus", "show", built / "store", "--tokenizer", built / "tokenizer", "--set", "max_length=64")
    assert result.code == 0, result
    for words in ("Example 3", "order ", "A  ", "B  ", "→MASK}", "% full", "3-grams", "to random", "documents  400"):
        assert words in result.out
    assert "57-64" in result.out  # the histogram ends at max_length


def test_show_without_a_tokenizer_says_what_is_missing(cli, built):
    result = cli("corpus", "show", built / "store", "--recipe", "google")
    assert result.code == 0, result
    assert "--tokenizer FOLDER also shows examples and masks." in result.out
    assert "packing" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "googel"], "did you mean 'google'"),
        (["--set", "max_lenght=64"], "did you mean 'max_length'"),
        (["--set", "max_length"], "expected key=value"),
        (["--tokenizer", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_end_with_one_message(cli, built, arguments, message):
    cli("corpus", "show", built / "store", *arguments).assert_refused(message)


def test_a_store_of_another_tokenizer_is_refused(cli, built, tmp_path):
    command = ["tokenizer", "train", built / "text.txt", "--vocab-size", 300, "--out", tmp_path / "other"]
    assert cli(*command).code == 0
    result = cli("corpus", "show", built / "store", "--tokenizer", tmp_path / "other")
    assert result.code == 2
    assert "built with another tokenizer" in result.err


def test_the_same_in_python(built):
    tokenizer = Tokenizer.load(built / "tokenizer")
    store = TokenStore.open(built / "store", tokenizer)
    batches = Batches(
        store, tokenizer, named_recipe("paper", {"max_length": 64}), tokens_per_batch=8192, row_tokens=1024
    )
    batch = batches.batch(0)
    real = batch.tokens[: batch.starts[batch.num_sequences]]
    assert tokenizer.mask_id in real
    assert tokenizer.pad_id not in real
    assert batch.starts[batch.num_sequences] > 0.97 * 8192
