"""Which language a vocabulary is for, told by its pieces."""

from __future__ import annotations

import pytest
from small_vocabularies import chinese, english, japanese, korean, mixed, wordpiece

from litebert.text.language import language_of
from litebert.text.normalize import Normalization
from litebert.text.tokenizer import Tokenizer

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
