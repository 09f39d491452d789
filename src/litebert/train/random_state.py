"""Randomness that can be repeated: seeding every generator, and saving their states as plain data.

seed_everything(1, step, rank)    # dropout as a function of (seed, step, rank), as batches are
state = random_state()            # JSON-ready, no pickle
restore_random_state(state)
"""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import torch

from litebert.errors import CheckpointError


def seed_everything(seed: int, *more: int) -> None:
    """Seed Python, NumPy and torch (all devices) by one or several numbers, for example seed, step and rank."""
    words = np.random.SeedSequence([seed, *more]).generate_state(4, np.uint32)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))  # noqa: NPY002  (the global generator, for code that uses it)
    torch.manual_seed(int(words[2]) << 32 | int(words[3]))


def random_state() -> dict[str, Any]:
    """The states of all generators of this process, ready for JSON."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": _encode(torch.get_rng_state()),
        "cuda": [_encode(state) for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Put all generators back to where `random_state` found them."""
    try:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words), gauss))
        name, keys, position, has_gauss, cached = state["numpy"]
        legacy = (name, np.array(keys, dtype=np.uint32), position, has_gauss, cached)
        np.random.set_state(legacy)  # noqa: NPY002
        torch.set_rng_state(_decode(state["torch"]))
        for index, encoded in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_decode(encoded), index)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"random states of the checkpoint cannot be used: {error}") from None


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
