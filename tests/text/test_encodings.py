"""Advice about text that is not UTF-8: which encoding it looks like."""

from __future__ import annotations

import random

import pytest

from litebert.text.encodings import encoding_advice, guess_encoding

KOREAN = "정말 재미있는 영화였다. 배우들의 연기가 좋았고 음악도 훌륭했다 ㅋㅋㅋㅋ 2번 봤다!"
CHINESE = "今天天气很好，小明去学校看书。然后老师也来了，大家都觉得很高兴。"
TRADITIONAL = "今天天氣很好，小明去學校看書。然後老師也來了，大家都覺得很高興。"
JAPANESE = "今日はとても天気がいいので、学校まで歩いて行きました。先生も来て、みんなで話しました。"


@pytest.mark.parametrize(
    ("text", "encoding", "guess"),
    [
        (KOREAN, "cp949", "cp949"),
        (KOREAN, "euc_kr", "cp949"),
        (KOREAN, "utf-16", "utf-16"),
        (KOREAN, "utf-16-le", "utf-16le"),
        (KOREAN, "utf-16-be", "utf-16be"),
        (KOREAN, "utf-32", "utf-32"),
        (KOREAN, "utf-32-le", "utf-32le"),
        (KOREAN, "utf-32-be", "utf-32be"),
        ("A plain text 😀.", "utf-32", "utf-32"),
        ("A plain text.", "utf-16", "utf-16"),
        ("A plain text.", "utf-16-le", "utf-16le"),
        ("A plain text.", "utf-32-be", "utf-32be"),
        (CHINESE, "gb18030", "gb18030"),
        (CHINESE, "gb2312", "gb18030"),
        (TRADITIONAL, "big5", "big5"),
        (JAPANESE, "euc_jp", "euc-jp"),
        (JAPANESE, "shift_jis", "shift_jis"),
        ("Ein schöner Tag für die Mädchen.", "cp1252", "cp1252"),
        ("Мороз и солнце; день чудесный!", "cp1251", None),  # not one that is known here, and no Western text
    ],
)
def test_an_encoding_is_told_by_its_letters(text, encoding, guess):
    assert guess_encoding(text.encode(encoding)) == guess
    assert guess_encoding((text + "\n").encode(encoding) * 1000) == guess  # the sample ends inside of a character


def test_a_picture_is_no_text():
    for seed in range(20):
        assert guess_encoding(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + random.Random(seed).randbytes(1000)) is None


def test_a_name_is_one_that_python_and_iconv_know():
    for text, encoding in ((KOREAN, "cp949"), (CHINESE, "gb18030"), (TRADITIONAL, "big5"), (JAPANESE, "euc_jp")):
        assert text.encode(encoding).decode(guess_encoding(text.encode(encoding))) == text


def test_advice():
    assert encoding_advice(KOREAN.encode("cp949")) == (
        "; it looks like cp949 (Korean); convert it: iconv -f CP949 -t UTF-8 FILE > NEW"
    )
    for text in (KOREAN, CHINESE, JAPANESE, "Ein schöner Tag für die Mädchen."):
        assert encoding_advice(text.encode() + b"\xff") == ""  # one bad byte makes it no other encoding
