"""SentencePiece's model file (a protocol buffer), read and written without the protobuf package.

Covers what a tokenizer needs: pieces with scores and types, the model type, and the normaliser's compiled table.
Field numbers are those of sentencepiece_model.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

NORMAL: Final = 1
UNKNOWN: Final = 2
CONTROL: Final = 3
USER_DEFINED: Final = 4
BYTE: Final = 6

UNIGRAM: Final = 1
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _UNK_ID = 3, 4, 40  # of the trainer's part
_NAME, _CHARSMAP, _ADD_DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 1, 2, 3, 4, 5  # the normaliser's
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, "int | bytes"]  # number, wire type, value


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
    for number, _, value in _fields(data):
        if number == _PIECES:
            pieces.append(_read_piece(_as_bytes(value)))
        elif number == _TRAINER:
            trainer = {key: field for key, _, field in _fields(_as_bytes(value))}
        elif number == _NORMALIZER:
            normalizer = {key: field for key, _, field in _fields(_as_bytes(value))}
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
        (_MODEL_TYPE, _VARINT, model.model_type),
        (_VOCAB_SIZE, _VARINT, len(model.pieces)),
        (_UNK_ID, _VARINT, unknown),
    ]
    normalizer: list[Field] = [
        (_NAME, _BYTES, b"from_tokenizer_json"),
        (_CHARSMAP, _BYTES, model.charsmap),
        (_ADD_DUMMY_PREFIX, _VARINT, int(model.add_dummy_prefix)),
        (_REMOVE_EXTRA_WHITESPACES, _VARINT, int(model.remove_extra_whitespaces)),
        (_ESCAPE_WHITESPACES, _VARINT, 1),
    ]
    fields: list[Field] = [(_PIECES, _BYTES, _write_piece(piece)) for piece in model.pieces]
    return _join([*fields, (_TRAINER, _BYTES, _join(trainer)), (_NORMALIZER, _BYTES, _join(normalizer))])


def with_usual_spaces(data: bytes) -> bytes:
    """The same model, but adding a space before the text and collapsing other spaces, as most models do."""
    usual: list[Field] = [(_ADD_DUMMY_PREFIX, _VARINT, 1), (_REMOVE_EXTRA_WHITESPACES, _VARINT, 1)]
    fields: list[Field] = []
    for number, wire, value in _fields(data):
        if number == _NORMALIZER:
            kept = [field for field in _fields(_as_bytes(value)) if field[0] not in (usual[0][0], usual[1][0])]
            value = _join([*kept, *usual])
        fields.append((number, wire, value))
    return _join(fields)


def _read_piece(data: bytes) -> Piece:
    fields = {number: value for number, _, value in _fields(data)}
    (score,) = struct.unpack("<f", _as_bytes(fields.get(2, b"\0\0\0\0")))
    return Piece(_as_bytes(fields.get(1, b"")).decode("utf-8"), score, int(fields.get(3, NORMAL)))


def _write_piece(piece: Piece) -> bytes:
    return _join(
        [
            (1, _BYTES, piece.text.encode("utf-8")),
            (2, _FIXED32, struct.pack("<f", piece.score)),
            (3, _VARINT, piece.kind),
        ]
    )


def _fields(data: bytes) -> Iterator[Field]:
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == _VARINT:
            value, position = _read_varint(data, position)
        elif wire in (_FIXED32, _FIXED64, _BYTES):
            size = 4 if wire == _FIXED32 else 8
            if wire == _BYTES:
                size, position = _read_varint(data, position)
            value = data[position : position + size]
            position += size
        else:
            raise ValueError(f"unknown wire type {wire} at byte {position}")
        if position > len(data) or number == 0:
            raise ValueError(f"truncated or damaged at byte {min(position, len(data))}")
        yield number, wire, value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError(f"truncated or damaged at byte {position}")


def _join(fields: Iterable[Field]) -> bytes:
    parts = []
    for number, wire, value in fields:
        parts.append(_varint(number << 3 | wire))
        if wire == _VARINT:
            parts.append(_varint(int(value)))
        else:
            content = _as_bytes(value)
            parts.append(_varint(len(content)) + content if wire == _BYTES else content)
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
