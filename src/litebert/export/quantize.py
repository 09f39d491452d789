"""Quantize weights to 8 and 4 bits for layers that are applied many times.

ALBERT passes its states through the same matrices twelve times, so it makes every rounding error twelve times. Two
remedies:

smoothing   A few channels of the states are many times larger than the rest. Dividing a channel by a factor and
            multiplying the weights that read it by the same factor changes only the rounding (SmoothQuant, Xiao et al.
            2023). The best split between states and weights is searched for each matrix.
feedback    In 4 bits, the weights of the channels still to be rounded compensate for the rounding error of each input
            channel (GPTQ, Frantar et al. 2023), over the states of all applications.

Both need typical states. Text is not needed for that: pieces drawn by their frequency in the vocabulary do as well
(docs/results/browser.md).

Shapes: K input channels, N outputs of a matrix [K, N].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.export.check import Reference, piece_shares
from litebert.model.config import ModelConfig
from litebert.predict.runtime import Request
from litebert.text.tokenizer import Tokenizer

Array = NDArray[np.float32]

SHARES = (0.0, 0.35, 0.5, 0.65, 0.8)  # of a channel's loudness that the weights may take; 0: no smoothing
SAMPLED = 8  # rows kept of each pass through a layer, to try them with
BLOCK = 16  # input channels that share a scale in 4 bits
LARGEST = 7  # 4 bits hold -8 to 7
FINE = 8  # a block's scale counts in eighths of its column's, up to 18, so that values * steps / 8 fit 8 bits
MOST_STEPS = 18 * FINE
DAMPING = 0.05  # of the mean, added to the diagonal of the Hessian
CLIPPING = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)  # shares of a block's largest weight to try as the largest value


@dataclass(frozen=True)
class Statistics:
    """What the inputs of each linear layer look like, by the names of the graph."""

    peaks: dict[str, Array] = field(default_factory=dict)  # the largest size of each channel [K]
    rows: dict[str, Array] = field(default_factory=dict)  # some of them [R, K]
    grams: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # the sum of x x^T over all tokens [K, K]


class FourBits(NamedTuple):
    """A matrix [K, N] as values * steps / 8 * scale, the steps being those of the value's block of channels."""

    values: NDArray[np.int8]  # [K, N], -8 to 7
    steps: NDArray[np.uint8]  # [K / block, N]
    scale: Array  # [N]

    @property
    def whole(self) -> NDArray[np.int8]:
        """values * steps / 8, rounded: the matrix in 8 bits."""
        repeated = np.repeat(self.steps.astype(np.float32), len(self.values) // len(self.steps), axis=0)
        return _in_eight(self.values, repeated).astype(np.int8)


def _in_eight(values: NDArray[Any], steps: NDArray[Any]) -> NDArray[Any]:
    whole: NDArray[Any] = np.maximum(np.rint(values * (steps / FINE)), -128)
    return whole


# ---------------------------------------------------------------------------------------------------------------------
# What states look like


def likely_requests(
    config: ModelConfig, tokenizer: Tokenizer | None, want: frozenset[str], sequences: int = 12, seed: int = 0
) -> list[Request]:
    """Sequences of pieces drawn as often as they occur, in two segments, 15 % of them masked; any ids without a
    vocabulary."""
    generator = np.random.default_rng(seed)
    length = min(128, config.max_position_embeddings)
    shares = piece_shares(config, tokenizer)
    requests = []
    for _ in range(sequences):
        ids = generator.choice(config.vocab_size, length, p=shares).astype(np.int32)
        segments = (np.arange(length) > length // 2).astype(np.int8) * min(1, config.type_vocab_size - 1)
        positions = np.flatnonzero(generator.random(length) < 0.15)[: length - 1] if length > 1 else np.zeros(1, int)
        if tokenizer is not None:
            ids[positions] = tokenizer.mask_id
            ids[[0, length // 2, -1]] = tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id
        outside = np.zeros(length, np.bool_)
        requests.append(Request(ids, segments.astype(np.int8), want, positions.astype(np.int64), outside))
    return requests


def measure(reference: Reference, requests: Sequence[Request], grams: bool = False) -> Statistics:
    """The statistics of every linear layer over the requests; `grams` are needed for 4 bits, and take longer."""
    peaks: dict[str, Tensor] = {}
    samples: dict[str, list[Tensor]] = {}
    sums: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(0)

    def watch(name: str) -> Any:
        def look(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            rows = inputs[0].flatten(0, -2)
            peak = rows.abs().amax(0)
            peaks[name] = torch.maximum(peaks[name], peak) if name in peaks else peak
            samples.setdefault(name, []).append(rows[torch.randint(len(rows), (SAMPLED,), generator=generator)])
            if grams and in_four_bits(name):
                added = (rows.T @ rows).double()
                sums[name] = sums[name] + added if name in sums else added

        return look

    layers = [(name, layer) for name, layer in reference.model.named_modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(watch(name)) for name, layer in layers]
    try:
        for request in requests:
            reference.head_outputs(request)
    finally:
        for hook in hooks:
            hook.remove()
    measured = Statistics(
        {name: peak.numpy() for name, peak in peaks.items()},
        {name: torch.cat(rows).numpy() for name, rows in samples.items()},
        {name: gram.numpy() for name, gram in sums.items()},
    )
    # The graph has one product for query, key and value, and two for what reads a token beside a start.
    found: Any
    for found in (measured.peaks, measured.rows, measured.grams):
        found.update({name.replace(".query", ".qkv"): found[name] for name in list(found) if name.endswith(".query")})
        if "end_hidden" in found:
            found["end_hidden.token"], found["end_hidden.start"] = np.split(found["end_hidden"], 2, axis=-1)
    return measured


def in_four_bits(name: str) -> bool:
    """Whether 4 bits do for a linear layer: those of the repeated layers and the pooler, not the small ones around."""
    return name.startswith(("encoder.attention.", "encoder.ffn.", "encoder.pooler"))


def smoothing_factors(peak: Array, matrix: Array, rows: Array) -> Array:
    """What to divide each input channel by for the best product in 8 bits with these rows [R, K]."""
    exact = rows @ matrix
    best, least = np.ones(len(peak), np.float32), math.inf
    for share in SHARES:
        factors = _factors(peak, matrix, share) if share else best
        values, scale = quantize(matrix * factors[:, None])
        states, of_rows = quantize((rows / factors).T)  # each row by its own range
        error = float(np.square((states.T.astype(np.float32) @ values) * scale * of_rows[:, None] - exact).sum())
        if error < least:
            best, least = factors, error
    return best


def _factors(peak: Array, matrix: Array, share: float) -> Array:
    loud, weights = np.maximum(peak, 1e-5), np.maximum(np.abs(matrix).max(axis=1), 1e-5)
    factors = loud**share / weights ** (1 - share)
    result: Array = (factors / np.exp(np.log(factors).mean())).astype(np.float32)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Rounding


def quantize(matrix: Array) -> tuple[NDArray[np.int8], Array]:
    """Columns in [-127, 127], and the scale of each: matrix ~ values * scale."""
    scale = np.maximum(np.abs(matrix).max(axis=0) / 127, np.float32(1e-12)).astype(np.float32)
    return np.clip(np.rint(matrix / scale), -127, 127).astype(np.int8), scale


def quantize_four(matrix: Array, gram: NDArray[np.float64] | None = None) -> FourBits:
    """A matrix in 4 bits; with the gram matrix of its inputs [K, K], errors are fed back to channels not yet rounded.

    Channels are rounded one after another, and each error, weighted by the correlation of the channels, is subtracted
    from the following ones (GPTQ's order and its lazy batches of channels).
    """
    channels, outputs = matrix.shape
    block = math.gcd(channels, BLOCK)
    spread = _feedback(np.eye(channels) if gram is None else gram)
    left = matrix.astype(np.float64)
    scale = np.maximum(np.abs(left).max(axis=0), 1e-12) / (LARGEST * MOST_STEPS / FINE)
    values = np.empty((channels, outputs), np.int8)
    steps = np.empty((channels // block, outputs), np.uint8)
    batch = block * max(1, 128 // block)
    for begin in range(0, channels, batch):
        here = left[begin : begin + batch]  # a view: rounded in place
        errors = np.empty_like(here)
        for row in range(len(here)):
            channel = begin + row
            if channel % block == 0:
                chosen = _best_steps(here[row : row + block], scale)
                steps[channel // block] = chosen
            values[channel], rounded = _round(here[row], chosen, scale)
            errors[row] = (here[row] - rounded) / spread[channel, channel]
            here[row + 1 :] -= spread[channel, channel + 1 : begin + len(here), None] * errors[row]
        left[begin + batch :] -= spread[begin : begin + batch, begin + batch :].T @ errors
    return FourBits(values, steps, scale.astype(np.float32))


def _feedback(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """The upper Cholesky factor of the inverse Hessian, damped: row i says where the error of channel i goes."""
    damped = gram + np.eye(len(gram)) * max(DAMPING * float(np.diag(gram).mean()), 1e-12)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(torch.from_numpy(damped)))
    upper: NDArray[np.float64] = torch.linalg.cholesky(inverse, upper=True).numpy()
    return upper


def _round(
    rows: NDArray[np.float64], steps: NDArray[np.float64], scale: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 4-bit values, and the numbers they represent."""
    values = np.clip(np.rint(rows / (steps / FINE * scale)), -LARGEST - 1, LARGEST)
    return values, _in_eight(values, steps) * scale


def _best_steps(rows: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """For a block of channels [block, N], the steps of each column that leave the smallest error."""
    largest = np.abs(rows).max(axis=0)
    best, least = np.ones(rows.shape[1]), np.full(rows.shape[1], np.inf)
    for share in CLIPPING:
        steps = np.clip(np.rint(largest * share * FINE / (LARGEST * scale)), 1, MOST_STEPS)
        error = np.square(_round(rows, steps, scale)[1] - rows).sum(axis=0)
        best, least = np.where(error < least, steps, best), np.minimum(error, least)
    return best


def quantize_six(table: Array) -> tuple[NDArray[np.int8], Array]:
    """Rows in [-31, 31], and the scale of each [V]: table ~ values * scale."""
    scale = np.maximum(np.abs(table).max(axis=1) / 31, np.float32(1e-12)).astype(np.float32)
    return np.clip(np.rint(table / scale[:, None]), -31, 31).astype(np.int8), scale


def pack_six(values: NDArray[np.int8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Values of -32 to 31 [V, E]: their low 4 bits, two to a byte [V, E / 2], and their high 2, four to a byte."""
    whole = (values.astype(np.int16) + 32).astype(np.uint8)
    low, high = np.split(whole & 15, 2, axis=1), np.split(whole >> 4, 4, axis=1)
    four, two = low[0] | (low[1] << 4), high[0] | (high[1] << 2) | (high[2] << 4) | (high[3] << 6)
    return four.astype(np.uint8), two.astype(np.uint8)


def pack(values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Values of -8 to 7 [K, N], two to a byte: the first half of the channels in the low bits [K / 2, N]."""
    low, high = np.split((values.astype(np.int16) + 8).astype(np.uint8), 2)
    packed: NDArray[np.uint8] = (low | (high << 4)).astype(np.uint8)
    return packed
