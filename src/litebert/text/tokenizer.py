"""The one interface to vocabularies: SentencePiece (`spiece.py`) and WordPiece (`wordpiece.py`) behind it.

    tokenizer = Tokenizer.load("folder")
    tokenizer.encode("hello world")            -> [10975, 126]          with the released English vocabulary
    tokenizer.encode_offsets("hello world")    -> Encoding(ids=[10975, 126], pieces=["▁hello", "▁world"],
                                                           offsets=[(0, 5), (6, 11)])
    tokenizer.decode([10975, 126])             -> "hello world"
    tokenizer(["hello world"], return_tensors="pt")    a batch for model(**batch), as transformers' tokenizers give it

Text never becomes a special piece: "[MASK]" in a text is seven characters, unless `allow_special` says otherwise, which
is the default only where a tokenizer is called.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.default import resolve_default
from litebert.errors import DataError, InputError
from litebert.remote import find_folder, is_google
from litebert.text.language import Language, language_of
from litebert.text.normalize import Normalization
from litebert.text.token_batch import Padding, TensorKind, TokenBatch, Truncation, make_batch
from litebert.text.words import find_word_starts


@dataclass(frozen=True)
class Encoding:
    """Ids with their pieces and the (start, end) of each in the original text, whitespace left out."""

    ids: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True)
class Specials:
    """The pieces that stand for no text, as the vocabulary spells them."""

    pad: str = "<pad>"
    unk: str = "<unk>"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"


class Tokenizer(ABC):
    """A vocabulary together with everything that decides which ids a text gets."""

    kind: ClassVar[Literal["sentencepiece", "wordpiece"]]
    #: The longest sequence that the model beside it has been trained on, where its folder says so.
    max_length: int | None = None

    def __init__(self, pieces: Sequence[str], specials: Specials, normalization: Normalization, where: str):
        self.pieces = list(pieces)
        self.specials = specials
        self.normalization = normalization
        self._ids: dict[str, int] = {}
        for number, piece in enumerate(self.pieces):
            if self._ids.setdefault(piece, number) != number:
                raise DataError(f"{where}: {piece!r} twice, as id {self._ids[piece]} and as id {number}")
        missing = [piece for piece in asdict(specials).values() if piece not in self._ids]
        if missing:
            raise DataError(
                f"{where}: no piece {' and no piece '.join(missing)} among its {len(self.pieces)}; "
                "a vocabulary for ALBERT or BERT holds padding, unknown, [CLS], [SEP] and [MASK]"
            )
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[piece] for piece in asdict(specials).values()
        )
        special = sorted(asdict(specials).values(), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special)))

    @staticmethod
    def load(path: Path | str, normalization: Normalization | None = None) -> Tokenizer:
        """Open a folder saved by us or by transformers, a spiece.model, a vocab.txt or a tokenizer.json.

        Where the files do not say which normalisation belongs to them, it is told from the pieces (see
        docs/tokenizer.md); `normalization` overrides.
        """
        from litebert.text.tokenizer_files import load_tokenizer

        return load_tokenizer(Path(resolve_default(path)), normalization)

    @staticmethod
    def from_pretrained(source: Path | str, revision: str | None = None) -> Tokenizer:
        """The tokenizer of a model, by whatever name load_model takes: a folder, "albert/albert-base-v2", "default"."""
        source = resolve_default(source)
        if is_google(source):
            folder = Path(source) if Path(source).is_dir() else Path(source).parent
            assets = folder / "assets"  # of a TF-Hub module
            return Tokenizer.load(assets if assets.is_dir() else folder)
        return Tokenizer.load(find_folder(source, revision, weights=False))

    def save(self, folder: Path | str, max_length: int | None = None) -> None:
        """Write the vocabulary with the files that let transformers' AutoTokenizer give the same ids.

        max_length: of the sequences that the model in this folder has been trained on; by default as it was loaded.
        """
        from litebert.text.tokenizer_files import save_tokenizer

        save_tokenizer(self, Path(folder), max_length or self.max_length)

    def __call__(
        self,
        text: str | Sequence[str],
        text_pair: str | Sequence[str] | None = None,
        *,
        padding: Padding = False,
        truncation: Truncation = False,
        max_length: int | None = None,
        return_tensors: TensorKind | None = None,
        add_special_tokens: bool = True,
        allow_special: bool | Collection[str] = True,
    ) -> TokenBatch:
        """A batch for `model(**batch)`, as transformers' tokenizers give it: input_ids, token_type_ids, attention_mask.

        tokenizer(["one text", "another"], padding=True, truncation=True, max_length=128, return_tensors="pt")

        `max_length` defaults to that of the folder. "[MASK]" in a text is the mask here; `allow_special=False` reads
        texts as `encode` does, for text that is not yours.
        """
        return make_batch(
            self,
            text,
            text_pair,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
            add_special_tokens=add_special_tokens,
            allow_special=allow_special,
        )

    @abstractmethod
    def encode_batch(self, texts: Sequence[str], num_threads: int = 1) -> list[NDArray[np.int32]]:
        """The ids of many texts, without specials: the fast path."""

    @abstractmethod
    def _encode(self, text: str, glued: bool) -> list[int]:
        """Ids of a text; `glued`: it goes on right after a special piece, so no word begins with it."""

    @abstractmethod
    def _encode_offsets(self, text: str, glued: bool) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The same as an array, and the offsets of each, [len, 2]."""

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """Text of ids that hold no specials."""

    @abstractmethod
    def _decisive(self) -> tuple[Mapping[str, Any], bytes]:
        """What decides ids besides the specials: settings, and the vocabulary as bytes."""

    def encode(self, text: str, allow_special: bool | Collection[str] = False) -> list[int]:
        """Text -> ids, without [CLS] and [SEP]; `allow_special` reads "[MASK]" and its like (or those named) so."""
        check_texts((text,))
        if not allow_special:
            return self._encode(text, glued=False)
        ids: list[int] = []
        for start, end, special, glued in self._parts(text, allow_special):
            ids += [special] if special is not None else self._encode(text[start:end], glued)
        return ids

    def encode_offsets(self, text: str, allow_special: bool | Collection[str] = False) -> Encoding:
        """Text -> ids, pieces and where each lies in the text.

        A piece's offsets are the smallest stretch that its characters came from, whitespace left out; pieces made
        of one character ("½" -> "1", "⁄", "2") share it, and a piece that is only a space has an empty one.
        """
        check_texts((text,))
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        whole = [(0, len(text), None, False)]
        for start, end, special, glued in self._parts(text, allow_special) if allow_special else whole:
            if special is not None:
                ids.append(special)
                offsets.append((start, end))
                continue
            more, spans = self._encode_offsets(text[start:end], glued)
            ids += more.tolist()
            offsets += map(tuple, (spans + start).tolist())
        return Encoding(ids, [self.pieces[number] for number in ids], offsets)

    def encode_arrays(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The ids and offsets [len, 2] of `encode_offsets` as arrays: a hundredth of the memory, for long texts."""
        check_texts((text,))
        return self._encode_offsets(text, glued=False)

    def decode(self, ids: Sequence[int] | NDArray[np.integer], keep_special: bool = False) -> str:
        """Ids -> text; special pieces are left out, or kept as they are spelt."""
        numbers = [int(number) for number in ids]
        for number in numbers:
            self._check_id(number)
        special = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        if not keep_special:
            return self._decode([number for number in numbers if number not in special])
        parts = []
        for is_special, group in itertools.groupby(numbers, special.__contains__):
            run = list(group)
            parts += [self.pieces[number] for number in run] if is_special else [self._decode(run)]
        return " ".join(parts)

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return len(self.pieces)

    def piece(self, number: int) -> str:
        """The piece of an id: 2 -> "[CLS]"."""
        self._check_id(number)
        return self.pieces[number]

    def piece_id(self, piece: str) -> int | None:
        """The id of a piece: "[CLS]" -> 2; None if the vocabulary has no such piece."""
        return self._ids.get(piece)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A sha256 over everything that decides ids: two tokenizers with the same one are interchangeable."""
        settings, vocabulary = self._decisive()
        decisive = {**settings, "specials": asdict(self.specials), "normalization": asdict(self.normalization)}
        head = json.dumps(decisive, sort_keys=True, ensure_ascii=False).encode("utf-8")
        return hashlib.sha256(head + b"\0" + vocabulary).hexdigest()

    @functools.cached_property
    def language(self) -> Language:
        """What the vocabulary is mostly made for: "ko", "zh", "ja", or "en" (see language.py)."""
        return language_of(self.pieces)

    def word_starts(self, style: str) -> NDArray[np.bool_]:
        """For every id, whether a word begins with it; `style` is "google" or "spaces" (see words.py)."""
        return find_word_starts(self.pieces, style, wordpiece=self.kind == "wordpiece")

    def _parts(self, text: str, allowed: bool | Collection[str]) -> Iterator[tuple[int, int, int | None, bool]]:
        """Stretches of a text with special pieces in it: start, end, the special id or None, glued."""
        position = 0
        for match in self._special.finditer(text):
            if not isinstance(allowed, bool) and match[0] not in allowed:
                continue
            if position < match.start():
                yield position, match.start(), None, position > 0 and not text[position].isspace()
            yield *match.span(), self._ids[match[0]], False
            position = match.end()
        if position < len(text):
            yield position, len(text), None, position > 0 and not text[position].isspace()

    def _check_id(self, number: int) -> None:
        if not 0 <= number < len(self.pieces):
            raise InputError(f"id {number} is outside of the vocabulary (0 to {len(self.pieces) - 1})")


def check_texts(texts: Sequence[object]) -> None:
    """Refuse what is not text, and say which one."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, got one str")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            where = f"text {position}: " if len(texts) > 1 else ""
            raise InputError(f"{where}expected a str, got {type(text).__name__}")
