"""embed, classify and attention: one text, or two, as a whole."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from litebert.errors import InputError, check_choice
from litebert.predict.inputs import Inputs, check_count
from litebert.predict.job import Steps
from litebert.predict.results import Attention, Classification, Embedding
from litebert.predict.runtime import Request
from litebert.tasks.features import cut_pair
from litebert.tasks.kinds.texts import TextKind
from litebert.tasks.task import Task, kind_of

POOLINGS = {"mean": "mean", "cls": "first"}  # as users say it -> the raw output
MOST_ATTENTION = 128  # tokens; the maps grow with the square


def embed(inputs: Inputs, text: str, pooling: str = "mean", normalize: bool = False) -> Steps[Embedding]:
    """A text as one vector: the mean of its tokens' last states, or the state of [CLS].

    A text longer than the model takes is read in windows of even size, and the vector is their mean.
    """
    check_choice("pooling", pooling, POOLINGS, InputError)
    name = POOLINGS[pooling]
    ids = inputs.encode(text)
    requests = [inputs.request(window, want=(name,)) for window in inputs.windows(ids)]
    outputs = yield requests
    vector = np.stack([output[name] for output in outputs]).mean(0, dtype=np.float64)
    if normalize:
        vector /= max(float(np.linalg.norm(vector)), 1e-12)
    return Embedding(vector.astype(np.float32), pooling, len(ids), len(requests))


def classify(inputs: Inputs, task: Task, text: str, pair: str | None = None) -> Steps[Classification]:
    """The label of a text or pair; the logits of a long one are the mean over its windows."""
    if task.pair and pair is None:
        raise InputError(
            f"pair: missing; this model ({task.name}) compares two texts, so give the second one as `pair`"
        )
    if task.pair is False and pair is not None:
        raise InputError(f"pair: this model ({task.name}) reads one text at a time; leave `pair` out")
    requests = _whole(inputs, text, pair, ("logits",))
    outputs = yield requests
    logits = np.stack([output["logits"] for output in outputs]).mean(0, dtype=np.float64)
    windows = len(requests)
    kind = kind_of(task)
    assert isinstance(kind, TextKind), kind
    said = kind.decide(task, logits)
    if said.probabilities is None:
        return Classification(None, {}, value=float(said.value), scale=task.scale, windows=windows)
    ranked = sorted(zip(task.labels, said.probabilities.tolist(), strict=True), key=lambda entry: -entry[1])
    several = isinstance(said.value, tuple)
    labels = tuple(task.labels[number] for number in (said.value if several else (said.value,)))
    return Classification(ranked[0][0] if several else labels[0], dict(ranked), labels, windows=windows)


def attention(inputs: Inputs, text: str, pair: str | None = None, max_tokens: int = MOST_ATTENTION) -> Steps[Attention]:
    """Who looks at whom in every head of every application, for the first `max_tokens` tokens."""
    check_count(max_tokens, "max_tokens")
    if max_tokens < 8:
        raise InputError(f"max_tokens: must be at least 8, not {max_tokens}")
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
    """A text, or a pair, as one request, or as windows over what is too long for one."""
    first = inputs.encode(text)
    if pair is None:
        return [inputs.request(window, want=want) for window in inputs.windows(first)]
    second = inputs.encode(pair, "pair")
    room = inputs.max_length - 3
    if len(first) + len(second) <= room:
        return [inputs.request(first, second, want=want)]
    # The shorter text stays (at most half of the room), beside each window of the longer one.
    shorter, longer = sorted((first, second), key=len)
    shorter = shorter[: room // 2]
    windows = np.array_split(longer, -(-len(longer) // (room - len(shorter))))
    if longer is first:
        return [inputs.request(window, shorter, want=want) for window in windows]
    return [inputs.request(shorter, window, want=want) for window in windows]
