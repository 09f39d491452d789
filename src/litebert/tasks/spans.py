"""From the logits of all windows of a context to answers: the n best spans, and how much speaks for "no answer".

The span head (SQuAD 1.1) gives a start and an end logit per token; every pair of them in reach of `max_answer` is
looked at. The answer head (SQuAD 2.0) has searched already: K starts, and for each its best ends.

Shapes: S tokens of a window, A longest answer, K starts, K_end ends of each start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.features import Sequence as Window

Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the context, with its characters and its score (a sum of logits or log-probabilities)."""

    text: str
    start: int
    end: int
    score: float


class Answers(NamedTuple):
    """The best spans, best first, and a score that is high where there is no answer (0 is the natural threshold)."""

    spans: tuple[Span, ...]
    no_answer: float

    def probabilities(self) -> list[float]:
        """Softmax of the span scores: how sure the best is among the n best."""
        if not self.spans:
            return []
        scores = np.array([span.score for span in self.spans])
        weights = np.exp(scores - scores.max())
        return [float(weight) for weight in weights / weights.sum()]

    def best(self, threshold: float | None = None) -> str:
        """The text of the best span; "" where `threshold` is given and no answer scores above it."""
        if not self.spans or (threshold is not None and self.no_answer > threshold):
            return ""
        return self.spans[0].text


def best_spans(
    windows: Sequence[Window], outputs: Sequence[Outputs], context: str, n_best: int = 20, max_answer: int = 30
) -> Answers:
    """The n best answers over all windows of one context; spans of the same text are counted once, at their best."""
    scores, firsts, lasts, nulls = [], [], [], []  # firsts and lasts: characters
    for window, output in zip(windows, outputs, strict=True):
        assert window.offsets is not None
        starts, ends, sums = (_searched_pairs if "start_index" in output else _all_pairs)(window, output, max_answer)
        scores.append(sums)
        firsts.append(window.offsets[starts, 0])
        lasts.append(window.offsets[ends, 1])
        nulls.append(float(output["answerable"] if "answerable" in output else output["start"][0] + output["end"][0]))
    spans = _distinct(context, np.concatenate(scores), np.concatenate(firsts), np.concatenate(lasts), n_best)
    ranked = tuple(spans.values())
    null = min(nulls)  # the window that most believes in an answer decides
    if "answerable" not in outputs[0]:
        null -= ranked[0].score if ranked else 0.0
    return Answers(ranked, null)


def _distinct(
    context: str,
    scores: NDArray[np.float64],
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    n_best: int,
) -> dict[str, Span]:
    """The best spans with different texts, best first (the earlier of equals)."""
    take = 2 * n_best
    while True:
        # Sorting only the top is much faster; it has to grow where many spans read the same.
        top = np.argpartition(-scores, take)[:take] if take < len(scores) else np.arange(len(scores))
        spans: dict[str, Span] = {}
        for i in top[np.lexsort((lasts[top], firsts[top], -scores[top]))]:
            text = context[firsts[i] : lasts[i]]
            if text.strip() and text not in spans and len(spans) < n_best:
                spans[text] = Span(text, int(firsts[i]), int(lasts[i]), float(scores[i]))
        if len(spans) == n_best or take >= len(scores):
            return spans
        take *= 4


Pairs = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]


def _all_pairs(window: Window, output: Outputs, max_answer: int) -> Pairs:
    """Every allowed (start, end) of a window with its score."""
    assert window.inside is not None
    assert window.max_context is not None
    start, end = output["start"].astype(np.float64), output["end"].astype(np.float64)  # [S]
    size = len(window.ids)
    starts = np.flatnonzero(window.inside & window.max_context)
    ends = starts[:, None] + np.arange(max_answer)  # [starts, A]
    reachable = ends < size
    ends = np.minimum(ends, size - 1)
    allowed = reachable & window.inside[ends]
    scores = np.where(allowed, start[starts][:, None] + end[ends], -np.inf)
    rows, columns = np.nonzero(allowed)
    return starts[rows], ends[rows, columns], scores[rows, columns]


def _searched_pairs(window: Window, output: Outputs, max_answer: int) -> Pairs:
    """The pairs that the answer head has found, those that may be answers."""
    assert window.inside is not None
    assert window.max_context is not None
    ends = output["end_index"].astype(np.intp)  # [K_end, K]
    starts = np.broadcast_to(output["start_index"].astype(np.intp), ends.shape)
    scores = output["start_log_prob"].astype(np.float64) + output["end_log_prob"].astype(np.float64)
    size = len(window.ids)  # a padded batch may point behind the window
    fits = (starts < size) & (ends < size)
    inside_start = window.inside & window.max_context
    allowed = fits & inside_start[np.minimum(starts, size - 1)] & window.inside[np.minimum(ends, size - 1)]
    allowed &= (ends >= starts) & (ends < starts + max_answer)
    return starts[allowed], ends[allowed], scores[allowed]
