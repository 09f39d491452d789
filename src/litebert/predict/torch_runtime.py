"""TorchRuntime: a model run by torch, on a CPU or a GPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.model.encoder import Encoder
from litebert.model.heads import Model, named_outputs
from litebert.predict.fused import FusedEncoder, lay_out
from litebert.predict.graphs import GraphedEncoder
from litebert.predict.runtime import (
    ENCODER_OUTPUTS,
    Outputs,
    Request,
    check_request,
    fit_segments,
    outputs_of,
    plan_packed,
)
from litebert.train.device import Device, fetch


class TorchRuntime:
    """A model in torch: fp32 on a CPU, bf16 on a GPU that has it. It takes the model over and changes its encoder."""

    def __init__(self, model: Model, device: Device, max_tokens: int = 8192):
        self.name = f"torch {device.precision}, {device.name}"
        self.config = model.config
        self.head = model.head
        self.outputs = outputs_of(model)
        self.device = device
        self.max_tokens = max_tokens
        # Parameters themselves in half precision: autocast would convert them anew in every pass.
        dtype = torch.bfloat16 if device.precision == "bf16" else torch.float32
        model = model.eval().requires_grad_(False).to(device.device)
        self.model = model.to(dtype)
        with torch.inference_mode():
            self.encoder = _fuse(self.model.encoder, device)
        self.model.encoder = self.encoder  # type: ignore[assignment]
        # Outputs that need the states of few tokens: [CLS], and those to predict.
        self._few_rows = {"masked_lm", "sentence", "pooled", "first"}
        if self.head in ("classification", "multiple-choice"):
            self._few_rows.add("logits")
        self._lock = threading.Lock()  # one pass at a time: recorded graphs have one place for their input

    @torch.inference_mode()
    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order; safe to call from several threads."""
        for request in requests:
            check_request(self.config, request)
        results: list[Outputs] = [{} for _ in requests]
        packed = [i for i, request in enumerate(requests) if request.want - {"attentions"}]
        # A thread begins on the first GPU, and so would Triton's kernels, wherever their tensors are.
        here = torch.cuda.device(self.device.device) if self.device.is_cuda else contextlib.nullcontext()
        with self._lock, here:
            for batch in plan_packed([len(requests[i]) for i in packed], self.max_tokens):
                numbers = [packed[i] for i in batch]
                for number, output in zip(numbers, self._run_packed([requests[i] for i in numbers]), strict=True):
                    results[number] |= output
            for request, result in zip(requests, results, strict=True):
                if "attentions" in request.want:
                    result["attentions"] = self._attentions(request)
        return results

    def _run_packed(self, requests: Sequence[Request]) -> list[Outputs]:
        """One pass over sequences laid end to end."""
        lengths = np.array([len(request) for request in requests])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        room = self.encoder.room(int(starts[-1]), len(requests), int(lengths.max()))
        ids, segments = [r.ids for r in requests], [fit_segments(self.config, r) for r in requests]
        table = lay_out(ids, segments, room, pinned=self.device.is_cuda)
        inputs = self.encoder.take(table).inputs()  # one transfer for everything
        wanted = frozenset().union(*(request.want for request in requests)) - {"attentions"}
        if not self.device.is_cuda and wanted <= self._few_rows:  # choosing rows would wait for a GPU
            inputs["only_asked"] = True
        named: dict[str, Tensor] = {}
        if wanted <= ENCODER_OUTPUTS | {"pooled"}:
            self.encoder(**inputs)
        else:
            named = named_outputs(self.head, self.model(**inputs, **self._head_inputs(requests, starts)))
        hidden, first, pooled = self.encoder.hidden, self.encoder.first, self.encoder.pooled
        if "pooled" in wanted and pooled is not None:
            named["pooled"] = pooled
        if "first" in wanted and first is not None:
            named["first"] = first
        if "hidden" in wanted and hidden is not None:
            named["hidden"] = hidden
        if "mean" in wanted and hidden is not None:
            named["mean"] = mean_states(hidden, self._tensor(lengths))
        arrays = {name: fetch(named[name]) for name in wanted}
        return _split(arrays, requests, starts, by_token=self.head == "token-classification")

    def _head_inputs(self, requests: Sequence[Request], starts: NDArray[np.int64]) -> dict[str, Tensor | int]:
        """What a head takes beside the encoder's input."""
        if self.head in ("pretraining", "masked-lm"):
            found = [starts[row] + r.positions for row, r in enumerate(requests) if r.positions is not None]
            return {"positions": self._tensor(np.concatenate([np.zeros(0, np.int64), *found]))}
        if self.head == "answer":
            outside = [np.zeros(len(r), np.bool_) if r.outside is None else r.outside for r in requests]
            return {"outside": self._tensor(np.concatenate(outside))}
        return {"num_choices": 1} if self.head == "multiple-choice" else {}

    def _attentions(self, request: Request) -> NDArray[np.float32]:
        """The maps of one sequence, by the plain encoder: the fast kernels never write them down."""
        arrays = (request.ids, fit_segments(self.config, request))
        ids, segments = (self._tensor(array.astype(np.int64))[None] for array in arrays)
        maps = self.encoder.plain(ids, segment_ids=segments, output_attentions=True).attentions
        return fetch(torch.cat(maps))  # [L, A, S, S]

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device.device, non_blocking=True)


def mean_states(hidden: Tensor, lengths: Tensor) -> Tensor:
    """The mean state of each of B sequences that lie end to end: [T, H], [B] -> [B, H], float32."""
    if hidden.is_cuda:  # where the sums of index_add_ would come in any order, with other last digits each time
        return torch.segment_reduce(hidden.float(), "mean", lengths=lengths, unsafe=True)
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    sums = hidden.new_zeros(len(lengths), hidden.shape[1], dtype=torch.float32)
    return sums.index_add_(0, rows, hidden.float()) / lengths[:, None]


def _fuse(encoder: Encoder, device: Device) -> FusedEncoder:
    if device.is_cuda and device.precision == "bf16":
        return GraphedEncoder(encoder, triton=device.compile)  # true if Triton and a C compiler are installed
    return FusedEncoder(encoder)


def _split(arrays: Outputs, requests: Sequence[Request], starts: NDArray[np.int64], by_token: bool) -> list[Outputs]:
    """The arrays of a batch, cut into what each request wanted."""
    per_token = {"hidden", "start", "end", *(("logits",) if by_token else ())}
    results: list[Outputs] = []
    predicted = 0
    for row, request in enumerate(requests):
        output: Outputs = {}
        num_positions = 0 if request.positions is None else len(request.positions)
        for name in request.want & arrays.keys():
            if name == "masked_lm":
                output[name] = arrays[name][predicted : predicted + num_positions]
            elif name in per_token:
                output[name] = arrays[name][starts[row] : starts[row + 1]]
            else:
                output[name] = arrays[name][row]
        predicted += num_positions
        results.append(output)
    return results
