"""What a Predictor answers: one frozen dataclass per ability, of plain values, with `as_dict()` for JSON.

Offsets are (start, end) in characters of the text that was given. Probabilities lie in 0..1.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Result:
    """Base of every answer."""

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain data that JSON can hold."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


@dataclass(frozen=True)
class Candidate:
    """One piece for one mask, and the text with it: the other masks as they are; of a long text its surroundings."""

    word: str  # the piece as people read it: "▁paris" -> "paris"
    piece: str
    probability: float
    text: str


@dataclass(frozen=True)
class Mask:
    """One mask of a text and what may stand there, best first."""

    start: int
    end: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class JointFill:
    """All masks filled together: the words in order, and the probability of having chosen them one after another."""

    words: tuple[str, ...]
    probability: float
    text: str


@dataclass(frozen=True)
class FilledMasks(Result):
    """Each mask filled for itself; `joint` where that was asked for."""

    text: str
    masks: tuple[Mask, ...]
    joint: tuple[JointFill, ...] = ()


@dataclass(frozen=True)
class SentenceOrder(Result):
    """The probability that `a` comes before `b`.

    `forward` is what the model says of (a, b) and `backward` of (b, a), each being the probability that the given
    order is right; with `backward`, `probability` is the reading that both support.
    """

    probability: float
    forward: float
    backward: float | None = None


@dataclass(frozen=True)
class Sentence:
    """One sentence of a text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Coherence(Result):
    """How well a text hangs together; `boundaries[i]`: the probability that sentences i and i + 1 are in order."""

    score: float  # the mean of the boundaries
    sentences: tuple[Sentence, ...]
    boundaries: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Embedding(Result):
    """A text as one vector."""

    vector: NDArray[np.float32]  # [H]
    pooling: str
    tokens: int
    windows: int  # a text longer than the model takes is read in several


@dataclass(frozen=True)
class Classification(Result):
    """The label of a text with the probability of every label; for regression `label` is None and `value` the score.

    `scale` is the lowest and highest score of a regression task, as its definition or its training labels have it.
    For multi-label models `labels` holds all whose probability reaches 0.5 (none, perhaps), and `label` the likeliest.
    """

    label: str | None
    probabilities: dict[str, float]
    labels: tuple[str, ...] = ()
    value: float | None = None
    scale: tuple[float, float] | None = None
    windows: int = 1


@dataclass(frozen=True)
class TaggedWord:
    """One word and its tag."""

    text: str
    start: int
    end: int
    tag: str
    probability: float


@dataclass(frozen=True)
class Entity:
    """Words under one tag, joined: B-PER I-PER -> PER."""

    label: str
    text: str
    start: int
    end: int
    probability: float  # of its least certain word


@dataclass(frozen=True)
class Tagging(Result):
    """The tag of every word, and the entities that they make."""

    text: str
    words: tuple[TaggedWord, ...]
    entities: tuple[Entity, ...]


@dataclass(frozen=True)
class AnswerSpan:
    """A stretch of the context that may be the answer."""

    text: str
    start: int
    end: int
    probability: float  # among the candidates
    score: float  # as the model scores it; comparable only within one question


@dataclass(frozen=True)
class Answer(Result):
    """The best answer, "" with start = end = None if there is none; `candidates` in order of their score."""

    text: str
    start: int | None
    end: int | None
    probability: float
    no_answer: float | None  # the probability that the context holds no answer; None: this model always answers
    candidates: tuple[AnswerSpan, ...]


@dataclass(frozen=True)
class Choice(Result):
    """Which option fits, with the probability of each."""

    index: int
    option: str
    probabilities: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Attention(Result):
    """Who looks at whom: weights[application, head, from, to], each row summing to 1."""

    pieces: tuple[str, ...]
    segments: tuple[int, ...]
    weights: NDArray[np.float32]  # [L, A, S, S]
    left_out: int = 0  # tokens beyond what the model takes at once


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        # Seven digits are what a float32 holds.
        return np.round(value.astype(np.float64), 7).tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
