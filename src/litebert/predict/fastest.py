"""Which runtime is faster on this CPU: torch, or ONNX Runtime with the fp32 export of the same weights.

It is measured when a model that has such an export is first loaded, within about a second, and remembered for models
of that shape on this machine. int8 is no candidate: it gives other answers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

import litebert
from litebert.errors import CheckpointError, DataError
from litebert.extras import require
from litebert.files import write_atomic
from litebert.folders import beside
from litebert.model.config import ModelConfig
from litebert.parse import read_object
from litebert.predict.exported import ONNX_FILES, read_manifest, source_checksums
from litebert.predict.runtime import ENCODER_OUTPUTS, Outputs, Request, Runtime

LENGTHS = (16, 128)  # a short question, a paragraph
ROUNDS = 5
SECONDS = 1.0

Clock = Callable[[], float]


def find_export(folder: Path) -> Path | None:
    """The folder with the fp32 export of the weights in a model folder, if ONNX Runtime is here to run it.

    It is the folder itself, or the one beside it where `litebert export` writes. An export of other weights, or of
    these before they were trained further, does not count.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    sources = None
    for place in (folder, beside(folder, "-onnx")):
        try:
            manifest = read_manifest(place)
        except CheckpointError:
            continue
        sources = sources or source_checksums(folder)
        if ONNX_FILES["fp32"] in manifest.files and manifest.source == sources:
            return place
    return None


def pick_fastest(
    config: ModelConfig,
    threads: int,
    candidates: Mapping[str, Callable[[], Runtime]],
    clock: Clock = time.perf_counter,
) -> str:
    """The name of the fastest candidate: as remembered, else they are loaded and measured."""
    memory = cache_folder() / "fastest.json"
    key = describe_setting(config, threads)
    known = _read(memory)
    if known.get(key) in candidates:
        return str(known[key])
    seconds = measure({name: load() for name, load in candidates.items()}, clock)
    name = min(seconds, key=lambda name: math.prod(seconds[name]))  # no length weighs more than another
    # Somebody without a place to write measures each time.
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(memory, json.dumps({**_read(memory), key: name}, indent=2) + "\n")
    return name


def measure(candidates: Mapping[str, Runtime], clock: Clock = time.perf_counter) -> dict[str, list[float]]:
    """The best seconds of each candidate for one sequence of each length, taken in turns.

    Where the model is so large, or the machine so busy, that the next length would take too long, it is left out.
    """
    config = next(iter(candidates.values())).config
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    per_token = 0.0
    for length in LENGTHS:
        if per_token * length > SECONDS:  # each would run twice at least
            break
        request = _request(config, min(length, config.max_position_embeddings))
        best = dict.fromkeys(candidates, math.inf)
        deadline = clock() + SECONDS / len(LENGTHS)
        for _ in range(ROUNDS):
            for name, runtime in candidates.items():
                runtime.run([request])  # its weights back into the cache, and the threads of the other asleep
                begin = clock()
                runtime.run([request])
                best[name] = min(best[name], clock() - begin)
            if clock() > deadline:
                break
        per_token = sum(best.values()) / length
        for name in candidates:
            seconds[name].append(best[name])
    return seconds


def describe_setting(config: ModelConfig, threads: int) -> str:
    """What decides which is faster: the model's shape, the machine, the threads, the versions."""
    shape = (
        f"{config.num_hidden_layers} x {config.hidden_size}, {config.num_attention_heads} heads, "
        f"{config.intermediate_size} inside, {config.hidden_act}"
    )
    onnxruntime = require("onnxruntime", "the choice of a runtime")
    versions = f"litebert {litebert.__version__}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    return f"{shape}; {cpu_name()}, {threads} threads; {versions}"


def cpu_name() -> str:
    """The processor's name, as far as the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cache_folder() -> Path:
    """Where we remember what can be found out again: LITEBERT_CACHE, or the user's cache folder."""
    if said := os.environ.get("LITEBERT_CACHE"):
        return Path(said)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "litebert")


class WithTorch:
    """ONNX Runtime for what the export gives, and torch, loaded when first needed, for the rest: attention maps."""

    def __init__(self, exported: Runtime, load: Callable[[], Runtime]):
        self.exported = exported
        self.config, self.head, self.name = exported.config, exported.head, exported.name
        self.outputs = exported.outputs | ENCODER_OUTPUTS
        self._load = load
        self._torch: Runtime | None = None

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        rest = [i for i, request in enumerate(requests) if not request.want <= self.exported.outputs]
        if not rest:
            return self.exported.run(requests)
        self._torch = self._torch or self._load()
        slow = dict(zip(rest, self._torch.run([requests[i] for i in rest]), strict=True))
        fast = iter(self.exported.run([request for i, request in enumerate(requests) if i not in slow]))
        return [slow[i] if i in slow else next(fast) for i in range(len(requests))]


def _request(config: ModelConfig, length: int) -> Request:
    ids = np.arange(length, dtype=np.int32) % config.vocab_size
    return Request(ids, np.zeros(length, np.int8), frozenset({"mean"}))


def _read(memory: Path) -> dict[str, str]:
    try:
        return read_object(memory)
    except DataError:
        return {}
