"""A stand-in for recorded graphs that computes at each replay: the code around it is the real one, on a CPU."""

from __future__ import annotations

import pytest
import torch

from litebert.train.graphs import WARM_UPS, Recorded, Recorder


class EagerGraph:
    """Reads the held inputs, adds to the gradients where they lie, writes over its result."""

    def __init__(self, recorder, work):
        self.recorder, self.work = recorder, work
        for _ in range(WARM_UPS):
            work()  # leaves gradients behind, and other random numbers ahead
        self.gradients = self.find_gradients()
        self.plan = recorder.model.encoder.plan
        self.result = torch.full_like(work(), torch.nan)
        self.replays = 0

    def replay(self):
        self.replays += 1
        # A real graph would write to this memory, whatever the parameters have for gradients by now.
        assert self.find_gradients() == self.gradients
        assert self.recorder.model.encoder.plan == self.plan
        self.result.copy_(self.work())

    def find_gradients(self):
        return [None if p.grad is None else p.grad.data_ptr() for p in self.recorder.model.parameters()]


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[EagerGraph]:
    """Record on a CPU; the list fills with the graphs that are made."""
    graphs: list[EagerGraph] = []

    def capture(self, work):
        graphs.append(EagerGraph(self, work))
        return Recorded(graphs[-1], graphs[-1].result)

    monkeypatch.setattr(Recorder, "_capture", capture)
    return graphs


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[EagerGraph]:
    """Record on a CPU, and fail after the warm-up; the list fills with the attempts."""
    attempts: list[EagerGraph] = []

    def capture(self, work):
        attempts.append(EagerGraph(self, work))
        raise error

    monkeypatch.setattr(Recorder, "_capture", capture)
    return attempts
