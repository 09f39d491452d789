from __future__ import annotations

import re
import sys
import unicodedata

from litebert.text.marks import MARKS


def test_every_mark_of_unicode_and_the_joiners():
    found = set(re.findall(f"[{MARKS}]", "".join(map(chr, range(sys.maxunicode + 1)))))
    marks = {c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Mn", "Mc", "Me")}
    assert found == marks | {"\u00ad", "\u200c", "\u200d"}
