"""A Predictor without a model: instant, countable, and able to hang or fail on demand."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from litebert.errors import InputError
from litebert.predict import results

TEXT_FIELDS = ("text", "pair", "a", "b", "question", "context", "passage")
ABILITIES = ("fill_mask", "sentence_order", "coherence", "embed", "classify", "tag", "answer", "choose", "attention")


@dataclass
class FakeJob:
    ability: str
    arguments: dict[str, Any]
    tokens: int
    masks: int = 0


class FakePredictor:
    """Answers embeddings whose first number is the length of the text, so that a mixed-up answer shows."""

    def __init__(self, name="fake", abilities=ABILITIES, seconds=0.0):
        self.name, self.abilities, self.seconds = name, abilities, seconds
        self.batches: list[list[FakeJob]] = []
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
        return FakeJob(ability, arguments, sum(len(text.split()) for text in texts) + 2)

    def run(self, jobs):
        self.batches.append(list(jobs))
        self.entered.set()
        assert self.go.wait(60)
        time.sleep(self.seconds)
        return [self._result(job) for job in jobs]

    def _result(self, job):
        text = job.arguments.get("text", "")
        if "explode" in text:
            return RuntimeError(f"cannot digest {text}")
        if "explain" in text:
            return InputError("text: found out late that this cannot be")
        if job.ability == "attention":
            size = len(text.split())
            return results.Attention(tuple(text.split()), (0,) * size, np.full((2, 2, size, size), 1 / 3, np.float32))
        return results.Embedding(np.array([len(text), 0.5], np.float32), "mean", job.tokens, 1)
