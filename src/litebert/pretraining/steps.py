"""Gradients of one micro-batch: kernel by kernel, or on a GPU as one recorded graph, where a small model's kernels take
longer to launch than to run.

All micro-batches of a stage (one depth, one length) have the same shape, and what is unused in them counts nothing: one
graph serves them all. Whether it is worth it is measured on the first of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from litebert.model.heads import PretrainingModel, PretrainingOutput
from litebert.pretraining.objective import Inputs, Totals, run_model
from litebert.train.device import Device
from litebert.train.graph import Recorder, Replayable

Scorer = Callable[[PretrainingOutput, Inputs], Totals]

CALLS = 6  # of each way in a trial; the fastest counts, since the first ones compile, record and warm up
LAUNCHING_SHARE = 0.5  # of a plain step's time: where launching takes less, the GPU is busy and nothing is to be won
# A graph runs the same kernels, so by itself it is no slower. Where other programs use the GPU too, a clock may say so
# all the same; only if it is slower by this is there something else that we do not know of.
SLOWER = 1.5


class PlainStep:
    """Runs the model as it is: on CPUs, in several processes, and wherever nothing can be recorded."""

    def __init__(self, model: PretrainingModel, device: Device, score: Scorer):
        self.model, self.device, self.score = model, device, score
        self.news: list[str] = []  # to be told by whoever takes the steps

    def __call__(self, inputs: Inputs, counts: Tensor) -> Tensor:
        """Add the gradients of both losses, each divided by its count of `counts` [2]; gives the six `Totals`, [6]."""
        with self.device.autocast():
            totals = self.score(run_model(self.model, inputs), inputs)
        mlm_count, sentence_count = counts.unbind()
        (totals.mlm_loss / mlm_count + totals.sentence_loss / sentence_count).backward()
        return totals.stacked()

    def clear(self) -> None:
        """Forget the gradients of the step before."""
        self.model.zero_grad(set_to_none=True)

    def renew(self) -> None:
        """Another depth or length begins: other work, other shapes."""
        self.clear()


class Timing(NamedTuple):
    """Seconds of one micro-batch until the device was done, and until Python was."""

    all: float
    launching: float


class Trial:
    """Whether replaying is worth it: a few micro-batches are taken each way, timed one by one."""

    def __init__(self, device: Device):
        self.device = device
        self.plain: list[Timing] = []
        self.replayed: list[Timing] = []

    def replays(self) -> bool:
        """Whether the next micro-batch is to be replayed from a graph."""
        if len(self.plain) < CALLS:
            return False
        fastest = min(self.plain)
        if fastest.launching < LAUNCHING_SHARE * fastest.all:
            return False
        return len(self.replayed) < CALLS or min(self.replayed).all < SLOWER * fastest.all

    def over(self) -> bool:
        """Whether the way is found."""
        return len(self.plain) >= CALLS and not (self.replays() and len(self.replayed) < CALLS)

    def time(self, take: Callable[[], Tensor]) -> Tensor:
        """Take one micro-batch the way that is due."""
        times = self.replayed if self.replays() else self.plain
        self.device.synchronize()
        began = time.perf_counter()
        result = take()
        launching = time.perf_counter() - began
        self.device.synchronize()
        times.append(Timing(time.perf_counter() - began, launching))
        return result


class Recording(NamedTuple):
    """A graph and the memory that it reads and writes."""

    graph: Replayable
    inputs: Inputs
    counts: Tensor
    totals: Tensor


class GraphStep(PlainStep):
    """Replays a recorded graph, always or (`choose`) where a trial finds it worth it.

    Where recording fails, steps are run plainly from then on.
    """

    def __init__(self, model: PretrainingModel, device: Device, score: Scorer, choose: bool):
        super().__init__(model, device, score)
        self.choose = choose
        self._recorder = Recorder(model, device)
        self._recording: Recording | None = None
        self._trial = Trial(device)

    def __call__(self, inputs: Inputs, counts: Tensor) -> Tensor:
        """As a plain step."""
        if not self._recorder.works:
            return super().__call__(inputs, counts)
        if not self.choose:
            return self._replay(inputs, counts)
        trial = self._trial
        take = self._replay if trial.replays() else super().__call__
        if trial.over():
            return take(inputs, counts)
        totals = trial.time(lambda: take(inputs, counts))
        if trial.over() and trial.replayed and self._recorder.works:
            self._settle()
        return totals

    def clear(self) -> None:
        """In place where there is a graph: the gradients' memory is part of it."""
        if self._recording is None:
            super().clear()
        else:
            torch._foreach_zero_([p.grad for p in self.model.parameters() if p.grad is not None])

    def renew(self) -> None:
        """Forget the graph; parameters that another depth leaves out must have no gradients either."""
        self._recording = None
        self.clear()
        self._trial = Trial(self.device)
        if self._recorder.works:
            self._recorder = Recorder(self.model, self.device)  # with new memory: the old one's goes with its graph

    def _replay(self, inputs: Inputs, counts: Tensor) -> Tensor:
        if self._recording is None:
            self._record(inputs, counts)
        if self._recording is None:
            return super().__call__(inputs, counts)
        held = self._recording.inputs
        assert shape_of(held) == shape_of(inputs), "one shape per stage"
        held.starts.copy_(inputs.starts)
        torch._foreach_copy_(ids_of(held), ids_of(inputs))  # one kernel, since all have the same type
        self._recording.counts.copy_(counts)
        self._recording.graph.replay()
        return self._recording.totals.clone()  # the next replay writes there

    def _record(self, inputs: Inputs, counts: Tensor) -> None:
        held = Inputs._make(x.clone() if isinstance(x, Tensor) else x for x in inputs)
        held_counts = counts.clone()
        recorded = self._recorder.record(lambda: PlainStep.__call__(self, held, held_counts), check=True)
        if recorded is not None:
            self._recording = Recording(recorded.graph, held, held_counts, recorded.result)
        elif self._recorder.problem:
            self.news.append(self._recorder.problem)

    def _settle(self) -> None:
        """The trial is over: say so, and let go of a graph that is too slow."""
        plain, replayed = (1000 * min(times).all for times in (self._trial.plain, self._trial.replayed))
        way = "replayed from a graph" if self._trial.replays() else "run kernel by kernel"
        self.news.append(f"micro-batches are {way} ({replayed:.2f} ms replayed, {plain:.2f} ms kernel by kernel)")
        if not self._trial.replays():
            self._recording = None


def ids_of(inputs: Inputs) -> list[Tensor]:
    """Everything in a batch but where its sequences start."""
    return [inputs.tokens, inputs.segments, inputs.positions, inputs.masked, inputs.labels, inputs.order]


def shape_of(inputs: Inputs) -> tuple[int, ...]:
    """What decides whether two batches may use the same graph: T, N + 1, P, N and the longest sequence."""
    return (*(len(x) for x in (inputs.tokens, inputs.starts, inputs.masked, inputs.order)), inputs.max_length)
