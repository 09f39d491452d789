"""An exported model run by ONNX Runtime on the CPU: the same requests and the same raw outputs as TorchRuntime."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from litebert.errors import CheckpointError, ConfigError, InputError, check_choice
from litebert.extras import require
from litebert.model.config import load_config
from litebert.predict.exported import ONNX_FILES, Manifest, read_manifest
from litebert.predict.runtime import Outputs, Request, check_request, fit_segments, plan_padded
from litebert.train.device import default_threads, name_cpu

# Measured with benchmarks/onnx_passes.py: beyond some hundred tokens a pass leaves the caches of a core and each token
# takes longer; below, what a pass costs by itself counts for about as much as this many tokens.
MOST_TOKENS = 512
PASS_COST = 12

_BEAMS = ("start_index", "start_log_prob", "end_index", "end_log_prob")

Precision = Literal["auto", "fp32", "int8"]


class OnnxRuntime:
    """The model of an exported folder; `precision` "auto" takes int8 where the folder has it."""

    def __init__(self, folder: Path | str, *, threads: int = 0, max_tokens: int = 8192, precision: Precision = "auto"):
        folder = Path(folder)
        if threads < 0:
            raise ConfigError(f"threads: must be >= 0, got {threads}")
        manifest = read_manifest(folder)
        self.precision = _pick_precision(folder, manifest, precision)
        self.config = load_config(folder)
        self.head = manifest.head
        self.max_tokens = min(max_tokens, MOST_TOKENS)
        self.threads = threads or default_threads()
        self.name = f"onnx {self.precision}, {name_cpu(self.threads)}"
        self._session = open_session(manifest.verify(folder, ONNX_FILES[self.precision]), self.threads)
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        given = frozenset(entry.name for entry in self._session.get_outputs())
        self.outputs = given | {"first", "mean"}
        self._lock = threading.Lock()

    any_depth = False  # a graph has one depth

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order; safe to call from several threads."""
        for request in requests:
            self._check(request)
        results: list[Outputs] = [{} for _ in requests]
        with self._lock:  # one pass at a time already uses all threads
            for batch in plan_padded([len(request) for request in requests], self.max_tokens, PASS_COST):
                outputs = self._run_padded([requests[i] for i in batch])
                for number, output in zip(batch, outputs, strict=True):
                    results[number] = output
        return results

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
        # One place at least: the range of nothing cannot be brought to 8 bits.
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
            elif name in _BEAMS:
                # Beside longer ones a short text has more starts than tokens.
                value = value[(slice(length),) * value.ndim]
            elif name in ("hidden", "start", "end") or (name == "logits" and self.head == "token-classification"):
                value = value[:length]
            output[name] = np.asarray(value)
        return output

    def _check(self, request: Request) -> None:
        check_request(self.config, request)
        missing = request.want - self.outputs
        if "attentions" in missing:
            raise InputError("the exported file has no attention maps; export the model again with attentions")
        if missing:
            article = "an" if self.head[0] in "ae" else "a"
            raise InputError(f"{article} {self.head} model has no output {', '.join(sorted(missing))}")


def open_session(path: Path, threads: int) -> Any:
    """An ONNX Runtime session on the CPU."""
    onnxruntime = require("onnxruntime", "--runtime onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; its warnings are about other people's graphs
    # Threads wait awake for the next operator, but not long: with the default, a core that somebody else uses too makes
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
