"""The two sides of a pretraining measurement: our training step, and transformers' on the same tokens.

A side is a function that takes one step (forward, backward, optimiser) and knows how many real tokens that was.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from litebert.extras import require
from litebert.model.config import ModelConfig
from litebert.pretraining.config import RunConfig
from litebert.pretraining.dry_run import training_step
from litebert.pretraining.objective import Inputs
from litebert.pretraining.recipes import Recipe
from litebert.train.config import OptimConfig
from litebert.train.device import Device


@dataclass(frozen=True)
class Side:
    """One implementation, ready to be timed; it was warmed up when it was made."""

    name: str
    step: Callable[[], None]
    tokens: int  # real ones per step, padding not counted
    warmup_seconds: float  # to build, compile and take the first two steps
    peak_bytes: int  # of GPU memory in a step, with nothing of another side in it; 0 on a CPU


def our_side(name: str, model: ModelConfig, batch: Inputs, device: Device) -> Side:
    """Our step on a packed batch: a new model, AdamW, the way through it that the device chooses."""
    tokens = len(batch.tokens)
    config = RunConfig(
        model=model,
        recipe=Recipe(max_length=batch.max_length),
        optim=OptimConfig(name="adamw", lr=1e-4),
        batch_tokens=tokens,
        micro_batch_tokens=tokens,
    )

    def build() -> Callable[[], None]:
        step = training_step(config, device)
        return lambda: step(batch)

    return _warmed(name, build, real_tokens(batch), device)


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
    """Spare transformers the mask of a full batch.

    Under torch.compile it makes one even where nothing is padded, which keeps attention from its fast kernels: left
    alone, it loses a fifth to two fifths of its speed (docs/results/speed.md).
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
    """Tokens of a packed batch without the filler at its end."""
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
    """The same sequences as rows of the batch's length: what transformers takes. No mask where nothing is padded."""
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
    """Tokens/s of each side, round by round in turns, so that a machine that slows down slows all of them."""
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
