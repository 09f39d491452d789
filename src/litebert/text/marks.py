"""Characters that go on with the word before them, although Python's `\\w` does not count them as letters."""

from __future__ import annotations

import unicodedata

from litebert.text.normalize import character_class

# Joiners and the soft hyphen stand inside of words: Persian "می\u200cخواهم", Hindi "क्\u200dष".
_JOINERS = "\u00ad\u200c\u200d"
_VARIANTS = "\U000e0100-\U000e01ef"  # of ideographs


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


# For use inside of a regular expression's [...]: accents by themselves, vowel signs, points, variation selectors.
MARKS = character_class(_is_mark, 0x300, 0x1F000)[1:-1] + _VARIANTS + _JOINERS
