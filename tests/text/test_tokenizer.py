"""SentencePiece tokenizers against plain sentencepiece and the released rule, written out."""

from __future__ import annotations

import functools
import pickle
import tracemalloc

import numpy as np
import pytest
import sentencepiece
import small_vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import ConfigError, InputError
from litebert.text.normalize import Normalization
from litebert.text.spiece import (
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    Piece,
    SentencePieceTokenizer,
    SpieceModel,
    write_model,
)
from litebert.text.tokenizer import Specials

WORDS = [
    *("anna", "Ben", "2010,", "1999,", "12010,", "1,000", "2010,5", "café", "(twice)", "didn't", "£5", "–", "[MASK]"),
    *("나는", "식당에서는", "밥을", "我今天", "½", "ﬁn", "が", "😀", "\u0301x"),
]
SEPARATORS = [" ", "  ", "", "\n", "\u00a0", "\u200b", ",", "."]
texts = st.lists(st.one_of(st.sampled_from(WORDS), st.sampled_from(SEPARATORS), st.text(max_size=3)), max_size=12).map(
    "".join
)


@functools.cache
def plain_model(tokenizer: SentencePieceTokenizer) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)


def by_the_released_rule(tokenizer: SentencePieceTokenizer, text: str) -> list[int]:
    """Plain SentencePiece, then the re-encoding of pieces that end in a digit and a comma, as the facts state it."""
    plain = plain_model(tokenizer)
    pieces: list[str] = []
    for piece in plain.encode(tokenizer.normalization(text), out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            again = plain.encode(piece[:-1].replace("▁", ""), out_type=str)
            if piece[0] != "▁" and again[0][0] == "▁":
                if len(again[0]) == 1:
                    again = again[1:]
                else:
                    again[0] = again[0][1:]
            pieces += [*again, ","]
        else:
            pieces.append(piece)
    return [plain.piece_to_id(piece) for piece in pieces]


def handmade(pieces: dict[str, float]) -> SentencePieceTokenizer:
    specials = [Piece(name, 0.0, CONTROL) for name in ("<pad>", "[CLS]", "[SEP]", "[MASK]")]
    specials.insert(1, Piece("<unk>", 0.0, UNKNOWN))
    normal = [Piece(text, score, NORMAL) for text, score in pieces.items()]
    model = write_model(SpieceModel(specials + normal, UNIGRAM, b"", True, True))
    return SentencePieceTokenizer(model, Normalization("none"), Specials())


@pytest.mark.parametrize("vocabulary", ["english", "mixed"])
@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_ids_follow_the_released_rule_on_every_path(vocabulary, text):
    tokenizer = getattr(small_vocabularies, vocabulary)()
    expected = by_the_released_rule(tokenizer, text)
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode_offsets(text).ids == expected
    assert [ids.tolist() for ids in tokenizer.encode_batch([text, "", text])] == [expected, [], expected]


def test_the_comma_rule_by_example():
    tokenizer = small_vocabularies.english()
    plain = plain_model(tokenizer)
    assert "▁2010," in plain.encode("in 2010, anna", out_type=str)
    assert tokenizer.encode_offsets("In 2010, Anna").pieces == ["▁in", "▁", "2", "0", "1", "0", ",", "▁anna"]


def test_the_comma_rule_for_a_piece_inside_of_a_word():
    """ "x7," holds the piece "7,": it is encoded again as "▁7" or "▁" + "7", and the new ▁ goes."""
    base = {"▁": -3.0, "x": -4.0, "▁x": -3.0, "7": -5.0, ",": -5.0, "7,": -2.0}
    assert handmade(base).encode_offsets("x7, x7").pieces == ["▁x", "7", ",", "▁x", "7"]
    # "▁7" minus its ▁ is "7", which this vocabulary lacks: unknown, as released.
    lacking = handmade({"▁": -3.0, "▁x": -3.0, "▁7": -2.0, ",": -5.0, "7,": -2.0})
    assert lacking.encode("x7,") == by_the_released_rule(lacking, "x7,")
    assert lacking.encode_offsets("x7,").pieces == ["▁x", "<unk>", ","]
    assert lacking.encode_offsets("x7,").offsets == [(0, 1), (1, 2), (2, 3)]


@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_offsets_cover_what_each_piece_came_from(text):
    tokenizer = small_vocabularies.mixed()
    encoding = tokenizer.encode_offsets(text)
    assert len(encoding.ids) == len(encoding.pieces) == len(encoding.offsets)
    model = plain_model(tokenizer)

    def normalized(part: str) -> str:
        return model.normalize(tokenizer.normalization(part)).replace("▁", "")

    covered = np.zeros(len(text), dtype=bool)
    before = (0, 0)
    for number, piece, (start, end) in zip(encoding.ids, encoding.pieces, encoding.offsets, strict=True):
        assert 0 <= start <= end <= len(text)
        assert start >= before[0]
        assert end >= before[1]
        before = start, end
        covered[start:end] = True
        if number != tokenizer.unk_id:
            assert piece.replace("▁", "") in normalized(text[start:end])
        if start < end:
            assert not text[start].isspace()
            assert not text[end - 1].isspace()
    outside = "".join(character for character, inside in zip(text, covered, strict=True) if not inside)
    # What no piece covers was whitespace or dropped; marks at the very start have no letter to stand on.
    assert normalized(outside).lstrip("".join(map(chr, range(0x300, 0x370)))) == ""


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("  Anna\tslept ", ["Anna", "slept"]),
        ("in 2010, Anna", ["in", "", "2", "0", "1", "0", ",", "Anna"]),
        ("the cafe\u0301 slept", ["the", "cafe\u0301", "slept"]),
        ("Zoë said", ["Zoë", "said"]),
        ("나는 밥을", ["나", "는", "밥", "을"]),
        ("\u1102\u1161\u1102\u1173\u11ab", ["\u1102\u1161", "\u1102\u1173\u11ab"]),  # 나는 in jamo
        ("", []),
        (" \n", []),
    ],
)
def test_offsets_by_example(text, spans):
    encoding = small_vocabularies.mixed().encode_offsets(text)
    assert [text[start:end] for start, end in encoding.offsets] == spans


@pytest.mark.parametrize("model_type", ["bpe", "char", "word"])
def test_other_kinds_of_model_load_and_keep_offsets(model_type):
    bytes_too = model_type == "bpe"
    model = small_vocabularies.train_spiece(
        small_vocabularies.ENGLISH,
        vocab_size=320 if bytes_too else 55,
        model_type=model_type,
        byte_fallback=bytes_too,
        hard_vocab_limit=False,
    )
    tokenizer = SentencePieceTokenizer(model, Normalization("none"), Specials())
    text = "Anna slept  나 é."
    encoding = tokenizer.encode_offsets(text)
    assert encoding.ids == sentencepiece.SentencePieceProcessor(model_proto=model).encode(text)
    covered = {i for start, end in encoding.offsets for i in range(start, end)}
    # A model of words takes unknown words that follow each other as one, with the space between.
    assert {i for i in covered if not text[i].isspace()} == {i for i, c in enumerate(text) if not c.isspace()}
    if model_type == "bpe":
        hangul = [i for i, (start, end) in enumerate(encoding.offsets) if text[start:end] == "나"]
        assert [encoding.pieces[i] for i in hangul] == ["<0xEB>", "<0x82>", "<0x98>"]
        assert tokenizer.decode(encoding.ids) == "Anna slept 나 é."


def test_special_pieces_come_from_text_only_on_request():
    tokenizer = small_vocabularies.mixed()
    text = "Anna [MASK] 2010,[MASK]ed [SEP]"
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id}
    assert not special & set(tokenizer.encode(text))
    encoding = tokenizer.encode_offsets(text, allow_special=True)
    assert tokenizer.encode(text, allow_special=True) == encoding.ids
    digits = ["▁", "2", "0", "1", "0", ","]
    assert encoding.pieces[: 3 + len(digits)] == ["▁Anna", "[MASK]", *digits, "[MASK]"]
    assert encoding.pieces[-1] == "[SEP]"
    # Glued to [MASK], "ed" begins no word.
    assert "".join(encoding.pieces[3 + len(digits) : -1]) == "ed"
    assert [text[a:b] for a, b in encoding.offsets if text[a:b] not in digits] == [
        *("Anna", "[MASK]", "", "[MASK]"),
        *encoding.pieces[3 + len(digits) :],
    ]
    assert tokenizer.decode(encoding.ids) == "Anna 2010,ed"
    assert tokenizer.decode(encoding.ids, keep_special=True) == "Anna [MASK] 2010, [MASK] ed [SEP]"


@pytest.mark.parametrize(
    "text",
    [
        "Anna bought 1,000 apples in 2010, and was happy.",
        "나는 오늘 식당에 가서 밥을 먹었다.",
        "老师昨天在图书馆看书。",
        'Zoë  said "good morning"!',
    ],
)
def test_text_comes_back_from_ids(text):
    tokenizer = small_vocabularies.mixed()
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalization(text)
    assert tokenizer.decode(np.array(tokenizer.encode(text))) == tokenizer.normalization(text)


def test_ids_pieces_and_specials():
    tokenizer = small_vocabularies.english()
    assert tokenizer.vocab_size == 130
    assert [tokenizer.piece(i) for i in range(5)] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    ids = tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    assert ids == (0, 1, 2, 3, 4)
    assert tokenizer.piece_id("▁the") == tokenizer.pieces.index("▁the")
    assert tokenizer.piece_id("no such piece") is None


def test_what_cannot_be_encoded_or_decoded():
    tokenizer = small_vocabularies.english()
    with pytest.raises(InputError, match="expected a str, got NoneType"):
        tokenizer.encode(None)
    with pytest.raises(InputError, match="text 1: expected a str, got bytes"):
        tokenizer.encode_batch(["a", b"b"])
    with pytest.raises(InputError, match="expected a list of texts, got one str"):
        tokenizer.encode_batch("a")
    with pytest.raises(InputError, match=r"id 130 is not in the vocabulary \(0 to 129\)"):
        tokenizer.decode([5, 130])
    with pytest.raises(InputError, match="id -1"):
        tokenizer.piece(-1)
    assert tokenizer.encode_batch([]) == []


def test_odd_text_is_survived():
    tokenizer = small_vocabularies.english()
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")
    assert len(tokenizer.encode_batch(["a\ud800b"])[0]) == len(tokenizer.encode_offsets("a\ud800b").ids)
    assert tokenizer.encode("x" * 300_000) == [tokenizer.piece_id("▁"), tokenizer.unk_id]
    assert len(tokenizer.encode("the " * 100_000)) == 100_000


def test_threads_change_nothing():
    tokenizer = small_vocabularies.mixed()
    lines = small_vocabularies.ENGLISH[:100] + small_vocabularies.KOREAN[:100]
    one, two = tokenizer.encode_batch(lines), tokenizer.encode_batch(lines, num_threads=2)
    assert all(np.array_equal(a, b) and a.dtype == np.int32 for a, b in zip(one, two, strict=True))


def test_fingerprint_is_of_what_decides_ids():
    tokenizer = small_vocabularies.english()
    assert len(tokenizer.fingerprint) == 64
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.fingerprint == tokenizer.fingerprint
    assert copy.encode("In 2010, Anna") == tokenizer.encode("In 2010, Anna")
    cased = SentencePieceTokenizer(tokenizer.model, Normalization("google"), tokenizer.specials)
    others = {cased.fingerprint, small_vocabularies.mixed().fingerprint, small_vocabularies.wordpiece().fingerprint}
    assert len(others | {tokenizer.fingerprint}) == 4


def test_google_word_starts_are_the_released_rule():
    """The rule of albert.md 1.3, by pieces that show each part of it."""
    pieces = {
        "▁the": True, "▁": True, "the": False, "ing": False, "<unk>": True, "s.": False, ".": True, ",": True,
        "(": True, "'": True, "'s": True, "2010": True, "é": True, "나는": True, "我": True, "£": True, "=": True,
        ".com": False, "A": False, "aB": False, "[MASK]": False, "a-b": False, "a=b": True, "a<b": True, "a'b": True,
        # Every letter: the first release had no x.
        "abcdefghijklmnopqrstuvwxyz": False, "ABCDEFGHIJKLMNOPQRSTUVWXYZ": False, "tax": False,
    }  # fmt: skip
    tokenizer = handmade({piece: -5.0 for piece in pieces if piece not in ("<unk>", "[MASK]")})
    starts = tokenizer.word_starts("google")
    assert starts.dtype == bool
    assert {piece: bool(starts[tokenizer.piece_id(piece)]) for piece in pieces} == pieces


def test_space_delimited_word_starts():
    pieces = {
        "▁the": True, "the": False, "ing": False, "2010": False, "'": True, "...": True, "s.": False, "▁나": True,
        "나는": False, "는": False, "我": True, "你们": True, "の": True, "カ": True, "ไทย": True, "ー": True,
        "é": False, "(": True, "。": True, "£": True, "<unk>": True, "[CLS]": True,
    }  # fmt: skip
    tokenizer = handmade({piece: -5.0 for piece in pieces if piece not in ("<unk>", "[CLS]")})
    starts = tokenizer.word_starts("spaces")
    assert {piece: bool(starts[tokenizer.piece_id(piece)]) for piece in pieces} == pieces
    wordpiece = small_vocabularies.wordpiece()
    assert [p for p, start in zip(wordpiece.pieces, wordpiece.word_starts("spaces"), strict=True) if not start] == [
        p for p in wordpiece.pieces if p.startswith("##") and p != "##国"
    ]
    assert [p for p, start in zip(wordpiece.pieces, wordpiece.word_starts("google"), strict=True) if not start] == [
        p for p in wordpiece.pieces if p.startswith("##")
    ]
    with pytest.raises(ConfigError, match="did you mean 'spaces'"):
        tokenizer.word_starts("space")


@pytest.mark.parametrize("tokenizer", ["english", "mixed", "wordpiece"])
def test_long_texts_get_the_same_offsets_in_little_memory(tokenizer):
    tokenizer = getattr(small_vocabularies, tokenizer)()
    line = "Anna bought 1,000 apples in 2010, Zoë – read\tthe old book (twice)  나는 오늘 ½ 학교에!\n"
    once = tokenizer.encode_offsets(line * 3)
    ids, offsets = tokenizer.encode_arrays(line * 3)
    assert (ids.dtype, offsets.dtype, offsets.shape) == (np.int32, np.int32, (len(ids), 2))
    assert (ids.tolist(), [*map(tuple, offsets.tolist())]) == (once.ids, once.offsets)
    text = line * 2000
    tracemalloc.start()
    tokenizer.encode_arrays(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 120 * len(text)  # lists of Python's numbers took three times that
