"""How fast does pretraining run here, beside transformers on the same tokens?

    result = bench_pretrain([Case("albert-base", 128)], device, compare=("compiled",))
    print(result.table())

Every case is one interleaved run: all sides are built and warmed up, then take turns. A case from a token store shows
what real document lengths do to a padded batch, and whether the loader ever makes the device wait.
"""

from __future__ import annotations

import dataclasses
import gc
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Literal

import torch

from litebert.bench.sides import Side, interleave, our_side, peer_side, real_tokens
from litebert.model.config import ModelConfig, preset, vary
from litebert.model.count import forward_flops
from litebert.pretraining.assembly import Batch
from litebert.pretraining.batches import Batches
from litebert.pretraining.config import RunConfig
from litebert.pretraining.dry_run import random_inputs, training_step
from litebert.pretraining.objective import Inputs, to_device
from litebert.pretraining.recipes import Recipe
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.config import OptimConfig
from litebert.train.device import Device, measure_peak

Peer = Literal["compiled", "eager"]
FP8 = "litebert FP8"
OURS = ("litebert", FP8)


@dataclass(frozen=True)
class Case:
    """One row: a preset at a length; with a store, sequences as long as its documents make them."""

    model: str
    length: int
    tokens: int = 32_768
    peers: tuple[Peer, ...] = ("compiled",)
    store: str | None = None
    tokenizer: str | None = None
    fp8: bool = False  # ours in 8 bits too, as a side of its own

    @property
    def name(self) -> str:
        """What a table calls it: "albert-base 128"."""
        return f"{self.model} {self.length}" + (", real lengths" if self.store else "")


@dataclass(frozen=True)
class Row:
    """What was measured of one side of a case."""

    case: str
    side: str
    tokens_per_second: float  # median over the rounds, real tokens
    slowest: float
    fastest: float
    share_of_ceiling: float
    peak_gib: float
    warmup_seconds: float


@dataclass(frozen=True)
class LoaderRow:
    """Training from a store's stream against training on one batch that is already there."""

    case: str
    fixed_tokens_per_second: float
    stream_tokens_per_second: float
    waiting_share: float  # of the time, spent asking the loader for a batch


@dataclass
class BenchResult:
    """All rows of a run, with what they were measured on."""

    hardware: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    loader: list[LoaderRow] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    def ratio(self, case: str, side: str, ours: str = "litebert") -> float:
        """How many times as fast we are as `side`."""
        speeds = {row.side: row.tokens_per_second for row in self.rows if row.case == case}
        return speeds[ours] / speeds[side]

    def table(self) -> str:
        """A Markdown table, one line per side."""
        lines = [
            "| case | side | tokens/s | litebert against it | share of ceiling | peak GiB | warm-up s |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            against = "" if row.side in OURS else f"{self.ratio(row.case, row.side):.2f}x"
            if against and any(other.case == row.case and other.side == FP8 for other in self.rows):
                against += f", FP8 {self.ratio(row.case, row.side, FP8):.2f}x"
            memory = f"{row.peak_gib:.1f}" if row.peak_gib else ""
            cells = (f"{row.tokens_per_second:,.0f}", against, f"{row.share_of_ceiling:.0%}", memory)
            lines.append(f"| {row.case} | {row.side} | {' | '.join(cells)} | {row.warmup_seconds:.0f} |")
        for loader in self.loader:
            lines += [
                "",
                f"{loader.case}: {loader.stream_tokens_per_second:,.0f} tokens/s from the store, "
                f"{loader.fixed_tokens_per_second:,.0f} from one batch in memory; "
                f"{loader.waiting_share:.2%} of the time was spent waiting for batches.",
            ]
        return "\n".join(lines)


def bench_pretrain(cases: Sequence[Case], device: Device, rounds: int = 5, seconds: float = 1.0) -> BenchResult:
    """Measure each case, ours beside its peers, `rounds` turns of about `seconds` each."""
    ceiling = measure_peak(device, seconds=2.0 if device.is_cuda else 0.5)
    result = BenchResult(describe_hardware(device, ceiling))
    for case in cases:
        batch = make_batch(case, device)
        shape = shape_of(case)
        sides: list[Side] = [our_side("litebert", shape, batch, device)]
        if case.fp8:
            sides.append(our_side(FP8, shape, batch, dataclasses.replace(device, fp8=True)))
        for peer in case.peers:
            sides.append(peer_side(f"transformers {peer}", shape, batch, device, compiled=peer == "compiled"))
        found = interleave(sides, device, rounds, seconds)
        mean_length = real_tokens(batch) / max(1, int((batch.order >= 0).sum())) if case.store else case.length
        flops = 3 * forward_flops(shape, round(mean_length))
        for side in sides:
            speeds = found[side.name]
            middle = statistics.median(speeds)
            result.rows.append(
                Row(
                    case.name,
                    side.name,
                    middle,
                    min(speeds),
                    max(speeds),
                    middle * flops / ceiling,
                    side.peak_bytes / 2**30,
                    side.warmup_seconds,
                )
            )
        del sides
        torch._dynamo.reset()  # another model is another set of shapes
        gc.collect()
        if device.is_cuda:
            torch.cuda.empty_cache()
        if case.store:
            result.loader.append(measure_loader(case, device, steps=max(3, round(rounds * 4))))
    return result


def shape_of(case: Case) -> ModelConfig:
    """The model of a case, without dropout."""
    shape = preset(case.model)
    if case.tokenizer:
        shape = vary(shape, vocab_size=Tokenizer.load(case.tokenizer).vocab_size)
    return vary(shape, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def make_batch(case: Case, device: Device) -> Inputs:
    """One micro-batch: full sequences of random ids, or the first of a store."""
    if case.store is None:
        return random_inputs(shape_of(case), case.tokens, case.length, 0.15, device)
    batch = _batches(case).batch(0)
    assert isinstance(batch, Batch)
    return to_device(batch, device.device, case.length)


def _batches(case: Case) -> Batches:
    assert case.store is not None
    assert case.tokenizer is not None
    tokenizer = Tokenizer.load(case.tokenizer)
    store = TokenStore.open(case.store, tokenizer)
    return Batches(
        store, tokenizer, Recipe(max_length=case.length), tokens_per_batch=case.tokens, row_tokens=case.tokens
    )


def measure_loader(case: Case, device: Device, steps: int) -> LoaderRow:
    """Steps on one batch, then as many from the store as a run takes them: made ahead by another process."""
    batch = make_batch(case, device)
    config = RunConfig(
        model=shape_of(case),
        recipe=Recipe(max_length=case.length),
        optim=OptimConfig(name="adamw", lr=1e-4),
        batch_tokens=case.tokens,
        micro_batch_tokens=case.tokens,
    )
    step = training_step(config, device)
    for _ in range(2):
        step(batch)
    device.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        step(batch)
    device.synchronize()
    fixed = steps * real_tokens(batch) / (time.perf_counter() - started)

    stream = _batches(case).iterate(0, workers=1, prefetch=4)
    try:
        for _ in range(2):
            step(to_device(_plain(next(stream)), device.device, case.length))
        device.synchronize()
        waiting, tokens = 0.0, 0
        started = time.perf_counter()
        for _ in range(steps):
            asked = time.perf_counter()
            following = _plain(next(stream))
            waiting += time.perf_counter() - asked
            tokens += int(following.starts[following.num_sequences])
            step(to_device(following, device.device, case.length))
        device.synchronize()
        elapsed = time.perf_counter() - started
    finally:
        stream.close()
    return LoaderRow(case.name, fixed, tokens / elapsed, waiting / elapsed)


def _plain(batch: object) -> Batch:
    assert isinstance(batch, Batch)
    return batch


def describe_hardware(device: Device, ceiling: float) -> dict[str, Any]:
    """What a result needs beside it to mean something."""
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    for name in ("triton", "transformers"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "device": device.name,
        "precision": device.precision,
        "fast_layers": device.fast_layers,
        "ceiling_tflops": ceiling / 1e12,
        "date": time.strftime("%Y-%m-%d"),
        **versions,
    }
