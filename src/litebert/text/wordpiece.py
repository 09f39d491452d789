"""WordPiece vocabularies (BERT, the Chinese ALBERT): split into words, then take the longest pieces from the left.

Most words of a text have been seen before, so each distinct word is split once and cached; a text then costs one
regular expression and one dictionary look-up per word.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.text.normalize import ASTRAL, Normalization, character_class, normal_form
from litebert.text.tokenizer import Specials, Tokenizer, check_texts

CONTINUES = "##"
MAX_WORD = 200  # characters; a longer word is unknown, as in the released code
REMEMBERED_WORDS = 1 << 18
RULE_VERSION = 1


@dataclass(frozen=True)
class BasicRule:
    """The options of BERT's basic tokenizer, which prepares a text for WordPiece."""

    lower: bool = True
    strip_accents: bool = True
    split_cjk: bool = True
    max_word: int = MAX_WORD


class WordPieceTokenizer(Tokenizer):
    """A vocabulary of words and word parts that begin with "##"."""

    kind = "wordpiece"

    def __init__(
        self,
        pieces: Sequence[str],
        rule: BasicRule | None = None,
        specials: Specials | None = None,
        where: str = "vocab.txt",
    ):
        specials = specials or Specials(pad="[PAD]", unk="[UNK]")
        self.rule = rule or BasicRule()
        self._where = where
        super().__init__(pieces, specials, Normalization("none"), where)
        self._words = _Words(self._ids, self.unk_id, self.rule.max_word)

    def __reduce__(self) -> tuple[Any, ...]:
        return WordPieceTokenizer, (self.pieces, self.rule, self.specials, self._where)

    def encode_batch(self, texts: Sequence[str], num_threads: int = 1) -> list[NDArray[np.int32]]:
        """The ids of many texts, without special tokens; always single-threaded (use processes for more)."""
        check_texts(texts)
        return [np.array(self._encode(text, glued=False), dtype=np.int32) for text in texts]

    def _encode(self, text: str, glued: bool) -> list[int]:
        words = self._word_pattern(text := self._normalize(text)).findall(text)
        return list(itertools.chain.from_iterable(map(self._words.__getitem__, words)))

    def _encode_offsets(self, text: str, glued: bool) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        normalized = self._normalize(text)
        ids, begins, ends = array("i"), array("i"), array("i")  # in the normalised text
        for word in self._word_pattern(normalized).finditer(normalized):
            begin = word.start()
            for number in self._words[word[0]]:
                size = len(self.pieces[number]) - (len(CONTINUES) if begin > word.start() else 0)
                end = word.end() if number == self.unk_id else begin + size
                ids.append(number)
                begins.append(begin)
                ends.append(end)
                begin = end
        # Working character by character gives the same result: only the order of marks depends on neighbours.
        characters = set(text)
        sizes = {character: len(self._normalize(character)) for character in characters}
        origins = np.repeat(
            np.arange(len(text), dtype=np.int32), np.fromiter(map(sizes.__getitem__, text), np.int32, len(text))
        )
        assert len(origins) == len(normalized), text
        past = origins[np.array(ends, dtype=np.int32) - 1] + 1
        if marks := {character for character in characters if unicodedata.category(character) == "Mn"}:
            past = np.array([_past_marks(text, end, marks) for end in past.tolist()], dtype=np.int32)
        return np.array(ids, dtype=np.int32), np.stack([origins[np.array(begins, dtype=np.int32)], past], axis=1)

    def _decode(self, ids: list[int]) -> str:
        text = " ".join(self.pieces[number] for number in ids).replace(" " + CONTINUES, "")
        # Stripping accents has decomposed Hangul into jamo.
        return normal_form("NFC", text)

    def _decisive(self) -> tuple[Mapping[str, Any], bytes]:
        return {"kind": self.kind, "rule": RULE_VERSION, **asdict(self.rule)}, "\n".join(self.pieces).encode("utf-8")

    def _normalize(self, text: str) -> str:
        if not text.isprintable() or "\ufffd" in text:
            text = "".join(map(_clean, text))
        if self.rule.lower:
            text = text.lower()
        if self.rule.strip_accents and not text.isascii():
            text = _drop_nonspacing(normal_form("NFD", text))
        return text

    def _word_pattern(self, text: str) -> re.Pattern[str]:
        if text.isascii():
            return _ASCII_WORD
        return _word_pattern(self.rule.split_cjk, bool(ASTRAL.search(text)))


class _Words(dict[str, tuple[int, ...]]):
    """Word -> ids, filled on demand."""

    def __init__(self, ids: Mapping[str, int], unk_id: int, max_word: int):
        super().__init__()
        self._ids = ids
        self._unk = (unk_id,)
        self._max_word = max_word

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(self) >= REMEMBERED_WORDS:
            self.clear()
        ids = self[word] = self._cut(word) if len(word) <= self._max_word else self._unk
        return ids

    def _cut(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        begin = 0
        while begin < len(word):
            prefix = CONTINUES if begin else ""
            for end in range(len(word), begin, -1):
                number = self._ids.get(prefix + word[begin:end])
                if number is not None:
                    break
            else:
                return self._unk
            ids.append(number)
            begin = end
        return tuple(ids)


def _past_marks(text: str, end: int, marks: Collection[str]) -> int:
    """The end of a stretch, moved past the marks on its last letter."""
    while end < len(text) and text[end] in marks:
        end += 1
    return end


def _clean(character: str) -> str:
    """Map whitespace to a space, and remove control characters, NUL and U+FFFD."""
    if character in "\t\n\r" or (character.isspace() and unicodedata.category(character) != "Cc"):
        return " "
    if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Cs"):
        return ""
    return character


def _is_punctuation(character: str) -> bool:
    """ASCII characters other than letters, digits, spaces and controls; beyond ASCII, Unicode's P categories."""
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")


_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_ASTRAL_CJK = "\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f"


_ASCII_WORD = re.compile(r"[a-zA-Z0-9]+|[^\sa-zA-Z0-9]")


@functools.cache
def _word_pattern(split_cjk: bool, astral: bool) -> re.Pattern[str]:
    """One punctuation mark, one Han character, or a stretch of other non-whitespace characters."""
    alone = character_class(_is_punctuation, 0x21, 0x10000)[1:-1] + (_CJK if split_cjk else "")
    if astral:  # slower: Python's re has no table for classes beyond the BMP
        alone += character_class(_is_punctuation, 0x10000, 0x20000)[1:-1] + (_ASTRAL_CJK if split_cjk else "")
    return re.compile(rf"[{alone}]|[^\s{alone}]+")


@functools.cache
def _nonspacing(astral: bool) -> re.Pattern[str]:
    def wanted(character: str) -> bool:
        return unicodedata.category(character) == "Mn"

    if astral:
        return re.compile(f"{character_class(wanted, 0x10000, 0x1F000)}|[\U000e0100-\U000e01ef]")
    return re.compile(character_class(wanted, 0x300, 0x10000))


def _drop_nonspacing(text: str) -> str:
    text = _nonspacing(astral=False).sub("", text)
    return _nonspacing(astral=True).sub("", text) if ASTRAL.search(text) else text
