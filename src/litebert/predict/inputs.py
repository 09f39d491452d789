"""Texts as model inputs: checked, encoded, cut to what the model takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.predict.runtime import Request

if TYPE_CHECKING:
    from litebert.predict.exits import ExitRule
    from litebert.text.tokenizer import Tokenizer

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Inputs:
    """A tokenizer and the length of the longest sequence that the model takes."""

    tokenizer: Tokenizer
    max_length: int
    rule: ExitRule | None = None  # of early exit, where the model has one

    def encode(self, text: str, name: str = "text", allow_special: bool | Collection[str] = False) -> Ids:
        """The ids of a text that must hold at least one token."""
        check_text(text, name)
        ids = np.array(self.tokenizer.encode(text, allow_special), dtype=np.int32)
        if not ids.size:
            raise InputError(f"{name}: has no text that the vocabulary covers (only spaces or control characters)")
        return ids

    def request(
        self,
        *segments: Ids,
        want: Iterable[str],
        positions: NDArray[np.int64] | None = None,
        later: int = 0,
        depth: int | Literal["auto"] | None = None,
    ) -> Request:
        """[CLS] A [SEP] or [CLS] A [SEP] B [SEP]; `positions` count from the first token of A."""
        cls, sep = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        ids = np.concatenate([cls, *(part for segment in segments for part in (segment, sep))])
        sizes = [len(segment) + 1 for segment in segments]
        types = np.repeat(np.arange(len(segments)), [1 + sizes[0], *sizes[1:]])
        assert len(ids) <= self.max_length, (len(ids), self.max_length)
        places = None if positions is None else positions + 1
        when: dict[str, Any] = {"rule": self.rule} if depth == "auto" else {"depth": depth}
        return Request(ids.astype(np.int32), types.astype(np.int8), frozenset(want), places, later=later, **when)

    def windows(self, ids: Ids) -> list[Ids]:
        """The ids cut into as few stretches as fit the model, as even as can be: 700 of at most 510 -> 350 + 350."""
        return np.array_split(ids, -(-len(ids) // (self.max_length - 2)))


def check_text(text: object, name: str = "text") -> None:
    """Refuse anything but a str with some text in it."""
    if not isinstance(text, str):
        hint = f"; decode it first: {name}.decode('utf-8')" if isinstance(text, (bytes, bytearray)) else ""
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
