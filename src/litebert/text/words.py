"""What the pieces of a vocabulary say about words and languages.

Which pieces begin a word, the unit of whole-word and n-gram masking, in one of two styles:

google   As released. SentencePiece: a piece begins a word if it starts with ▁ or "<", is one punctuation mark, or
         contains a character that is neither an ASCII letter nor such a mark: digits, apostrophes and all other
         scripts, so that each Hangul or Han piece is a word. WordPiece: it does not start with "##".
spaces   As the paper describes it: words are separated by spaces. A piece begins a word if it starts with ▁ (WordPiece:
         not with "##"), is punctuation, or begins with a letter of a script written without spaces (Han, kana,
         Thai, ...). A Korean eojeol is one word, and so is each Han piece.
"""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from litebert.errors import check_choice
from litebert.text.normalize import character_class

Language = Literal["en", "ko", "zh", "ja"]

STYLES = ("google", "spaces")
SPACE = "▁"

# The released set: without apostrophe, < = >.
_GOOGLE_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_GOOGLE_PLAIN = _GOOGLE_PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
# Prefixes of Unicode's letter names in scripts that do not put spaces between words.
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
# Prefixes of Unicode's letter names, and their scripts.
_SCRIPTS = {
    "HANGUL ": "Hangul",
    "CJK ": "Han",
    "IDEOGRAPHIC ": "Han",
    "HIRAGANA ": "kana",
    "KATAKANA": "kana",
    "LATIN ": "Latin",
}
# Chinese vocabularies contain far less kana; Japanese is written with both.
_KANA_OF_JAPANESE = 0.1


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
    """Whether a piece represents no text: [MASK], <unk>, [unused1]."""
    return len(piece) > 2 and piece[0] + piece[-1] in ("[]", "<>")


def language_of(pieces: Iterable[str]) -> Language:
    """The main language of a vocabulary, by the scripts of its pieces: ["▁나", "는", "▁밥"] -> "ko".

    A mixture, and any language not listed here, counts as English.
    """
    counts = Counter(script for piece in pieces if (script := _script_of(piece)))
    half = counts.total() / 2
    asian = counts["Han"] + counts["kana"]
    if counts["Hangul"] > half:
        return "ko"
    if asian > half:
        return "ja" if counts["kana"] >= _KANA_OF_JAPANESE * asian else "zh"
    return "en"


@functools.cache  # a tenth of a second
def word_marks() -> str:
    """Characters that continue a word although `\\w` does not match them, for use inside [...] of a pattern.

    Accents by themselves, vowel signs, points, variation selectors, joiners and the soft hyphen.
    """
    joiners = "\u00ad\u200c\u200d"  # inside words: Persian "می\u200cخواهم", Hindi "क्\u200dष"
    variants = "\U000e0100-\U000e01ef"  # of ideographs
    marks = character_class(lambda character: unicodedata.category(character)[0] == "M", 0x300, 0x1F000)
    return marks[1:-1] + variants + joiners


def _starts_google(piece: str) -> bool:
    return piece.startswith((SPACE, "<")) or piece in _GOOGLE_PUNCTUATION or not _GOOGLE_PLAIN.issuperset(piece)


def _starts_google_wordpiece(piece: str) -> bool:
    return not piece.startswith("##")


def _starts_spaces(piece: str) -> bool:
    return piece.startswith((SPACE, "<")) or is_symbol(piece) or _stands_alone(piece)


def _starts_spaces_wordpiece(piece: str) -> bool:
    return not piece.startswith("##") or _stands_alone(piece[2:])


def _stands_alone(piece: str) -> bool:
    if not piece:
        return False
    if unicodedata.name(piece[0], "").startswith(_SPACELESS):
        return True
    return all(unicodedata.category(character)[0] in "PS" for character in piece)


def _script_of(piece: str) -> str | None:
    """The script of a piece's first letter; few pieces mix scripts."""
    if is_symbol(piece):
        return None
    return next(filter(None, map(_script_of_letter, piece)), None)


@functools.cache
def _script_of_letter(character: str) -> str | None:
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "")
    return next((script for start, script in _SCRIPTS.items() if name.startswith(start)), "other")
