"""Gradients of one batch: straight, or on a GPU as a recorded graph, where launching many small kernels costs most.

A recorded graph repeats fixed work on fixed memory, so there is one per shape of a batch; `plan_shapes` keeps them few.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.finetuning.batches import Batch
from litebert.finetuning.objective import Tensors, batch_loss, to_device
from litebert.model.heads import Model
from litebert.tasks.task import Kind
from litebert.train.device import Device
from litebert.train.graph import Recorder, Replayable


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

    graph: Replayable
    inputs: Tensors
    targets: Tensors
    scale: Tensor
    totals: Tensor


class GraphStep(PlainStep):
    """Replays one recorded graph per shape of a batch; where recording fails, steps are run plainly from then on."""

    def __init__(self, model: Model, kind: Kind, device: Device):
        super().__init__(model, kind, device)
        self._recorder = Recorder(model, device)
        self._recordings: dict[tuple[int, ...], Recording] = {}

    def __call__(self, batch: Batch, divisor: int) -> Tensor:
        """As a plain step."""
        if batch.shape not in self._recordings and self._recorder.works:
            self._record(batch)
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

    def _record(self, batch: Batch) -> None:
        inputs, targets = to_device(batch, self.device.device)
        scale = torch.ones((), device=self.device.device)
        recorded = self._recorder.record(lambda: self.run(inputs, targets, batch, scale))
        if recorded is None:
            self._recordings.clear()
            self.problem = self._recorder.problem
        else:
            self._recordings[batch.shape] = Recording(recorded.graph, inputs, targets, scale, recorded.result)
