"""CRC-32C, the checksum in TensorFlow's files, fast enough in numpy for checkpoints of gigabytes.

A CRC is the remainder of the message, read as a polynomial over GF(2), divided by a fixed polynomial P. So
bytes may be moved around as long as that remainder stays. Castagnoli's P divides the four-term polynomial

    x^6777 + x^484 + x^100 + 1

and since squaring it only doubles its exponents, P also divides it with every exponent times 8 * 2^k. To
multiply by x^8 is to move by one byte. Hence any byte may be struck out if it is XORed into the three bytes that
come (6777 - 484) * 2^k, (6777 - 100) * 2^k and 6777 * 2^k places later: a long message shrinks to a short one
with the same remainder by XORs of long arrays. The short one goes through the usual table, byte by byte.
"""

from __future__ import annotations

import numpy as np

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
