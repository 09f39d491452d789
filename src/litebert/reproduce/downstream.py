"""Scores on labelled tasks: the one place where the paper's columns meet our fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Downstream:
    """Scores in percent by metric, half-widths of their 95 % intervals, and the data sets that are not there."""

    scores: dict[str, float] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def score_downstream(model_folder: Path, tasks_folder: Path, out: Path, seed: int = 0) -> Downstream:
    """Fine-tune a model on every data set of a folder and score it on the development sets."""
    raise NotImplementedError


def score_ensemble(folders: Sequence[Path], tasks_folder: Path) -> dict[str, float]:
    """The scores of the mean of the predictions of several fine-tuned models."""
    raise NotImplementedError
