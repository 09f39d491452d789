"""Find answers in the logits of all windows of a context: the n best spans, and when there is no answer.

The span head (SQuAD 1.1) has a start and an end logit per token; all pairs up to `max_answer` tokens are candidates.
The answer head (SQuAD 2.0) has already searched: K starts, each with its best ends.

Shapes: S tokens of a window, A longest answer, K starts, K_end ends of each start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from litebert.tasks.decode import Outputs, softmax
from litebert.tasks.features import Feature
from litebert.tasks.squad import score_answer
from litebert.tasks.task import QuestionExample

FIXED_THRESHOLD = 0.0  # not tuned: "no answer" if that is more likely


@dataclass(frozen=True, slots=True)
class Span:
    """A span of the context: its text, character positions and score (a sum of logits or log-probabilities)."""

    text: str
    start: int
    end: int
    score: float


class Answers(NamedTuple):
    """The best spans, best first, and a score for "no answer", with the threshold that it is compared with."""

    spans: tuple[Span, ...]
    no_answer: float
    threshold: float = FIXED_THRESHOLD  # of the exit that gave the score

    def probabilities(self) -> list[float]:
        """Softmax over the span scores."""
        return softmax(np.array([span.score for span in self.spans])).tolist() if self.spans else []

    def best(self, threshold: float | None = None) -> str:
        """The text of the best span; "" if a `threshold` is given and the no-answer score is above it."""
        if not self.spans or (threshold is not None and self.no_answer > threshold):
            return ""
        return self.spans[0].text


def best_spans(
    windows: Sequence[Feature],
    outputs: Sequence[Outputs],
    context: str,
    n_best: int = 20,
    max_answer: int = 30,
    thresholds: Sequence[float] | None = None,
) -> Answers:
    """The n best answers over all windows of a context; spans with equal text count once, with their best score.

    `thresholds` are the no-answer thresholds of the windows, which differ if these stopped at different exits.
    """
    ranked = _distinct(context, windows, outputs, n_best, max_answer)
    nulls = [
        float(each["answerable"] if "answerable" in each else each["start"][0] + each["end"][0]) for each in outputs
    ]
    limits = thresholds or [FIXED_THRESHOLD] * len(nulls)
    # The window with the lowest no-answer score, seen from its threshold, decides.
    _, null, limit = min((score - limit, score, limit) for score, limit in zip(nulls, limits, strict=True))
    if "answerable" not in outputs[0]:
        null -= ranked[0].score if ranked else 0.0
    return Answers(ranked, null, limit)


class Pairs(NamedTuple):
    """First and last tokens of spans, with scores."""

    scores: NDArray[np.float64]
    first: NDArray[np.intp]
    last: NDArray[np.intp]


def _all_pairs(window: Feature, output: Outputs, max_answer: int, limit: float) -> Pairs:
    """All (start, end) pairs of a window up to `max_answer` tokens with a score of at least `limit`."""
    assert window.inside is not None
    assert window.max_context is not None
    start = np.where(window.inside & window.max_context, output["start"].astype(np.float64), -np.inf)  # [S]
    end = np.where(window.inside, output["end"].astype(np.float64), -np.inf)
    # In most windows of a long text no start reaches the limit even with the best end.
    rows = np.flatnonzero((start + end.max() >= limit) & (start > -np.inf))
    reach = np.concatenate([end, np.full(max_answer - 1, -np.inf)])
    scores = start[rows, None] + sliding_window_view(reach, max_answer)[rows]  # [starts, A]
    row, length = np.nonzero((scores >= limit) & (scores > -np.inf))
    return Pairs(scores[row, length], rows[row], rows[row] + length)


def _searched_pairs(window: Feature, output: Outputs, max_answer: int, limit: float) -> Pairs:
    """The pairs found by the answer head with a score of at least `limit`."""
    assert window.inside is not None
    assert window.max_context is not None
    ends = output["end_index"].astype(np.intp)  # [K_end, K]
    starts = np.broadcast_to(output["start_index"].astype(np.intp), ends.shape)
    scores = output["start_log_prob"].astype(np.float64) + output["end_log_prob"].astype(np.float64)
    size = len(window.ids)  # in a padded batch, positions may be beyond the window
    can_start = (window.inside & window.max_context)[np.minimum(starts, size - 1)]
    allowed = can_start & window.inside[np.minimum(ends, size - 1)]
    allowed &= (starts < size) & (ends < size) & (ends >= starts) & (ends < starts + max_answer)
    allowed &= (scores >= limit) & (scores > -np.inf)
    return Pairs(scores[allowed], starts[allowed], ends[allowed])


def _top_pairs(
    windows: Sequence[Feature], outputs: Sequence[Outputs], max_answer: int, take: int
) -> tuple[Pairs, NDArray[np.intp], bool]:
    """The `take` best pairs of all windows with ties, the window of each, and whether these are all pairs.

    Windows are processed one by one, keeping only possible winners: a book has millions of pairs.
    """
    limit, kept, room = -np.inf, 0, 0
    found: list[tuple[Pairs, NDArray[np.intp]]] = []
    for number, (window, output) in enumerate(zip(windows, outputs, strict=True)):
        search = _searched_pairs if "start_index" in output else _all_pairs
        pairs = search(window, output, max_answer, limit)
        found.append((pairs, np.full(len(pairs.scores), number)))
        kept += len(pairs.scores)
        if kept > room or number == len(windows) - 1:
            scores, first, last = (np.concatenate(column) for column in zip(*(each for each, _ in found), strict=True))
            owner = np.concatenate([each for _, each in found])
            if take < len(scores):
                limit = np.partition(scores, -take)[-take]
            best = scores >= limit
            found = [(Pairs(scores[best], first[best], last[best]), owner[best])]
            kept = int(best.sum())
            room = 2 * kept + 4 * take  # ties can be many: filter again only once the number has doubled
    return *found[0], limit == -np.inf


def _distinct(
    context: str, windows: Sequence[Feature], outputs: Sequence[Outputs], n_best: int, max_answer: int
) -> tuple[Span, ...]:
    """The best spans with distinct texts, best first (ties: the earlier and shorter first)."""
    take = 2 * n_best
    while True:
        # Only the top pairs are examined; more are needed if many spans have the same text.
        top, owner, complete = _top_pairs(windows, outputs, max_answer, take)
        found = []
        numbers, begins = np.unique(owner, return_index=True)  # pairs are sorted by window
        for number, begin, stop in zip(numbers, begins, [*begins[1:], len(owner)], strict=False):
            offsets, mine = windows[number].offsets, slice(begin, stop)
            assert offsets is not None
            characters = zip(offsets[top.first[mine], 0].tolist(), offsets[top.last[mine], 1].tolist(), strict=True)
            found += [(-score, *span) for score, span in zip(top.scores[mine].tolist(), characters, strict=True)]
        spans: dict[str, Span] = {}
        for score, start, end in sorted(found):
            text = context[start:end]
            if text.strip() and text not in spans and len(spans) < n_best:
                spans[text] = Span(text, start, end, -score)
        if len(spans) == n_best or complete:
            return tuple(spans.values())
        take *= 4


# ---------------------------------------------------------------------------------------------------------------------
# Ensembles, and the no-answer threshold


def average_answers(models: Sequence[Answers]) -> Answers:
    """Average several models; a span missing from a model's n best gets its worst score there."""
    scores: list[dict[str, float]] = [{span.text: span.score for span in model.spans} for model in models]
    places = {span.text: span for model in models for span in model.spans}
    worst = [min(known.values(), default=0.0) for known in scores]
    means = {
        text: float(np.mean([known.get(text, low) for known, low in zip(scores, worst, strict=True)]))
        for text in places
    }
    ranked = sorted(means, key=lambda text: -means[text])
    spans = tuple(Span(text, places[text].start, places[text].end, means[text]) for text in ranked)
    return Answers(spans, float(np.mean([model.no_answer for model in models])))


def best_threshold(questions: Sequence[QuestionExample], answers: Sequence[Answers]) -> tuple[float, float]:
    """The threshold with the best F1, and that F1; tuned on dev, it is slightly optimistic there."""
    scores = np.array([each.no_answer for each in answers])
    answered = np.array([score_answer(a.best(), q.answers)[1] for q, a in zip(questions, answers, strict=True)])
    silent = np.array([score_answer("", q.answers)[1] for q in questions])
    # Sorted by no-answer score: questions up to i are answered, the rest are not.
    order = np.argsort(scores, kind="stable")
    f1 = silent.sum() + np.concatenate([[0.0], np.cumsum((answered - silent)[order])])
    ordered = scores[order]
    cuts = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])  # no threshold separates equal scores
    best = int(np.argmax(np.where(cuts, f1, -np.inf)))
    threshold = ordered[best - 1] if best else np.nextafter(ordered[0], -np.inf)
    return float(threshold), float(f1[best] / len(questions))
