from __future__ import annotations

import os
import random
import re
import subprocess
import sys

import pytest

from litebert.baselines.masks import ConnectiveOrder
from litebert.errors import InputError
from litebert.text import generate
from litebert.text.generate import generate_document, generate_documents, is_held_out, read_topics, story_kinds
from litebert.text.readers import read_documents
from litebert.text.sentences import split_sentences

EVERYWHERE, TOPICS = read_topics()
NAMES = {gender: [name for (name,) in EVERYWHERE.slots[(gender,)]] for gender in ("woman", "man")}


@pytest.fixture(scope="module")
def train():
    return list(generate_documents(1500, seed=5))


@pytest.fixture(scope="module")
def held_out():
    return list(generate_documents(300, seed=5, split="held-out"))


def letters(sentence):
    return re.sub(r"[^a-z]+", " ", sentence.lower()).strip()


def test_there_are_fifty_topics_and_more():
    """A kind of story (repair, journey, ...) is told of several topics: a bicycle, a clock, a violin."""
    told = [(kind.name, row[names.index("topic")]) for kind in TOPICS for names, rows in kind.slots.items()
            if "topic" in names for row in rows]  # fmt: skip
    assert len(set(told)) == len(told) >= 50
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert all(len(topic.steps) >= 8 and all(len(step) >= 2 for step in topic.steps) for topic in TOPICS)


@pytest.mark.parametrize("split", ["train", "held-out"])
@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_every_topic_can_be_told_in_either_split(topic, split, monkeypatch):
    monkeypatch.setattr(generate, "read_topics", lambda: (EVERYWHERE, [topic]))
    for index in range(3):
        document = generate_document(index, seed=11, split=split)
        assert len(document) == len(topic.steps)
        assert all(is_held_out(sentence) == (split == "held-out") for sentence in document)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_every_wording_gives_a_clean_sentence(topic):
    rng = random.Random(0)
    for wording in (wording for step in topic.steps for wording in step):
        for _ in range(4):
            slots = generate._draw_slots(rng, {**EVERYWHERE.slots, **topic.slots})
            sentence = generate._fill(rng, wording, slots)
            assert re.fullmatch(r"[A-Z][A-Za-z' ]*(, [A-Za-z' ]+)*\.", sentence), sentence
            assert not re.search(r"  | ,| \.|\b[Aa] [aeiou]|\b[Aa]n [^aeiouh]|\b(\w+) \1\b", sentence), sentence
            assert split_sentences(sentence, "en") == [sentence]


def test_no_held_out_sentence_stands_in_training(train, held_out):
    trained = {letters(sentence) for document in train for sentence in document}
    trained |= {letters(sentence) for document in generate_documents(300, seed=6) for sentence in document}
    kept = {letters(sentence) for document in held_out for sentence in document}
    assert len(kept) > 2000
    assert not kept & trained


def test_documents_differ(train):
    assert len({" ".join(document) for document in train}) == len(train)
    assert [generate_document(3, seed=5), generate_document(3, seed=6)].count(train[3]) == 1


def test_the_seed_decides_whatever_the_hash_seed(train):
    code = "from litebert.text.generate import *; print(list(generate_documents(8, seed=5)))"
    for hash_seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        output = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert output.stdout.strip() == str(train[:8])


def test_people_come_with_their_full_name_first(train):
    first_names = "|".join(NAMES["woman"] + NAMES["man"])
    surnames = "|".join(name for (name,) in EVERYWHERE.slots[("surname",)])
    introduced = 0
    for document in train:
        text = " ".join(document)
        for match in re.finditer(rf"\b({first_names}) ({surnames})\b", text):
            assert not re.search(rf"\b{match[1]}\b", text[: match.start()]), text
            introduced += 1
    assert introduced > len(train)


def test_pronouns_agree_with_names(train):
    wrong = {"woman": r"\b(he|him|himself)\b", "man": r"\b(she|herself)\b"}
    checked = 0
    for document in train:
        text = " ".join(document)
        genders = {gender for gender, names in NAMES.items() if re.search(rf"\b({'|'.join(names)})\b", text)}
        if len(genders) == 1:
            (gender,) = genders
            assert not re.search(wrong[gender], text), text
            checked += 1
    assert checked > 300


def make_pairs(documents, rng):
    """Three or four sentences, cut in two, half of them swapped."""
    pairs, labels = [], []
    for document in documents:
        start = rng.randrange(len(document) - 4)
        cut, end = start + rng.randrange(1, 3), start + rng.randrange(3, 5)
        halves = (" ".join(document[start:cut]), " ".join(document[cut:end]))
        labels.append(rng.randrange(2))
        pairs.append(halves[::-1] if labels[-1] else halves)
    return pairs, labels


def test_connectives_do_not_give_the_order_away(train, held_out):
    rng = random.Random(0)
    accuracy = ConnectiveOrder.fit(*make_pairs(train, rng)).accuracy(*make_pairs(held_out, rng))
    assert accuracy < 0.75


def test_counters_go_round():
    assert generate._count("day", "Sunday", 1) == "Monday"
    assert generate._count("n", "seven", -3) == "four"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate_documents(3, split="heldout"), "did you mean 'held-out'"),
        (lambda: generate_documents(-1), "num: must be >= 0"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_the_command_writes_a_corpus(cli, tmp_path, held_out):
    out = tmp_path / "corpus" / "held-out.txt"
    result = cli("corpus", "generate", "--documents", 20, "--seed", 5, "--held-out", "--out", out)
    assert result.code == 0, result
    assert [document.lines for document in read_documents(out)] == held_out[:20]
    printed = cli("corpus", "generate", "--documents", 20, "--seed", 5, "--held-out")
    assert printed.out == out.read_text(encoding="utf-8")


def test_a_smaller_world_has_only_the_kinds_that_were_asked_for():
    told = list(generate_documents(40, seed=3, kinds=("repair", "board game")))
    steps = {topic.name: len(topic.steps) for topic in TOPICS}
    assert {len(document) for document in told} <= {steps["repair"], steps["board game"]}
    text = " ".join(sentence for document in told for sentence in document).lower()
    assert "tools" in text, "of a repair"
    assert "dominoes" in text
    assert "dough" not in text
    assert "dough" in " ".join(s for d in generate_documents(40, seed=3, kinds=("baking",)) for s in d)
    assert list(generate_documents(5, seed=3, kinds=story_kinds())) == list(generate_documents(5, seed=3))
    with pytest.raises(InputError, match="did you mean 'baking'"):
        generate_documents(1, kinds=("bakin",))


def test_excerpts_begin_and_end_anywhere():
    """Whole stories have the same step at the same place; a model of pairs must not be able to count on it."""
    whole = list(generate_documents(400, seed=2))
    excerpts = list(generate_documents(400, seed=2, excerpts=True))
    begins = []
    for story, excerpt in zip(whole, excerpts, strict=True):
        begin = story.index(excerpt[0])
        assert story[begin : begin + len(excerpt)] == excerpt
        assert len(excerpt) >= 4
        begins.append(begin)
    assert set(begins) == {0, 1, 2, 3}
    assert 0.4 < sum(begin % 2 for begin in begins) / len(begins) < 0.6, "as many even as odd"
    assert list(generate_documents(5, seed=2, excerpts=True)) == excerpts[:5]
