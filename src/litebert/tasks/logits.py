"""Logits to probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Probabilities over the last axis."""
    weights = np.exp(_shifted(logits))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def log_softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Log-probabilities, accurate for tiny probabilities too."""
    shifted = _shifted(logits)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _shifted(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    exact = logits.astype(np.float64)
    return np.asarray(exact - exact.max(-1, keepdims=True))  # exp cannot overflow


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def best_of(scores: NDArray[np.float64], count: int) -> list[int]:
    """Indices of the highest scores, best first, ties by index: ([.1, .7, .2], 2) -> [1, 2]."""
    chosen = np.argpartition(-scores, count - 1)[:count]
    return [int(place) for place in sorted(chosen, key=lambda place: (-scores[place], place))]
