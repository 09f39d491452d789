"""Unicode normalisation before a text is split into pieces: named rules, fast, with a variant that keeps offsets.

google        whitespace to single spaces, NFKD, every combining mark dropped, lower case. What the released
              English vocabularies expect. It turns が into か and й into и, and ruins Hindi and Thai.
multilingual  whitespace to single spaces, NFKC, accents dropped from Latin letters only, lower case on request.
              For new vocabularies: Hangul stays composed, kana keep their voicing marks.
none          nothing beyond what the SentencePiece model does itself.

Normalization.named("google")("Déjà  Vu")         -> "deja vu"
Normalization.named("multilingual")("Déjà  がй")  -> "Deja がй"
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError, check_choice

Rule = Literal["google", "multilingual", "none"]
RULES: tuple[Rule, ...] = get_args(Rule)

# The Unicode blocks of marks for Latin letters; marks of other scripts are in other blocks.
ACCENTS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"


@dataclass(frozen=True)
class Alignment:
    """Normalised text, and the span of the original text that each of its characters came from."""

    text: str
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]


@dataclass(frozen=True)
class Normalization:
    """How a text is normalised before it is split into pieces; saved with the vocabulary."""

    rule: Rule
    lower: bool = False
    strip_accents: bool = True

    def __post_init__(self) -> None:
        check_choice("normalization", self.rule, RULES)
        if self.rule == "none" and self.lower:
            raise ConfigError("normalization 'none' changes nothing; use 'multilingual' to lower-case")

    @classmethod
    def named(cls, rule: str, lower: bool | None = None, strip_accents: bool = True) -> Normalization:
        """A rule by name; by default `google` lower-cases and the others do not."""
        return cls(rule, rule == "google" if lower is None else lower, strip_accents)  # type: ignore[arg-type]

    def __call__(self, text: str) -> str:
        """The normalised text."""
        if self.rule == "none":
            return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
        text = collapse_whitespace(text)
        if not text.isascii():
            if self.rule == "multilingual":
                text = normal_form("NFKC", text)
                if self.strip_accents:
                    text = _LATIN_ACCENT.sub(_without_accent, text)
            elif self.strip_accents:
                text = drop_marks(normal_form("NFKD", text))
        return text.lower() if self.lower else text

    def align(self, text: str) -> Alignment:
        """The normalised text with the original span of every character; slower than calling the rule."""
        normalized = self(text)
        if self.rule == "none" or (text.isascii() and len(normalized) == len(text)):
            places = np.arange(len(text), dtype=np.int32)
            return Alignment(normalized, places, places + 1)
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        space = _IS_SPACE[np.minimum(codes, len(_IS_SPACE) - 1)]
        begins, ends = np.flatnonzero(np.diff(space, prepend=True, append=True)).reshape(-1, 2).T  # of words
        # Each character becomes one character, and the whitespace between two words becomes one space.
        sizes = (~space).astype(np.int32)
        until = np.arange(1, len(text) + 1, dtype=np.int32)
        sizes[ends[:-1]] = 1
        until[ends[:-1]] = begins[1:]
        strange = np.unique(np.searchsorted(begins, np.flatnonzero((codes > 127) & ~space), side="right") - 1)
        known: dict[str, tuple[list[int], list[int]]] = {}  # most words of a long text have occurred before
        for begin, end in zip(begins[strange].tolist(), ends[strange].tolist(), strict=True):
            word = text[begin:end]
            aligned = known.get(word)
            if aligned is None:
                aligned = self._align_word(word)
                if len(word) < 32 and len(known) < 1 << 16:
                    known[word] = aligned
            sizes[begin:end], until[begin:end] = aligned
            until[begin:end] += begin
        starts = np.repeat(np.arange(len(text), dtype=np.int32), sizes)
        assert len(starts) == len(normalized), (text, normalized)
        return Alignment(normalized, starts, np.repeat(until, sizes))

    def _align_word(self, word: str) -> tuple[list[int], list[int]]:
        """For each character: the length of its stretch after normalisation, and where the stretch ends.

        Characters inside a stretch count 0: a letter covers its marks too.
        """
        sizes, until = [0] * len(word), [0] * len(word)
        for begin, end in _segments(word, 0, len(word)):
            sizes[begin], until[begin] = len(self(word[begin:end])), end
        return sizes, until


def collapse_whitespace(text: str) -> str:
    """Strip, and collapse every stretch of whitespace to one space: " a \\n b" -> "a b"."""
    # " " is the only printable whitespace, so most texts need no work; splitting costs ten times as much as the checks.
    if text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " ":
        return text
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
    return " ".join(text.split())


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Like `unicodedata.normalize`, but in linear time.

    Python sorts a run of marks by insertion: half a million of them, one megabyte, take minutes.
    """
    if len(text) >= _LONG and not text.isascii():
        decomposition: Literal["NFD", "NFKD"] = "NFKD" if "K" in form else "NFD"

        def order(run: re.Match[str]) -> str:
            parts = {ord(character): unicodedata.normalize(decomposition, character) for character in set(run[0])}
            return "".join(sorted(run[0].translate(parts), key=unicodedata.combining))

        text = _many_marks(decomposition, ASTRAL.search(text) is not None).sub(order, text)
    return unicodedata.normalize(form, text)


def drop_marks(text: str) -> str:
    """Without combining marks: "e\\u0301" -> "e"."""
    text = _MARK.sub("", text)
    return _astral_mark().sub("", text) if ASTRAL.search(text) else text


def character_class(wanted: Callable[[str], object], start: int, stop: int) -> str:
    """A regular expression's [...] of the wanted characters in a range."""
    ranges: list[list[int]] = []
    for code in range(start, stop):
        if wanted(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "[" + "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in ranges) + "]"


def is_latin(character: str) -> bool:
    """Whether a character is a Latin letter."""
    return unicodedata.name(character, "").startswith("LATIN ")


def _without_accent(match: re.Match[str]) -> str:
    found = match[0]
    base = _BASE.get(found)
    if base is not None:
        return base
    before = match.string[match.start() - 1 : match.start()]
    return "" if before and is_latin(before) else found


def _segments(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a word into stretches that Unicode normalises independently: a letter with its marks."""
    begin = start
    for position in range(start + 1, end):
        if _starts_segment(text, begin, position):
            yield begin, position
            begin = position
    yield begin, end


def _starts_segment(text: str, begin: int, position: int) -> bool:
    character = text[position]
    if character < "\u0300":  # nothing below composes with the character before it
        return True
    if unicodedata.combining(unicodedata.normalize("NFKD", character)[0]):
        return False
    before = text[begin:position]
    composed = normal_form("NFKC", before + character)
    return composed == normal_form("NFKC", before) + normal_form("NFKC", character)


@functools.cache
def _many_marks(decomposition: Literal["NFD", "NFKD"], astral: bool) -> re.Pattern[str]:
    """A long run of marks and of the few characters that decompose into marks only."""

    def is_marks(character: str) -> bool:
        return all(map(unicodedata.combining, unicodedata.normalize(decomposition, character)))

    marks = character_class(is_marks, 0x300, 0x10000)
    return re.compile(f"(?:{marks}|{_astral_mark().pattern}){{64,}}" if astral else f"{marks}{{64,}}")


@functools.cache
def _astral_mark() -> re.Pattern[str]:
    return re.compile(character_class(unicodedata.combining, 0x10000, 0x1F000))


_LONG = 4096  # characters; up to this length Python's own is always fast
_IS_SPACE = np.array([chr(code).isspace() for code in range(0x3002)])  # U+3000 is the last
_SURROGATE = re.compile("[\ud800-\udfff]")
ASTRAL = re.compile("[\U00010000-\U0010ffff]")
# Two patterns, because Python's re looks a character up in a table only if the whole class lies below 0x10000.
_MARK = re.compile(character_class(unicodedata.combining, 0x300, 0x10000))
# Accented Latin letters that are one character, and their base letters.
_BASE = {
    character: base
    for character in map(chr, (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)))
    if (base := unicodedata.normalize("NFD", character)[0]) != character and is_latin(character)
}
_LATIN_ACCENT = re.compile(f"[{''.join(_BASE)}]|[{ACCENTS}]+")
