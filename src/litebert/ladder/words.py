"""Words of a text in any script, and whether a script needs n-grams of characters beside them.

split_words("Don't stop, 走吧")  -> ["don't", "stop", ",", "走", "吧"]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from litebert.text.marks import MARKS

# Scripts without spaces between words (Han, kana, Thai, Lao, Burmese, Khmer): each character is taken as a word.
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff"
_LETTER = rf"(?:(?![{_SPACELESS}])[\w{MARKS}])"
_WORD = re.compile(rf"[{_SPACELESS}]|{_LETTER}+(?:['’]{_LETTER}+)*|[^\w\s]")
_SAMPLE = 2000  # texts that are looked at to tell the script
_SHARE = 0.2  # a text in another script may hold some English


def split_words(text: str) -> list[str]:
    """Lower-case words and single punctuation marks."""
    return _WORD.findall(text.lower())


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where those words lie in the text, character by character."""
    return [match.span() for match in _WORD.finditer(text)]


@dataclass(frozen=True)
class Analysis:
    """What is counted in a text: words, and in some scripts n-grams of characters too."""

    characters: bool
    what: str


def choose_analysis(texts: Sequence[str]) -> Analysis:
    """Decide by the script of a sample of texts: ["재밌다"] -> words and characters."""
    sample = "".join(texts[:: max(1, len(texts) // _SAMPLE)])
    letters = max(1, sum(map(str.isalpha, sample)))
    if len(re.findall(f"[{_SPACELESS}]", sample)) > _SHARE * letters:
        return Analysis(True, "characters and n-grams of characters, as the script has no spaces")
    if len(re.findall(f"[{_HANGUL}]", sample)) > _SHARE * letters:
        return Analysis(True, "words and n-grams of characters, as Korean words carry their particles and endings")
    return Analysis(False, "words")
