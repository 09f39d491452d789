"""CRC-32C against RFC 3720's vectors and against the definition, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.model.tf_index import crc32c, mask_crc

POLYNOMIAL = 0x11EDC6F41  # x^32 + x^28 + ... + 1


def crc_by_definition(data: bytes) -> int:
    """One bit at a time, lowest bit of each byte first, as in the RFC's appendix."""
    register = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            feedback = (register ^ (byte >> bit)) & 1
            register = (register >> 1) ^ (0x82F63B78 if feedback else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_known_vectors(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@given(st.binary(max_size=200))
def test_short_messages(data: bytes) -> None:
    assert crc32c(data) == crc_by_definition(data)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(6_700, 30_000))
def test_messages_that_are_shortened(seed: int, size: int) -> None:
    data = np.random.default_rng(seed).bytes(size)
    assert crc32c(data) == crc_by_definition(data)


# Where the shortening changes its step: 6777 bytes, 6777 * 4, 6777 * 16.
@pytest.mark.parametrize("size", [6_776, 6_777, 6_778, 27_107, 27_108, 27_109, 108_431, 108_432, 108_433])
def test_sizes_at_the_steps(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data) == crc_by_definition(data)


# Where the working copy is filled anew. Four bytes of 0xff leave the register at zero and zero bytes keep it there,
# so the slow reference can skip the zeros.
@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 21) + 77, (1 << 22) + 12_345])
def test_sizes_at_the_chunks(size: int) -> None:
    tail = np.random.default_rng(size).bytes(20_000)
    data = b"\xff" * 4 + bytes(size - 4 - len(tail)) + tail
    assert crc32c(data) == crc_by_definition(b"\xff" * 4 + tail)


def test_every_bit_counts_in_a_long_message() -> None:
    data = bytearray(np.random.default_rng(0).bytes((1 << 21) + 5))
    whole = crc32c(data)
    for position in (0, 3, 4, 6_777, (1 << 20) - 1, 1 << 20, (1 << 21) + 4):
        data[position] ^= 1
        assert crc32c(data) != whole
        data[position] ^= 1
    assert crc32c(data) == whole


def test_input_is_left_alone() -> None:
    data = np.random.default_rng(0).integers(0, 256, 1 << 21, dtype=np.uint8)
    before = data.copy()
    crc32c(data)
    np.testing.assert_array_equal(data, before)


def test_castagnoli_divides_the_four_terms() -> None:
    def power(exponent: int) -> int:
        value = 1
        for _ in range(exponent):
            value <<= 1
            value ^= POLYNOMIAL if value >> 32 else 0
        return value

    assert power(6777) ^ power(484) ^ power(100) ^ power(0) == 0


def test_mask() -> None:
    # By hand: 0x12345678 rotated right by 15 is 0xACF02468; plus 0xA282EAD8, modulo 2^32.
    assert mask_crc(0x12345678) == 0x4F730F40
    assert mask_crc(0) == 0xA282EAD8
