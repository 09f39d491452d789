"""Guesses the encoding of text that is not UTF-8, for error messages only; nothing is decoded by such a guess."""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Callable

SAMPLE = 4096  # bytes examined


def encoding_advice(data: bytes) -> str:
    """Advice on bytes that are not UTF-8: "; it looks like cp949 (Korean); convert it: iconv -f CP949 ..."."""
    name = guess_encoding(data)
    if name is None:
        return ""
    return f"; it looks like {describe(name)}; convert it: iconv -f {name.upper()} -t UTF-8 FILE > NEW"


def describe(name: str) -> str:
    """An encoding for people: "cp949" -> "cp949 (Korean)"."""
    return f"{name} ({_LANGUAGE[name]})"


def guess_encoding(data: bytes) -> str | None:
    """The likely encoding, as Python and iconv name it, judged by the letters that the bytes would decode to."""
    data = data[:SAMPLE]
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # utf-32le begins like utf-16le
        return "utf-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in data:  # UTF-16 has one in spaces and digits, UTF-32 in every character, images anywhere
        name, width = "utf-16le" if data[1::2].count(0) > data[::2].count(0) else "utf-16be", 2
        for wide, zeros in (("utf-32le", (2, 3)), ("utf-32be", (0, 1))):
            if all(2 * data[place::4].count(0) > len(data) // 4 for place in zeros):
                name, width = wide, 4
        text = data[: len(data) // width * width].decode(name, "replace")
        return name if all(character.isprintable() or character.isspace() for character in text[:-1]) else None
    as_utf8 = data.decode("utf-8", "replace")
    if 2 * as_utf8.count("\ufffd") < sum(not character.isascii() for character in as_utf8):
        return None  # UTF-8 with some damage
    for name, is_typical, least in _TYPICAL:
        try:
            text = codecs.getincrementaldecoder(name)().decode(data)  # the last character may be truncated
        except UnicodeDecodeError:
            continue
        letters = [character for character in text if character.isalpha()]
        foreign = [letter for letter in letters if not letter.isascii()]
        # Western text is mostly ASCII; another script decoded as cp1252 would be all accented letters.
        if name == "cp1252" and 2 * len(foreign) > len(letters):
            continue
        if foreign and sum(map(is_typical, foreign)) >= least * len(foreign):
            return name
    return None


def _is_hangul(letter: str) -> bool:
    """A syllable of KS X 1001, or a letter used for laughing or crying; in EUC-JP the other single letters are kana."""
    return letter in "ㅋㅎㅠㅜ" or ("\uac00" <= letter <= "\ud7a3" and len(letter.encode("euc_kr", "ignore")) == 2)


def _is_kana(letter: str) -> bool:
    return "\u3041" <= letter <= "\u30ff"


def _is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith("LATIN")


def _is_frequent(encoding: str, first: int, last: int) -> Callable[[str], bool]:
    """A test for the range in which a character set keeps its frequent characters."""

    def is_frequent(letter: str) -> bool:
        code = letter.encode(encoding, "ignore")
        return len(code) == 2 and first <= code[0] <= last

    return is_frequent


_LANGUAGE = {
    "utf-32": "four bytes a character",
    "utf-32le": "four bytes a character",
    "utf-32be": "four bytes a character",
    "utf-16": "from Windows",
    "utf-16le": "from Windows",
    "utf-16be": "from Windows",
    "cp949": "Korean",
    "euc-jp": "Japanese",
    "shift_jis": "Japanese",
    "gb18030": "Chinese",
    "big5": "Chinese",
    "cp1252": "Western European",
}

# In this order: Hangul, and Japanese with kana, would pass for Chinese too.
_TYPICAL: tuple[tuple[str, Callable[[str], bool], float], ...] = (
    ("cp949", _is_hangul, 0.9),
    ("euc-jp", _is_kana, 0.2),
    ("shift_jis", _is_kana, 0.2),
    ("gb18030", _is_frequent("gb2312", 0xB0, 0xD7), 0.8),
    ("big5", _is_frequent("big5", 0xA4, 0xC6), 0.8),
    ("cp1252", _is_latin, 0.9),
)
