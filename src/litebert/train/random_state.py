"""Randomness that can be repeated: every generator seeded anew for each step, so that no state has to be saved.

seed_everything(1, step, rank)    # dropout as a function of (seed, step, rank), as batches are
"""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_everything(seed: int, *more: int) -> None:
    """Seed Python, NumPy and torch (all devices) by one or several numbers, for example seed, step and rank."""
    words = np.random.SeedSequence([seed, *more]).generate_state(4, np.uint32)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))  # noqa: NPY002  (the global generator, for code that uses it)
    torch.manual_seed(int(words[2]) << 32 | int(words[3]))
