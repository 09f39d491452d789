"""TorchRuntime: a model run by torch, on a CPU or a GPU, to full depth or as deep as each text needs."""

from __future__ import annotations

import contextlib
import threading
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.model.config import check_exit, plan_of
from litebert.model.encoder import Encoder, EncoderOutput, first_tokens
from litebert.model.heads import Exit, Model, named_outputs
from litebert.predict.adapters import Given, group_adapters, mix_of, with_given
from litebert.predict.exits import NEVER, ExitRule, Gate, Ints, problem_of
from litebert.predict.fused import FusedEncoder, lay_out
from litebert.predict.graphs import GraphedEncoder
from litebert.predict.lanes import lengths_of, read_early
from litebert.predict.runtime import (
    ENCODER_OUTPUTS,
    HEAD_OUTPUTS,
    PASS_TOKENS,
    More,
    Outputs,
    Request,
    check_requests,
    fit_segments,
    outputs_of,
    plan_packed,
    rows_of_outputs,
    wanted_of,
)
from litebert.train.device import Device, fetch, send

MOST_LANE_TOKENS = 131_072
MOST_ARRIVING = 1 << 22  # numbers that a pass may leave in memory that a GPU writes to by itself

Started = Callable[[], list[Outputs]]  # waits for a pass, and returns what it gave each request
Item = TypeVar("Item")


class TorchRuntime:
    """A model in torch: fp32 on a CPU, bf16 on a GPU that has it. It takes the model over and changes its encoder."""

    any_depth = True

    def __init__(self, model: Model, device: Device, max_tokens: int = 0):
        self.name = f"torch {device.precision}, {device.name}"
        self.config = model.config
        self.head = model.head
        self.outputs = outputs_of(model)
        self._by_head = HEAD_OUTPUTS[model.head] - {"pooled"}
        self.device = device
        self.max_tokens = max_tokens or PASS_TOKENS
        self.lane_tokens = max_tokens or _lane_tokens(model.config.intermediate_size, device)
        # Parameters themselves in half precision: autocast would convert them anew in every pass.
        dtype = torch.bfloat16 if device.precision == "bf16" else torch.float32
        model = model.eval().requires_grad_(False).to(device.device)
        self.model = model.to(dtype)
        with torch.inference_mode():
            self.encoder = _fuse(self.model.encoder, device)
        self.model.encoder = self.encoder  # type: ignore[assignment]
        self._few_rows = _few_rows(self.model)
        self._base = with_given(self.model)  # its head alone, for batches with adapters
        self._lock = threading.Lock()  # one pass at a time: recorded graphs have one place for their input

    @torch.inference_mode()
    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order; safe to call from several threads."""
        check_requests(self.config, requests)
        for request in requests:
            if request.depth is not None and self.model.exits is not None and request.want & self._by_head:
                check_exit(self.config, request.depth)
        results: list[Outputs] = [{} for _ in requests]
        packed = [i for i, request in enumerate(requests) if request.want - {"attentions"}]
        # A thread begins on the first GPU, and so would Triton's kernels, wherever their tensors are.
        here = torch.cuda.device(self.device.device) if self.device.is_cuda else contextlib.nullcontext()
        with self._lock, here:
            for alike in _by_depth(requests, packed):
                depth, rule = requests[alike[0]].depth, requests[alike[0]].rule
                if rule is not None:
                    for place, output in read_early(TorchStages(self), rule, [requests[i] for i in alike]):
                        results[alike[place]] = output
                    continue
                self._set_depth(depth)
                at = {} if depth is None else {"depth": np.array(depth)}
                for numbers, started in one_ahead(self._start_passes(requests, alike)):
                    for number, output in zip(numbers, started(), strict=True):
                        results[number] = output | at
                self._set_depth(None)
            for request, result in zip(requests, results, strict=True):
                if "attentions" in request.want:
                    result["attentions"] = self._attentions(request)
        return results

    def passes(self, lengths: Sequence[int]) -> Iterator[NDArray[np.int64]]:
        """The sequences of each pass, one pass after another.

        The remainder may have any size, so recording graphs for it would not pay off.
        """
        batches = plan_packed(lengths, self.max_tokens)
        try:
            for number, batch in enumerate(batches, 1):
                self.encoder.use_graphs = number == 1 or number < len(batches)
                yield batch
        finally:
            self.encoder.use_graphs = True

    @torch.inference_mode()
    def run_open(self, requests: Sequence[Request], more: More, max_tokens: int) -> Iterator[tuple[int, Outputs]]:
        """See OpenRuntime."""
        check_requests(self.config, requests)
        (rule,) = {request.rule for request in requests}
        assert rule is not None
        stages = TorchStages(self)
        stages.max_tokens = min(max_tokens, stages.max_tokens)
        here = torch.cuda.device(self.device.device) if self.device.is_cuda else contextlib.nullcontext()
        with self._lock, here:
            yield from read_early(stages, rule, requests, more)

    @torch.inference_mode()
    def run_exits(self, requests: Sequence[Request]) -> list[list[Outputs]]:
        """The wanted outputs of each request at every exit, from one pass through the layers: [D][N]."""
        check_requests(self.config, requests)
        exits = self.config.exits
        results: list[list[Outputs]] = [[{} for _ in requests] for _ in exits]
        here = torch.cuda.device(self.device.device) if self.device.is_cuda else contextlib.nullcontext()
        with self._lock, here:
            for number, output in read_early(TorchStages(self), NEVER, requests, every_exit=True):
                results[exits.index(int(output["depth"]))][number] = output
        return results

    def _set_depth(self, depth: int | None) -> None:
        if depth != self.model.depth:
            self.encoder.stop_after(depth)
            self.model.depth = depth  # its head; vectors need none, so any depth will do

    def _start_passes(self, requests: Sequence[Request], alike: Sequence[int]) -> Iterator[tuple[list[int], Started]]:
        """The numbers of the requests of each pass, and what returns their outputs."""
        for batch in self.passes([len(requests[i].ids) for i in alike]):
            numbers = [alike[i] for i in batch.tolist()]
            numbers.sort(key=lambda i: id(requests[i].adapter))  # tokens of one adapter are adjacent
            yield numbers, self._start_packed([requests[i] for i in numbers])

    def _start_packed(self, requests: Sequence[Request]) -> Started:
        """One pass over sequences laid end to end, those of one adapter next to each other."""
        lengths = np.array([len(request) for request in requests])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        self.encoder.mix = mix_of([request.adapter for request in requests], starts)
        try:
            return self._start_pass(requests, lengths, starts)
        finally:
            self.encoder.mix = None

    def _start_pass(
        self, requests: Sequence[Request], lengths: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> Started:
        room = self.encoder.room(int(starts[-1]), len(requests), int(lengths.max()))
        table = lay_out([r.ids for r in requests], self._segments(requests), room, pinned=self.device.is_cuda)
        inputs = self.encoder.take(table).inputs()  # one transfer for everything
        few = all(request.want - {"attentions"} <= self._few_rows_of(request) for request in requests)
        if few and not self.device.is_cuda:  # choosing rows would wait for a GPU
            inputs["only_asked"] = True
        if self.encoder.mix is not None:
            results = self._run_mixed(requests, starts, inputs)
            return lambda: results
        wanted = _wanted(requests)
        named: dict[str, Tensor] = {}
        if wanted <= ENCODER_OUTPUTS | {"pooled"}:
            self.encoder(**inputs)
        else:
            named = named_outputs(self.head, self.model(**inputs, **self._head_inputs(self.head, requests, starts)))
        states = (self.encoder.hidden, self.encoder.first, self.encoder.pooled)
        return self._results(self.head, requests, starts, named, *states)

    def _run_mixed(
        self, requests: Sequence[Request], starts: NDArray[np.int64], inputs: dict[str, Any]
    ) -> list[Outputs]:
        """One pass for several adapters, then the head of each over its own sequences."""
        predicted = [0 if request.positions is None else len(request.positions) for request in requests]
        few = inputs.get("only_asked", False)
        positions = self._head_inputs("masked-lm", requests, starts)["positions"] if few else None
        states = self.encoder(**inputs, positions=positions).hidden  # of all tokens, or of those to predict
        results: list[Outputs] = []
        for adapter, begin, end in group_adapters([request.adapter for request in requests]):
            part, own = requests[begin:end], starts[begin : end + 1] - starts[begin]
            tokens = slice(int(starts[begin]), int(starts[end]))
            chosen = slice(sum(predicted[:begin]), sum(predicted[:end])) if few else tokens
            first, pooled = self.encoder.first, self.encoder.pooled
            assert first is not None
            group = (states[chosen], first[begin:end], None if pooled is None else pooled[begin:end])
            model = self._base if adapter is None else adapter.model
            named: dict[str, Tensor] = {}
            if not _wanted(part) <= ENCODER_OUTPUTS | {"pooled"}:
                given = typing.cast(Given, model.encoder)
                given.output, given.chosen = EncoderOutput(group[0], group[2]), few
                packed = {name: inputs[name][tokens] for name in ("input_ids", "segment_ids", "position_ids")}
                packed["starts"] = inputs["starts"][begin : end + 1] - tokens.start
                more = self._head_inputs(model.head, part, own)
                named = named_outputs(model.head, model(**packed, max_length=inputs["max_length"], **more))
                given.output = EncoderOutput(torch.empty(0), None)
            results += self._results(model.head, part, own, named, *group)()
        return results

    def _few_rows_of(self, request: Request) -> frozenset[str]:
        return self._few_rows if request.adapter is None else _few_rows(request.adapter.model)

    def _results(
        self,
        head: str,
        requests: Sequence[Request],
        starts: NDArray[np.int64],
        named: dict[str, Tensor],
        hidden: Tensor | None,  # None where only some rows were asked for
        first: Tensor | None,
        pooled: Tensor | None,
    ) -> Started:
        """What each request wanted, from the outputs of the head and the states of the encoder."""
        wanted = _wanted(requests)
        if "pooled" in wanted and pooled is not None:
            named["pooled"] = pooled
        if "first" in wanted and first is not None:
            named["first"] = first
        if "hidden" in wanted and hidden is not None:
            named["hidden"] = hidden
        if "mean" in wanted and hidden is not None:
            named["mean"] = mean_states(hidden, self._tensor(np.diff(starts)))
        by_token = head == "token-classification"
        if sum(named[name].numel() for name in wanted) > MOST_ARRIVING:
            arrays = {name: fetch(named[name]) for name in wanted}
            return lambda: _split(arrays, requests, starts, by_token)
        arriving = Fetched({name: named[name] for name in wanted})
        return lambda: _split(arriving.fetch()[0], requests, starts, by_token)

    def _segments(self, requests: Sequence[Request]) -> list[NDArray[np.int8]]:
        if self.config.type_vocab_size > 1:  # a text and its pair; only a model with a single kind needs them changed
            return [request.segments for request in requests]
        return [fit_segments(self.config, request) for request in requests]

    def _head_inputs(self, head: str, requests: Sequence[Request], starts: NDArray[np.int64]) -> dict[str, Any]:
        """A head's inputs besides those of the encoder."""
        if head in ("pretraining", "masked-lm"):
            found = [starts[row] + r.positions for row, r in enumerate(requests) if r.positions is not None]
            return {"positions": self._tensor(np.concatenate([np.zeros(0, np.int64), *found]))}
        if head == "answer":
            outside = [np.zeros(len(r), np.bool_) if r.outside is None else r.outside for r in requests]
            return {"outside": self._tensor(np.concatenate(outside))}
        return {"num_choices": 1} if head == "multiple-choice" else {}

    def _attentions(self, request: Request) -> NDArray[np.float32]:
        """The maps of one sequence, by the plain encoder: the fast kernels never write them down."""
        arrays = (request.ids, fit_segments(self.config, request))
        ids, segments = (self._tensor(array.astype(np.int64))[None] for array in arrays)
        self._set_depth(request.depth)
        maps = self.encoder.plain(ids, segment_ids=segments, output_attentions=True).attentions
        self._set_depth(None)
        return fetch(torch.cat(maps))  # [L, A, S, S]

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device.device, non_blocking=True)


class TorchStages:
    """A TorchRuntime's model in parts, for sequences that stop when they are done."""

    def __init__(self, runtime: TorchRuntime):
        self._runtime, self._encoder, self._config = runtime, runtime.encoder, runtime.config
        self._device = runtime.device.device
        self.problem = problem_of(runtime.head, runtime.config)
        self.exits, self.max_tokens = runtime.config.exits, runtime.lane_tokens
        self.num_lanes = 2 if runtime.device.is_cuda else 1
        self._plan, self._inner = plan_of(runtime.config), runtime.config.inner_group_num
        layers = {self._plan[begin : begin + self._inner] for begin in range(0, len(self._plan), self._inner)}
        self.joins = len(layers) == 1
        self.by_first = runtime._few_rows - {"masked_lm"}

    def embed(self, requests: Sequence[Request]) -> Tensor:
        """[t, H] before the first layer."""
        room = (int(lengths_of(requests).sum()), len(requests))
        ids, segments = [request.ids for request in requests], self._runtime._segments(requests)
        table = lay_out(ids, segments, room, pinned=self._device.type == "cuda").to(self._device)
        return self._encoder.embed(table.ids, table.segments, table.positions)

    def select(self, states: Sequence[Tensor], rows: Ints | None) -> Tensor:
        """Some rows of states; None: all."""
        whole = states[0] if len(states) == 1 else torch.cat(list(states))
        return whole if rows is None else whole.index_select(0, send(rows, self._device))

    def apply(self, states: Tensor, lengths: Ints, begin: int, end: int, unfinished: bool) -> Tensor:
        """The states after some layers, or before the last FFN of these."""
        plan = self._plan[begin * self._inner : end * self._inner]
        return self._encoder.apply_layers(states, self._starts(lengths), int(lengths.max()), plan, unfinished)

    def finish(self, states: Tensor, depth: int) -> Tensor:
        """The states after the last FFN before a depth."""
        return self._encoder.finish(states, self._plan[depth * self._inner - 1])

    def answer(
        self, states: Tensor, lengths: Ints, requests: Sequence[Request], depth: int, gate: Gate | None
    ) -> Fetched:
        """What the head of an exit makes of the states, on its way to the host."""
        runtime = self._runtime
        starts = np.concatenate([[0], np.cumsum(lengths)])
        places = send(np.arange(len(states)) - np.repeat(starts[:-1], lengths), self._device)
        packed: dict[str, Any] = {"starts": self._starts(lengths), "position_ids": places}
        first = first_tokens(states, packed["starts"])
        pooled = self._encoder.pool(first)
        more = runtime._head_inputs(runtime.head, requests, starts)
        at = Exit(depth, EncoderOutput(states, pooled))
        output = runtime.model(places, at=at, max_length=int(lengths.max()), **packed, **more)
        named = named_outputs(runtime.head, output)
        states_of = {"hidden": states, "first": first, "pooled": pooled}
        named |= {name: state for name in _wanted(requests) if (state := states_of.get(name)) is not None}
        if gate is not None:
            if self._device not in gate.on_device:
                gate.on_device[self._device] = torch.from_numpy(gate.state).to(self._device)
            weights = gate.on_device[self._device][self.exits.index(depth)]
            named["gate"] = (first if pooled is None else pooled).float() @ weights
        return Fetched(named)

    def _starts(self, lengths: Ints) -> Tensor:
        return send(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), self._device)


class Fetched:
    """Tensors on their way to the host, in memory that a GPU writes to while the program goes on."""

    def __init__(self, named: Mapping[str, Tensor]):
        plain = {name: value.float() if value.is_floating_point() else value for name, value in named.items()}
        self._named = {name: value.to("cpu", non_blocking=True) for name, value in plain.items()}
        self._arrived = torch.cuda.Event() if any(value.is_cuda for value in named.values()) else None
        if self._arrived is not None:
            self._arrived.record()

    def fetch(self) -> tuple[Mapping[str, NDArray[Any]], NDArray[Any] | None]:
        """The outputs of the head, and that of the gate."""
        arrays: dict[str, NDArray[Any]] = {name: value.numpy() for name, value in self._named.items()}
        if self._arrived is not None:
            self._arrived.synchronize()
            arrays = {name: value.copy() for name, value in arrays.items()}  # that memory is scarce
        return arrays, arrays.pop("gate", None)


def mean_states(hidden: Tensor, lengths: Tensor) -> Tensor:
    """The mean state of each of B packed sequences: [T, H], [B] -> [B, H], float32."""
    if hidden.is_cuda:  # where the sums of index_add_ would come in any order, with other last digits each time
        return torch.segment_reduce(hidden.float(), "mean", lengths=lengths, unsafe=True)
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    sums = hidden.new_zeros(len(lengths), hidden.shape[1], dtype=torch.float32)
    return sums.index_add_(0, rows, hidden.float()) / lengths[:, None]


def _fuse(encoder: Encoder, device: Device) -> FusedEncoder:
    if device.is_cuda and device.precision == "bf16":
        return GraphedEncoder(encoder, triton=device.compile)  # true if Triton and a C compiler are installed
    return FusedEncoder(encoder)


def _lane_tokens(intermediate_size: int, device: Device) -> int:
    """How many tokens go through the layers together where sequences stop early.

    What the host decides at every exit takes as long for few sequences as for many, so a lane is larger than a pass
    (benchmarks/depth_curve.py --max-tokens compares sizes). It takes up to a 32nd of the GPU's memory.
    """
    if not device.is_cuda:
        return PASS_TOKENS
    memory = torch.cuda.get_device_properties(device.device).total_memory
    bytes_per_token = 6 * intermediate_size * 2  # of one layer's activations, about
    return min(max(memory // 32 // bytes_per_token, PASS_TOKENS), MOST_LANE_TOKENS)


def _by_depth(requests: Sequence[Request], numbers: Sequence[int]) -> list[list[int]]:
    """The numbers of those requests that go through the layers in the same way, in order."""
    found: dict[tuple[int | None, ExitRule | None], list[int]] = {}
    last, group = None, []
    for number in numbers:
        request = requests[number]
        if last is None or request.rule is not last.rule or request.depth != last.depth:
            last, group = request, found.setdefault((request.depth, request.rule), [])
        group.append(number)
    return list(found.values())


def one_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The items, each after the next one was asked for: a GPU works on that while the host reads this."""
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        if len(waiting) > 1:
            yield waiting.pop(0)
    yield from waiting


def _wanted(requests: Sequence[Request]) -> frozenset[str]:
    return wanted_of(requests) - {"attentions"}


def _few_rows(model: Model) -> frozenset[str]:
    """Outputs that need the states of few tokens: [CLS], and those to predict."""
    few = {"masked_lm", "sentence", "pooled", "first"}
    summary = model.head in ("classification", "multiple-choice") and model.config.pooling == "first"
    return frozenset(few | {"logits"} if summary else few)


def _split(
    arrays: Mapping[str, NDArray[Any]], requests: Sequence[Request], starts: NDArray[np.int64], by_token: bool
) -> list[Outputs]:
    """The arrays of a batch, cut into one result per request."""
    per_token = {"hidden", "start", "end", *(("logits",) if by_token else ())}
    if not arrays.keys() & (per_token | {"masked_lm"}) and len({request.want for request in requests}) == 1:
        return rows_of_outputs(arrays)
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
