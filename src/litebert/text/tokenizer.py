"""The common interface of SentencePiece (`spiece.py`) and WordPiece (`wordpiece.py`) vocabularies.

    tokenizer = Tokenizer.load("folder")
    tokenizer.encode("hello world")            -> [10975, 126]          with the released English vocabulary
    tokenizer.encode_offsets("hello world")    -> Encoding(ids=[10975, 126], pieces=["▁hello", "▁world"],
                                                           offsets=[(0, 5), (6, 11)])
    tokenizer.decode([10975, 126])             -> "hello world"
    tokenizer(["hello world"], return_tensors="pt")    a batch for model(**batch), as transformers' tokenizers return it

"[MASK]" in a text is six ordinary characters, unless `allow_special` makes it the special piece; that is the default
only when the tokenizer is called.
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

from litebert.errors import DataError, InputError, check_choice
from litebert.remote import find_folder, is_google, resolve_default
from litebert.text.normalize import Normalization
from litebert.text.words import Language, find_word_starts, language_of

Padding = bool | Literal["longest", "max_length", "do_not_pad"]
Truncation = bool | Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
TensorKind = Literal["pt", "np"]


@dataclass(frozen=True)
class Encoding:
    """Ids with their pieces and the (start, end) of each in the original text, without surrounding whitespace."""

    ids: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True)
class Specials:
    """The special pieces, as the vocabulary spells them."""

    pad: str = "<pad>"
    unk: str = "<unk>"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"


class TokenBatch(dict[str, Any]):
    """input_ids, token_type_ids and attention_mask, also as attributes: model(**batch), batch.input_ids."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a TokenBatch has {', '.join(self)}, not {name!r}") from None

    def to(self, device: Any) -> TokenBatch:
        """The same batch on a torch device."""
        return TokenBatch({name: value.to(device) if hasattr(value, "to") else value for name, value in self.items()})


class Tokenizer(ABC):
    """A vocabulary with everything that determines the ids of a text."""

    kind: ClassVar[Literal["sentencepiece", "wordpiece"]]
    #: The longest sequence that its model was trained on, if its folder says so.
    max_length: int | None = None

    def __init__(self, pieces: Sequence[str], specials: Specials, normalization: Normalization, where: str):
        self.pieces = list(pieces)
        self.specials = specials
        self.normalization = normalization
        self._ids: dict[str, int] = {}
        for number, piece in enumerate(self.pieces):
            if self._ids.setdefault(piece, number) != number:
                raise DataError(f"{where}: {piece!r} occurs twice, as id {self._ids[piece]} and as id {number}")
        missing = [piece for piece in asdict(specials).values() if piece not in self._ids]
        if missing:
            raise DataError(
                f"{where}: no piece {', '.join(missing)} among its {len(self.pieces)}; "
                "ALBERT and BERT need padding, unknown, [CLS], [SEP] and [MASK]"
            )
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[piece] for piece in asdict(specials).values()
        )
        special = sorted(asdict(specials).values(), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special)))

    @staticmethod
    def load(path: Path | str, normalization: Normalization | None = None) -> Tokenizer:
        """Open a folder saved by litebert or transformers, a spiece.model, a vocab.txt or a tokenizer.json.

        If the files do not name their normalisation, it is inferred from the pieces (see docs/tokenizer.md);
        `normalization` overrides it.
        """
        from litebert.text.tokenizer_files import load_tokenizer

        return load_tokenizer(Path(resolve_default(path)), normalization)

    @staticmethod
    def from_pretrained(source: Path | str, revision: str | None = None) -> Tokenizer:
        """The tokenizer of a model, by any name that load_model takes: a folder, "albert/albert-base-v2", "default"."""
        source = resolve_default(source)
        if is_google(source):
            folder = Path(source) if Path(source).is_dir() else Path(source).parent
            assets = folder / "assets"  # of a TF-Hub module
            return Tokenizer.load(assets if assets.is_dir() else folder)
        return Tokenizer.load(find_folder(source, revision, weights=False))

    def save(self, folder: Path | str, max_length: int | None = None) -> None:
        """Write the vocabulary, with the files that transformers' AutoTokenizer needs to give the same ids.

        max_length: the longest sequence that the model in this folder was trained on (default: as loaded).
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
        """A batch for `model(**batch)` as in transformers: input_ids, token_type_ids and attention_mask.

        tokenizer(["one text", "another"], padding=True, truncation=True, max_length=128, return_tensors="pt")

        `max_length` defaults to that of the folder. "[MASK]" in a text is the mask here; with `allow_special=False` it
        is text, as in `encode`: use that for text from strangers.
        """
        check_choice("padding", padding, (False, True, "longest", "max_length", "do_not_pad"), InputError)
        strategies = (False, True, "longest_first", "only_first", "only_second", "do_not_truncate")
        check_choice("truncation", truncation, strategies, InputError)
        check_choice("return_tensors", return_tensors, (None, "pt", "np"), InputError)
        truncate, pad = truncation not in (False, "do_not_truncate"), padding not in (False, "do_not_pad")
        max_length = max_length or self.max_length
        if max_length is None and (truncate or padding == "max_length"):
            raise InputError("max_length: required, since this tokenizer's folder does not name one")
        single = isinstance(text, str)
        firsts = self._encode_texts([text] if isinstance(text, str) else text, allow_special)
        seconds: list[list[int]] | list[None] = [None] * len(firsts)
        if text_pair is not None:
            if isinstance(text_pair, str) != single:
                raise InputError("text_pair: must be a str if text is a str, and a list if text is a list")
            seconds = self._encode_texts([text_pair] if isinstance(text_pair, str) else text_pair, allow_special)
        if len(seconds) != len(firsts):
            raise InputError(f"text_pair: expected {len(firsts)} texts, one per text, got {len(seconds)}")

        rows, types = [], []
        for a, b in zip(firsts, seconds, strict=True):
            if truncate:
                assert max_length is not None
                specials = (2 if b is None else 3) if add_special_tokens else 0
                a, b = _truncate(a, b, max_length - specials, truncation)
            if add_special_tokens:
                a = [self.cls_id, *a, self.sep_id]
                b = b if b is None else [*b, self.sep_id]
            rows.append(a + (b or []))
            types.append([0] * len(a) + [1] * len(b or []))
        width = max(map(len, rows), default=0)
        if padding == "max_length":
            assert max_length is not None
            width = max(width, max_length)
        missing = [width - len(row) if pad else 0 for row in rows]
        batch = {
            "input_ids": [row + [self.pad_id] * more for row, more in zip(rows, missing, strict=True)],
            "token_type_ids": [row + [0] * more for row, more in zip(types, missing, strict=True)],
            "attention_mask": [[1] * len(row) + [0] * more for row, more in zip(rows, missing, strict=True)],
        }
        if return_tensors is None:
            return TokenBatch({name: values[0] for name, values in batch.items()} if single else batch)
        if len({len(row) for row in batch["input_ids"]}) > 1:
            raise InputError("the texts have different lengths and do not form a tensor; use padding=True")
        arrays = {name: np.array(values, np.int64).reshape(len(rows), -1) for name, values in batch.items()}
        if return_tensors == "np":
            return TokenBatch(arrays)
        import torch

        return TokenBatch({name: torch.from_numpy(array) for name, array in arrays.items()})

    def _encode_texts(self, texts: Sequence[str], allow_special: bool | Collection[str]) -> list[list[int]]:
        if not allow_special:
            return [ids.tolist() for ids in self.encode_batch(texts)]
        return [self.encode(text, allow_special) for text in texts]

    @abstractmethod
    def encode_batch(self, texts: Sequence[str], num_threads: int = 1) -> list[NDArray[np.int32]]:
        """The ids of many texts, without special pieces: the fast path."""

    @abstractmethod
    def _encode(self, text: str, glued: bool) -> list[int]:
        """Ids of a text; `glued`: it directly follows a special piece, so it does not begin a word."""

    @abstractmethod
    def _encode_offsets(self, text: str, glued: bool) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids as an array, and their offsets [len, 2]."""

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """The text of ids without special pieces."""

    @abstractmethod
    def _decisive(self) -> tuple[Mapping[str, Any], bytes]:
        """What determines ids besides the special pieces: settings, and the vocabulary as bytes."""

    def encode(self, text: str, allow_special: bool | Collection[str] = False) -> list[int]:
        """Text -> ids, without [CLS] and [SEP]; `allow_special` reads "[MASK]" etc. (or those named) as such."""
        check_texts((text,))
        if not allow_special:
            return self._encode(text, glued=False)
        ids: list[int] = []
        for start, end, special, glued in self._parts(text, allow_special):
            ids += [special] if special is not None else self._encode(text[start:end], glued)
        return ids

    def encode_offsets(self, text: str, allow_special: bool | Collection[str] = False) -> Encoding:
        """Text -> ids, pieces and the place of each in the text.

        A piece's offsets span the characters it came from, without whitespace; pieces made of one character
        ("½" -> "1", "⁄", "2") share it, and the span of a space alone is empty.
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
        """The ids and offsets [len, 2] of `encode_offsets` as arrays, in a hundredth of the memory."""
        check_texts((text,))
        return self._encode_offsets(text, glued=False)

    def decode(self, ids: Sequence[int] | NDArray[np.integer], keep_special: bool = False) -> str:
        """Ids -> text; special pieces are dropped, or kept as they are spelled."""
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
        """The number of ids."""
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
        """A sha256 of everything that determines ids: tokenizers with equal fingerprints are interchangeable."""
        settings, vocabulary = self._decisive()
        decisive = {**settings, "specials": asdict(self.specials), "normalization": asdict(self.normalization)}
        head = json.dumps(decisive, sort_keys=True, ensure_ascii=False).encode("utf-8")
        return hashlib.sha256(head + b"\0" + vocabulary).hexdigest()

    @functools.cached_property
    def language(self) -> Language:
        """The main language of the vocabulary: "ko", "zh", "ja", or "en" for all others (see words.py)."""
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
            raise InputError(f"id {number} is not in the vocabulary (0 to {len(self.pieces) - 1})")


def check_texts(texts: Sequence[object]) -> None:
    """Raise InputError for anything that is not a str."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, got one str")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            where = f"text {position}: " if len(texts) > 1 else ""
            raise InputError(f"{where}expected a str, got {type(text).__name__}")


def _truncate(
    a: list[int], b: list[int] | None, room: int, truncation: Truncation
) -> tuple[list[int], list[int] | None]:
    """Both texts within `room` tokens, the longer one cut first: 5 and 9 tokens in 10 -> 5 and 5."""
    excess = len(a) + len(b or []) - room
    if excess <= 0:
        return a, b
    if b is None:
        return a[: max(0, room)], None
    if truncation in ("only_first", "only_second"):
        which = a if truncation == "only_first" else b
        if room < 0 or excess > len(which):
            name = "text" if truncation == "only_first" else "text_pair"
            raise InputError(f"truncation {truncation!r}: {name} has {len(which)} tokens, but {excess} must be removed")
        return (a[: len(a) - excess], b) if truncation == "only_first" else (a, b[: len(b) - excess])
    short = min(len(a), len(b), max(0, room) // 2)
    long = max(0, room) - short
    return (a[:long], b[:short]) if len(a) > len(b) else (a[:short], b[:long])
