"""Gradients of one batch: straight, or on a GPU as a recorded graph, where launching many small kernels costs most.

A recorded graph repeats fixed work on fixed memory, so there is one per shape of a batch; `plan_shapes` keeps them few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.finetune.batches import Batch
from litebert.finetune.objective import Tensors, batch_loss, to_device
from litebert.model.fast.layers import FastLayers
from litebert.model.heads import Model
from litebert.tasks.task import Kind
from litebert.train.device import Device

# A batch and a divisor: adds the gradient of loss / divisor to the parameters, gives [loss sum, number right].
Step = Callable[[Batch, int], Tensor]
WARM_UPS = 3  # torch's advice before a capture: lazy initialisation must have happened


class PlainStep:
    """Runs the model as it is: on CPUs, and wherever graphs are not wanted."""

    def __init__(self, model: Model, kind: Kind, device: Device):
        self.model, self.kind, self.device = model, kind, device

    def __call__(self, batch: Batch, divisor: int) -> Tensor:
        inputs, targets = to_device(batch, self.device.device)
        return self.run(inputs, targets, batch, 1.0 / divisor)

    def run(self, inputs: Tensors, targets: Tensors, batch: Batch, scale: Tensor | float) -> Tensor:
        """Forward and backward."""
        with self.device.autocast():
            loss, right = batch_loss(self.model, self.kind, inputs, targets, batch.max_length, batch.num_rows)
        (loss * scale).backward()
        return torch.stack([loss.detach().float(), right.float()])


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    targets: Tensors
    scale: Tensor
    totals: Tensor


class GraphStep:
    """Replays one recorded graph per shape; the gradients must be zeroed in place between steps, never dropped."""

    def __init__(self, plain: PlainStep):
        self.plain = plain
        self._recorded: dict[tuple[int, ...], _Recorded] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch, divisor: int) -> Tensor:
        if batch.shape not in self._recorded:
            self._recorded[batch.shape] = self._record(batch)
        recorded = self._recorded[batch.shape]
        for held, arrays in ((recorded.inputs, batch.inputs), (recorded.targets, batch.targets)):
            for name, array in arrays.items():
                held[name].copy_(torch.from_numpy(array).pin_memory(), non_blocking=True)
        recorded.scale.fill_(1.0 / divisor)
        recorded.graph.replay()
        return recorded.totals.clone()  # the next replay writes there

    def _record(self, batch: Batch) -> _Recorded:
        parameters = [p for p in self.plain.model.parameters() if p.requires_grad]
        # Gradients of earlier micro-batches of this step must survive the warm-up.
        kept = [None if p.grad is None else p.grad.clone() for p in parameters]
        device = self.plain.device.device
        inputs, targets = to_device(batch, device)
        scale = torch.ones((), device=device)
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self.plain.run(inputs, targets, batch, scale)
        torch.cuda.current_stream(device).wait_stream(side)
        self._forget_working_weights()  # their making from the parameters belongs into the graph
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            totals = self.plain.run(inputs, targets, batch, scale)
        self._forget_working_weights()  # those of the graph are its own
        for parameter, before in zip(parameters, kept, strict=True):
            if parameter.grad is not None:
                if before is None:
                    parameter.grad.zero_()
                else:
                    parameter.grad.copy_(before)
        return _Recorded(graph, inputs, targets, scale, totals)

    def _forget_working_weights(self) -> None:
        fast = self.plain.model.encoder.fast_layers
        if isinstance(fast, FastLayers):
            fast.forget()
