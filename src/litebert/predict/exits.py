"""Early exit: when a text needs no more layers, and the rule stored in a model folder.

    rule = load_rule("RUN/best")                     # exits.json, written by `litebert calibrate`
    simulate(rule, "classes", logits)                -> the exit that answers for each text, of logits at every exit

By confidence: at the first exit whose likeliest class has a probability of `threshold` or more. By patience: once
`patience` exits in a row agree with the one before them (PABEE); numbers agree that differ by at most `threshold`.
Shapes: D exits, N texts, L outputs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.config import build
from litebert.errors import CheckpointError, ConfigError
from litebert.files import write_atomic
from litebert.model.config import ModelConfig
from litebert.parse import read_object

EXITS_FILE = "exits.json"
Problem = Literal["classes", "number", "labels"]  # what the outputs of a head mean
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ExitRule:
    """When to stop."""

    by: Literal["confidence", "patience"]
    threshold: float = 0.0
    patience: int = 1

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ConfigError(f"patience: must be >= 1, got {self.patience}")
        if not self.threshold >= 0:
            raise ConfigError(f"threshold: must be >= 0, got {self.threshold}")

    def describe(self) -> str:
        """In words."""
        if self.by == "confidence":
            return f"stops at a probability of {self.threshold:.4g}"
        within = f" within {self.threshold:.4g}" if self.threshold else ""
        return f"stops when {self.patience} exits in a row agree with the previous one{within}"


def problem_of(config: ModelConfig) -> Problem:
    """What the outputs of a classifier mean."""
    if config.problem_type == "multi_label_classification":
        return "labels"
    return "number" if config.problem_type == "regression" or config.num_labels == 1 else "classes"


def leaves(
    rule: ExitRule, problem: Problem, logits: Floats, before: Floats | None, agreed: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which of N texts stop at an exit, given logits [N, L] there and `before`; and how many exits have agreed."""
    if rule.by == "confidence":
        if problem != "classes":
            raise ConfigError("exits: confidence needs a classifier of one label; use patience")
        shifted = np.exp(logits - logits.max(-1, keepdims=True))
        return shifted.max(-1) / shifted.sum(-1) >= rule.threshold, agreed
    if before is None:
        return np.zeros(len(logits), np.bool_), agreed
    if problem == "classes":
        same = logits.argmax(-1) == before.argmax(-1)
    elif problem == "labels":
        same = ((logits > 0) == (before > 0)).all(-1)
    else:
        same = np.abs(logits - before).max(-1) <= rule.threshold
    agreed = np.where(same, agreed + 1, 0)
    return agreed >= rule.patience, agreed


def simulate(rule: ExitRule, problem: Problem, logits: Floats) -> NDArray[np.int64]:
    """The number of the exit at which each text stops, the last for all that are left: logits [D, N, L] -> [N]."""
    count = logits.shape[1]
    chosen = np.full(count, len(logits) - 1)
    waiting = np.ones(count, np.bool_)
    agreed = np.zeros(count, np.int64)
    for number in range(len(logits) - 1):
        stop, agreed = leaves(rule, problem, logits[number], logits[number - 1] if number else None, agreed)
        chosen[waiting & stop] = number
        waiting &= ~stop
    return chosen


def save_rule(rule: ExitRule, folder: Path | str, facts: dict[str, Any]) -> None:
    """Write a rule into a model folder, with how it was chosen."""
    text = json.dumps({"format": 1, "rule": asdict(rule), "calibration": facts}, indent=2, ensure_ascii=False)
    write_atomic(Path(folder) / EXITS_FILE, text + "\n")


def load_rule(folder: Path | str) -> ExitRule | None:
    """The rule of a model folder; None if it was not calibrated."""
    path = Path(folder) / EXITS_FILE
    if not path.exists():
        return None
    data = read_object(path, CheckpointError)
    if data.get("format") != 1:
        raise CheckpointError(f"{path}: not readable by this version of litebert; run litebert calibrate again")
    try:
        return build(ExitRule, data.get("rule", {}), f"{path}: ")
    except (ConfigError, TypeError) as error:
        raise CheckpointError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
