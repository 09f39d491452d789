"""The index file of a TensorFlow checkpoint: bytes -> what is stored where.

It is a sorted table in LevelDB's layout. The last 48 bytes hold two block handles (offset, size) and a magic
number; the second handle finds the index block, whose values are the handles of the data blocks. A block is a
run of entries (bytes shared with the key before, own key bytes, value), an array of restart points, then one
byte for the compression and a masked CRC-32C. Key "" holds a BundleHeaderProto, every other key is a tensor's
name and holds a BundleEntryProto. A partitioned variable has an entry without bytes that lists its slices,
and one entry for each slice, under a key that begins with a zero byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from litebert.parse import BYTES, DamagedBytes, read_fields, read_varint

TABLE_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER_SIZE = 48
_TRAILER_SIZE = 5

Slice = tuple[tuple[int, int], ...]  # start and length along each axis; length -1 is the whole axis


@dataclass(frozen=True)
class Header:
    """BundleHeaderProto: what holds for all of the checkpoint."""

    num_shards: int
    big_endian: bool
    needed_version: int


@dataclass
class Entry:
    """BundleEntryProto: where the bytes of one tensor, or of one slice of it, are."""

    dtype: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0
    slices: list[Slice] = field(default_factory=list)


def parse_index(data: bytes) -> tuple[Header, dict[bytes, Entry]]:
    """The header and the entries by key; DamagedBytes where a checksum or a length does not fit."""
    values = dict(_table_entries(data))
    header = _parse_header(values.pop(b"", b""))
    return header, {key: _parse_entry(value) for key, value in values.items()}


def slice_key(name: bytes, extents: Slice) -> bytes:
    """The key of one slice in TensorFlow's "ordered code": 0, the name, how many axes, then the extents."""
    escaped = b"".join({0: b"\0\xff", 255: b"\xff\0"}.get(byte, bytes([byte])) for byte in name)
    numbers = b"".join(_ordered_code(number) for extent in extents for number in extent)
    return b"\0" + escaped + b"\0\1" + b"\1" + bytes([len(extents) & 0xFF]) + numbers


def _ordered_code(number: int) -> bytes:
    """A number in n bytes that sort as it does: n ones, a zero, 7n - 1 bits; all inverted if negative."""
    magnitude = ~number if number < 0 else number
    size = magnitude.bit_length() // 7 + 1
    ones = ((1 << size) - 1) << (7 * size)
    code = (ones | magnitude).to_bytes(size, "big")
    return bytes(byte ^ 0xFF for byte in code) if number < 0 else code


# --- the messages ---


def _parse_header(message: bytes) -> Header:
    num_shards = endianness = needed_version = 0
    for number, value in _fields(message):
        match number:
            case 1:
                num_shards = _integer(value)
            case 2:
                endianness = _integer(value)
            case 3:
                needed_version = _integer(dict(_fields(_bytes(value))).get(2, 0))
    if not 1 <= num_shards <= 99_999:
        raise DamagedBytes(f"its header names {num_shards} data files")
    return Header(num_shards, endianness != 0, needed_version)


def _parse_entry(message: bytes) -> Entry:
    entry = Entry()
    for number, value in _fields(message):
        match number:
            case 1:
                entry.dtype = _integer(value)
            case 2:
                dims = [dict(_fields(_bytes(dim))) for n, dim in _fields(_bytes(value)) if n == 2]
                entry.shape = tuple(_integer(dim.get(1, 0)) for dim in dims)
            case 3:
                entry.shard = _integer(value)
            case 4:
                entry.offset = _integer(value)
            case 5:
                entry.size = _integer(value)
            case 6:
                entry.crc = _integer(value)
            case 7:
                extents = [dict(_fields(_bytes(extent))) for n, extent in _fields(_bytes(value)) if n == 1]
                entry.slices.append(tuple((_integer(e.get(1, 0)), _integer(e.get(2, -1))) for e in extents))
    if min(entry.shard, entry.offset, entry.size, *entry.shape) < 0:
        raise DamagedBytes("an entry has a negative size or place")
    return entry


# --- LevelDB's table ---


def _table_entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every key and value of a sorted table."""
    if len(table) < _FOOTER_SIZE or not table.endswith(TABLE_MAGIC):
        raise DamagedBytes("not the index of a TensorFlow checkpoint, or cut short")
    footer = table[-_FOOTER_SIZE:]
    _, position = _block_handle(footer, 0)
    index_handle, _ = _block_handle(footer, position)
    for _, value in _block_entries(_read_block(table, index_handle)):
        handle, _ = _block_handle(value, 0)
        yield from _block_entries(_read_block(table, handle))


def _block_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _read_block(table: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    end = offset + size
    if end + _TRAILER_SIZE > len(table):
        raise DamagedBytes(f"cut short: a block should end at byte {end}")
    if mask_crc(crc32c(table[offset : end + 1])) != int.from_bytes(table[end + 1 : end + 5], "little"):
        raise DamagedBytes(f"the block at byte {offset} does not match its checksum")
    match table[end]:
        case 0:
            return table[offset:end]
        case 1:
            return _unsnap(table[offset:end])
        case kind:
            raise DamagedBytes(f"the block at byte {offset} has an unknown compression ({kind})")


def _unsnap(data: bytes) -> bytes:
    """Decompress a snappy block. TensorFlow writes bundles without compression, its reader accepts both."""
    import pyarrow

    size, _ = read_varint(data, 0)
    if size > 64 * len(data):  # more than snappy can do: do not allocate what a damaged length asks for
        raise DamagedBytes("a compressed block is damaged")
    try:
        unpacked: bytes = pyarrow.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)
    except (OSError, ValueError):
        raise DamagedBytes("a compressed block is damaged") from None
    return unpacked


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * num_restarts
    if end < 0:
        raise DamagedBytes("a block is shorter than its restart array")
    key, position = b"", 0
    while position < end:
        shared, position = read_varint(block, position)
        own, position = read_varint(block, position)
        length, position = read_varint(block, position)
        if shared > len(key) or position + own + length > end:
            raise DamagedBytes("an entry runs past the end of its block")
        key = key[:shared] + block[position : position + own]
        yield key, block[position + own : position + own + length]
        position += own + length


# --- the fields of a message ---


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """As (number, value): numbers as unsigned ints, else bytes."""
    for number, wire, value in read_fields(message):
        fixed = isinstance(value, bytes) and wire != BYTES
        yield number, int.from_bytes(value, "little") if fixed else value  # type: ignore[arg-type]


def _integer(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise DamagedBytes("a field should be a number and is not")
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise DamagedBytes("a field should be a message and is not")
    return value


# ---------------------------------------------------------------------------------------------------------------------
# CRC-32C, fast enough in numpy for checkpoints of gigabytes.
#
# A CRC is the remainder of the message, read as a polynomial over GF(2), divided by a fixed polynomial P. So bytes may
# be moved around as long as that remainder stays the same. Castagnoli's P divides the four-term polynomial
#
#     x^6777 + x^484 + x^100 + 1
#
# and, since squaring only doubles its exponents, P also divides it with every exponent times 8 * 2^k. Multiplying by
# x^8 moves by one byte. Hence any byte may be struck out if it is XORed into the three bytes (6777 - 484) * 2^k,
# (6777 - 100) * 2^k and 6777 * 2^k places later: XORs of long arrays shrink a long message to a short one with the same
# remainder. The short one goes through the usual table, byte by byte.

_REVERSED_POLYNOMIAL = 0x82F63B78  # Castagnoli's 0x1EDC6F41, lowest bit first
_DEGREE, _MIDDLE_TERMS = 6777, (484, 100)
_CHUNK = 1 << 20  # the working copy: small enough for a CPU cache, much longer than _DEGREE << 4


def _byte_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_REVERSED_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _byte_table()


def crc32c(data: bytes | bytearray | memoryview | np.ndarray) -> int:
    """The CRC-32C of some bytes: crc32c(b"123456789") -> 0xE3069283."""
    message = np.frombuffer(data, dtype=np.uint8)
    if message.size <= _DEGREE:
        return _crc_of_bytes(message.tobytes(), 0xFFFFFFFF) ^ 0xFFFFFFFF
    # Starting the register at all ones is the same as inverting the first four bytes.
    rest = np.concatenate([~message[:4], message[4:_CHUNK]])
    for start in range(_CHUNK, message.size, _CHUNK):
        rest = np.concatenate([_shorten(rest, 4), message[start : start + _CHUNK]])
    for doublings in (4, 2, 0):
        rest = _shorten(rest, doublings)
    return _crc_of_bytes(rest.tobytes(), 0) ^ 0xFFFFFFFF


def mask_crc(crc: int) -> int:
    """The form in which TensorFlow stores a CRC, as LevelDB does: rotated, plus a constant."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _shorten(message: np.ndarray, doublings: int) -> np.ndarray:
    """Overwrite `message`; its tail of at most 6777 * 2^doublings bytes then has the remainder of the whole."""
    degree = _DEGREE << doublings
    distances = [degree - (term << doublings) for term in (*_MIDDLE_TERMS, 0)]
    surplus = message.size - degree
    for start in range(0, surplus, distances[0]):  # no target of a step lies inside the step
        struck = message[start : min(start + distances[0], surplus)]
        for distance in distances:
            message[start + distance : start + distance + struck.size] ^= struck
    return message[max(surplus, 0) :]


def _crc_of_bytes(data: bytes, register: int) -> int:
    for byte in data:
        register = _TABLE[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register
