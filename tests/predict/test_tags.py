from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import LABELS, predictor_of, small_model
from small_vocabularies import english

from litebert.errors import InputError
from litebert.predict.tags import TaggedWord, merge_entities
from litebert.tasks.task import Task

TEXT = "Anna's brother (Zoë) walked to the café, in 2010, for £5."


@torch.inference_mode()
def test_words_spans_and_tags_against_the_plain_model():
    predictor = predictor_of("token-classification", labels=LABELS)
    result = predictor.tag(TEXT)
    words = ["Anna's", "brother", "(", "Zoë", ")", "walked", "to", "the", "café", ",", "in", "2010", ","]
    words += ["for", "£", "5", "."]
    assert [word.text for word in result.words] == words
    assert all(TEXT[word.start : word.end] == word.text for word in result.words)
    # By hand: each word encoded by itself, its first piece with text in it decides.
    tokenizer = english()
    ids, firsts = [tokenizer.cls_id], []
    for word in words:
        part = tokenizer.encode(word)
        firsts.append(len(ids) + next(i for i, n in enumerate(part) if tokenizer.piece(n) != "▁"))
        ids += part
    logits = small_model("token-classification", labels=LABELS)(torch.tensor([[*ids, tokenizer.sep_id]]))[0]
    probabilities = logits.softmax(-1).numpy()[firsts]
    assert [word.tag for word in result.words] == [LABELS[i] for i in probabilities.argmax(-1)]
    np.testing.assert_allclose([word.probability for word in result.words], probabilities.max(-1), rtol=1e-3)


def test_every_word_of_a_long_text_is_tagged_once():
    task = Task("ner", "token-classification", LABELS, max_length=24)
    predictor = predictor_of("token-classification", task, labels=LABELS)
    text = " ".join([TEXT] * 6)
    job = predictor.job("tag", text=text)
    assert len(job._requests) > 3
    assert max(map(len, job._requests)) <= 24
    (result,) = predictor.run([job])
    single = [word.text for word in predictor.tag(TEXT).words]
    assert [word.text for word in result.words] == single * 6
    for entity in result.entities:
        assert text[entity.start : entity.end] == entity.text


def test_words_that_are_already_apart():
    result = predictor_of("token-classification", labels=LABELS).tag("Anna's café, slept", split="spaces")
    assert [word.text for word in result.words] == ["Anna's", "café,", "slept"]


def test_ideographs_are_words():
    result = predictor_of("token-classification", labels=LABELS).tag("他去New York了。")
    assert [word.text for word in result.words] == ["他", "去", "New", "York", "了", "。"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा", "।"]),
        ("Jose\u0301's cafe\u0301, slept", ["Jose\u0301's", "cafe\u0301", ",", "slept"]),
        ("مُحَمَّد", ["مُحَمَّد"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("क्\u200dष", ["क्\u200dष"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"]),
        ("I \u2764\ufe0f you", ["I", "\u2764\ufe0f", "you"]),
    ],
)
def test_marks_and_joiners_belong_to_the_word(text, words):
    result = predictor_of("token-classification", labels=LABELS).tag(text)
    assert [word.text for word in result.words] == words


def test_every_word_that_was_apart_comes_back():
    predictor = predictor_of("token-classification", labels=LABELS)
    result = predictor.tag("anna \u200b slept", split="spaces")
    assert [word.text for word in result.words] == ["anna", "\u200b", "slept"]
    assert result.words[1].tag == "O"
    assert [word.text for word in predictor.tag("anna \u200b slept").words] == ["anna", "slept"]


def entities(tags, labels=LABELS):
    words, text = [], ""
    for number, tag in enumerate(tags):
        words.append(TaggedWord(f"w{number}", len(text), len(text) + len(f"w{number}"), tag, 1 - number / 10))
        text += f"w{number} "
    return [(e.label, e.text, e.probability) for e in merge_entities(text, words, [*labels, *tags])]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER O", [("PER", "w1 w2", 0.8)]),
        ("B-PER B-PER", [("PER", "w0", 1.0), ("PER", "w1", 0.9)]),
        ("I-PER I-PER", [("PER", "w0 w1", 0.9)]),  # IOB1
        ("B-PER I-LOC", [("PER", "w0", 1.0), ("LOC", "w1", 0.9)]),
        ("B-PER I-PER E-PER S-LOC", [("PER", "w0 w1 w2", 0.8), ("LOC", "w3", 0.7)]),  # BIOES
        ("B-PER L-PER U-LOC U-LOC", [("PER", "w0 w1", 0.9), ("LOC", "w2", 0.8), ("LOC", "w3", 0.7)]),  # BILOU
        ("O O", []),
        ("B-A-B I-A-B", [("A-B", "w0 w1", 0.9)]),
    ],
)
def test_entities(tags, expected):
    assert entities(tags.split()) == expected


def test_entities_of_labels_without_prefixes():
    assert entities(["PER", "PER", "O", "LOC"], ["O"]) == [("PER", "w0 w1", 0.9), ("LOC", "w3", 0.7)]
    assert entities(["NOUN", "VERB"], ["NOUN"]) == []  # parts of speech


def test_bad_texts():
    predictor = predictor_of("token-classification", labels=LABELS)
    for text in ("", "\x01 \x02"):
        with pytest.raises(InputError):
            predictor.tag(text)
    with pytest.raises(InputError, match="split"):
        predictor.tag("a", split="bytes")
