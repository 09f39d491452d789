"""Texts on which tokenizers differ."""

from __future__ import annotations

# Marks, joiners, full-width forms, ligatures, right-to-left, control characters, and two scripts to a word.
HARD_TEXTS = [
    "Anna walked to the café.",
    "naïve Zoë  said\tgood\u00a0morning\n",
    "e\u0301 a\u0308 \u0301abc",
    "👩\u200d👩\u200d👧 ok\u200cay\u200b!",
    "ＡＢＣ１２３ ①½™ ﬁne",
    "ab\u0301c a\u093c\u0301 o\u0334\u0308 \u0301\u0302x",
    "Σίσυφος ΟΔΟΣ Ω ΟΔΟΣ. ΑΣ'Α aΣ ШΣ",
    "…“quoted”–dash—­soft",
    "\u0001a\u0008b\u007fc\ufeffd\ufffde▁f",
    "우리는 오늘 서울에 가서 책을 읽었다.",
    "가\u1100\u1161각 한글ABC",
    "我今天在北京吃饭。他的朋友每天看书",
    "㌀ﷺ السلام عليكم",
]
