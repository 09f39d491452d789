"""Where a Korean word ends and its particle begins, told from the text's own statistics.

Korean writes particles onto the word: 식당에 is 식당 (restaurant) and 에 (in). A unigram vocabulary of some size then
holds the frequent combinations (▁나는, ▁학교에서) and loses what they share. While a vocabulary is trained, the text is
cut before each particle, so that no piece reaches across; encoding needs no rule of its own.

A word ends in a particle if the syllable before it allows that one (는 follows a vowel, 은 a consonant), unless the
whole is met with a subject or object particle of its own: 지도 is "map" and not 지 + 도, since there is 지도를.

    find_particles(["나는 지도를 보고 식당에서는 ..."]).split("식당에서는")  -> ["식당", "에서", "는"]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

AFTER_VOWEL = frozenset({"는", "가", "를", "와"})
AFTER_CONSONANT = frozenset({"은", "이", "을", "과"})
AFTER_ANY = frozenset({"에", "에서", "에게", "의", "도"})
TO = frozenset({"로", "으로"})  # 로 after a vowel or ㄹ, 으로 after the other consonants
PARTICLES = sorted(AFTER_VOWEL | AFTER_CONSONANT | AFTER_ANY | TO, key=lambda particle: (-len(particle), particle))

MAX_PARTICLES = 2  # 에서는, 에게도
MIN_SHARE = 0.01  # of a word's count, with a subject or object particle after it, makes it a noun
MIN_COUNT = 3
REMEMBERED_WORDS = 1 << 20

_WORD = re.compile(r"[가-힣]+(?![^\W\d_])")
_FIRST_SYLLABLE, _FINALS, _RIEUL = 0xAC00, 28, 8


class Particles:
    """Cuts Korean words before their particles, by the counts of the words of a text."""

    def __init__(self, counts: Counter[str]):
        self._counts = counts
        self._known: dict[str, list[str]] = {}

    def cut(self, line: str) -> list[str]:
        """Cut a line before every particle: "나는 밥을 먹었다" -> ["나", "는 밥", "을 먹었다"]."""
        if line.isascii():
            return [line]
        return _WORD.sub(lambda word: "\n".join(self.split(word[0])), line).split("\n")

    def split(self, word: str) -> list[str]:
        """A word and its particles: "식당에는" -> ["식당", "에", "는"]."""
        parts = self._known.get(word)
        if parts is None:
            if len(self._known) >= REMEMBERED_WORDS:
                self._known.clear()
            parts = self._known[word] = self._split(word, MAX_PARTICLES)
        return parts

    def _split(self, word: str, most: int) -> list[str]:
        if most == 0 or word in PARTICLES or self._is_noun(word):
            return [word]
        for particle in PARTICLES:
            stem = word.removesuffix(particle)
            if stem and stem != word and _fits(stem, particle):
                return [*self._split(stem, most - 1), particle]
        return [word]

    def _is_noun(self, word: str) -> bool:
        after = ("이", "을") if _final(word) else ("가", "를")
        met = sum(self._counts[word + particle] for particle in after)
        return met >= MIN_COUNT and met >= MIN_SHARE * self._counts[word]


def find_particles(texts: Iterable[str]) -> Particles | None:
    """Count the Korean words of some texts; None if there are none."""
    counts: Counter[str] = Counter()
    for text in texts:
        if not text.isascii():
            counts.update(_WORD.findall(text))
            if len(counts) > REMEMBERED_WORDS:  # flat memory: rare words decide nothing
                counts = Counter({word: count for word, count in counts.items() if count > 1})
    return Particles(counts) if counts else None


def _fits(stem: str, particle: str) -> bool:
    final = _final(stem)
    if particle in AFTER_VOWEL:
        return final == 0
    if particle in AFTER_CONSONANT:
        return final != 0
    if particle in TO:
        return (final in (0, _RIEUL)) == (particle == "로")
    return True


def _final(word: str) -> int:
    """The consonant that ends a word's last syllable, by number; 0 for none."""
    return (ord(word[-1]) - _FIRST_SYLLABLE) % _FINALS
