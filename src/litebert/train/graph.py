"""Forward and backward passes recorded as CUDA graphs: where launching many small kernels costs more than running them.

A recorded graph repeats fixed work on fixed memory: it reads what was copied into its inputs, adds to the parameters'
gradients where they lie, and writes its result over that of the replay before.

    recorded = Recorder(model, device).record(lambda: gradients_of(held_inputs))
    recorded.graph.replay()          # after copying other inputs into `held_inputs`
    recorded.result
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from litebert.model.fast.layers import FastLayers
from litebert.model.heads import Model
from litebert.train.device import Device

WARM_UPS = 3  # torch's advice before a capture: lazy initialisation must have happened
APART = 0.1  # share by which a replay's numbers may differ from those of the work itself: bf16, sums in another order


class Replayable(Protocol):
    """A torch.cuda.CUDAGraph, or what stands for one in a test."""

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
        self.problem: str | None = None  # something to tell, once
        self._memory: Any = None  # one for all graphs, since one runs at a time

    def record(self, work: Callable[[], Tensor], check: bool = False) -> Recorded | None:
        """A graph of `work`; gradients and random numbers stay as if nothing had been run. None where it fails.

        check: hold a replay to the work itself, and take a difference for a failure. After a failure, graphs recorded
        before must not be replayed any more.
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
                    self.problem = f"steps cannot be recorded here, so they are slower: {reason}"
                    if stream is not None:
                        leave_recording(stream)
                    self._forget_working_weights()  # made in a recording that is never run, they hold anything
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
        self._forget_working_weights()  # their making from the parameters belongs into the graph
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
        # Those that are nearly nothing are all rounding and not held to themselves. Among vectors these are not so
        # small: what the keys' bias gets is the rounding of a sum over all tokens, which atomic sums make another.
        least = sizes.new_tensor([1.0 if grad.ndim == 1 else 0.01 for grad in grads])
        if _beyond(apart, APART * torch.maximum(sizes, least * sizes.median())):
            raise RuntimeError("a replay gives other gradients")

    def _same_draws(self) -> AbstractContextManager[None]:
        """After this, random numbers are those that would have come without it."""
        return torch.random.fork_rng([self.device.device] if self.device.is_cuda else [])

    def _forget_working_weights(self) -> None:
        if isinstance(self.model.encoder.fast_layers, FastLayers):
            self.model.encoder.fast_layers.forget()


def _beyond(apart: Tensor, limit: Tensor) -> bool:
    """Whether something is farther away than it may be, or no number; a limit that is none itself holds nothing."""
    return bool((~(apart <= limit) & limit.isfinite()).any())


def leave_recording(stream: torch.cuda.Stream) -> None:
    """Make torch usable again after a recording that failed.

    It leaves its own stream current, and a generator that takes itself to be inside the recording: dropout would raise.
    """
    torch.cuda.set_stream(stream)
    generator = torch.cuda.default_generators[stream.device.index]
    generator.graphsafe_set_state(generator.clone_state())  # a copy of the numbers alone
