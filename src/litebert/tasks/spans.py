"""From the logits of all windows of a context to answers: the n best spans, and when to say that there is none.

The span head (SQuAD 1.1) gives a start and an end logit per token; every pair of them in reach of `max_answer` is
looked at. The answer head (SQuAD 2.0) has searched already: K starts, and for each its best ends.

Shapes: S tokens of a window, A longest answer, K starts, K_end ends of each start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from litebert.tasks.examples import QuestionExample
from litebert.tasks.features import Sequence as Window
from litebert.tasks.logits import softmax
from litebert.tasks.squad import score_answer

Outputs = Mapping[str, NDArray[Any]]
FIXED_THRESHOLD = 0.0  # chosen on no data: "no answer" where that is more likely than not


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
        return softmax(np.array([span.score for span in self.spans])).tolist() if self.spans else []

    def best(self, threshold: float | None = None) -> str:
        """The text of the best span; "" where `threshold` is given and no answer scores above it."""
        if not self.spans or (threshold is not None and self.no_answer > threshold):
            return ""
        return self.spans[0].text


def best_spans(
    windows: Sequence[Window], outputs: Sequence[Outputs], context: str, n_best: int = 20, max_answer: int = 30
) -> Answers:
    """The n best answers over all windows of one context; spans of the same text are counted once, at their best."""
    ranked = _distinct(context, windows, outputs, n_best, max_answer)
    # The window that most believes in an answer decides.
    null = min(
        float(each["answerable"] if "answerable" in each else each["start"][0] + each["end"][0]) for each in outputs
    )
    if "answerable" not in outputs[0]:
        null -= ranked[0].score if ranked else 0.0
    return Answers(ranked, null)


class Pairs(NamedTuple):
    """Pairs of a first and a last token with their scores."""

    scores: NDArray[np.float64]
    first: NDArray[np.intp]
    last: NDArray[np.intp]


def _all_pairs(window: Window, output: Outputs, max_answer: int, limit: float) -> Pairs:
    """Every (start, end) of a window in reach of `max_answer` whose score reaches the limit."""
    assert window.inside is not None
    assert window.max_context is not None
    start = np.where(window.inside & window.max_context, output["start"].astype(np.float64), -np.inf)  # [S]
    end = np.where(window.inside, output["end"].astype(np.float64), -np.inf)
    # Most windows of a long text hold no start that could reach the limit even with the best end.
    rows = np.flatnonzero((start + end.max() >= limit) & (start > -np.inf))
    reach = np.concatenate([end, np.full(max_answer - 1, -np.inf)])
    scores = start[rows, None] + sliding_window_view(reach, max_answer)[rows]  # [starts, A]
    row, length = np.nonzero((scores >= limit) & (scores > -np.inf))
    return Pairs(scores[row, length], rows[row], rows[row] + length)


def _searched_pairs(window: Window, output: Outputs, max_answer: int, limit: float) -> Pairs:
    """The pairs that the answer head has found and whose score reaches the limit."""
    assert window.inside is not None
    assert window.max_context is not None
    ends = output["end_index"].astype(np.intp)  # [K_end, K]
    starts = np.broadcast_to(output["start_index"].astype(np.intp), ends.shape)
    scores = output["start_log_prob"].astype(np.float64) + output["end_log_prob"].astype(np.float64)
    size = len(window.ids)  # a padded batch may point behind the window
    can_start = (window.inside & window.max_context)[np.minimum(starts, size - 1)]
    allowed = can_start & window.inside[np.minimum(ends, size - 1)]
    allowed &= (starts < size) & (ends < size) & (ends >= starts) & (ends < starts + max_answer)
    allowed &= (scores >= limit) & (scores > -np.inf)
    return Pairs(scores[allowed], starts[allowed], ends[allowed])


def _top_pairs(
    windows: Sequence[Window], outputs: Sequence[Outputs], max_answer: int, take: int
) -> tuple[Pairs, NDArray[np.intp], bool]:
    """The `take` best pairs of all windows and all that equal their last, the window of each, and whether that is all.

    One window after another, and only what can still be among the best is kept: a book has millions of pairs.
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
            room = 2 * kept + 4 * take  # equals may be many: looked through again only when there are twice as many
    return *found[0], limit == -np.inf


def _distinct(
    context: str, windows: Sequence[Window], outputs: Sequence[Outputs], n_best: int, max_answer: int
) -> tuple[Span, ...]:
    """The best spans with different texts, best first (the earlier and shorter of equals)."""
    take = 2 * n_best
    while True:
        # Only the top is looked at; it has to grow where many spans read the same.
        top, owner, complete = _top_pairs(windows, outputs, max_answer, take)
        found = []
        numbers, begins = np.unique(owner, return_index=True)  # pairs come in the order of their windows
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
# Several models, and the threshold above which there is no answer


def average_answers(models: Sequence[Answers]) -> Answers:
    """Several models as one: a span that a model does not have among its n best gets its worst score there."""
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
    """(threshold, F1): no answer where its score is above the threshold. Tuned on dev, it flatters dev a little."""
    scores = np.array([each.no_answer for each in answers])
    answered = np.array([score_answer(a.best(), q.answers)[1] for q, a in zip(questions, answers, strict=True)])
    silent = np.array([score_answer("", q.answers)[1] for q in questions])
    # From the least "no answer" up: everything up to i is answered, the rest is not.
    order = np.argsort(scores, kind="stable")
    f1 = silent.sum() + np.concatenate([[0.0], np.cumsum((answered - silent)[order])])
    ordered = scores[order]
    cuts = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])  # equal scores cannot be told apart
    best = int(np.argmax(np.where(cuts, f1, -np.inf)))
    threshold = ordered[best - 1] if best else np.nextafter(ordered[0], -np.inf)
    return float(threshold), float(f1[best] / len(questions))
