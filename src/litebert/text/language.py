"""Which language a vocabulary is mostly made for, as the scripts of its pieces show it."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from litebert.text.words import is_symbol

Language = Literal["en", "ko", "zh", "ja"]

# How Unicode's names of letters begin.
_SCRIPTS = {
    "HANGUL ": "Hangul",
    "CJK ": "Han",
    "IDEOGRAPHIC ": "Han",
    "HIRAGANA ": "kana",
    "KATAKANA": "kana",
    "LATIN ": "Latin",
}
# Chinese vocabularies hold some kana, too, but far less of it; Japanese is written with both.
_KANA_OF_JAPANESE = 0.1


def language_of(pieces: Iterable[str]) -> Language:
    """The language of a vocabulary whose pieces are mostly of one: ["▁나", "는", "▁밥"] -> "ko".

    What is of several languages, or of one that we have no name for here, counts as English.
    """
    counts = Counter(script for piece in pieces if (script := _script_of(piece)))
    half = counts.total() / 2
    asian = counts["Han"] + counts["kana"]
    if counts["Hangul"] > half:
        return "ko"
    if asian > half:
        return "ja" if counts["kana"] >= _KANA_OF_JAPANESE * asian else "zh"
    return "en"


def _script_of(piece: str) -> str | None:
    """The script of a piece's first letter; SentencePiece and WordPiece seldom put two into one."""
    if is_symbol(piece):
        return None
    scripts = map(_script_of_letter, piece)
    return next(filter(None, scripts), None)


@functools.cache
def _script_of_letter(character: str) -> str | None:
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "")
    return next((script for start, script in _SCRIPTS.items() if name.startswith(start)), "other")
