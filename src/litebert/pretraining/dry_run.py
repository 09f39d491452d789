"""What a run will need on this machine: shapes, memory, and the time, from one timed step."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from litebert.errors import DataError, LitebertError
from litebert.model.config import ModelConfig
from litebert.model.count import count_parameters, training_memory
from litebert.pretraining.config import RunConfig
from litebert.pretraining.data import load_tokenizer, settle
from litebert.pretraining.objective import Inputs, make_model, run_model, scorer
from litebert.text.store import TokenStore
from litebert.train.device import Device, open_device, speed_up
from litebert.train.log import short_count, short_time
from litebert.train.optimizer import make_optimizer


def describe_run(config: RunConfig) -> Iterator[str]:
    """Line by line: shapes, parameters, memory, steps, tokens; last a time estimate, timed on this machine."""
    device = open_device(config.device)
    if config.data.tokenizer:
        with contextlib.suppress(LitebertError):  # not there yet: its line below says so
            config = settle(config, load_tokenizer(config))
    schedule = config.learning_rate()
    micro = config.batch_tokens // config.micro_batches(1)
    yield (
        f"model       {count_parameters(config.model).total:,} parameters without heads, "
        f"{config.model.num_hidden_layers} layers of {config.model.hidden_size}, sharing {config.model.sharing}, "
        f"{config.model.vocab_size:,} pieces"
    )
    yield f"objective   masked LM ({config.recipe.masking}, {config.recipe.mask_rate:.0%}) + {config.recipe.objective}"
    yield f"optimiser   {config.optim.name}, peak lr {schedule.peak:g}, warm-up {schedule.warmup_steps:,} steps"
    yield f"batch       {config.batch_tokens:,} tokens in {config.micro_batches(1)} micro-batches of {micro:,}"
    yield (
        f"steps       {config.steps:,}, {short_count(config.steps * config.batch_tokens)} tokens"
        + (f", at most {config.max_minutes:g} minutes" if config.max_minutes else "")
    )
    if config.depth:
        yield "depth       " + ", ".join(f"{stage.value} until {stage.until:.0%}" for stage in config.depth)
    if config.length:
        yield "length      " + ", ".join(f"{stage.value} until {stage.until:.0%}" for stage in config.length)
    memory = training_memory(config.model, bytes_per_value=2 if device.precision == "bf16" else 4)
    yield f"memory      about {memory.total(micro) / 1e9:.1f} GB per process"
    for name, text in _data_rows(config):
        yield f"{name:11s} {text}"
    seconds = estimate_seconds(config, device)
    limited = config.max_minutes is not None and seconds > 60 * config.max_minutes
    estimate = f"about {short_time(seconds)} on {device.name} ({device.precision}), one process"
    yield f"time        {estimate}" + (", cut by max_minutes" if limited else "")
    if config.max_minutes is not None and limited:
        yield f"until then  {_cut_run(config, 60 * config.max_minutes / seconds)}"


def _cut_run(config: RunConfig, share: float) -> str:
    """How far a run gets in its time, and whether the warm-up is over by then."""
    steps = round(share * config.steps)
    text = f"about {steps:,} steps, {short_count(steps * config.batch_tokens)} tokens"
    warmup = config.learning_rate().warmup_steps
    if 2 * warmup < steps:
        return text
    return f"{text}; warm-up takes {warmup:,} steps: set optim.warmup_steps={max(1, steps // 40)}, or more minutes"


def _data_rows(config: RunConfig) -> list[tuple[str, str]]:
    if not config.data.stores:
        return [("data", "no stores yet (data.stores)")]
    rows = []
    cut = " in all steps" if config.max_minutes else ""
    for path in config.data.stores:
        try:
            store = TokenStore.open(path)
        except DataError as error:
            rows.append(("data", str(error)))
            continue
        epochs = config.steps * config.batch_tokens / max(store.num_tokens, 1)
        rows.append(
            ("data", f"{path}: {len(store):,} documents, {store.num_tokens:,} tokens, {epochs:.1f} epochs of it{cut}")
        )
    return rows


def estimate_seconds(config: RunConfig, device: Device) -> float:
    """Seconds of the whole run, from one timed micro-batch per depth stage."""
    stages = config.depth or ()
    depths = [stage.value for stage in stages] or [config.model.num_hidden_layers]
    untils = [stage.until for stage in stages] or [1.0]
    shares = [b - a for a, b in zip([0.0, *untils], untils, strict=False)]
    # On a CPU a few sequences are enough to time, and more would keep a person waiting.
    micro = config.batch_tokens // config.micro_batches(1)
    tokens = micro if device.is_cuda else min(micro, max(1024, config.recipe.max_length))
    seconds = [time_micro_batch(config, device, depth, tokens) for depth in depths]
    per_token = sum(share * value for share, value in zip(shares, seconds, strict=True)) / tokens
    return per_token * config.batch_tokens * config.steps


def time_micro_batch(config: RunConfig, device: Device, depth: int, tokens: int, repeats: int = 2) -> float:
    """Seconds of one forward, backward and optimiser step over full sequences of random ids."""
    inputs = random_inputs(config.model, tokens, config.recipe.max_length, config.recipe.mask_rate, device)
    step = training_step(config, device, depth)
    best = math.inf
    for _ in range(1 + repeats):
        device.synchronize()
        started = time.perf_counter()
        step(inputs)
        device.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


def training_step(config: RunConfig, device: Device, depth: int | None = None) -> Callable[[Inputs], None]:
    """A new model's forward, backward and optimiser step, for timing."""
    model, _ = make_model(config, load=False)
    model.to(device.device)
    model.encoder.set_depth(depth)
    speed_up(model, device)
    scored = scorer(device)
    optimizer = make_optimizer(model, config.optim, config.learning_rate().peak)

    def step(inputs: Inputs) -> None:
        with device.autocast():
            totals = scored(run_model(model, inputs), inputs)
        (totals.mlm_loss / totals.mlm_count + totals.sentence_loss / totals.sentence_count.clamp(min=1)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def random_inputs(config: ModelConfig, tokens: int, length: int, mask_rate: float, device: Device) -> Inputs:
    """A packed batch of full sequences of random ids, shaped like the loader's."""
    generator = torch.Generator().manual_seed(0)
    count = max(1, tokens // length)
    total = count * min(length, tokens)
    each = total // count
    ids = torch.randint(5, config.vocab_size, (total,), generator=generator)
    positions = torch.arange(each).repeat(count)
    maskable = positions.nonzero().squeeze(1)  # never a [CLS]
    masked = maskable[torch.randperm(len(maskable), generator=generator)[: max(1, round(mask_rate * total))]]
    values: dict[str, Any] = dict(
        tokens=ids,
        segments=(positions >= each // 2).long(),
        positions=positions,
        starts=torch.arange(0, total + 1, each, dtype=torch.int32),
        masked=masked,
        labels=ids[masked],
        order=torch.randint(0, 2, (count,), generator=generator),
    )
    return Inputs(**{name: value.to(device.device) for name, value in values.items()}, max_length=each)
