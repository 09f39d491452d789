"""Named runs: the paper's recipe for each of its models, and recipes for one GPU and for a laptop.

Plain data in the form of the YAML file, so that a preset can be printed, copied and changed.
"""

from __future__ import annotations

from typing import Any

_PAPER_RUN: dict[str, Any] = {
    # Sec. 4.1 and the released flags: LAMB, batch 4096 x 512, 125,000 steps, 3,125 of them warm-up, clip 1.0.
    "recipe": {"name": "paper"},
    "optim": {"name": "lamb", "lr": 0.00176, "warmup_steps": 3125},
    "steps": 125_000,
    "batch_tokens": 4096 * 512,
    "micro_batch_tokens": 32_768,
    "log": {"evaluate_every": 5000, "checkpoint_every": 5000},
}


def _depths(*values: int) -> list[dict[str, float | int]]:
    """Equal thirds, halves, ... of the run at each depth."""
    return [{"until": (i + 1) / len(values), "value": value} for i, value in enumerate(values)]


def _short_run(
    model: str, depths: tuple[int, ...], steps: int, batch_tokens: int, micro_batch_tokens: int, checkpoint_every: int
) -> dict[str, Any]:
    return {
        "model": {"preset": model},
        # The shared stack does not start to learn at full depth in a short run; few applications first do.
        "depth": _depths(*depths),
        "recipe": {"name": "paper", "max_length": 128},
        # beta2 0.98: leaves the plateau sooner than 0.999 (docs/results/pretraining.md).
        "optim": {"name": "adamw", "lr": 1e-3, "beta2": 0.98, "bias_correction": True},
        "steps": steps,
        "batch_tokens": batch_tokens,
        "micro_batch_tokens": micro_batch_tokens,
        "log": {"evaluate_every": 500, "checkpoint_every": checkpoint_every},
    }


def _one_gpu(model: str, depths: tuple[int, ...], micro_batch_tokens: int) -> dict[str, Any]:
    return _short_run(model, depths, 20_000, 65_536, micro_batch_tokens, checkpoint_every=1000)


def _cpu(model: str, depths: tuple[int, ...]) -> dict[str, Any]:
    return _short_run(model, depths, 10_000, 8192, 2048, checkpoint_every=500)


RUN_PRESETS: dict[str, dict[str, Any]] = {
    **{
        f"paper/{name}": {"model": {"preset": name}, **_PAPER_RUN}
        for name in ("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge", "bert-base", "bert-large")
    },
    "gpu/albert-small": _one_gpu("albert-small", (2, 3, 6), 65_536),
    "gpu/albert-base": _one_gpu("albert-base", (3, 6, 12), 32_768),
    "gpu/albert-large": _one_gpu("albert-large", (3, 6, 12, 24), 32_768),
    "cpu/albert-tiny": _cpu("albert-tiny", (1, 2, 4)),
    "cpu/albert-small": _cpu("albert-small", (2, 3, 6)),
}
