"""What a user may choose about the hardware; apart from device.py, so that a config is read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litebert.errors import ConfigError


@dataclass(frozen=True)
class DeviceConfig:
    """What a user may choose; `auto` means fp32 on a CPU, bf16 and compiled on a GPU that can."""

    device: str = "auto"  # auto, cpu, cuda, cuda:1
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    threads: int = 0  # 0: OMP_NUM_THREADS, or as many as the process may use
    fast_layers: Literal["on", "off"] = "on"  # the layers of model/fast, on a GPU in bf16 and where nothing is dropped
    fp8: bool = False  # 8-bit matrix products in the fast layers: meant for hidden sizes of 2,048 and more
    graphs: Literal["auto", "on", "off"] = "auto"  # steps recorded once and replayed, on a GPU; auto: where that pays
    recompute: bool = False  # keep only each layer's input, and run it forward once more to go back: for small cards
    deterministic: bool = False  # bit-equal results on a GPU, at a price; a CPU always gives them

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise ConfigError(f"threads: must not be negative, got {self.threads}")
