"""sentence_order and coherence: the order of two texts, and of the sentences of one, by the sentence head.

A model trained with next-sentence prediction answers too: there 0 means that the second stretch follows the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.predict.ability import Applied, Limits, Probability, Result, ability
from litebert.predict.job import Ids, Inputs, Steps
from litebert.predict.runtime import Request
from litebert.tasks.decode import sigmoid
from litebert.tasks.features import cut_pair
from litebert.tasks.task import Task
from litebert.text.sentences import sentence_spans, split_sentences

WANT = frozenset({"sentence"})


@dataclass(frozen=True)
class SentenceOrder(Result):
    """How probable an order is."""

    probability: Annotated[Probability, "That `a` comes before `b`."]
    forward: Annotated[Probability, "The score when the model reads (a, b)."]
    backward: Annotated[Probability | None, "The score when it reads (b, a): that `b` comes before `a`."] = None
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The probability alone."""
        return {"probability": self.probability}


@dataclass(frozen=True)
class Sentence:
    """A sentence and its place."""

    start: Annotated[int, "First character."]
    end: Annotated[int, "One past the last character."]
    text: str


@dataclass(frozen=True)
class Coherence(Result):
    """How well the sentences of a text follow each other."""

    score: Annotated[Probability, "The mean of the boundaries."]
    sentences: tuple[Sentence, ...]
    boundaries: Annotated[tuple[Probability, ...], "That sentences i and i + 1 are in the right order."]
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The score, and that of each boundary."""
        return {"score": self.score, "boundaries": "|".join(f"{each:g}" for each in self.boundaries)}


@ability(
    outputs=["sentence"],
    also=["order", "sop", "nsp"],
    examples=[{"a": "The company was founded in 1921.", "b": "It was sold in 1958."}],
)
def sentence_order(
    inputs: Inputs,
    a: Annotated[str, "The text that should come first."],
    b: Annotated[str, "The text that should follow."],
    symmetric: Annotated[bool, "Also read (b, a) and combine both scores."] = False,
) -> Steps[SentenceOrder]:
    """Estimate the probability that text A comes before text B.

    If the texts are too long for the model, it reads the sentences nearest to the boundary.
    """
    first, second = split_sentences(a), split_sentences(b)
    requests = [_meeting(inputs, first, second)]
    if symmetric:
        requests.append(_meeting(inputs, second, first))
    outputs = yield requests
    margins = [_margin(output["sentence"]) for output in outputs]
    forward = sigmoid(margins[0])
    if not symmetric:
        return SentenceOrder(forward, forward)
    return SentenceOrder(sigmoid((margins[0] - margins[1]) / 2), forward, sigmoid(margins[1]))


@ability(
    outputs=["sentence"],
    examples=[{"text": "It began to rain. We opened our umbrellas. The street was soon empty."}],
)
def coherence(
    inputs: Inputs,
    text: Annotated[str, "Two sentences or more."],
    group: Annotated[int, "How many sentences to read on each side of a boundary.", Limits(1, served=16)] = 2,
) -> Steps[Coherence]:
    """Score how well the sentences of a text follow each other, at every boundary between two of them.

    Both orders are scored, which cancels the model's bias towards one of the answers.
    """
    spans = sentence_spans(text)
    encoded = inputs.tokenizer.encode_batch([text[begin:end] for begin, end in spans])
    kept = [number for number, ids in enumerate(encoded) if len(ids)]
    if len(kept) < 2:
        raise InputError(f"text: has {len(kept)} sentence(s); coherence needs two or more")
    spans, encoded = [spans[number] for number in kept], [encoded[number] for number in kept]
    requests = []
    for boundary in range(1, len(spans)):
        before, after = encoded[max(0, boundary - group) : boundary], encoded[boundary : boundary + group]
        requests += [_pair(inputs, reversed(before), after), _pair(inputs, reversed(after), before)]
    outputs = yield requests
    margins = [_margin(output["sentence"]) for output in outputs]
    boundaries = tuple(
        sigmoid((right - swapped) / 2) for right, swapped in zip(margins[::2], margins[1::2], strict=True)
    )
    return Coherence(
        sum(boundaries) / len(boundaries),
        tuple(Sentence(begin, end, text[begin:end]) for begin, end in spans),
        boundaries,
    )


def _meeting(inputs: Inputs, before: Sequence[str], after: Sequence[str]) -> Request:
    """The request for two texts, each given as its sentences."""
    return _pair(inputs, _encode_each(inputs, reversed(before)), _encode_each(inputs, after))


def _encode_each(inputs: Inputs, sentences: Iterable[str]) -> Iterator[Ids]:
    # One sentence at a time, as in the token store, and only as many as fit are read of a long text.
    for sentence in sentences:
        ids = inputs.tokenizer.encode_batch([sentence])[0]
        if len(ids):
            yield ids


def _pair(inputs: Inputs, before: Iterable[Ids], after: Iterable[Ids]) -> Request:
    """Whole sentences on both sides of the boundary, nearest first, up to the model's limit.

    Whole ones, because a segment that begins or ends inside a sentence gives its place away. Only if two single
    sentences are too long, their outer ends are cut.
    """
    room = inputs.max_length - 3
    sides = (iter(before), iter(after))
    taken: tuple[list[Ids], list[Ids]] = ([], [])
    for side, name in ((0, "the first text"), (1, "the second text")):
        nearest = next(sides[side], None)
        if nearest is None:
            raise InputError(f"{name} has no text that the vocabulary covers")
        taken[side].append(nearest)
    keep_a, keep_b = cut_pair(len(taken[0][0]), len(taken[1][0]), room)
    if keep_a < len(taken[0][0]) or keep_b < len(taken[1][0]):
        return inputs.request(taken[0][0][-keep_a:], taken[1][0][:keep_b], want=WANT)
    sizes = [keep_a, keep_b]
    open_sides = {0, 1}
    while open_sides:
        side = min(open_sides, key=lambda s: sizes[s])
        following = next(sides[side], None)
        if following is None or sum(sizes) + len(following) > room:
            open_sides.remove(side)
            continue
        taken[side].append(following)
        sizes[side] += len(following)
    return inputs.request(np.concatenate(taken[0][::-1]), np.concatenate(taken[1]), want=WANT)


def _margin(logits: NDArray[np.float32]) -> float:
    """How much more the model believes in the right order than in the swapped one."""
    return float(logits[0]) - float(logits[1])
