"""WordPiece against the `tokenizers` library: the same ids and the same offsets."""

from __future__ import annotations

import functools
import pickle
import unicodedata

import pytest
import small_vocabularies
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Reference
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from litebert.errors import DataError, InputError
from litebert.text.wordpiece import BasicRule, WordPieceTokenizer

words = st.sampled_from(
    [
        *("The", "quick", "foxes", "unwantedable", "running", "Café", "cafe\u0301", "HELLO", "don't", "2010", "$20"),
        *(
            "中国人",
            "日本",
            "나는",
            "ab",
            "ᄂ\u1161",
            "world.",
            "(a-b)",
            "\ufffd",
            "\u200b",
            "\x00",
            "\t",
            "\u3000",
            "𠀀",
        ),
    ]
)
texts = st.lists(st.one_of(words, st.sampled_from(["", " ", "  "]), st.text(max_size=3)), max_size=12).map("".join)


@functools.cache
def reference(lower: bool) -> Reference:
    tokenizer = small_vocabularies.wordpiece(lower)
    vocabulary = {piece: number for number, piece in enumerate(tokenizer.pieces)}
    library = Reference(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=tokenizer.rule.max_word))
    library.normalizer = BertNormalizer(lowercase=lower)
    library.pre_tokenizer = BertPreTokenizer()
    return library


def differs_by_intent(text: str) -> bool:
    """To the library, not to the released code, private and unassigned characters are control characters, and the
    first 256 of one Han block are no Han."""
    return any(unicodedata.category(c) in ("Co", "Cn") or "\U0002b820" <= c < "\U0002b920" for c in text)


@pytest.mark.parametrize("lower", [True, False])
@given(text=texts)
@settings(max_examples=150, deadline=None)
def test_ids_and_offsets_are_the_libraries(lower, text):
    assume(not differs_by_intent(text))
    tokenizer = small_vocabularies.wordpiece(lower)
    expected = reference(lower).encode(text, add_special_tokens=False)
    encoding = tokenizer.encode_offsets(text)
    assert tokenizer.encode(text) == encoding.ids == expected.ids
    assert encoding.pieces == expected.tokens
    # The library leaves marks that it dropped at the end of a word outside of it; here they belong to their letter.
    for (start, end), (theirs, until) in zip(encoding.offsets, expected.offsets, strict=True):
        assert start == theirs
        assert all(unicodedata.category(mark) == "Mn" for mark in text[until:end])
    assert [ids.tolist() for ids in tokenizer.encode_batch([text, text])] == [expected.ids] * 2


@pytest.mark.parametrize(
    ("text", "pieces", "spans"),
    [
        ("The foxes jumped!", ["the", "fox", "##es", "jump", "##ed", "!"], ["The", "fox", "es", "jump", "ed", "!"]),
        ("cafe\u0301s", ["caf", "##es"], ["caf", "e\u0301s"]),
        ("中国人2010", ["中", "国", "人", "20", "##1", "##0"], ["中", "国", "人", "20", "1", "0"]),
        ("xyz the", ["[UNK]", "the"], ["xyz", "the"]),
        ("ΟΔΟΣ", ["οδος"], ["ΟΔΟΣ"]),  # with its final sigma, as Python and the released code have it
        ("", [], []),
    ],
)
def test_by_example(text, pieces, spans):
    encoding = small_vocabularies.wordpiece().encode_offsets(text)
    assert encoding.pieces == pieces
    assert [text[start:end] for start, end in encoding.offsets] == spans


def test_words_beyond_the_limit_are_unknown():
    tokenizer = small_vocabularies.wordpiece()
    assert tokenizer.encode_offsets("a" + "b" * 199).pieces == ["a", *["##b"] * 199]
    assert tokenizer.encode_offsets("a" + "b" * 200).pieces == ["[UNK]"]


def test_specials_on_request_and_decoding():
    tokenizer = small_vocabularies.wordpiece()
    assert tokenizer.encode_offsets("the [MASK] fox", allow_special=True).pieces == ["the", "[MASK]", "fox"]
    assert tokenizer.mask_id not in tokenizer.encode("the [MASK] fox")
    ids = tokenizer.encode("The foxes jumped over a café")
    assert tokenizer.decode([tokenizer.cls_id, *ids, tokenizer.sep_id]) == "the foxes jumped over a cafe"
    with pytest.raises(InputError, match="expected a str"):
        tokenizer.encode_batch(["a", None])


def test_copies_and_memory(monkeypatch):
    monkeypatch.setattr("litebert.text.wordpiece.REMEMBERED_WORDS", 10)
    tokenizer = WordPieceTokenizer(small_vocabularies.WORDPIECES)
    copy = pickle.loads(pickle.dumps(tokenizer))
    text = " ".join(f"a{'b' * i}" for i in range(50))
    assert copy.encode(text) == tokenizer.encode(text)
    assert copy.fingerprint == tokenizer.fingerprint
    assert len(tokenizer._words) <= 10
    assert WordPieceTokenizer(tokenizer.pieces, BasicRule(max_word=5)).fingerprint != tokenizer.fingerprint


def test_a_vocabulary_without_specials_is_refused():
    with pytest.raises(DataError, match=r"my.txt: no piece \[CLS\], \[MASK\] among its 4"):
        WordPieceTokenizer(["[PAD]", "[UNK]", "[SEP]", "a"], where="my.txt")
