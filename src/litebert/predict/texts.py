"""embed, classify and attention: a text, or two, read as a whole."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.predict.ability import Applied, Array, Limits, Probability, Result, ability
from litebert.predict.job import Ids, Inputs, Steps, deepest
from litebert.predict.runtime import Outputs, Request
from litebert.tasks.features import cut_pair
from litebert.tasks.kinds.kind import TextKind
from litebert.tasks.kinds.multi_label import MultiLabel
from litebert.tasks.task import Task, kind_of

POOLINGS = {"mean": "mean", "cls": "first"}  # as users say it -> the raw output


@dataclass(frozen=True, eq=False)
class Embedding(Result):
    """A text as a vector."""

    vector: Annotated[NDArray[np.float32], Array(1)]  # [H]
    pooling: str
    tokens: int
    windows: Annotated[int, "Number of windows: a text longer than the model's limit is split."]
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The vector as JSON."""
        return {"vector": json.dumps(self.as_dict()["vector"])}


@dataclass(frozen=True)
class Classification(Result):
    """The label of a text with the probability of every label; for regression, a score."""

    label: Annotated[str | None, "The most probable; null for regression."]
    probabilities: dict[str, Probability]
    labels: Annotated[tuple[str, ...], "Multi-label models: all labels of probability 0.5 or more; may be empty."] = ()
    value: Annotated[float | None, "Regression: the score."] = None
    scale: Annotated[tuple[float, float] | None, "Regression: the lowest and highest score, where known."] = None
    windows: int = 1
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The label and its probability, all labels of a multi-label model, or the score of a regression."""
        if self.value is not None:
            return {"value": self.value}
        if self.label is None or (task is not None and isinstance(kind_of(task), MultiLabel)):
            return {"labels": "|".join(self.labels)}
        return {"label": self.label, "probability": self.probabilities[self.label]}


@dataclass(frozen=True, eq=False)
class Attention(Result):
    """The pieces of a text, and how much attention each pays to the others."""

    pieces: tuple[str, ...]
    segments: tuple[int, ...]
    weights: Annotated[NDArray[np.float32], "[application][head][from][to]; each row sums to 1.", Array(4, digits=4)]
    left_out: Annotated[int, "Tokens beyond `max_tokens`, which were not read."] = 0
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """Maps do not fit a table."""
        raise InputError("attention maps do not fit a table; write them to a .jsonl file")


def embed_many(
    inputs: Inputs,
    task: Task | None,
    texts: Sequence[Ids],
    pooling: Literal["mean", "cls"] | None = None,
    normalize: bool | None = None,
    size: int | None = None,
) -> Steps[list[Embedding]]:
    """The vectors of many texts, batched wherever possible."""
    similar = task if task is not None and kind_of(task).compares else None
    pooling = pooling or trained_pooling(task)
    if normalize is None:
        normalize = similar is not None and similar.normalize
    name = POOLINGS[pooling]
    windows = [inputs.windows(ids) for ids in texts]
    counts = list(map(len, windows))
    outputs = yield inputs.requests([window for each in windows for window in each], (name,))
    vectors = _mean_rows([output[name] for output in outputs], counts)
    if size is not None:
        if size > vectors.shape[1]:
            raise InputError(f"size: must be <= {vectors.shape[1]}, the length of this model's vectors, not {size}")
        vectors = vectors[:, :size]
    if normalize:
        exact = vectors.astype(np.float64)
        vectors = exact / np.maximum(np.sqrt(np.square(exact).sum(1, keepdims=True)), 1e-12)
    rows = zip(vectors.astype(np.float32, copy=False), map(len, texts), counts, strict=True)
    return [Embedding(vector, pooling, tokens, count) for vector, tokens, count in rows]


def _mean_rows(rows: Sequence[NDArray[Any]], counts: Sequence[int]) -> NDArray[Any]:
    """The mean over the windows of each text: rows [H] of all windows -> [texts, H]."""
    if len(rows) == len(counts):
        return np.stack(rows)
    parts = np.split(np.stack(rows), np.cumsum(counts)[:-1])
    return np.stack([part.mean(0, dtype=np.float64) for part in parts])


@ability(
    many=embed_many,
    outputs=["mean", "first"],
    examples=[{"text": ["a cat sleeps.", "a dog barks."]}],
    also=["encode", "vectors", "embedding"],
    array="vector",
)
def embed(
    inputs: Inputs,
    task: Task | None,
    text: Annotated[str, "The text to embed."],
    pooling: Annotated[
        Literal["mean", "cls"] | None, "The mean of all tokens, or the state of [CLS]; by default as trained, or mean."
    ] = None,
    normalize: Annotated[bool | None, "Scale vectors to length 1; by default as trained, or not."] = None,
    size: Annotated[
        int | None, "Keep only the first numbers of each vector, for models trained with several sizes.", Limits(1)
    ] = None,
) -> Steps[Embedding]:
    """Turn texts into vectors.

    A text longer than the model's limit is split into windows of even size; its vector is their mean.
    """
    (found,) = yield from embed_many(inputs, task, [inputs.encode(text)], pooling, normalize, size)
    return found


def trained_pooling(task: Task | None) -> Literal["mean", "cls"]:
    """The pooling that a model was trained with; by default "mean"."""
    return "cls" if task is not None and kind_of(task).compares and task.pooling == "first" else "mean"


def mean_vector(outputs: Sequence[Outputs], name: str) -> NDArray[np.float64]:
    """The vector of a text: the mean over its windows."""
    vector: NDArray[np.float64] = np.stack([output[name] for output in outputs]).mean(0, dtype=np.float64)
    return vector


def unit_vector(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """A vector scaled to length 1."""
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def classify_many(inputs: Inputs, task: Task, texts: Sequence[Ids]) -> Steps[list[Classification]]:
    """The labels of many single texts."""
    if task.pair:
        raise InputError(f"pair: missing; this model ({task.name}) takes two texts; pass the second one as `pair`")
    windows = [inputs.windows(ids) for ids in texts]
    outputs = yield inputs.requests([window for each in windows for window in each], ("logits",))
    found, begin = [], 0
    for each in windows:
        found.append(_classification(task, outputs[begin : begin + len(each)]))
        begin += len(each)
    return found


@ability(
    many=classify_many,
    outputs=["logits"],
    heads=["classification"],
    makes="litebert finetune --task classification --train FILE",
    examples=[
        {"text": "a warm and funny film."},
        {"text": "a man plays the guitar.", "pair": "someone makes music."},
    ],
    also=["sentiment", "label", "score", "regression", "multi-label", "nli"],
)
def classify(
    inputs: Inputs,
    task: Task,
    text: Annotated[str, "The text to classify."],
    pair: Annotated[
        str | None, "The second text: required by models of pairs, rejected by models of single texts."
    ] = None,
) -> Steps[Classification]:
    """Label a text or a pair of texts, or score it with a regression model.

    For a long text, the logits are averaged over its windows.
    """
    if task.pair and pair is None:
        raise InputError(f"pair: missing; this model ({task.name}) takes two texts; pass the second one as `pair`")
    if task.pair is False and pair is not None:
        raise InputError(f"pair: this model ({task.name}) takes one text; omit `pair`")
    return _classification(task, (yield _whole(inputs, text, pair, ("logits",))))


def _classification(task: Task, outputs: Sequence[Outputs]) -> Classification:
    """What the outputs of a text's windows say."""
    logits = np.stack([output["logits"] for output in outputs]).mean(0, dtype=np.float64)
    windows, depth = len(outputs), deepest(outputs)
    kind = kind_of(task)
    assert isinstance(kind, TextKind), kind
    said = kind.decide(task, logits)
    if said.probabilities is None:
        return Classification(None, {}, value=float(said.value), scale=task.scale, windows=windows, depth=depth)
    ranked = sorted(zip(task.labels, said.probabilities.tolist(), strict=True), key=lambda entry: -entry[1])
    several = isinstance(said.value, tuple)
    labels = tuple(task.labels[number] for number in (said.value if several else (said.value,)))
    return Classification(ranked[0][0] if several else labels[0], dict(ranked), labels, windows=windows, depth=depth)


@ability(
    outputs=["attentions"],
    makes="the same model with the torch runtime",
    examples=[{"text": "the cat sat on the mat."}],
    one_by_one=True,
)
def attention(
    inputs: Inputs,
    text: Annotated[str, "The text to read."],
    pair: Annotated[str | None, "A second text, read as segment B."] = None,
    # The maps grow with the square: 64 tokens are 4 MB of JSON for a base model.
    max_tokens: Annotated[int, "How many tokens to read; the rest is ignored.", Limits(8, served=128)] = 64,
) -> Steps[Attention]:
    """Return the attention weights of every head in every application of the layer."""
    first = inputs.encode(text)
    second = None if pair is None else inputs.encode(pair, "pair")
    room = min(max_tokens, inputs.max_length) - (2 if second is None else 3)
    keep_a, keep_b = cut_pair(len(first), 0 if second is None else len(second), room)
    parts = [first[:keep_a]] if second is None else [first[:keep_a], second[:keep_b]]
    request = inputs.request(*parts, want=("attentions",))
    (output,) = yield [request]
    pieces = tuple(inputs.tokenizer.piece(int(number)) for number in request.ids)
    lost = len(first) + (0 if second is None else len(second)) - keep_a - keep_b
    return Attention(pieces, tuple(request.segments.tolist()), output["attentions"], lost)


def _whole(inputs: Inputs, text: str, pair: str | None, want: Iterable[str]) -> list[Request]:
    """A text or a pair as one request, or as windows if it is too long."""
    request = functools.partial(inputs.request, want=want)
    first = inputs.encode(text)
    if pair is None:
        return [request(window) for window in inputs.windows(first)]
    second = inputs.encode(pair, "pair")
    room = inputs.max_length - 3
    if len(first) + len(second) <= room:
        return [request(first, second)]
    # The shorter text stays (at most half of the room), beside each window of the longer one.
    shorter, longer = sorted((first, second), key=len)
    shorter = shorter[: room // 2]
    windows = np.array_split(longer, -(-len(longer) // (room - len(shorter))))
    if longer is first:
        return [request(window, shorter) for window in windows]
    return [request(shorter, window) for window in windows]
