"""An exported model run by ONNX Runtime on the CPU: the same requests and the same raw outputs as TorchRuntime."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from litebert.errors import CheckpointError, ConfigError, InputError, check_choice
from litebert.extras import require
from litebert.model.config import load_config
from litebert.predict.exits import NEVER, Gate, Ints, problem_of
from litebert.predict.lanes import BEAMS, PER_TOKEN, read_early
from litebert.predict.load import ONNX_FILES, STAGES, Manifest, read_manifest, stage_file
from litebert.predict.runtime import (
    HEAD_OUTPUTS,
    PASS_TOKENS,
    More,
    Outputs,
    Request,
    check_request,
    fit_segments,
    plan_padded,
    wanted_of,
)
from litebert.train.device import default_threads, name_cpu

# Measured with benchmarks/onnx_threads.py: beyond some hundred tokens a pass leaves the caches of a core and each token
# takes longer; below, what a pass costs by itself counts for about as much as this many tokens.
MOST_TOKENS = 512
PASS_COST = 12

Precision = Literal["auto", "fp32", "int8"]


class OnnxRuntime:
    """The model of an exported folder; `precision` "auto" takes int8 where the folder has it."""

    def __init__(self, folder: Path | str, *, threads: int = 0, max_tokens: int = 0, precision: Precision = "auto"):
        folder = Path(folder)
        if threads < 0:
            raise ConfigError(f"threads: must be >= 0, got {threads}")
        manifest = read_manifest(folder)
        self.precision = _pick_precision(folder, manifest, precision)
        self.config = load_config(folder)
        self.head = manifest.head
        self.max_tokens = min(max_tokens or PASS_TOKENS, MOST_TOKENS)
        self.threads = threads or default_threads()
        self.name = f"onnx {self.precision}, {name_cpu(self.threads)}"
        self._session = open_session(manifest.verify(folder, ONNX_FILES[self.precision]), self.threads)
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        given = frozenset(entry.name for entry in self._session.get_outputs())
        self.outputs = given | {"first", "mean"}
        self._lock = threading.Lock()
        parts = {stage: stage_file(stage, self.precision) for stage in STAGES}
        there = all(name in manifest.files for stage, name in parts.items() if stage != "finish")
        self.any_depth = there  # a graph has one depth, parts reach all exits
        self.depths = self.config.exits if there else ()
        self._parts = {
            stage: open_session(manifest.verify(folder, name), self.threads)
            for stage, name in parts.items()
            if there and name in manifest.files
        }

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order; safe to call from several threads."""
        for request in requests:
            self._check(request)
        results: list[Outputs] = [{} for _ in requests]
        full = self.config.num_hidden_layers
        asked = [(None if request.depth == full else request.depth, request.rule) for request in requests]
        with self._lock:  # one pass at a time already uses all threads
            for depth, rule in dict.fromkeys(asked):
                alike = [number for number, each in enumerate(asked) if each == (depth, rule)]
                if (depth, rule) != (None, None):
                    stages = OnnxStages(self, self.depths if depth is None else (depth,))
                    early = read_early(stages, rule or NEVER, [requests[number] for number in alike])
                    for place, output in early:
                        results[alike[place]] = output
                    continue
                for batch in plan_padded([len(requests[i]) for i in alike], self.max_tokens, PASS_COST):
                    outputs = self._run_padded([requests[alike[i]] for i in batch])
                    for place, output in zip(batch, outputs, strict=True):
                        results[alike[place]] = output
        return results

    def run_open(self, requests: Sequence[Request], more: More, max_tokens: int) -> Iterator[tuple[int, Outputs]]:
        """See OpenRuntime."""
        for request in requests:
            self._check(request)
        (rule,) = {request.rule for request in requests}
        assert rule is not None
        stages = OnnxStages(self, self.depths)
        stages.max_tokens = max_tokens
        with self._lock:
            yield from read_early(stages, rule, requests, more)

    def _run_padded(self, requests: Sequence[Request]) -> list[Outputs]:
        size = max(map(len, requests))
        feeds = {
            "input_ids": np.full((len(requests), size), self.config.pad_token_id, np.int64),
            "segment_ids": np.zeros((len(requests), size), np.int64),
            "attention_mask": np.zeros((len(requests), size), np.int64),
            "outside": np.ones((len(requests), size), np.int64),
        }
        places = []
        for row, request in enumerate(requests):
            length = len(request)
            feeds["input_ids"][row, :length] = request.ids
            feeds["segment_ids"][row, :length] = fit_segments(self.config, request)
            feeds["attention_mask"][row, :length] = 1
            feeds["outside"][row, :length] = 0 if request.outside is None else request.outside
            places.append(np.zeros(0, np.int64) if request.positions is None else row * size + request.positions)
        # At least one place: an empty tensor has no range to quantize.
        feeds["positions"] = np.concatenate([*places, np.zeros(1, np.int64)])
        names = sorted({_source(name) for request in requests for name in request.want})
        values = self._session.run(names, {name: feeds[name] for name in self._inputs}) if names else []
        batch = dict(zip(names, values, strict=True))
        ends = np.cumsum([len(place) for place in places])
        if "masked_lm" in batch:
            batch["masked_lm"] = np.split(batch["masked_lm"], ends)  # by request, and the extra place
        return [self._pick(batch, row, request) for row, request in enumerate(requests)]

    def _pick(self, batch: dict[str, Any], row: int, request: Request) -> Outputs:
        """What one request wanted, cut to its length."""
        length, output = len(request), {}
        for name in request.want:
            value: NDArray[Any] = batch[_source(name)][row]
            if name == "first":
                value = value[0]
            elif name == "mean":
                value = value[:length].mean(0)
            elif name == "attentions":
                value = value[:, :, :length, :length]
            elif name in BEAMS:
                # Beside longer ones a short text has more starts than tokens.
                value = value[(slice(length),) * value.ndim]
            elif name in ("hidden", "start", "end") or (name == "logits" and self.head == "token-classification"):
                value = value[:length]
            output[name] = np.asarray(value)
        return output

    def _check(self, request: Request) -> None:
        check_request(self.config, request)
        if request.rule is not None and not self.any_depth:
            raise InputError(f"depth: {self.name} has no exits; export the model again, with its exits")
        if request.depth not in (None, self.config.num_hidden_layers, *self.depths):
            exits = ", ".join(map(str, self.depths)) or "none"
            raise InputError(f"depth: {self.name} has no exit at {request.depth}; its exits: {exits}")
        missing = request.want - self.outputs
        if "attentions" in missing:
            raise InputError("the exported file has no attention maps; export the model again with attentions")
        if missing:
            article = "an" if self.head[0] in "ae" else "a"
            raise InputError(f"{article} {self.head} model has no output {', '.join(sorted(missing))}")


class OnnxStages:
    """An OnnxRuntime's model in parts, for sequences that stop when they are done: states [t, H] are numpy's."""

    num_lanes, joins = 1, True  # only models of one shared layer are exported in parts

    def __init__(self, runtime: OnnxRuntime, exits: tuple[int, ...]):
        self._runtime, self._parts, self.exits = runtime, runtime._parts, exits
        self.problem = problem_of(runtime.head, runtime.config)
        self.max_tokens = runtime.max_tokens
        self._layers = math.gcd(*runtime.depths)  # that a run of the graph applies
        self._head_inputs = {entry.name for entry in self._parts["heads"].get_inputs()}
        self._head_outputs = {entry.name for entry in self._parts["heads"].get_outputs()}
        self.by_first = frozenset({"logits", "pooled", "first"} if "finish" in self._parts else ())

    def embed(self, requests: Sequence[Request]) -> NDArray[np.float32]:
        """[t, H] before the first layer."""
        lengths = np.array([len(request) for request in requests])
        ids = np.concatenate([request.ids for request in requests]).astype(np.int64)
        segments = np.concatenate([fit_segments(self._runtime.config, each) for each in requests]).astype(np.int64)

        def begin(tokens: Ints, kinds: Ints, mask: Ints) -> NDArray[np.float32]:
            (states,) = self._parts["begin"].run(["states"], {"input_ids": tokens, "segment_ids": kinds})
            return states

        return self._padded(lengths, begin, ids, segments)

    def select(self, states: Sequence[NDArray[Any]], rows: Ints | None) -> NDArray[Any]:
        """Some rows of states; None: all."""
        whole = states[0] if len(states) == 1 else np.concatenate(states)
        return whole if rows is None else whole[rows]

    def apply(self, states: NDArray[Any], lengths: Ints, begin: int, end: int, unfinished: bool) -> NDArray[Any]:
        """The states after some layers, or before the last FFN of these."""
        runs = (end - begin) // self._layers

        def layers(states: NDArray[np.float32], mask: Ints) -> NDArray[np.float32]:
            for number in range(1, runs + 1):
                (states,) = self._parts["layers"].run(["states"], {"before": states, "attention_mask": mask})
                if "finish" in self._parts and not (unfinished and number == runs):
                    (states,) = self._parts["finish"].run(["states"], {"before": states})
            return states

        return self._padded(lengths, layers, states)

    def finish(self, states: NDArray[Any], depth: int) -> NDArray[Any]:
        """The states after the last FFN before a depth; it sees each token alone, so nothing is padded."""
        (done,) = self._parts["finish"].run(["states"], {"before": states[None]})
        return np.asarray(done[0])

    def _padded(
        self, lengths: Ints, run: Callable[..., NDArray[np.float32]], *packed: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Run packed arrays [t, ...] as padded batches of like lengths [B, S, ...], with their mask."""
        if lengths.min() == lengths.max() and (len(lengths) == 1 or int(lengths.sum()) <= self._runtime.max_tokens):
            shape = (len(lengths), int(lengths[0]))
            padded = [array.reshape(*shape, *array.shape[1:]) for array in packed]
            return run(*padded, np.ones(shape, np.int64)).reshape(int(lengths.sum()), -1)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        result = np.empty((int(starts[-1]), self._runtime.config.hidden_size), np.float32)
        for batch in plan_padded(lengths.tolist(), self._runtime.max_tokens, PASS_COST):
            size = int(lengths[batch].max())
            rows = np.concatenate([np.arange(starts[each], starts[each + 1]) for each in batch])
            if len(batch) * size == len(rows):  # nothing to fill up
                padded = [array[rows].reshape(len(batch), size, *array.shape[1:]) for array in packed]
                mask = np.ones((len(batch), size), np.int64)
                result[rows] = run(*padded, mask).reshape(len(rows), -1)
                continue
            mask = (np.arange(size) < lengths[batch][:, None]).astype(np.int64)
            real, padded = mask.astype(bool), []
            for array in packed:
                padded.append(np.zeros((len(batch), size, *array.shape[1:]), array.dtype))
                padded[-1][real] = array[rows]
            result[rows] = run(*padded, mask)[real]
        return result

    def answer(
        self, states: NDArray[Any], lengths: Ints, requests: Sequence[Request], depth: int, gate: Gate | None
    ) -> Said:
        """What the head of an exit makes of the states."""
        starts = np.cumsum(lengths) - lengths
        wanted = wanted_of(requests)
        named: dict[str, NDArray[Any]] = {"first": states[starts], "hidden": states}
        if "mean" in wanted:
            named["mean"] = np.stack([states[a : a + n].mean(0) for a, n in zip(starts, lengths, strict=True)])
        heads = {name: f"{name}_{depth}" for name in HEAD_OUTPUTS[self._runtime.head]}
        heads = {name: each if each in self._head_outputs else name for name, each in heads.items()}
        if gate is None and "pooled" not in wanted:
            heads.pop("pooled", None)
        if self._head_inputs == {"states"} and self.problem in ("classes", "number", "labels", "choice"):
            feeds = {"states": named["first"][:, None]}  # they read [CLS] alone
        else:
            feeds = self._head_feeds(states, lengths, requests)
        found = self._parts["heads"].run(list(heads.values()), feeds)
        by_token = PER_TOKEN | ({"logits"} if self.problem == "tags" else set())
        for name, value in zip(heads, found, strict=True):
            named[name] = value[np.arange(value.shape[1]) < lengths[:, None]] if name in by_token else value
        product = None
        if gate is not None:
            product = named.get("pooled", named["first"]) @ gate.state[self.exits.index(depth)]
        return Said(named, product)

    def _head_feeds(self, states: NDArray[Any], lengths: Ints, requests: Sequence[Request]) -> dict[str, NDArray[Any]]:
        size = int(lengths.max())
        real = np.arange(size) < lengths[:, None]
        outside = np.ones((len(lengths), size), np.int64)
        marks = [np.zeros(len(each), np.bool_) if each.outside is None else each.outside for each in requests]
        outside[real] = np.concatenate(marks)
        if real.all():
            padded = states.reshape(len(lengths), size, -1)
        else:
            padded = np.zeros((len(lengths), size, states.shape[1]), np.float32)
            padded[real] = states
        feeds: dict[str, NDArray[Any]] = {"states": padded, "attention_mask": real.astype(np.int64), "outside": outside}
        return {name: feeds[name] for name in self._head_inputs}


class Said(NamedTuple):
    """The outputs of a head and of a gate. They are complete already; on a GPU `fetch` would wait."""

    named: Mapping[str, NDArray[Any]]
    product: NDArray[Any] | None

    def fetch(self) -> tuple[Mapping[str, NDArray[Any]], NDArray[Any] | None]:
        """The outputs of the head, and that of the gate."""
        return self.named, self.product


def open_session(path: Path, threads: int) -> Any:
    """An ONNX Runtime session on the CPU."""
    onnxruntime = require("onnxruntime", "the runtime onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; its warnings are about other people's graphs
    # Threads wait awake for the next operator, but not long: with the default, a core shared with another program makes
    # a pass many times slower, and no waiting at all costs a fifth of a short request (benchmarks/onnx_threads.py).
    options.add_session_config_entry("session.intra_op.spin_duration_us", "20")
    try:
        return onnxruntime.InferenceSession(
            str(path),
            options,
            providers=["CPUExecutionProvider"],
            # The fused form is several times slower on the CPU than the addition and the norm by themselves.
            disabled_optimizers=["SkipLayerNormFusion"],
        )
    except Exception as error:  # onnxruntime's exceptions share no base class, and all of them are about this file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: ONNX Runtime {onnxruntime.__version__} cannot open it: {reason}") from None


def _source(name: str) -> str:
    """The output of the graph that a raw output is made of."""
    return "hidden" if name in ("first", "mean") else name


def _pick_precision(folder: Path, manifest: Manifest, wanted: Precision) -> Literal["fp32", "int8"]:
    check_choice("precision", wanted, get_args(Precision))
    if wanted != "auto":
        return wanted
    there = ONNX_FILES["int8"] in manifest.files and (folder / ONNX_FILES["int8"]).is_file()
    return "int8" if there else "fp32"
