"""Choose when a model may answer early: the cheapest rule that meets a limit on labelled examples.

calibrate("RUN/best", data="dev.csv", max_loss=0.3)     at most 0.3 points below full depth, as fast as that allows
calibrate("RUN/best", data="dev.csv", speed_up=2)       half the layers on average, as good as that allows

Every example is read once, and answered at every exit; all rules are then tried on these answers. Gates are evaluated
by cross-validation, since a gate knows the examples that it was trained on. The rule that is chosen was also lucky with
these examples: how much is estimated on halves of them, and added to the margin.

Shapes: D exits, E examples, N sequences of them, H hidden, R rules, S samples of the examples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError, check_choice
from litebert.finetuning.data import Data, Split
from litebert.finetuning.evaluate import as_requests, open_member, read_labelled
from litebert.model.config import suggest_exits
from litebert.predict.exits import (
    SIGNS,
    Choice,
    ExitRule,
    Gate,
    Ints,
    Trace,
    check_limit,
    problem_of,
    save_rule,
    simulate,
)
from litebert.predict.lanes import group_numbers, trace_signs
from litebert.predict.runtime import Outputs
from litebert.predict.torch_runtime import TorchRuntime
from litebert.remote import find_folder
from litebert.tasks.decode import Prediction
from litebert.tasks.metrics import ERRORS, Metric, goodness, score_difference
from litebert.tasks.task import Example, Task, kind_of
from litebert.train.device import DeviceConfig, open_device

# Probabilities from which on an answer may stand; 0: all stop at one depth.
CONFIDENCES = (0.0, *(1 - np.geomspace(0.5, 0.0002, 32)).round(5).tolist())
# Largest change between two exits, in standard deviations of the scores.
CHANGES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
NEAR = 0.25  # numbers that differ by less, in standard deviations, are the same to a gate
GATE_STEPS = 48  # thresholds of a gate
FOLDS = 5
SPLITS = 10  # into halves, to see how much luck there is in a choice
ROUNDING = 1e-9  # of sums in another order
FEW_EXAMPLES = 300  # with fewer, one that never happened here may still happen to one in a hundred
COMPONENTS = 64  # directions of the state that a gate looks at: few, since it learns from hundreds of examples

By = Literal["any", "confidence", "patience", "gate"]
RULES = ("any", "confidence", "patience", "gate")


@dataclass(frozen=True)
class Calibration:
    """The chosen rule, compared with full depth; scores are the task's first metric, higher is better."""

    metric: str
    chosen: Choice
    full_score: float
    full_depth: int
    examples: int
    trials: Sequence[Choice]
    loss: Metric  # points (of 100) below full depth, with its 95 % interval
    luck: float = 0.0  # points by which the loss is probably larger elsewhere, as the rule was chosen on these examples

    @property
    def speed_up(self) -> float:
        """The number of layers divided by the mean number applied, about what is gained in speed."""
        return self.full_depth / self.chosen.mean_depth

    @property
    def margin(self) -> float:
        """By how many points the loss on the same number of other examples is larger than this one, at most.

        In 19 of 20 cases: it covers chance in both samples of examples, and luck in the choice.
        """
        if self.chosen.mean_depth == self.full_depth:  # the same answers
            return 0.0
        if self.loss.low is None or self.loss.high is None:
            return 100.0
        # What never happened here may happen to this many (the rule of three).
        unseen = 0.0 if self.metric in ERRORS else min(100 * 3 / self.examples, 100.0)
        return max(unseen, math.sqrt(2) * (self.loss.high - self.loss.low) / 2) + self.luck

    @property
    def curve(self) -> list[Choice]:
        """The trials that no other beats in both score and depth, the fastest first."""
        best: list[Choice] = []
        for trial in sorted(self.trials, key=lambda trial: (trial.mean_depth, -trial.score)):
            if not best or trial.score > best[-1].score:
                best.append(trial)
        return best


def calibrate(
    model: Path | str,
    data: Path | str,
    *,
    max_loss: float | None = None,
    speed_up: float | None = None,
    rule: By = "any",
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    device: str = "auto",
    threads: int = 0,
) -> Calibration:
    """Choose a rule of early exit on labelled examples and save it with the model, for `depth="auto"`.

    max_loss: how many points (of 100) the score may lose against full depth. speed_up: how many times fewer layers to
    apply on average. Give one of the two.
    """
    check_limits(max_loss, speed_up, rule)
    folder = find_folder(model)
    found = read_labelled(task, folder, data, columns, encoding)
    hardware = open_device(DeviceConfig(device=device, threads=threads))
    opened, own, tokenizer = open_member(folder, found.task, None)
    if kind_of(own).compares:
        raise ConfigError(f"{model}: vectors have no confidence to stop by; choose a depth for all texts instead")
    if len(opened.config.exits) < 2:
        some = suggest_exits(opened.config.num_hidden_layers)
        raise ConfigError(f"{model}: has no exits; fine-tune it with some, such as exits: {some}")
    if rule == "confidence" and problem_of(opened.head, opened.config) == "number":
        raise ConfigError("rule: numbers have no confidence; choose patience, gate or any")
    splits = [split for split in Data(own, found, tokenizer).dev if split.is_labelled]
    if not splits:
        raise ConfigError(f"{data}: no labels to calibrate on")
    outputs = read_exits(TorchRuntime(opened, hardware), own, splits[0])
    result = choose(outputs, max_loss, speed_up, rule)
    facts: dict[str, Any] = {
        "asked": {"max_loss": max_loss} if max_loss is not None else {"speed_up": speed_up},
        "metric": result.metric,
        "score": result.chosen.score,
        "full_score": result.full_score,
        "loss": result.loss.as_dict(),
        "margin": result.margin,
        "mean_depth": result.chosen.mean_depth,
        "examples": result.examples,
    }
    save_rule(result.chosen.rule, folder, facts, result.curve, result.full_depth)
    return result


def check_limits(max_loss: float | None, speed_up: float | None, rule: str, spell: Callable[[str], str] = str) -> None:
    """Check that exactly one valid limit is given; `spell` names the arguments in errors."""
    if (max_loss is None) == (speed_up is None):
        each, other = spell("max_loss"), spell("speed_up")
        raise ConfigError(f"give either {each} (points of 100, such as 0.3) or {other} (times, such as 2)")
    if max_loss is not None:
        check_limit(spell("max_loss"), max_loss, 0)
    if speed_up is not None:
        check_limit(spell("speed_up"), speed_up, 1)
    check_choice(spell("rule"), rule, RULES)


# ---------------------------------------------------------------------------------------------------------------------
# The answers of all exits for a split


class Trial(NamedTuple):
    """A rule that was tried on a split."""

    choice: Choice
    chosen: Ints  # [N] the exit of each sequence
    by_half: list[float]  # [S] the score on each of `ExitOutputs.halves`


@dataclass(frozen=True)
class ExitOutputs:
    """The outputs of every exit for a split, to try rules on."""

    task: Task
    split: Split
    outputs: Sequence[Sequence[Outputs]]  # [D][N]
    trace: Trace
    numbers: Ints  # [E] of its examples in the whole split
    decoded: dict[tuple[int, tuple[int, ...]], Prediction] = field(default_factory=dict)  # by example, and its exits
    tried: dict[str, list[Trial]] = field(default_factory=dict)  # by kind of rule, see `trials_of`

    @cached_property
    def owners(self) -> Ints:
        """[N]: the place of each sequence's example."""
        return np.array([feature.example for feature in self.split.features])

    @cached_property
    def begins(self) -> Ints:
        """[E + 1]: where each example's sequences begin."""
        return np.searchsorted(self.owners, np.arange(len(self.split.examples) + 1))

    @cached_property
    def halves(self) -> NDArray[np.bool_]:
        """[S, E]: random halves of the examples, then their other halves."""
        draw, count = np.random.default_rng(0), len(self.split.examples)
        first = np.array([draw.permutation(count) < count // 2 for _ in range(SPLITS)])
        return np.concatenate([first, ~first])

    def part(self, examples: Ints) -> ExitOutputs:
        """The same for some of the examples."""
        rows = np.concatenate([np.arange(self.begins[each], self.begins[each + 1]) for each in examples])
        place = np.repeat(np.arange(len(examples)), self.begins[examples + 1] - self.begins[examples])
        features = [
            dataclasses.replace(self.split.features[row], example=int(new))
            for row, new in zip(rows, place, strict=True)
        ]
        split = Split(self.split.name, [self.split.examples[each] for each in examples], features)
        outputs = [[exit[row] for row in rows] for exit in self.outputs]
        return ExitOutputs(self.task, split, outputs, self.trace.part(rows), self.numbers[examples], self.decoded)

    def predictions(self, chosen: Ints) -> list[Prediction]:
        """The predictions if exit `chosen` [N] answers for each sequence; each answer is decoded once."""
        return [self.answers[place][1] for place in self.places_of(chosen).tolist()]

    def places_of(self, chosen: Ints) -> Ints:
        """[E]: where in `answers` the answers are if exit `chosen` [N] answers for each sequence."""
        exits = chosen[self.begins[:-1]]  # of each example's first sequence, mostly its only one
        places = np.where(np.diff(self.begins) == 1, self.alone[exits, np.arange(len(exits))], -1)
        for number in np.flatnonzero(places < 0).tolist():
            begin, end = self.begins[number], self.begins[number + 1]
            key = (int(self.numbers[number]), tuple(chosen[begin:end].tolist()))
            if key not in self.known:
                if key not in self.decoded:
                    outputs = [self.outputs[chosen[row]][row] for row in range(begin, end)]
                    example, features = self.split.examples[number], self.split.features[begin:end]
                    self.decoded[key] = kind_of(self.task).predict(self.task, example, features, outputs)
                self.known[key] = len(self.answers)
                self.answers.append((number, self.decoded[key]))
            places[number] = self.known[key]
            if end - begin == 1:
                self.alone[exits[number], number] = places[number]
        return places

    @cached_property
    def answers(self) -> list[tuple[int, Prediction]]:
        """All distinct answers so far, with their examples."""
        return []

    @cached_property
    def known(self) -> dict[tuple[int, tuple[int, ...]], int]:
        """Where in `answers` they are, by example and exits."""
        return {}

    @cached_property
    def alone(self) -> Ints:
        """[D, E]: the same for examples of one sequence; -1: not decoded yet."""
        return np.full((len(self.outputs), len(self.split.examples)), -1)

    def scores(self, chosen: Sequence[Ints]) -> list[float]:
        """The first metric, better if higher, for each of R choices of exits."""
        return [score for (score,) in self.scores_of(chosen, np.ones((1, len(self.split.examples))))]

    def scores_of(self, chosen: Sequence[Ints], samples: NDArray[np.float64]) -> list[list[float]]:
        """The same for S samples, by how often each counts an example [S, E]: [R][S].

        One table holds all distinct answers, and each choice counts some of them, so a metric is computed once.
        """
        rows = np.stack([self.places_of(each) for each in chosen])  # [R, E]
        used, columns = np.unique(rows, return_inverse=True)
        columns = columns.reshape(rows.shape)
        table = [self.answers[place] for place in used.tolist()]
        name = self.task.metrics[0]
        examples = [self.split.examples[number] for number, _ in table]
        measure = kind_of(self.task).measures(self.task, examples, [said.value for _, said in table])[name]
        found = []
        for row in columns:  # as one by one, to the last digit
            weights = np.zeros((len(samples), len(used)))
            weights[:, row] = samples
            found.append([goodness(name, float(value)) for value in measure(weights)])
        return found

    def mean_depth(self, chosen: Ints) -> float:
        """Layers per token, which the cost is proportional to."""
        lengths = np.array([len(feature.ids) for feature in self.split.features])
        return float(np.average(np.take(self.trace.depths, chosen), weights=lengths))


def read_exits(runtime: TorchRuntime, task: Task, split: Split) -> ExitOutputs:
    """Read every example at every exit."""
    exits, problem = runtime.config.exits, problem_of(runtime.head, runtime.config)
    state = "pooled" if "pooled" in runtime.outputs else "first"
    requests = as_requests(runtime, task, split, (state,))
    outputs = runtime.run_exits(requests)
    states = [np.stack([output.pop(state) for output in found]) for found in outputs]
    signs = [trace_signs(problem, requests, found) for found in outputs]
    numbers = group_numbers(requests) if problem == "choice" else None
    trace = Trace(problem, exits, signs, np.stack(states[:-1]), numbers)
    return ExitOutputs(task, split, outputs, trace, np.arange(len(split.examples)))


# ---------------------------------------------------------------------------------------------------------------------
# Rules, tried on these outputs


def choose(found: ExitOutputs, max_loss: float | None, speed_up: float | None, by: By = "any") -> Calibration:
    """The best rule: the fewest layers within a loss, or the best score within a number of layers."""
    depth = found.trace.depths[-1]
    kinds = ("never", *(RULES[1:] if by == "any" else (by,)))
    tried = [trial for kind in kinds for trial in trials_of(found, kind)]
    trials = [trial.choice for trial in tried]
    if speed_up is not None and not any(trial.mean_depth <= depth / speed_up for trial in trials):
        least = min(trial.mean_depth for trial in trials)
        raise ConfigError(f"speed_up: {speed_up:g} is more than these exits allow; at most {depth / least:.2f} here")

    def best_by(scores: Sequence[float]) -> int:
        """The place of the best rule, if all scored so; the first is full depth."""
        if max_loss is not None:
            least = scores[0] - max_loss / 100 - ROUNDING
            fit = [place for place, score in enumerate(cautious_scores(trials, scores)) if score >= least]
            return min(fit, key=lambda place: (trials[place].mean_depth, -scores[place]))
        assert speed_up is not None
        fit = [place for place, trial in enumerate(trials) if trial.mean_depth <= depth / speed_up]
        return max(fit, key=lambda place: (scores[place], -trials[place].mean_depth))

    best = best_by([trial.score for trial in trials])
    return Calibration(
        found.task.metrics[0],
        trials[best],
        trials[0].score,
        depth,
        len(found.split.examples),
        trials,
        loss_of(found, tried[best].chosen),
        luck_of(np.array([trial.by_half for trial in tried]), best_by),
    )


def luck_of(scores: NDArray[np.float64], best_by: Callable[[Sequence[float]], int]) -> float:
    """By how many points the loss of the best of R rules is larger on examples it was not chosen on.

    `scores` [R, S] are those on halves, then on their other halves; the first are full depth's. Rules chosen on a half
    lose more on the other; what luck does with twice as many examples is less by a root of 2.
    """
    gaps = []
    for seen, unseen in zip(scores.T, np.roll(scores.T, scores.shape[1] // 2, axis=0), strict=True):
        if np.isfinite(seen).all() and np.isfinite(unseen).all():  # of a single example, one half is empty
            best = best_by(seen.tolist())
            gaps.append((unseen[0] - unseen[best]) - (seen[0] - seen[best]))
    return 100 * max(float(np.mean(gaps)), 0.0) / math.sqrt(2) if gaps else 0.0


def trials_of(found: ExitOutputs, kind: str) -> list[Trial]:
    """The rules of a kind with their results, computed once."""
    if kind not in found.tried:
        rules = list(candidates(found, kind))
        chosen = [exits for _, exits in rules]
        scores = found.scores(chosen) if rules else []
        by_half = found.scores_of(chosen, found.halves.astype(np.float64)) if rules else []
        found.tried[kind] = [
            Trial(Choice(rule, score, found.mean_depth(exits)), exits, halves)
            for (rule, exits), score, halves in zip(rules, scores, by_half, strict=True)
        ]
    return found.tried[kind]


def cautious_scores(trials: Sequence[Choice], scores: Sequence[float]) -> list[float]:
    """The score to expect of each trial that scored so: at most that of every stricter rule of its kind.

    A rule that does better than a stricter one was lucky with these examples.
    """
    families: dict[tuple[Any, ...], list[int]] = {}
    for number, (rule, _, _) in enumerate(trials):
        kind = (rule.by, rule.least, rule.threshold if rule.by == "patience" else 0.0)
        families.setdefault(kind, []).append(number)
    expected = list(scores)
    for numbers in families.values():
        worst = math.inf
        for number in sorted(numbers, key=lambda number: -trials[number].mean_depth):
            worst = min(worst, scores[number])
            expected[number] = worst
    return expected


def loss_of(found: ExitOutputs, chosen: Ints) -> Metric:
    """Points (of 100) that a choice of exits loses against full depth, with a paired interval."""
    full = np.full(len(chosen), len(found.trace.depths) - 1)
    return loss_metric(found.task, found.split.examples, found.predictions(full), found.predictions(chosen))


def loss_metric(
    task: Task, examples: Sequence[Example], full: Sequence[Prediction], early: Sequence[Prediction]
) -> Metric:
    """Points (of 100) that early answers lose against those of full depth, by the first metric."""
    task = dataclasses.replace(task, metrics=task.metrics[:1])
    name = task.metrics[0]
    found = score_difference(task, examples, full, early)[name]
    sign = math.copysign(100, goodness(name, 1.0))
    ends = sorted(sign * each for each in (found.low, found.high) if each is not None)
    return Metric(sign * found.value, *(ends if len(ends) == 2 else (None, None)))


def candidates(found: ExitOutputs, kind: str) -> Iterator[tuple[ExitRule, Ints]]:
    """The rules of a kind to try, and the exit of each sequence under them; "never": full depth."""
    trace, depths = found.trace, found.trace.depths
    leasts = depths[:-1]  # no text stops before one of these
    if kind == "never":
        yield ExitRule("patience", 0.0, len(depths)), np.full(len(found.split.features), len(depths) - 1)
    if kind == "confidence" and trace.problem != "number":
        for least in leasts:
            for threshold in CONFIDENCES:
                rule = ExitRule("confidence", float(threshold), least=least)
                yield rule, simulate(rule, trace)
    if kind == "patience":
        number = trace.problem == "number"
        changes = [float(change * trace.exits[-1].answer.std()) for change in CHANGES] if number else [0.0]
        for change in changes:
            for count in range(1, len(depths)):
                rule = ExitRule("patience", change, count)
                yield rule, simulate(rule, trace)
    if kind == "gate":
        gate, unseen = train_gate(trace, found.owners)
        thresholds = np.unique(np.quantile(unseen, np.linspace(0, 1, GATE_STEPS)).round(4))
        for least in leasts:
            for threshold in (0.0, *thresholds.tolist()):
                rule = ExitRule("gate", threshold, least=least, gate=gate)
                yield rule, simulate(rule, trace, unseen)


# ---------------------------------------------------------------------------------------------------------------------
# The gate


def train_gate(trace: Trace, owners: Ints) -> tuple[Gate, NDArray[np.float64]]:
    """A gate, and its cross-validated probabilities: [D - 1, N]."""
    full = trace.exits[-1].answer
    near = NEAR * full.std() if trace.problem == "number" else 0.0
    assert trace.states is not None
    fold = np.random.default_rng(0).permutation(owners.max() + 1)[owners] % FOLDS
    parts, unseen = [], []
    for state, signs, seen in zip(trace.states, trace.exits, trace.seen(), strict=False):
        agree = np.abs(signs.answer - full).max(-1) <= near
        directions = _directions(state)
        inputs = np.concatenate([state @ directions, seen], 1, dtype=np.float64)  # [N, K + 3]
        guess = np.full(len(agree), 0.5)
        for number in range(FOLDS):
            if (fold != number).any() and (fold == number).any():
                weights, bias = _fit(inputs[fold != number], agree[fold != number])
                guess[fold == number] = 1 / (1 + np.exp(-np.clip(inputs[fold == number] @ weights + bias, -50, 50)))
        weights, bias = _fit(inputs, agree)
        parts.append((directions @ weights[:-SIGNS], weights[-SIGNS:], bias))
        unseen.append(guess)
    by_state, by_signs, biases = (np.array(each, np.float32) for each in zip(*parts, strict=True))
    return Gate(by_state, by_signs, biases), np.stack(unseen)


def _directions(state: NDArray[np.float32]) -> NDArray[np.float32]:
    """The main directions of a state [N, H], [H, K], in units of its whole spread."""
    centred = (state - state.mean(0)).astype(np.float32)
    spread, directions = np.linalg.eigh((centred.T @ centred / len(state)).astype(np.float64))
    scale = math.sqrt(max(float(spread.sum()), 1e-12))
    return np.asarray(directions[:, -COMPONENTS:] / scale, np.float32)


def _fit(inputs: NDArray[np.float64], target: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """Logistic regression on the main directions of a state and the signs [N, K + 3]: weights and bias."""
    middle, scale = inputs.mean(0), np.ones(inputs.shape[1])
    scale[-SIGNS:] = inputs[:, -SIGNS:].std(0) + 1e-6
    weights, free = _logistic((inputs - middle) / scale, target)
    weights = weights / scale
    return weights, free - float(middle @ weights)


def _logistic(inputs: NDArray[np.float64], target: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """Weights and bias, by Newton's method; weights of 1 are as expected (3 for signs), a bias is free."""
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], 1)
    penalty = np.ones(inputs.shape[1])
    penalty[-SIGNS - 1 : -1], penalty[-1] = 0.1, 1e-4
    weights = np.zeros(inputs.shape[1])
    for _ in range(25):
        guess = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        slope = inputs.T @ (guess - target) + penalty * weights
        curve = (inputs * (guess * (1 - guess))[:, None]).T @ inputs + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        weights -= step * min(1.0, 4 / max(float(np.abs(step).max()), 1e-12))
        if float(np.abs(step).max()) < 1e-6:
            break
    return weights[:-1], float(weights[-1])
