"""Random numbers by counter: the n-th draw of a key is computed, not reached, so nothing has state to lose.

    draw(make_key(seed, epoch), 5)   -> the sixth 64-bit number of that stream, on every machine and numpy version

A stream is SplitMix64 (Steele, Lea and Flood, 2014): mix(key + (n + 1) * golden ratio).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1


def make_key(*parts: int) -> int:
    """One 64-bit key for a tuple of numbers: make_key(seed, store, epoch)."""
    result = 0
    for part in parts:
        result = _mix((result + ((part + 1) * GOLDEN)) & WORD)
    return result


def draw(keys: Bits | int, counters: Integers | Bits | int) -> Bits:
    """Draw number `counters` of each stream in `keys`; the two broadcast against each other."""
    steps = np.asarray(counters).astype(np.uint64)  # a copy, so the work below can be in place
    steps += np.uint64(1)
    steps *= np.uint64(GOLDEN)
    bits: Bits = np.atleast_1d(steps + (np.uint64(keys) if isinstance(keys, int) else keys))
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def below(bits: Bits, limits: Integers | int) -> Integers:
    """Whole numbers 0 <= x < limit (at most 2**31), from the upper half of the bits."""
    scaled = (bits >> np.uint64(32)) * np.asarray(limits).astype(np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def happens(bits: Bits, probability: float) -> npt.NDArray[np.bool_]:
    """True with the given probability, from the upper half of the bits."""
    return np.asarray((bits >> np.uint64(32)) < np.uint64(round(probability * 2**32)))


def shuffled(count: int, key: int) -> Integers:
    """The numbers 0 .. count - 1 in a random order that depends on the key alone."""
    return np.argsort(draw(key, np.arange(count)), kind="stable")


def _mix(number: int) -> int:
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & WORD
    return number ^ (number >> 31)
