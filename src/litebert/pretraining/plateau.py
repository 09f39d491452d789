"""A run that fills masks no better than one who always answers the commonest token: not begun to read, or collapsed.

Deep and wide shared stacks sit there at rates that shallow ones take well, and their loss looks calm.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from litebert.pretraining.assembly import Batch

# Accuracy above that of the commonest token from which on a model counts as reading. On the 6,000 masks of a small
# evaluation the standard error is about 0.003, so luck does not get it there; one that reads is soon far beyond.
LEAST_LEARNED = 0.01
PATIENCE = 200  # steps after the warm-up in which nothing is expected


def commonest_share(batches: Iterable[Batch]) -> float:
    """Masked-LM accuracy of always answering the commonest token: all that can be had without reading."""
    labels = np.concatenate([batch.labels for batch in batches])
    counts = np.bincount(labels[labels >= 0], minlength=1)
    return float(counts.max() / max(1, counts.sum()))


class PlateauWatch:
    """Tells once, after two evaluations in a row without any reading since the warm-up."""

    def __init__(self, warmup_steps: int):
        self._warmup_steps = warmup_steps
        self._since: int | None = None  # the first evaluation of the present row
        self._told = False

    def look(self, step: int, accuracy: float, floor: float) -> int | None:
        """The step since which nothing was learned, when it is time to say so."""
        if accuracy - floor >= LEAST_LEARNED or step < self._warmup_steps + PATIENCE:
            self._since = None
        elif self._since is None:
            self._since = step
        elif not self._told:
            self._told = True
            return self._since
        return None
