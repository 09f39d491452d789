"""Early exit: when a text needs no more layers, and the rule stored in a model folder.

    rule = load_rule("RUN/best")                     # exits.json, written by `litebert calibrate`
    simulate(rule, trace)                            -> the exit that would answer for each sequence

By confidence: at the first exit that is as sure as `threshold`. By patience: once `patience` exits in a row agree with
the one before them (PABEE); numbers agree that differ by at most `threshold`. By a gate: at the first exit where a
small trained head finds it as probable as `threshold` that full depth says the same.

A sequence is decided for by itself, but the options of a question leave together. Shapes: D exits, N sequences,
T tokens of them, L outputs, K numbers that make up an answer, H hidden.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.config import build
from litebert.errors import CheckpointError, ConfigError, quote_value
from litebert.files import write_atomic
from litebert.model.config import EXIT_HEADS, ModelConfig
from litebert.parse import read_object
from litebert.tasks.decode import softmax

EXITS_FILE = "exits.json"
# What the outputs of a head mean.
Problem = Literal["classes", "number", "labels", "tags", "choice", "span", "answer"]
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
SIGNS = 3  # numbers that a gate sees beside the state: how sure an exit is, what changed, how often nothing did


@dataclass(frozen=True, eq=False)
class Gate:
    """How probable full depth is to say the same as an exit: a logistic function of the state and the signs there."""

    state: NDArray[np.float32]  # [D - 1, H]
    signs: NDArray[np.float32]  # [D - 1, 3]
    bias: NDArray[np.float32]  # [D - 1]
    on_device: dict[Any, Any] = field(default_factory=dict, repr=False)  # `state` where a runtime multiplies by it

    def __reduce__(self) -> Any:
        return Gate, (self.state, self.signs, self.bias)

    def probability(self, exit: int, product: Floats, seen: Floats) -> NDArray[np.float64]:
        """[N] at an exit, of the states times `state[exit]` [N] and the signs [N, 3]."""
        z = product.astype(np.float64) + seen @ self.signs[exit].astype(np.float64) + float(self.bias[exit])
        return np.asarray(1 / (1 + np.exp(-np.clip(z, -50, 50))))


@dataclass(frozen=True)
class ExitRule:
    """When to stop."""

    by: Literal["confidence", "patience", "gate"]
    threshold: float = 0.0
    patience: int = 1
    least: int = 0  # no text stops before this many layers
    gate: Gate | None = None

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ConfigError(f"patience: must be >= 1, got {self.patience}")
        if not self.threshold >= 0:
            raise ConfigError(f"threshold: must be >= 0, got {self.threshold}")
        if (self.by == "gate") != (self.gate is not None):
            raise ConfigError("gate: required for a rule by gate, and only for that")

    def describe(self) -> str:
        """In words."""
        least = f"{self.least} {'layer' if self.least == 1 else 'layers'}"
        if self.by != "patience" and self.threshold == 0:
            return f"always stops after {least}" if self.least else "always stops at the first exit"
        after = f", after at least {least}" if self.least else ""
        if self.by == "confidence":
            return f"stops at a probability of {self.threshold:.4g}{after}"
        if self.by == "gate":
            return f"stops where a gate finds it {self.threshold:.4g} probable that full depth agrees{after}"
        within = f" within {self.threshold:.4g}" if self.threshold else ""
        agree = "an exit agrees" if self.patience == 1 else f"{self.patience} exits in a row agree"
        return f"stops when {agree} with the previous one{within}{after}"

    def as_dict(self) -> dict[str, Any]:
        """As plain data, without the weights of its gate."""
        return {"by": self.by, "threshold": self.threshold, "patience": self.patience, "least": self.least}


NEVER = ExitRule("patience", patience=1 << 30)  # no text stops before the last exit


@dataclass(frozen=True)
class Depths:
    """How deep a model can answer, for people to choose from."""

    layers: int  # all of them
    exits: tuple[int, ...]  # depths that it was trained to answer at; (): full depth only
    auto: bool  # whether it has a rule


def depths_of(config: ModelConfig, head: str, rule: ExitRule | None) -> Depths:
    """The depths of a model with this head, where its runtime can stop early."""
    exits = config.exits if len(config.exits) > 1 else ()
    return Depths(config.num_hidden_layers, exits, bool(exits) and rule is not None and head in (*EXIT_HEADS, "answer"))


def problem_of(head: str, config: ModelConfig) -> Problem:
    """The meaning of a head's outputs."""
    others: dict[str, Problem] = {
        "token-classification": "tags",
        "multiple-choice": "choice",
        "span": "span",
        "answer": "answer",
    }
    if head in others:
        return others[head]
    if config.problem_type == "multi_label_classification":
        return "labels"
    return "number" if config.problem_type == "regression" or config.num_labels == 1 else "classes"


# ---------------------------------------------------------------------------------------------------------------------
# The answer of an exit for each sequence, in a form that rules can judge


class Signs(NamedTuple):
    """The answers of one exit for N sequences: equal answers are equal numbers (for regression, the answer itself)."""

    sure: NDArray[np.float64]  # [N] probability of the answer; of a number 0
    answer: NDArray[np.float64]  # [N, K]


def signs_of(
    problem: Problem,
    named: Mapping[str, NDArray[Any]],
    lengths: Ints,
    outside: NDArray[np.bool_] | None = None,
    groups: Ints | None = None,
    members: Ints | None = None,
) -> Signs:
    """The signs of the outputs of a head, by name: [N, ...] each, or [T, ...] if they are per token.

    `outside` [T] marks the tokens that do not count; options of one question have one number in `groups` [N], and each
    its own number in `members` [N].
    """
    if problem == "classes":
        logits = named["logits"]
        return Signs(softmax(logits).max(-1), logits.argmax(-1)[:, None].astype(np.float64))
    if problem == "labels":
        logits = named["logits"].astype(np.float64)
        return Signs((1 / (1 + np.exp(-np.abs(logits)))).min(-1), (logits > 0).astype(np.float64))
    if problem == "number":
        return Signs(np.zeros(len(lengths)), named["logits"].astype(np.float64))
    if problem == "choice":
        assert groups is not None
        return _choice_signs(named["logits"], groups, np.arange(len(groups)) if members is None else members)
    if problem == "answer":
        return _searched_signs(named)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    counts = np.ones(int(lengths.sum()), np.bool_) if outside is None else ~outside
    if problem == "tags":
        return _tag_signs(named["logits"], begins, lengths, counts)
    sure, places = zip(*(_best_token(named[name], begins, lengths, counts) for name in ("start", "end")), strict=True)
    return Signs(sure[0] * sure[1], np.stack(places, -1))


def _choice_signs(scores: Floats, groups: Ints, members: Ints) -> Signs:
    _, place = np.unique(groups, return_inverse=True)
    scores = scores.reshape(-1).astype(np.float64)
    top = np.full(place.max() + 1, -np.inf)
    np.maximum.at(top, place, scores)
    total = np.bincount(place, np.exp(scores - top[place]))
    best = np.full(len(top), np.iinfo(np.int64).max)
    np.minimum.at(best, place, np.where(scores == top[place], members, best[0]))
    return Signs((1 / total)[place], best[place][:, None].astype(np.float64))


# Tags of a sequence as one number: a sum of products with these. Other tags give another, but for chance (2 ** -52).
_PLACES = np.random.default_rng(21).integers(1 << 63, size=4096, dtype=np.uint64)


def _tag_signs(logits: Floats, begins: Ints, lengths: Ints, counts: NDArray[np.bool_]) -> Signs:
    sure = np.where(counts, softmax(logits).max(-1), 1.0)
    place = np.arange(len(logits)) - np.repeat(begins, lengths)
    codes = np.where(counts, (logits.argmax(-1) + 1).astype(np.uint64) * _PLACES[place % len(_PLACES)], np.uint64(0))
    answer = np.add.reduceat(codes, begins) >> np.uint64(12)
    return Signs(np.minimum.reduceat(sure, begins), answer[:, None].astype(np.float64))


def _best_token(
    logits: Floats, begins: Ints, lengths: Ints, counts: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The probability of the likeliest token of each sequence, and its place there."""
    scores = np.where(counts, logits.astype(np.float64), -1e30)
    top = np.repeat(np.maximum.reduceat(scores, begins), lengths)
    place = np.arange(len(scores)) - np.repeat(begins, lengths)
    best = np.minimum.reduceat(np.where(scores == top, place, len(scores)), begins)
    return 1 / np.add.reduceat(np.exp(scores - top), begins), best.astype(np.float64)


def _searched_signs(named: Mapping[str, NDArray[Any]]) -> Signs:
    """For the answer head, which has already searched: the best pair, or none."""
    scores = named["start_log_prob"][:, None, :].astype(np.float64) + named["end_log_prob"]  # [N, K_end, K]
    flat = scores.reshape(len(scores), -1)
    best, rows = flat.argmax(-1), np.arange(len(flat))
    end = named["end_index"].reshape(len(flat), -1)[rows, best]
    start = np.broadcast_to(named["start_index"][:, None, :], scores.shape).reshape(len(flat), -1)[rows, best]
    z = np.clip(named["answerable"].reshape(-1).astype(np.float64), -50, 50)
    none = 1 / (1 + np.exp(-z))
    sure = np.where(z > 0, none, np.minimum(1 - none, np.exp(flat[rows, best])))
    pair = np.where((z > 0)[:, None], -1.0, np.stack([start, end], -1).astype(np.float64))
    return Signs(sure, pair)


# ---------------------------------------------------------------------------------------------------------------------
# Rules


def compare(
    rule: ExitRule, problem: Problem, signs: Signs, before: NDArray[np.float64] | None, agreed: Ints
) -> tuple[NDArray[np.float64], Ints]:
    """How much each answer changed since the previous exit, [N] (None at the first), and how many exits agreed."""
    if before is None:
        return np.zeros(len(signs.sure)), agreed
    change = np.abs(signs.answer - before).max(-1)
    if problem != "number":
        change = (change > 0).astype(np.float64)
    tolerance = rule.threshold if rule.by == "patience" else 0.0
    return change, np.where(change <= tolerance, agreed + 1, 0)


def see(signs: Signs, change: NDArray[np.float64], agreed: Ints) -> NDArray[np.float64]:
    """A gate's inputs besides the state: [N, 3]."""
    sure = np.clip(signs.sure, 1e-6, 1 - 1e-6)
    return np.stack([np.log(sure / (1 - sure)), change, agreed.astype(np.float64)], -1)


def stops(
    rule: ExitRule,
    problem: Problem,
    depth: int,
    signs: Signs,
    agreed: Ints,
    probability: NDArray[np.float64] | None = None,
    groups: Ints | None = None,
) -> NDArray[np.bool_]:
    """Which of N sequences stop at an exit; `probability` is what the rule's gate says there."""
    check_rule(rule, problem)
    if depth < rule.least:
        return np.zeros(len(agreed), np.bool_)
    if rule.by == "confidence":
        return np.asarray(signs.sure >= rule.threshold)
    if rule.by == "patience":
        return np.asarray(agreed >= rule.patience)
    assert probability is not None
    if groups is not None:  # together
        _, place = np.unique(groups, return_inverse=True)
        probability = (np.bincount(place, probability) / np.bincount(place))[place]
    return np.asarray(probability >= rule.threshold)


def check_limit(name: str, value: Any, least: int) -> None:
    """Refuse what is no number, or below the least one that makes sense."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{name}: must be a number, got {quote_value(value)}")
    if not float(value) >= least:
        raise ConfigError(f"{name}: must be >= {least}, got {float(value):g}")


def check_rule(rule: ExitRule, problem: Problem) -> None:
    """Refuse a rule that does not apply to such answers."""
    if rule.by == "confidence" and problem == "number":
        raise ConfigError("exits: a number has no confidence; use patience or a gate")


@dataclass(frozen=True)
class Trace:
    """The answers of every exit for N sequences."""

    problem: Problem
    depths: tuple[int, ...]  # D
    exits: Sequence[Signs]  # D
    states: NDArray[np.float32] | None = None  # [D - 1, N, H]: what gates see; None: no gate is asked
    groups: Ints | None = None  # [N]

    def part(self, rows: NDArray[Any]) -> Trace:
        """The same for some sequences; groups must stay whole."""
        return replace(
            self,
            exits=[Signs(signs.sure[rows], signs.answer[rows]) for signs in self.exits],
            states=None if self.states is None else self.states[:, rows],
            groups=None if self.groups is None else self.groups[rows],
        )

    def seen(self) -> NDArray[np.float64]:
        """A gate's inputs at each exit except the last: [D - 1, N, 3]."""
        agreed, found, before = np.zeros(len(self.exits[0].sure), np.int64), [], None
        for signs in self.exits[:-1]:
            change, agreed = compare(ExitRule("confidence"), self.problem, signs, before, agreed)
            found.append(see(signs, change, agreed))
            before = signs.answer
        return np.stack(found)


def simulate(rule: ExitRule, trace: Trace, probabilities: NDArray[np.float64] | None = None) -> Ints:
    """The number of the exit at which each sequence stops, the last for all that are left: [N].

    `probabilities` [D - 1, N] replace those of the rule's gate.
    """
    count = len(trace.exits[0].sure)
    chosen = np.full(count, len(trace.exits) - 1)
    waiting, agreed, before = np.ones(count, np.bool_), np.zeros(count, np.int64), None
    for number, signs in enumerate(trace.exits[:-1]):
        change, agreed = compare(rule, trace.problem, signs, before, agreed)
        says = None
        if rule.gate is not None:
            says = None if probabilities is None else probabilities[number]
            if says is None:
                assert trace.states is not None
                product = trace.states[number] @ rule.gate.state[number]
                says = rule.gate.probability(number, product, see(signs, change, agreed))
        stop = stops(rule, trace.problem, trace.depths[number], signs, agreed, says, trace.groups)
        chosen[waiting & stop] = number
        waiting &= ~stop
        before = signs.answer
    return chosen


# ---------------------------------------------------------------------------------------------------------------------
# The file


class Choice(NamedTuple):
    """A rule stored in a model folder, with its calibration results."""

    rule: ExitRule
    score: float  # higher is better
    mean_depth: float


def save_rule(
    rule: ExitRule, folder: Path | str, facts: Mapping[str, Any], others: Sequence[Choice] = (), full_depth: int = 0
) -> None:
    """Write a rule into a model folder, with what it was chosen by and the best rules for other costs.

    Gates among them are one and the same.
    """
    gate = next((each.gate for each in (rule, *(other.rule for other in others)) if each.gate is not None), None)
    curve = [{**other.rule.as_dict(), "score": other.score, "mean_depth": other.mean_depth} for other in others]
    text = json.dumps(
        {"format": 1, "rule": rule.as_dict(), "calibration": facts, "full_depth": full_depth, "curve": curve},
        indent=2,
        ensure_ascii=False,
    )
    if gate is not None:  # on one line: it has thousands of numbers
        parts = {name: getattr(gate, name).astype(float).round(8).tolist() for name in ("state", "signs", "bias")}
        text = f'{text[:-2]},\n  "gate": {json.dumps(parts)}\n}}'
    write_atomic(Path(folder) / EXITS_FILE, text + "\n")


def load_rule(folder: Path | str, speed_up: float | None = None) -> ExitRule | None:
    """The rule of a model folder, or the best one for a speed-up; None if it was not calibrated."""
    path = Path(folder) / EXITS_FILE
    if not path.exists():
        return None
    data = read_object(path, CheckpointError)
    if data.get("format") != 1:
        raise CheckpointError(f"{path}: not readable by this version of litebert; run litebert calibrate again")
    try:
        gate = _gate_of(data.get("gate"))
        if speed_up is None:
            return _rule_of(data.get("rule", {}), gate, path)
        full = float(data.get("full_depth", 0))
        fast = [each for each in data.get("curve", []) if each["mean_depth"] * speed_up <= full * (1 + 1e-9)]
        if not fast:
            most = max((full / each["mean_depth"] for each in data.get("curve", [])), default=1.0)
            raise ConfigError(f"speed_up: {speed_up:g} is more than this model's exits allow; at most {most:.2f}")
        best = max(fast, key=lambda each: (each["score"], -each["mean_depth"]))
        return _rule_of(
            {name: value for name, value in best.items() if name not in ("score", "mean_depth")}, gate, path
        )
    except ConfigError as error:
        if str(error).startswith("speed_up"):
            raise
        raise CheckpointError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: damaged ({error}); run litebert calibrate again") from None


def _rule_of(data: Any, gate: Gate | None, path: Path) -> ExitRule:
    if not isinstance(data, dict) or "gate" in data:
        raise TypeError("no rule")
    by_gate = data.get("by") == "gate"
    plain = build(ExitRule, {**data, "by": "patience"} if by_gate else data, f"{path}: ")
    return replace(plain, by="gate", gate=gate) if by_gate else plain


def _gate_of(data: Any) -> Gate | None:
    if data is None:
        return None
    parts = [np.asarray(data[name], np.float32) for name in ("state", "signs", "bias")]
    state, signs, bias = parts
    if state.ndim != 2 or signs.shape != (len(state), SIGNS) or bias.shape != (len(state),):
        raise ValueError("the shapes of its gate do not match")
    return Gate(state, signs, bias)
