"""From the logits of all windows of a context to answers: the n best spans, and how much speaks for "no answer".

The span head (SQuAD 1.1) gives a start and an end logit per token; every pair of them in reach of `max_answer` is
looked at. The answer head (SQuAD 2.0) has searched already: K starts, and for each its best ends.

Shapes: S tokens of a window, A longest answer, K starts, K_end ends of each start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
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
    scores, places, nulls = [], [], []
    for window, output in zip(windows, outputs, strict=True):
        pairs, place = (_searched_pairs if "start_index" in output else _all_pairs)(window, output, max_answer)
        scores.append(pairs)
        places.append(place)
        nulls.append(float(output["answerable"] if "answerable" in output else output["start"][0] + output["end"][0]))
    ranked = _distinct(context, windows, scores, places, n_best)
    null = min(nulls)  # the window that most believes in an answer decides
    if "answerable" not in outputs[0]:
        null -= ranked[0].score if ranked else 0.0
    return Answers(ranked, null)


# Scores of pairs in some order (-inf for what cannot be an answer), and from places in that order to first, last token.
Place = Callable[[NDArray[np.intp]], tuple[NDArray[np.intp], NDArray[np.intp]]]
Pairs = tuple[NDArray[np.float64], Place]


def _all_pairs(window: Window, output: Outputs, max_answer: int) -> Pairs:
    """Every (start, end) of a window in reach of `max_answer`."""
    assert window.inside is not None
    assert window.max_context is not None
    start = np.where(window.inside & window.max_context, output["start"].astype(np.float64), -np.inf)  # [S]
    end = np.where(window.inside, output["end"].astype(np.float64), -np.inf)
    reach = np.concatenate([end, np.full(max_answer - 1, -np.inf)])
    scores = start[:, None] + sliding_window_view(reach, max_answer)  # [S, A]
    return scores.ravel(), lambda places: (places // max_answer, places // max_answer + places % max_answer)


def _searched_pairs(window: Window, output: Outputs, max_answer: int) -> Pairs:
    """The pairs that the answer head has found."""
    assert window.inside is not None
    assert window.max_context is not None
    ends = output["end_index"].astype(np.intp)  # [K_end, K]
    starts = np.broadcast_to(output["start_index"].astype(np.intp), ends.shape)
    scores = output["start_log_prob"].astype(np.float64) + output["end_log_prob"].astype(np.float64)
    size = len(window.ids)  # a padded batch may point behind the window
    can_start = (window.inside & window.max_context)[np.minimum(starts, size - 1)]
    allowed = can_start & window.inside[np.minimum(ends, size - 1)]
    allowed &= (starts < size) & (ends < size) & (ends >= starts) & (ends < starts + max_answer)
    flat = starts.ravel(), ends.ravel()
    return np.where(allowed, scores, -np.inf).ravel(), lambda places: (flat[0][places], flat[1][places])


def _distinct(
    context: str,
    windows: Sequence[Window],
    scores: list[NDArray[np.float64]],
    places: list[Place],
    n_best: int,
) -> tuple[Span, ...]:
    """The best spans with different texts, best first (the earlier and shorter of equals)."""
    pairs = np.concatenate(scores)
    ends = np.cumsum([len(each) for each in scores])
    take = 2 * n_best
    while True:
        # Only the top is looked at, with all that equal its last; it has to grow where many spans read the same.
        limit = np.partition(pairs, -take)[-take] if take < len(pairs) else -np.inf
        top = np.flatnonzero((pairs >= limit) & (pairs > -np.inf))
        owner = np.searchsorted(ends, top, side="right")
        found = []
        for number in np.unique(owner):
            window, mine = windows[number], top[owner == number]
            assert window.offsets is not None
            first, last = places[number](mine - (ends[number] - len(scores[number])))
            characters = zip(window.offsets[first, 0].tolist(), window.offsets[last, 1].tolist(), strict=True)
            found += [(-score, *span) for score, span in zip(pairs[mine].tolist(), characters, strict=True)]
        spans: dict[str, Span] = {}
        for score, start, end in sorted(found):
            text = context[start:end]
            if text.strip() and text not in spans and len(spans) < n_best:
                spans[text] = Span(text, start, end, -score)
        if len(spans) == n_best or limit == -np.inf:
            return tuple(spans.values())
        take *= 4
