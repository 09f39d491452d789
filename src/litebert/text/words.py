"""Which pieces begin a word: the unit of whole-word and n-gram masking.

google   As released. SentencePiece: a piece begins a word if it starts with ▁ or "<", is one punctuation mark, or
         holds any character that is neither an ASCII letter nor such a mark: digits, apostrophes and all other
         scripts, so that each Hangul or Han piece is a word. WordPiece: it does not start with "##".
spaces   As the paper reads: words are what spaces delimit. A piece begins a word if it starts with ▁ (WordPiece:
         not with "##"), or is punctuation, or begins with a letter of a script that is written without spaces
         (Han, kana, Thai, ...). A Korean eojeol is one word, a Han piece is a word of its own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from litebert.errors import check_choice

STYLES = ("google", "spaces")
SPACE = "▁"

# The released set: no apostrophe, no < = >.
_GOOGLE_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_GOOGLE_PLAIN = _GOOGLE_PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
# How Unicode's names of letters begin in the scripts that do not put spaces between words.
_SPACELESS = (
    "CJK ",
    "IDEOGRAPHIC ",
    "HIRAGANA ",
    "KATAKANA",
    "BOPOMOFO ",
    "YI ",
    "THAI ",
    "LAO ",
    "KHMER ",
    "MYANMAR ",
    "TIBETAN ",
    "TAI ",
    "NEW TAI ",
    "JAVANESE ",
    "BALINESE ",
)


def find_word_starts(pieces: Sequence[str], style: str, wordpiece: bool = False) -> NDArray[np.bool_]:
    """For each piece, whether it begins a word."""
    check_choice("word style", style, STYLES)
    if wordpiece:
        starts = _starts_google_wordpiece if style == "google" else _starts_spaces_wordpiece
    else:
        starts = _starts_google if style == "google" else _starts_spaces
    return np.fromiter(map(starts, pieces), dtype=np.bool_, count=len(pieces))


def readable(piece: str) -> str:
    """A piece as people read it: "▁paris" -> "paris", "##ing" -> "ing"."""
    return piece.removeprefix(SPACE).removeprefix("##") or piece


def is_symbol(piece: str) -> bool:
    """[MASK], <unk>, [unused1]: not made of text."""
    return len(piece) > 2 and piece[0] + piece[-1] in ("[]", "<>")


def _starts_google(piece: str) -> bool:
    return piece.startswith((SPACE, "<")) or piece in _GOOGLE_PUNCTUATION or not _GOOGLE_PLAIN.issuperset(piece)


def _starts_google_wordpiece(piece: str) -> bool:
    return not piece.startswith("##")


def _starts_spaces(piece: str) -> bool:
    return piece.startswith((SPACE, "<")) or _is_special(piece) or _stands_alone(piece)


def _starts_spaces_wordpiece(piece: str) -> bool:
    return not piece.startswith("##") or _stands_alone(piece[2:])


def _is_special(piece: str) -> bool:
    return len(piece) > 2 and piece[0] == "[" and piece[-1] == "]"


def _stands_alone(piece: str) -> bool:
    if not piece:
        return False
    if unicodedata.name(piece[0], "").startswith(_SPACELESS):
        return True
    return all(unicodedata.category(character)[0] in "PS" for character in piece)
