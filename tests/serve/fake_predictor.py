"""A Predictor without a model: instant, countable, and able to hang or fail on demand."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from litebert.errors import InputError
from litebert.predict.texts import Attention, Embedding

TEXT_FIELDS = ("text", "pair", "a", "b", "question", "context", "passage")
ABILITIES = ("fill_mask", "sentence_order", "coherence", "embed", "classify", "tag", "answer", "choose", "attention")


@dataclass(eq=False)
class FakeJob:
    ability: str
    arguments: dict[str, Any]
    lengths: list[int]  # of the sequences that are still to be run
    masks: int = 0
    numbers: int = 1
    result: Any = None
    tokens: int = field(init=False)

    def __post_init__(self):
        self.tokens = sum(self.lengths)


class FakePredictor:
    """Answers embeddings whose first number is the length of the text, so that a mixed-up answer shows.

    Texts cost their words and two more tokens, in sequences of at most `window` tokens.
    """

    def __init__(self, name="fake", abilities=ABILITIES, window=10**9):
        self.name, self.abilities, self.window = name, abilities, window
        self.number = 0.5  # in every embedding
        self.batches: list[list[FakeJob]] = []
        self.passes: list[list[tuple[str, int]]] = []  # (the text's beginning, tokens) of each part
        self.go = threading.Event()  # cleared: run() hangs
        self.go.set()
        self.entered = threading.Event()

    def job(self, ability, **arguments):
        if ability not in self.abilities:
            raise InputError(f"{self.name} cannot {ability}; litebert finetune makes a model that can")
        texts = [value for name, value in arguments.items() if name in TEXT_FIELDS and value is not None]
        for text in texts:
            if not text.strip():
                raise InputError("text: is empty")
        tokens = sum(len(text.split()) for text in texts) + 2
        lengths = [min(self.window, tokens - begin) for begin in range(0, tokens, self.window)]
        return FakeJob(ability, arguments, lengths)

    def run(self, jobs):
        self.run_pass([(job, len(job.lengths)) for job in jobs])
        return [job.result for job in jobs]

    def run_pass(self, parts):
        self.batches.append([job for job, _ in parts])
        self.passes.append([(job.arguments.get("text", "")[:8], sum(job.lengths[:count])) for job, count in parts])
        self.entered.set()
        assert self.go.wait(60)
        for job, count in parts:
            del job.lengths[:count]
            if not job.lengths:
                job.result = self._result(job)

    def _result(self, job):
        text = job.arguments.get("text", "")
        if "explode" in text:
            return RuntimeError(f"cannot digest {text}")
        if "explain" in text:
            return InputError("text: found out late that this cannot be")
        if job.ability == "attention":
            size = len(text.split())
            return Attention(tuple(text.split()), (0,) * size, np.full((2, 2, size, size), 1 / 3, np.float32))
        return Embedding(np.array([len(text), self.number], np.float32), "mean", job.tokens, 1)
