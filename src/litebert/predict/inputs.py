"""Texts as model inputs: checked, encoded, cut to the model's limit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.predict.runtime import Request

if TYPE_CHECKING:
    from litebert.text.tokenizer import Tokenizer

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Inputs:
    """A tokenizer and the length of the longest sequence that the model takes."""

    tokenizer: Tokenizer
    max_length: int

    def encode(self, text: str, name: str = "text", allow_special: bool | Collection[str] = False) -> Ids:
        """The ids of a text that must hold at least one token."""
        check_text(text, name)
        ids = np.array(self.tokenizer.encode(text, allow_special), dtype=np.int32)
        if not ids.size:
            raise _no_text(name)
        return ids

    def encode_many(self, texts: Sequence[Any], name: str = "text") -> list[Ids | InputError]:
        """The ids of each of many texts, or why it has none."""
        found: list[Ids | InputError] = []
        good: list[str] = []
        for text in texts:
            try:
                check_text(text, name)
                good.append(text)
                found.append(_NOTHING)
            except InputError as error:
                found.append(error)
        encoded = iter(self.tokenizer.encode_batch(good))
        for number, entry in enumerate(found):
            if not isinstance(entry, InputError):
                ids = next(encoded)
                found[number] = ids if len(ids) else _no_text(name)
        return found

    def request(
        self,
        *segments: Ids,
        want: Iterable[str],
        positions: NDArray[np.int64] | None = None,
        later: int = 0,
    ) -> Request:
        """[CLS] A [SEP] or [CLS] A [SEP] B [SEP]; `positions` count from the first token of A."""
        cls, sep = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        ids = np.concatenate([cls, *(part for segment in segments for part in (segment, sep))])
        sizes = [len(segment) + 1 for segment in segments]
        types = np.repeat(np.arange(len(segments)), [1 + sizes[0], *sizes[1:]])
        assert len(ids) <= self.max_length, (len(ids), self.max_length)
        places = None if positions is None else positions + 1
        return Request(ids.astype(np.int32), types.astype(np.int8), frozenset(want), places, later=later)

    def requests(self, texts: Sequence[Ids], want: Iterable[str]) -> list[Request]:
        """[CLS] A [SEP] of each of many texts, as views of one array: thousands of small arrays take long to make."""
        if not texts:
            return []
        cls, sep = np.array([self.tokenizer.cls_id], np.int32), np.array([self.tokenizer.sep_id], np.int32)
        ids = np.concatenate([part for text in texts for part in (cls, text, sep)], dtype=np.int32)
        segments = np.zeros(max(map(len, texts)) + 2, np.int8)
        assert len(segments) <= self.max_length, (len(segments), self.max_length)
        wanted, found, begin = frozenset(want), [], 0
        for text in texts:
            end = begin + len(text) + 2
            found.append(Request(ids[begin:end], segments[: end - begin], wanted))
            begin = end
        return found

    def windows(self, ids: Ids) -> list[Ids]:
        """The ids cut into as few stretches as fit the model, as even as can be: 700 of at most 510 -> 350 + 350."""
        if len(ids) <= self.max_length - 2:
            return [ids]
        return np.array_split(ids, -(-len(ids) // (self.max_length - 2)))


_NOTHING = np.zeros(0, np.int32)


def _no_text(name: str) -> InputError:
    return InputError(f"{name}: has no text that the vocabulary covers (only spaces or control characters)")


def check_text(text: object, name: str = "text") -> None:
    """Refuse anything but a str with some text in it."""
    if not isinstance(text, str):
        hint = f"; decode it first: {name}.decode('utf-8')" if isinstance(text, (bytes, bytearray)) else ""
        if hasattr(text, "tolist"):  # numpy, pandas
            hint = f"; several texts are a list: {name}.tolist()"
        raise InputError(f"{name}: expected a str, got {type(text).__name__}{hint}")
    if not text.strip():
        raise InputError(f"{name}: is empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name}: character {error.start} is {text[error.start]!a}, half of a surrogate pair, not a character; "
            "read the text as UTF-8, or drop it with text.encode('utf-8', 'ignore').decode()"
        ) from None
