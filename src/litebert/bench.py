"""Measure pretraining speed on this machine, against transformers on the same tokens.

    result = bench_pretrain([Case("albert-base", 128)], device)
    print(result.table())

Every case is one interleaved run: all sides are built and warmed up, then take turns. A case from a token store shows
what real document lengths cost a padded batch, and whether the loader keeps the device waiting.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Literal

import torch
from torch import Tensor

from litebert.extras import require
from litebert.model.config import ModelConfig, preset, vary
from litebert.model.count import forward_flops
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
    """One case: a preset at a length; with a store, sequences of real lengths."""

    model: str
    length: int
    tokens: int = 32_768
    peers: tuple[Peer, ...] = ("compiled",)
    store: str | None = None
    tokenizer: str | None = None
    fp8: bool = False  # also measure litebert in FP8

    @property
    def name(self) -> str:
        """Its name in a table: "albert-base 128"."""
        return f"{self.model} {self.length}" + (", real lengths" if self.store else "")


@dataclass(frozen=True)
class SpeedRow:
    """The measurements of one side of a case."""

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
    """Training from a store's stream beside training on one batch in memory."""

    case: str
    fixed_tokens_per_second: float
    stream_tokens_per_second: float
    waiting_share: float  # of the time, waiting for the loader


@dataclass
class BenchResult:
    """All rows of a run, with the hardware and versions."""

    hardware: dict[str, Any]
    rows: list[SpeedRow] = field(default_factory=list)
    loader: list[LoaderRow] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    def ratio(self, case: str, side: str, ours: str = "litebert") -> float:
        """Our speed divided by that of `side`."""
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
    """Measure litebert and its peers on each case, in `rounds` turns of about `seconds` each."""
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
                SpeedRow(
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
        torch._dynamo.reset()  # the next model has other shapes
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
    return to_device(_batches(case).batch(0), device.device, case.length)


def _batches(case: Case) -> Batches:
    assert case.store is not None
    assert case.tokenizer is not None
    tokenizer = Tokenizer.load(case.tokenizer)
    store = TokenStore.open(case.store, tokenizer)
    return Batches(
        store, tokenizer, Recipe(max_length=case.length), tokens_per_batch=case.tokens, row_tokens=case.tokens
    )


def measure_loader(case: Case, device: Device, steps: int) -> LoaderRow:
    """Steps on one batch in memory, then equally many from the store, made ahead by another process as in a run."""
    batch = make_batch(case, device)
    step = training_step(_config(shape_of(case), case.length, case.tokens), device)
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
            step(to_device(next(stream), device.device, case.length))
        device.synchronize()
        waiting, tokens = 0.0, 0
        started = time.perf_counter()
        for _ in range(steps):
            asked = time.perf_counter()
            following = next(stream)
            waiting += time.perf_counter() - asked
            tokens += int(following.starts[following.num_sequences])
            step(to_device(following, device.device, case.length))
        device.synchronize()
        elapsed = time.perf_counter() - started
    finally:
        stream.close()
    return LoaderRow(case.name, fixed, tokens / elapsed, waiting / elapsed)


def describe_hardware(device: Device, ceiling: float) -> dict[str, Any]:
    """Hardware, versions and date, for the record."""
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


# -- the sides: our training step, and transformers' on the same tokens ------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One implementation, built, warmed up and ready to be timed."""

    name: str
    step: Callable[[], None]
    tokens: int  # per step, without padding
    warmup_seconds: float  # to build, compile and run the first two steps
    peak_bytes: int  # GPU memory of a step, without the other sides; 0 on a CPU


def our_side(name: str, model: ModelConfig, batch: Inputs, device: Device) -> Side:
    """Our step on a packed batch: a new model with AdamW, and the fast layers if the device has them."""
    config = _config(model, batch.max_length, len(batch.tokens))

    def build() -> Callable[[], None]:
        step = training_step(config, device)
        return lambda: step(batch)

    return _warmed(name, build, real_tokens(batch), device)


def _config(model: ModelConfig, length: int, tokens: int) -> RunConfig:
    optim = OptimConfig(name="adamw", lr=1e-4)
    recipe = Recipe(max_length=length)
    return RunConfig(model=model, recipe=recipe, optim=optim, batch_tokens=tokens, micro_batch_tokens=tokens)


def peer_side(name: str, model: ModelConfig, batch: Inputs, device: Device, compiled: bool) -> Side:
    """transformers' AlbertForPreTraining (or BERT's) with sdpa and fused AdamW on the same sequences, padded."""
    transformers = require("transformers", "the comparison with transformers")
    padded = pad(batch, order_name="next_sentence_label" if model.sharing == "none" else "sentence_order_label")

    def build() -> Callable[[], None]:
        transformers.utils.logging.set_verbosity_error()
        peer = peer_model(model, transformers).to(device.device)
        choose_mask(peer, needed="attention_mask" in padded)
        optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-4, fused=device.is_cuda)
        forward = torch.compile(peer, dynamic=False) if compiled else peer

        def step() -> None:
            with device.autocast():
                loss = forward(**padded).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    return _warmed(name, build, real_tokens(batch), device)


def choose_mask(peer: torch.nn.Module, needed: bool) -> None:
    """Turn off transformers' attention mask for a full batch.

    Under torch.compile it builds one even if nothing is padded, which rules out the fast attention kernels and costs a
    fifth to two fifths of its speed (docs/results/speed.md).
    """
    module = sys.modules[type(peer).__module__]
    original = sys.modules["transformers.masking_utils"].create_bidirectional_mask
    module.create_bidirectional_mask = original if needed else lambda *_, **__: None  # type: ignore[attr-defined]


def _warmed(name: str, build: Callable[[], Callable[[], None]], tokens: int, device: Device) -> Side:
    before = 0
    if device.is_cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    started = time.perf_counter()
    step = build()
    for _ in range(2):
        step()
    device.synchronize()
    warmup = time.perf_counter() - started
    peak = 0
    if device.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        step()
        device.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    return Side(name, step, tokens, warmup, peak)


def real_tokens(batch: Inputs) -> int:
    """Tokens of a packed batch without the padding at its end."""
    return int((batch.tokens != 0).sum())


def peer_model(model: ModelConfig, transformers: Any) -> torch.nn.Module:
    """transformers' model of the same shape, without dropout."""
    common = dict(
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        intermediate_size=model.intermediate_size,
        hidden_act=model.hidden_act,
        max_position_embeddings=model.max_position_embeddings,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    if model.sharing == "none":
        peer = transformers.BertForPreTraining(transformers.BertConfig(**common))
    else:
        config = transformers.AlbertConfig(
            **common,
            embedding_size=model.embedding_size,
            num_hidden_groups=model.num_hidden_groups,
            classifier_dropout_prob=0.0,
        )
        peer = transformers.AlbertForPreTraining(config)
    return peer.train()  # type: ignore[no-any-return, unused-ignore]


def pad(batch: Inputs, order_name: str = "sentence_order_label") -> dict[str, Tensor]:
    """The same sequences as padded rows, as transformers takes them; without a mask if nothing is padded."""
    starts = batch.starts.tolist()
    spans = [(a, b) for a, b in itertools.pairwise(starts) if a < b and int(batch.tokens[a]) != 0]
    shape = (len(spans), batch.max_length)
    device = batch.tokens.device
    ids = torch.zeros(shape, dtype=torch.long, device=device)
    segments, mask = torch.zeros_like(ids), torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    flat = torch.full_like(batch.tokens, -100)
    flat[batch.masked] = batch.labels
    for row, (a, b) in enumerate(spans):
        ids[row, : b - a], segments[row, : b - a], mask[row, : b - a] = batch.tokens[a:b], batch.segments[a:b], 1
        labels[row, : b - a] = flat[a:b]
    order = batch.order[: len(spans)].clamp(min=0)
    result = {"input_ids": ids, "token_type_ids": segments, "labels": labels, order_name: order}
    if not bool(mask.all()):
        result["attention_mask"] = mask
    return result


def interleave(sides: Sequence[Side], device: Device, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Tokens/s of each side, round by round in turns, so that a slowdown of the machine affects all of them."""
    steps = {}
    for side in sides:
        device.synchronize()
        started = time.perf_counter()
        side.step()
        device.synchronize()
        steps[side.name] = max(1, round(seconds / (time.perf_counter() - started)))
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            device.synchronize()
            started = time.perf_counter()
            for _ in range(steps[side.name]):
                side.step()
            device.synchronize()
            found[side.name].append(side.tokens * steps[side.name] / (time.perf_counter() - started))
    return found
