"""What pieces say about languages, and which characters continue a word."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest
from small_vocabularies import chinese, english, japanese, korean, mixed, wordpiece

from litebert.text.normalize import Normalization
from litebert.text.tokenizer import Tokenizer
from litebert.text.words import language_of, word_marks

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"[unused{i}]" for i in range(99))]


@pytest.mark.parametrize(
    ("tokenizer", "language"),
    [(english, "en"), (korean, "ko"), (chinese, "zh"), (japanese, "ja"), (mixed, "en"), (wordpiece, "en")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_trained_vocabularies(tokenizer, language):
    assert tokenizer().language == language


def test_the_vocabulary_in_the_box():
    assert Tokenizer.load("default").language == "en"


@pytest.mark.parametrize(
    ("pieces", "language"),
    [
        ([*SPECIALS, "나", "##는", "밥", "the"], "ko"),
        ([Normalization.named("google")(piece) for piece in ("나", "책", "밥", "the")], "ko"),  # apart, as jamo
        (["中", "##中", "国", "人", "水", "山", "大", "小", "天", "日", "の", "the", "##ing"], "zh"),
        (["▁中", "国", "水", "は", "カフェ", "々"], "ja"),
        (["▁der", "ß", "œuvre"], "en"),
        (["мир", "слово", "밥"], "en"),
        (["나", "밥", "中", "国", "the", "a"], "en"),
        (["나", "the"], "en"),
        ([*SPECIALS, "<pad>", "▁", "12", "!"], "en"),
        ([], "en"),
    ],
)
def test_shares_of_scripts(pieces, language):
    assert language_of(pieces) == language


def test_every_mark_of_unicode_and_the_joiners():
    found = set(re.findall(f"[{word_marks()}]", "".join(map(chr, range(sys.maxunicode + 1)))))
    marks = {c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Mn", "Mc", "Me")}
    assert found == marks | {"\u00ad", "\u200c", "\u200d"}
