"""Loud channels made quiet before they are brought to 8 bits.

A few channels of a trained model's states are many times larger than the rest, and one step of 8 bits is the same for
all: the loud ones would cost the others their digits. Dividing a channel by a factor and multiplying the weights that
read it by the same factor changes nothing but the rounding (SmoothQuant, Xiao et al. 2023, with equal shares).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.export.reference import Reference
from litebert.predict.runtime import Request

Peaks = dict[str, NDArray[np.float32]]


def input_peaks(reference: Reference, requests: Sequence[Request]) -> Peaks:
    """The largest size of each input channel of each linear layer over the requests, by the names of the graph."""
    found: dict[str, Tensor] = {}

    def watch(name: str) -> Any:
        def look(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            peak = inputs[0].abs().flatten(0, -2).amax(0)
            found[name] = torch.maximum(found[name], peak) if name in found else peak

        return look

    layers = [(name, layer) for name, layer in reference.model.named_modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(watch(name)) for name, layer in layers]
    try:
        reference.run(requests)
    finally:
        for hook in hooks:
            hook.remove()
    peaks = {name: peak.numpy() for name, peak in found.items()}
    # The graph has one product for query, key and value, and two for what reads a token beside a start.
    peaks |= {name.replace(".query", ".qkv"): peak for name, peak in peaks.items() if name.endswith(".query")}
    if "end_hidden" in peaks:
        peaks["end_hidden.token"], peaks["end_hidden.start"] = np.split(peaks["end_hidden"], 2)
    return peaks


def smoothing_factors(peak: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """What to divide each input channel by: its loudness shared between the states and the [in, out] matrix."""
    factors = np.sqrt(np.maximum(peak, 1e-5) / np.maximum(np.abs(matrix).max(axis=1), 1e-5))
    result: NDArray[np.float32] = (factors / np.exp(np.log(factors).mean())).astype(np.float32)
    return result
