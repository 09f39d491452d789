"""CUDA graphs: the gradients of a micro-batch recorded once and replayed, where that pays.

A small model's kernels take longer to launch than to run; a graph launches them all at once. It repeats fixed work on
fixed memory: it reads what was copied into its inputs, adds to the parameters' gradients in place, and overwrites the
result of the previous replay. One graph serves all micro-batches of one shape. Whether it pays is measured on the first
of them.

    recorded = Recorder(model, device).record(lambda: gradients_of(held_inputs))
    recorded.graph.replay()          # after copying other inputs into `held_inputs`
    recorded.result"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from litebert.model.fast.layers import FastLayers
from litebert.model.heads import Model
from litebert.train.device import Device, encoders_of

if TYPE_CHECKING:
    from litebert.train.trainer import PlainStep

WARM_UPS = 3  # torch's advice before a capture: lazy initialisation must have happened
APART = 0.1  # share by which a replay's numbers may differ from those of the work itself: bf16, sums in another order


class Replayable(Protocol):
    """A torch.cuda.CUDAGraph, or its stand-in in a test."""

    def replay(self) -> None: ...


class Recorded(NamedTuple):
    """A graph, and where each replay leaves its result."""

    graph: Replayable
    result: Tensor


class Recorder:
    """Records passes of one model; what failed once is not tried again."""

    def __init__(self, model: Model, device: Device):
        self.model, self.device = model, device
        self.works = True
        self.problem: str | None = None  # to report, once
        self._memory: Any = None  # one for all graphs, since one runs at a time

    def record(self, work: Callable[[], Tensor], check: bool = False) -> Recorded | None:
        """A graph of `work`, or None if recording fails; gradients and random numbers stay as they were.

        check: compare a replay with the work itself; a difference counts as a failure. After a failure, graphs
        recorded before must not be replayed.
        """
        if not self.works:
            return None
        device = self.device.device
        # Gradients of earlier micro-batches of a step must survive the warm-up, and so must the dropout of this one.
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        kept = [None if parameter.grad is None else parameter.grad.clone() for parameter in parameters]
        stream = torch.cuda.current_stream(device) if self.device.is_cuda else None
        try:
            with self._same_draws():
                try:
                    recorded = self._capture(work)
                    if check:
                        self._compare(work, recorded)
                    return recorded
                # A kernel that waits for the device, or allocates outside of the graph; or there is too little memory
                # for one, which comes on top: without it the work may fit.
                except RuntimeError as error:
                    self.works = False
                    cause = error.__context__ or error  # the end of a broken recording raises once more
                    reason = str(cause).strip().splitlines()[0]
                    self.problem = f"CUDA graphs do not work here, so steps are slower: {reason}"
                    if stream is not None:
                        leave_recording(stream)
                    self._forget_working_weights()  # made in a recording that is never run, they hold garbage
                    return None
        finally:
            for parameter, before in zip(parameters, kept, strict=True):
                if parameter.grad is not None:
                    parameter.grad.copy_(torch.zeros_like(parameter.grad) if before is None else before)

    def _capture(self, work: Callable[[], Tensor]) -> Recorded:
        device = self.device.device
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                work()
        torch.cuda.current_stream(device).wait_stream(side)
        self._memory = self._memory or torch.cuda.graph_pool_handle()
        self._forget_working_weights()  # the graph itself makes them from the parameters
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            result = work()
        self._forget_working_weights()  # those of the graph are its own
        return Recorded(graph, result)

    def _compare(self, work: Callable[[], Tensor], recorded: Recorded) -> None:
        grads = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        torch._foreach_zero_(grads)
        with self._same_draws():
            result = work().clone()
        expected = [grad.clone() for grad in grads]
        torch._foreach_zero_(grads)
        with self._same_draws():
            recorded.graph.replay()
        if _beyond((recorded.result - result).norm(), APART * result.norm()):
            raise RuntimeError("a replay gives other losses")
        sizes, apart = (
            torch.stack([grad.norm() / grad.numel() ** 0.5 for grad in each])
            for each in (expected, torch._foreach_sub(grads, expected))
        )
        # Gradients near zero are all rounding, so they are compared with the median size instead. Vectors need a wider
        # margin: the keys' bias gets the rounding of a sum over all tokens, which atomic sums change every time.
        least = sizes.new_tensor([1.0 if grad.ndim == 1 else 0.01 for grad in grads])
        if _beyond(apart, APART * torch.maximum(sizes, least * sizes.median())):
            raise RuntimeError("a replay gives other gradients")

    def _same_draws(self) -> AbstractContextManager[None]:
        """After this, random numbers are those that would have come without it."""
        return torch.random.fork_rng([self.device.device] if self.device.is_cuda else [])

    def _forget_working_weights(self) -> None:
        for encoder in encoders_of(self.model):
            if isinstance(encoder.fast_layers, FastLayers):
                encoder.fast_layers.forget()


def _beyond(apart: Tensor, limit: Tensor) -> bool:
    """Whether anything exceeds its limit or is NaN; a limit that is not finite is ignored."""
    return bool((~(apart <= limit) & limit.isfinite()).any())


def leave_recording(stream: torch.cuda.Stream) -> None:
    """Make torch usable again after a recording that failed.

    It leaves its own stream current, and a generator that takes itself to be inside the recording: dropout would raise.
    """
    torch.cuda.set_stream(stream)
    generator = torch.cuda.default_generators[stream.device.index]
    generator.graphsafe_set_state(generator.clone_state())  # a copy of the numbers alone


CALLS = 6  # per way in a trial; the fastest counts, since the first ones compile, record and warm up
LAUNCHING_SHARE = 0.5  # of a plain step's time: if launching takes less, the GPU is busy and a graph gains nothing
# A graph runs the same kernels, so it should be no slower. On a shared GPU the clock may say otherwise; it is rejected
# only beyond this factor.
SLOWER = 1.5


class Timing(NamedTuple):
    """Seconds of one micro-batch until the device finished, and until Python did."""

    all: float
    launching: float


class Trial:
    """Whether replaying pays off: a few micro-batches are timed each way."""

    def __init__(self, device: Device):
        self.device = device
        self.plain: list[Timing] = []
        self.replayed: list[Timing] = []

    def replays(self) -> bool:
        """Whether to replay the next micro-batch from a graph."""
        if len(self.plain) < CALLS:
            return False
        fastest = min(self.plain)
        if fastest.launching < LAUNCHING_SHARE * fastest.all:
            return False
        return len(self.replayed) < CALLS or min(self.replayed).all < SLOWER * fastest.all

    def over(self) -> bool:
        """Whether the trial is decided."""
        return len(self.plain) >= CALLS and not (self.replays() and len(self.replayed) < CALLS)

    def time(self, take: Callable[[], Tensor]) -> Tensor:
        """Take one micro-batch, the way that is next."""
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
    inputs: Any
    counts: Tensor
    sums: Tensor


class GraphStep:
    """Replays one recorded graph per shape of a micro-batch, always or (`choose`) if a trial finds that it pays.

    check: compare each graph with the work itself before it is used. If recording fails, steps then run plainly.
    """

    def __init__(self, plain: PlainStep, choose: bool, check: bool):
        self.plain, self.choose, self.check = plain, choose, check
        self.model, self.device, self.news = plain.model, plain.device, plain.news
        self._recorder = Recorder(self.model, self.device)
        self._recordings: dict[tuple[Any, ...], Recording] = {}
        self._trial = Trial(self.device)

    def __call__(self, inputs: Any, counts: Tensor) -> Tensor:
        """Add the gradients of a micro-batch to the parameters'; returns its sums."""
        if not self._recorder.works:
            return self.plain(inputs, counts)
        if not self.choose:
            return self._replay(inputs, counts)
        trial = self._trial
        take = self._replay if trial.replays() else self.plain
        if trial.over():
            return take(inputs, counts)
        sums = trial.time(lambda: take(inputs, counts))
        if trial.over() and trial.replayed and self._recorder.works:
            self._settle()
        return sums

    def clear(self) -> None:
        """In place if there is a graph: the gradients' memory is part of it."""
        if not self._recordings:
            self.plain.clear()
        else:
            torch._foreach_zero_([p.grad for p in self.model.parameters() if p.grad is not None])

    def renew(self) -> None:
        """Forget the graphs; parameters that another depth leaves out must have no gradients either."""
        self._recordings.clear()
        self.clear()
        self._trial = Trial(self.device)
        if self._recorder.works:
            self._recorder = Recorder(self.model, self.device)  # with new memory: the old one's goes with its graphs

    def _replay(self, inputs: Any, counts: Tensor) -> Tensor:
        shape = shape_of(inputs)
        if shape not in self._recordings:
            self._record(inputs, counts)
        recording = self._recordings.get(shape)
        if recording is None:
            return self.plain(inputs, counts)
        copy_tensors(recording.inputs, inputs)
        recording.counts.copy_(counts)
        recording.graph.replay()
        return recording.sums.clone()  # the next replay writes there

    def _record(self, inputs: Any, counts: Tensor) -> None:
        held, held_counts = clone_tensors(inputs), counts.clone()
        recorded = self._recorder.record(lambda: self.plain(held, held_counts), self.check)
        if recorded is not None:
            self._recordings[shape_of(inputs)] = Recording(recorded.graph, held, held_counts, recorded.result)
            return
        self._recordings.clear()
        if self._recorder.problem:
            self.news.append(self._recorder.problem)

    def _settle(self) -> None:
        """The trial is over: say so, and let go of graphs that are too slow."""
        plain, replayed = (1000 * min(times).all for times in (self._trial.plain, self._trial.replayed))
        way = "replayed from a graph" if self._trial.replays() else "run kernel by kernel"
        self.news.append(f"micro-batches are {way} ({replayed:.2f} ms replayed, {plain:.2f} ms kernel by kernel)")
        if not self._trial.replays():
            self._recordings.clear()


def parts_of(inputs: Any) -> Iterator[Any]:
    """The tensors and numbers of a micro-batch, in any container."""
    if isinstance(inputs, tuple | dict):
        for part in inputs.values() if isinstance(inputs, dict) else inputs:
            yield from parts_of(part)
    else:
        yield inputs


def shape_of(inputs: Any) -> tuple[Any, ...]:
    """What two micro-batches must share to use one graph: the sizes of their tensors, and their numbers."""
    return tuple(part.shape if isinstance(part, Tensor) else part for part in parts_of(inputs))


def clone_tensors(inputs: Any) -> Any:
    """A copy of a micro-batch."""
    if isinstance(inputs, dict):
        return {name: clone_tensors(part) for name, part in inputs.items()}
    if isinstance(inputs, tuple):
        return inputs._make(map(clone_tensors, inputs))  # type: ignore[attr-defined]
    return inputs.clone() if isinstance(inputs, Tensor) else inputs


def copy_tensors(to: Any, inputs: Any) -> None:
    """Copy a micro-batch into the memory of another, with one kernel for each type of number."""
    pairs: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for held, part in zip(parts_of(to), parts_of(inputs), strict=True):
        if isinstance(part, Tensor):
            pairs.setdefault(part.dtype, []).append((held, part))
    for same in pairs.values():
        torch._foreach_copy_([held for held, _ in same], [part for _, part in same])
