"""SentencePiece vocabularies, encoded as the released ALBERT does: plain SentencePiece, then "2010," split in two."""

from __future__ import annotations

import itertools
import struct
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from litebert.errors import DataError
from litebert.parse import BYTES, FIXED32, VARINT, Field, read_fields
from litebert.text.normalize import Alignment, Normalization
from litebert.text.tokenizer import Specials, Tokenizer, check_texts
from litebert.text.words import SPACE

RULE_VERSION = 1  # version of the encoding rule; part of the fingerprint, with the model's bytes


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model (unigram, BPE, ...) with its normalisation."""

    kind = "sentencepiece"

    def __init__(
        self,
        model: bytes,
        normalization: Normalization,
        specials: Specials,
        where: str = "spiece.model",
        processor: sentencepiece.SentencePieceProcessor | None = None,  # of `model`, if it is already open
    ):
        self.model = model
        self._where = where
        self._processor = processor or open_model(model, where)
        super().__init__(list_pieces(self._processor), specials, normalization, where)
        self._unprefixed: sentencepiece.SentencePieceProcessor | None = None
        self._set_comma_rule()

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePieceTokenizer, (self.model, self.normalization, self.specials, self._where)

    def encode_batch(self, texts: Sequence[str], num_threads: int = 1) -> list[NDArray[np.int32]]:
        """The ids of many texts, without special tokens, in `num_threads` threads (-1: all cores); read-only."""
        check_texts(texts)
        if not texts:
            return []
        encoded = _encode_arrays(self._processor, list(map(self.normalization, texts)), num_threads)
        flat = np.concatenate(encoded)
        sizes = self._comma_sizes[flat]
        hits = np.flatnonzero(sizes > 1)
        if not hits.size:
            return encoded
        # Apply the comma rule to all texts at once: make room, then insert the parts.
        ends = np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
        starts_after = np.concatenate([[0], np.cumsum(sizes)])
        after = np.repeat(flat, sizes)
        for part in range(self._comma_parts.shape[1]):
            longer = hits[sizes[hits] > part]
            after[starts_after[longer] + part] = self._comma_parts[flat[longer], part]
        bounds = [0, *starts_after[ends].tolist()]
        return [after[start:end] for start, end in itertools.pairwise(bounds)]

    def spaces(self) -> str:
        """The characters beyond ASCII that SentencePiece's own normalisation makes a space: U+200B, ▁, U+FFFD, ..."""
        candidates = (character for character in map(chr, range(0x80, 0x10000)) if _may_be_space(character))
        spaced = self._processor.normalize("x x")
        return "".join(c for c in candidates if self._processor.normalize(f"x{c}x") == spaced)

    def _encode(self, text: str, glued: bool) -> list[int]:
        ids: list[int] = self._processor_for(glued).encode(self.normalization(text))
        return ids if self.comma_pieces.keys().isdisjoint(ids) else self._split_commas(ids)

    def _encode_offsets(self, text: str, glued: bool) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        processor = self._processor_for(glued)
        aligned = self.normalization.align(text)
        ids = _encode_arrays(processor, [aligned.text], num_threads=1)[0]
        widths = self._widths[ids]
        unknown = np.flatnonzero(ids == processor.unk_id())
        if unknown.size:  # only these are as long as their text
            surfaces: list[str] = processor.encode(aligned.text, out_type=str)
            widths[unknown] = [_width(surfaces[place]) for place in unknown.tolist()]
        ids, widths = self._split_widths(ids, widths)
        first, last = _character_spans(processor, aligned)
        stops = np.cumsum(widths, dtype=np.int64)  # of each piece, in first and last
        assert not ids.size or stops[-1] == len(first), text
        # A piece of no width ("▁" alone) is placed where the next character begins.
        place = np.append(first, last[-1:] if last.size else len(text))
        end = np.append(last, 0)[stops - 1]
        # Exception: a character that becomes several words, such as ﷺ; then "▁" gets its span, as their letters do.
        ends = np.maximum.accumulate(np.where(widths, end, place[stops]))
        offsets = np.stack([place[stops - widths], ends], axis=1).astype(np.int32)
        # The bytes of one character are consecutive, and all get its span.
        more = np.flatnonzero(self._continues[ids])
        offsets[more, 0], offsets[more, 1] = first[stops[more] - 1], last[stops[more] - 1]
        return ids, offsets

    def _decode(self, ids: list[int]) -> str:
        text: str = self._processor.decode(ids)
        return text

    def _decisive(self) -> tuple[Mapping[str, Any], bytes]:
        return {"kind": self.kind, "rule": RULE_VERSION}, self.model

    def _processor_for(self, glued: bool) -> sentencepiece.SentencePieceProcessor:
        """The model itself, or a copy that adds no space before the text."""
        if not glued:
            return self._processor
        if self._unprefixed is None:
            self._unprefixed = open_model(without_space_before(self.model), self._where)
        return self._unprefixed

    def _set_comma_rule(self) -> None:
        """Find the pieces that end in a digit and a comma, and how each is re-encoded: "▁2010," -> "▁2010" ","."""
        self.comma_pieces: dict[int, list[tuple[int, str]]] = {}
        for number, piece in enumerate(self.pieces):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit() and _is_text(self._processor, number):
                parts: list[str] = self._processor.encode(piece[:-1].replace(SPACE, ""), out_type=str)
                if piece[0] != SPACE and parts[0][0] == SPACE:
                    parts[0] = parts[0][1:]
                parts = [part for part in [*parts, ","] if part]
                self.comma_pieces[number] = [(self._ids.get(part, self.unk_id), part) for part in parts]
        # The same as arrays: how many parts each id has, and which.
        longest = max(map(len, self.comma_pieces.values()), default=1)
        self._comma_sizes = np.ones(self.vocab_size, dtype=np.int64)
        self._comma_parts = np.zeros((self.vocab_size, longest), dtype=np.int32)
        for number, replacement in self.comma_pieces.items():
            self._comma_sizes[number] = len(replacement)
            self._comma_parts[number, : len(replacement)] = [part for part, _ in replacement]
        # How many characters other than ▁ each piece covers; of the bytes of one character, only the first counts.
        self._widths = np.array([len(piece) - piece.count(SPACE) for piece in self.pieces], dtype=np.int64)
        self._continues = np.zeros(self.vocab_size, dtype=np.bool_)
        for number, piece in enumerate(self.pieces):
            if piece.startswith("<0x") and self._processor.is_byte(number):
                self._continues[number] = int(piece[3:5], 16) in range(0x80, 0xC0)
                self._widths[number] = not self._continues[number]

    def _split_widths(
        self, ids: NDArray[np.int32], widths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Apply the comma rule to ids and to the number of characters each covers."""
        sizes = self._comma_sizes[ids]
        after, widths_after = np.repeat(ids, sizes), np.repeat(widths, sizes)
        starts = np.cumsum(sizes) - sizes
        for place in np.flatnonzero(sizes > 1).tolist():
            parts = self.comma_pieces[int(ids[place])]
            here = slice(int(starts[place]), int(starts[place]) + len(parts))
            after[here] = [part for part, _ in parts]
            widths_after[here] = [_width(shown) for _, shown in parts]
        return after, widths_after

    def _split_commas(self, ids: list[int]) -> list[int]:
        pieces = self.comma_pieces
        return [part for number in ids for part, _ in pieces.get(number, ((number, ""),))]


Places = NDArray[np.int32]


def _character_spans(processor: sentencepiece.SentencePieceProcessor, aligned: Alignment) -> tuple[Places, Places]:
    """The span in the original text of each character of SentencePiece's pieces, in order and without ▁."""
    normalized: str = processor.normalize(aligned.text)
    shown = np.frombuffer(normalized.encode("utf-32-le"), dtype=np.uint32) != ord(SPACE)
    same = aligned.text.replace(" ", SPACE)
    if normalized in (same, SPACE + same):  # the usual case: only a leading ▁ was added
        shown = shown[len(normalized) - len(same) :]
        return aligned.starts[shown], aligned.ends[shown]
    # SentencePiece normalises again, and returns for each character where its source span begins; the
    # next greater start is its end.
    origins = np.array(processor.normalize(aligned.text, with_offsets=True)[1], dtype=np.int32)
    ends = origins[np.searchsorted(origins[:-1], origins[:-1], side="right")]
    return aligned.starts[origins[:-1][shown]], aligned.ends[ends[shown] - 1]


def _may_be_space(character: str) -> bool:
    return character in f"{SPACE}\ufffd" or unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cf")


def _width(piece: str) -> int:
    return len(piece) - piece.count(SPACE)


def open_model(model: bytes, where: str) -> sentencepiece.SentencePieceProcessor:
    """SentencePiece's processor for a model file."""
    if model.startswith(b"version https://git-lfs"):
        raise DataError(f"{where}: a Git LFS pointer instead of the file; download it with: git lfs pull")
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.load_from_serialized_proto(model)
        whole = processor.get_piece_size() > 0
    except (RuntimeError, OSError, TypeError, ValueError):
        whole = False
    if not whole:
        raise DataError(f"{where}: not a SentencePiece model, or truncated ({len(model):,} bytes)")
    return processor


def list_pieces(processor: sentencepiece.SentencePieceProcessor) -> list[str]:
    """All pieces in the order of their ids."""
    pieces: list[str] = processor.id_to_piece(list(range(processor.get_piece_size())))
    return pieces


def _is_text(processor: sentencepiece.SentencePieceProcessor, number: int) -> bool:
    return not (processor.is_control(number) or processor.is_unused(number) or processor.is_unknown(number))


def _encode_arrays(processor: Any, texts: list[str], num_threads: int) -> list[NDArray[np.int32]]:
    if hasattr(processor, "EncodeAsNumpy"):  # sentencepiece >= 0.2.2
        arrays: list[NDArray[np.int32]] = processor.encode(texts, num_threads=num_threads, return_type="numpy")
        return arrays
    return [np.array(ids, dtype=np.int32) for ids in processor.encode(texts, num_threads=num_threads)]


# ---------------------------------------------------------------------------------------------------------------------
# The model file (a protocol buffer), without the protobuf package; field numbers of sentencepiece_model.proto

NORMAL: Final = 1
UNKNOWN: Final = 2
CONTROL: Final = 3
USER_DEFINED: Final = 4
BYTE: Final = 6

UNIGRAM: Final = 1
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _UNK_ID = 3, 4, 40  # of the trainer's part
_NAME, _CHARSMAP, _ADD_DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 1, 2, 3, 4, 5  # the normaliser's


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SpieceModel:
    """The parts of a model file that determine how text is split."""

    pieces: list[Piece]
    model_type: int
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def read_model(data: bytes) -> SpieceModel:
    """Parse a model file; ValueError if it is not one."""
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, _, value in read_fields(data):
        if number == _PIECES:
            pieces.append(_read_piece(_as_bytes(value)))
        elif number == _TRAINER:
            trainer = {key: field for key, _, field in read_fields(_as_bytes(value))}
        elif number == _NORMALIZER:
            normalizer = {key: field for key, _, field in read_fields(_as_bytes(value))}
    if not pieces:
        raise ValueError("contains no pieces")
    return SpieceModel(
        pieces,
        model_type=int(trainer.get(_MODEL_TYPE, UNIGRAM)),
        charsmap=_as_bytes(normalizer.get(_CHARSMAP, b"")),
        add_dummy_prefix=bool(normalizer.get(_ADD_DUMMY_PREFIX, 1)),
        remove_extra_whitespaces=bool(normalizer.get(_REMOVE_EXTRA_WHITESPACES, 1)),
    )


def write_model(model: SpieceModel) -> bytes:
    """The bytes of a model file that SentencePiece can open."""
    unknown = next((number for number, piece in enumerate(model.pieces) if piece.kind == UNKNOWN), 0)
    trainer: list[Field] = [
        (_MODEL_TYPE, VARINT, model.model_type),
        (_VOCAB_SIZE, VARINT, len(model.pieces)),
        (_UNK_ID, VARINT, unknown),
    ]
    normalizer: list[Field] = [
        (_NAME, BYTES, b"from_tokenizer_json"),
        (_CHARSMAP, BYTES, model.charsmap),
        (_ADD_DUMMY_PREFIX, VARINT, int(model.add_dummy_prefix)),
        (_REMOVE_EXTRA_WHITESPACES, VARINT, int(model.remove_extra_whitespaces)),
        (_ESCAPE_WHITESPACES, VARINT, 1),
    ]
    fields: list[Field] = [(_PIECES, BYTES, _write_piece(piece)) for piece in model.pieces]
    return _join([*fields, (_TRAINER, BYTES, _join(trainer)), (_NORMALIZER, BYTES, _join(normalizer))])


def with_usual_spaces(data: bytes) -> bytes:
    """The same model, but adding a space before the text and collapsing other spaces, as most models do."""
    usual: list[Field] = [(_ADD_DUMMY_PREFIX, VARINT, 1), (_REMOVE_EXTRA_WHITESPACES, VARINT, 1)]
    fields: list[Field] = []
    for number, wire, value in read_fields(data):
        if number == _NORMALIZER:
            kept = [field for field in read_fields(_as_bytes(value)) if field[0] not in (usual[0][0], usual[1][0])]
            value = _join([*kept, *usual])
        fields.append((number, wire, value))
    return _join(fields)


def without_space_before(data: bytes) -> bytes:
    """The same model, but adding no space before the text: of a protocol buffer's equal fields the last counts."""
    return data + _join([(_NORMALIZER, BYTES, _join([(_ADD_DUMMY_PREFIX, VARINT, 0)]))])


def _read_piece(data: bytes) -> Piece:
    fields = {number: value for number, _, value in read_fields(data)}
    (score,) = struct.unpack("<f", _as_bytes(fields.get(2, b"\0\0\0\0")))
    return Piece(_as_bytes(fields.get(1, b"")).decode("utf-8"), score, int(fields.get(3, NORMAL)))


def _write_piece(piece: Piece) -> bytes:
    return _join(
        [
            (1, BYTES, piece.text.encode("utf-8")),
            (2, FIXED32, struct.pack("<f", piece.score)),
            (3, VARINT, piece.kind),
        ]
    )


def _join(fields: Iterable[Field]) -> bytes:
    parts = []
    for number, wire, value in fields:
        parts.append(_varint(number << 3 | wire))
        if wire == VARINT:
            parts.append(_varint(int(value)))
        else:
            content = _as_bytes(value)
            parts.append(_varint(len(content)) + content if wire == BYTES else content)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where text was expected")
    return value
