"""Gradients of one batch: straight, or on a GPU as a recorded graph, where launching many small kernels costs most.

A recorded graph repeats fixed work on fixed memory, so there is one per shape of a batch; `plan_shapes` keeps them few.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.finetune.batches import Batch
from litebert.finetune.objective import Tensors, batch_loss, to_device
from litebert.model.fast.layers import FastLayers
from litebert.model.heads import Model
from litebert.tasks.task import Kind
from litebert.train.device import Device

WARM_UPS = 3  # torch's advice before a capture: lazy initialisation must have happened


class PlainStep:
    """Runs the model as it is: on CPUs, and wherever nothing can be recorded."""

    def __init__(self, model: Model, kind: Kind, device: Device):
        self.model, self.kind, self.device = model, kind, device
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.problem: str | None = None  # something to tell, once

    def __call__(self, batch: Batch, divisor: int) -> Tensor:
        """Add the gradient of loss / divisor to the parameters; [loss sum, number right]."""
        inputs, targets = to_device(batch, self.device.device)
        return self.run(inputs, targets, batch, 1.0 / divisor)

    def clear(self) -> None:
        """Forget the gradients of the step before."""
        for parameter in self.parameters:
            parameter.grad = None

    def run(self, inputs: Tensors, targets: Tensors, batch: Batch, scale: Tensor | float) -> Tensor:
        """Forward and backward."""
        with self.device.autocast():
            loss, right = batch_loss(self.model, self.kind, inputs, targets, batch.max_length, batch.num_rows)
        (loss * scale).backward()
        return torch.stack([loss.detach().float(), right.float()])


@dataclass(frozen=True)
class Recording:
    """A graph and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    targets: Tensors
    scale: Tensor
    totals: Tensor


def leave_recording(stream: torch.cuda.Stream) -> None:
    """Make torch usable again after a recording that failed; graphs made before it must not be replayed any more.

    It leaves its own stream current, and a generator that takes itself to be inside the recording: dropout would raise.
    """
    torch.cuda.set_stream(stream)
    generator = torch.cuda.default_generators[stream.device.index]
    generator.graphsafe_set_state(generator.clone_state())  # a copy of the numbers alone


class GraphStep(PlainStep):
    """Replays one recorded graph per shape of a batch; where recording fails, steps are run plainly from then on."""

    def __init__(self, model: Model, kind: Kind, device: Device):
        super().__init__(model, kind, device)
        self._recordings: dict[tuple[int, ...], Recording] = {}
        self._records = True
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch, divisor: int) -> Tensor:
        """As a plain step."""
        if batch.shape not in self._recordings and self._records:
            self._try_to_record(batch)
        recording = self._recordings.get(batch.shape)
        if recording is None:
            return super().__call__(batch, divisor)
        for held, arrays in ((recording.inputs, batch.inputs), (recording.targets, batch.targets)):
            for name, array in arrays.items():
                held[name].copy_(torch.from_numpy(array).pin_memory(), non_blocking=True)
        recording.scale.fill_(1.0 / divisor)
        recording.graph.replay()
        return recording.totals.clone()  # the next replay writes there

    def clear(self) -> None:
        """In place: the gradients' memory is part of the graphs."""
        grads = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if grads:
            torch._foreach_zero_(grads)

    def _try_to_record(self, batch: Batch) -> None:
        # Gradients of earlier micro-batches of this step must survive the warm-up.
        kept = [None if parameter.grad is None else parameter.grad.clone() for parameter in self.parameters]
        stream = torch.cuda.current_stream(self.device.device) if self.device.is_cuda else None
        try:
            self._recordings[batch.shape] = self._record(batch)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # a kernel that waits for the device, or allocates outside of the graph
            self._records = False
            self._recordings.clear()
            if stream is not None:
                leave_recording(stream)
            cause = error.__context__ or error  # the end of a broken recording raises once more
            self.problem = f"steps cannot be recorded here, so they are slower: {str(cause).strip().splitlines()[0]}"
        for parameter, before in zip(self.parameters, kept, strict=True):
            if parameter.grad is not None:
                parameter.grad.copy_(torch.zeros_like(parameter.grad) if before is None else before)

    def _record(self, batch: Batch) -> Recording:
        device = self.device.device
        inputs, targets = to_device(batch, device)
        scale = torch.ones((), device=device)
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self.run(inputs, targets, batch, scale)
        torch.cuda.current_stream(device).wait_stream(side)
        self._forget_working_weights()  # their making from the parameters belongs into the graph
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            totals = self.run(inputs, targets, batch, scale)
        self._forget_working_weights()  # those of the graph are its own
        return Recording(graph, inputs, targets, scale, totals)

    def _forget_working_weights(self) -> None:
        if isinstance(self.model.encoder.fast_layers, FastLayers):
            self.model.encoder.fast_layers.forget()
