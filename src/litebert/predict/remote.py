"""A model run by another process: one process has the GPU, the others tokenize and finish the results.

Thousands of sequences are sent as a few arrays. If only one row of each is needed (vectors, or logits of a classifier),
no Python runs per sequence: every pass of a group is started without waiting for the one before, and one copy brings
all rows back. Anything else goes through `Runtime.run`.

Processes are started as separate programs, not forked: a fork would copy torch's threads and the GPU's state,
and Python's `spawn` would run the caller's script again.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError, LitebertError
from litebert.predict.runtime import Outputs, Request, Runtime

if TYPE_CHECKING:
    from litebert.model.config import ModelConfig
    from litebert.predict.adapters import Adapter
    from litebert.predict.exits import ExitRule
    from litebert.predict.fused import Table
    from litebert.predict.predictor import Predictor
    from litebert.predict.torch_runtime import TorchRuntime
    from litebert.tasks.task import Task
    from litebert.text.tokenizer import Tokenizer

VECTORS = frozenset({"mean", "first", "pooled"})  # one row for each sequence

# By name of the output: which requests have it (None: all), the shape of each (one: of all), and all numbers.
Joined = dict[str, tuple[NDArray[np.int64] | None, list[tuple[int, ...]], NDArray[Any]]]


@dataclass(frozen=True)
class Sequences:
    """Requests laid end to end: a few arrays cross between processes faster than thousands of objects."""

    ids: NDArray[np.int32]  # [T]
    segments: NDArray[np.int8]  # [T]
    lengths: NDArray[np.int64]  # [B]
    wants: list[frozenset[str]]  # of each, or one for all
    positions: list[NDArray[np.int64] | None] | None
    outside: list[NDArray[np.bool_] | None] | None
    depths: list[int | None] | None = None
    rules: list[ExitRule | None] | None = None
    groups: list[object | None] | None = None
    adapters: list[str | None] | None = None  # their names

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Sequences:
        """Requests as arrays."""
        wants = [request.want for request in requests]
        return cls(
            np.concatenate([request.ids for request in requests]),
            np.concatenate([request.segments for request in requests]),
            np.array([len(request) for request in requests]),
            wants[:1] if len(set(wants)) == 1 else wants,
            _unless_none([request.positions for request in requests]),
            _unless_none([request.outside for request in requests]),
            _unless_none([request.depth for request in requests]),
            _unless_none([request.rule for request in requests]),
            _unless_none([request.group for request in requests]),
            _unless_none([None if request.adapter is None else request.adapter.name for request in requests]),
        )

    def requests(self, adapters: Mapping[str, Adapter] | None = None) -> list[Request]:
        """The requests again."""
        ends = np.cumsum(self.lengths)
        ids, segments = np.split(self.ids, ends[:-1]), np.split(self.segments, ends[:-1])
        nothing: list[Any] = [None] * len(ids)
        wants = self.wants * len(ids) if len(self.wants) == 1 else self.wants
        chosen = [(adapters or {})[name] if name else None for name in self.adapters or nothing]
        given = (self.positions, self.outside, self.depths, self.rules, self.groups, chosen)
        more = [each or nothing for each in given]
        return [
            Request(one, kinds, want, positions, outside, depth=depth, rule=rule, group=group, adapter=adapter)
            for one, kinds, want, positions, outside, depth, rule, group, adapter in zip(
                ids, segments, wants, *more, strict=True
            )
        ]


def _unless_none(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None


# ---------------------------------------------------------------------------------------------------------------------
# The process that has the model


def serve_device(predictor: Predictor, connection: Connection) -> None:
    """Run this model for another process until that one ends."""
    adapters: Any = {name: each.adapter for name, each in predictor.adapters.items()}
    while True:
        try:
            sequences: Sequences = receive_arrays(connection)
            try:
                answer: Any = run_sequences(predictor.runtime, sequences, adapters)
            except Exception as error:
                answer = error if isinstance(error, LitebertError) else RuntimeError(f"{type(error).__name__}: {error}")
            send_arrays(connection, answer)
        except (EOFError, OSError):
            return


def send_arrays(connection: Connection, value: Any) -> None:
    """Send a value with large arrays as raw bytes: a copy would make other threads wait."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    connection.send_bytes(pickle.dumps((head, len(buffers))))
    for buffer in buffers:
        connection.send_bytes(buffer.raw())


def receive_arrays(connection: Connection) -> Any:
    """What `send_arrays` sent; the arrays are read-only."""
    head, count = pickle.loads(connection.recv_bytes())
    return pickle.loads(head, buffers=[connection.recv_bytes() for _ in range(count)])


def run_sequences(runtime: Runtime, sequences: Sequences, adapters: Mapping[str, Adapter] | None = None) -> Joined:
    """The wanted outputs of all sequences."""
    from litebert.predict.torch_runtime import TorchRuntime

    by_row = VECTORS | {"logits"} if runtime.head == "classification" else VECTORS
    plain = sequences.depths is None and sequences.rules is None and sequences.adapters is None
    alike = len(sequences.wants) == 1 and plain
    if isinstance(runtime, TorchRuntime) and alike and sequences.wants[0] <= by_row:
        return run_rows(runtime, sequences)
    return join_outputs(runtime.run(sequences.requests(adapters)))


def run_rows(runtime: TorchRuntime, sequences: Sequences) -> Joined:
    """Vectors or logits of all sequences; the passes are those that `TorchRuntime.run` would make."""
    import torch

    from litebert.model.heads import named_outputs
    from litebert.predict.torch_runtime import mean_states

    _check(runtime, sequences)
    wanted = sorted(sequences.wants[0])
    count, config = len(sequences.lengths), runtime.config
    widths = {name: config.num_labels if name == "logits" else config.hidden_size for name in wanted}
    device = runtime.device.device
    begins = np.cumsum(sequences.lengths) - sequences.lengths
    segments = np.minimum(sequences.segments, np.int8(min(127, runtime.config.type_vocab_size - 1)))
    order, done = np.argsort(-sequences.lengths, kind="stable"), 0  # as `plan_packed` takes them
    on_gpu = runtime.device.is_cuda
    here = torch.cuda.device(device) if on_gpu else contextlib.nullcontext()
    with torch.inference_mode(), here:
        found = {name: torch.empty(count, widths[name], dtype=torch.float32, device=device) for name in wanted}
        with runtime._lock:  # everything in here only starts work: memory is pinned, so that no call waits for the GPU
            places = (torch.from_numpy(order).pin_memory() if on_gpu else torch.from_numpy(order)).to(
                device, non_blocking=True
            )
            for batch in runtime.passes(sequences.lengths.tolist()):
                inputs = runtime.encoder.take(_lay_out(runtime, sequences, segments, begins, batch)).inputs()
                if not on_gpu and sequences.wants[0] <= runtime._few_rows:
                    inputs["only_asked"] = True
                encoder = runtime.encoder
                logits = named_outputs(runtime.head, runtime.model(**inputs))["logits"] if "logits" in wanted else None
                if logits is None:
                    encoder(**inputs)
                states = {"mean": encoder.hidden, "first": encoder.first, "pooled": encoder.pooled, "logits": logits}
                own = places[done : done + len(batch)]
                done += len(batch)
                for name in wanted:
                    rows = states[name]
                    assert rows is not None, name
                    rows = mean_states(rows, inputs["starts"].long().diff()) if name == "mean" else rows.float()
                    found[name].index_copy_(0, own, rows)
            host = {name: torch.empty(values.shape, pin_memory=on_gpu) for name, values in found.items()}
            for name, values in found.items():
                host[name].copy_(values, non_blocking=True)
            # Sleeping, not spinning: a thread for each of the other processes waits here, and those need the cores.
            ended = torch.cuda.Event(blocking=True) if on_gpu else None
            if ended is not None:
                ended.record()
        if ended is not None:  # the next group starts meanwhile
            ended.synchronize()
    return {name: (None, [(widths[name],)], values.numpy()) for name, values in host.items()}


def _check(runtime: TorchRuntime, sequences: Sequences) -> None:
    """The checks of `check_request`, for all sequences at once."""
    config, ids, lengths = runtime.config, sequences.ids, sequences.lengths
    if lengths.min() < 1 or lengths.max() > config.max_position_embeddings:
        most = config.max_position_embeddings
        raise InputError(f"a sequence has {lengths.min()} to {lengths.max()} tokens, the model takes 1 to {most}")
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise InputError(f"ids are {ids.min()} to {ids.max()}, the model takes 0 to {config.vocab_size - 1}")


def _lay_out(
    runtime: TorchRuntime,
    sequences: Sequences,
    segments: NDArray[np.int8],
    begins: NDArray[np.int64],
    batch: NDArray[np.int64],
) -> Table:
    """As `litebert.predict.fused.lay_out`, from arrays of the whole group."""
    import torch

    from litebert.predict.fused import Table

    sizes = sequences.lengths[batch]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    total, longest = int(starts[-1]), int(sizes.max())
    room = runtime.encoder.room(total, len(batch), longest)
    whole = torch.zeros(3 * room[0] + room[1] + 1, dtype=torch.int32, pin_memory=runtime.device.is_cuda)
    table = Table(whole, room, (total, len(batch)), longest)
    positions = np.arange(total) - np.repeat(starts[:-1], sizes)
    places = np.repeat(begins[batch], sizes) + positions
    table.ids.numpy()[:total] = sequences.ids[places]
    table.segments.numpy()[:total] = segments[places]
    table.positions.numpy()[:total] = positions
    table.starts.numpy()[: len(starts)] = starts
    table.starts.numpy()[len(starts) :] = total
    return table


def join_outputs(outputs: Sequence[Outputs]) -> Joined:
    """Outputs of many requests as one array for each name."""
    joined: Joined = {}
    for name in dict.fromkeys(name for output in outputs for name in output):
        places = [number for number, output in enumerate(outputs) if name in output]
        values = [outputs[number][name] for number in places]
        shapes = [value.shape for value in values]
        where = None if len(places) == len(outputs) else np.array(places)
        if len(set(shapes)) == 1:
            joined[name] = (where, shapes[:1], np.stack(values))
        else:
            joined[name] = (where, shapes, np.concatenate([value.reshape(-1) for value in values]))
    return joined


def split_outputs(joined: Joined, count: int) -> list[Outputs]:
    """What `join_outputs` joined, by request."""
    outputs: list[Outputs] = [{} for _ in range(count)]
    for name, (where, shapes, numbers) in joined.items():
        places = range(count) if where is None else where.tolist()
        if len(shapes) == 1:
            for number, value in zip(places, numbers.reshape(len(places), *shapes[0]), strict=True):
                outputs[number][name] = np.asarray(value)
            continue
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        for number, shape, value in zip(places, shapes, np.split(numbers, ends[:-1]), strict=True):
            outputs[number][name] = value.reshape(shape)
    return outputs


# ---------------------------------------------------------------------------------------------------------------------
# The others


@dataclass(frozen=True, eq=False)
class RemoteAdapter:
    """What a process knows of an adapter that another process runs."""

    name: str
    config: ModelConfig
    task: Task
    head: str
    outputs: frozenset[str]
    packaged: bool  # whether it comes with the package


@dataclass(frozen=True)
class SharedModel:
    """What a process knows of a model that another process runs."""

    name: str
    runtime: str
    config: ModelConfig
    head: str
    outputs: frozenset[str]
    any_depth: bool
    on_gpu: bool
    tokenizer: Tokenizer
    task: Task | None
    rule: ExitRule | None
    adapters: tuple[RemoteAdapter, ...]
    shipped: Mapping[str, Path]

    @classmethod
    def of(cls, predictor: Predictor) -> SharedModel:
        """The facts about this predictor."""
        runtime = predictor.runtime
        on_gpu = bool(getattr(getattr(runtime, "device", None), "is_cuda", False))
        known = (runtime.name, runtime.config, runtime.head, runtime.outputs, runtime.any_depth, on_gpu)
        adapters = tuple(
            RemoteAdapter(each.name, each.config, each.task, each.head, each.outputs, adapted.packaged)
            for adapted in predictor.adapters.values()
            if (each := adapted.adapter) is not None
        )
        more = (predictor.tokenizer, predictor.task, predictor.rule, adapters, predictor.shipped)
        return cls(predictor.name, *known, *more)

    def open(self, connection: Connection) -> Predictor:
        """A Predictor whose model answers at the other end of a connection."""
        from litebert.predict.predictor import Predictor

        runtime = RemoteRuntime(self, connection)
        predictor = Predictor.of(runtime, self.tokenizer, self.task, self.name, self.rule, self.shipped)
        for adapter in self.adapters:
            attached = predictor.attach(cast(Any, adapter))  # in place of an Adapter: only its name is sent
            attached.packaged = adapter.packaged
        return predictor


class RemoteRuntime:
    """A runtime whose model is in another process; one call at a time."""

    def __init__(self, shared: SharedModel, connection: Connection):
        self.name, self.config, self.head, self.outputs = shared.runtime, shared.config, shared.head, shared.outputs
        self.any_depth, self.on_gpu = shared.any_depth, shared.on_gpu
        self._connection = connection

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        if not requests:
            return []
        send_arrays(self._connection, Sequences.of(requests))
        answer = receive_arrays(self._connection)
        if isinstance(answer, BaseException):
            raise answer
        return split_outputs(answer, len(requests))


def start_process(
    module: str, connections: int, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], list[Connection]]:
    """Start `main` of a module as a program, with this many connections to it: their file numbers are its arguments."""
    pairs = [socket.socketpair() for _ in range(connections)]
    numbers = tuple(theirs.fileno() for _, theirs in pairs)
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main(*{numbers!r})"
    # One thread each: there are as many processes as cores. torch sets its own number.
    own = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **(environment or {})}
    process = subprocess.Popen([sys.executable, "-c", code], pass_fds=numbers, env=own, stdin=subprocess.DEVNULL)
    for _, theirs in pairs:
        theirs.close()
    return process, [Connection(ours.detach()) for ours, _ in pairs]


def end_with_parent() -> None:
    """End this process soon after its parent, which may be killed while we compute."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
