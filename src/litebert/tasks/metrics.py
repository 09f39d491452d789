"""Scores of predictions, as fractions, each with a 95 % interval from resampled examples.

    score(task, examples, predictions)  -> {"accuracy": Metric(0.91, 0.89, 0.93), ...}

Values come from scikit-learn and scipy where they have the metric. For the interval every metric is also written as a
function of how often each example was drawn, so that all resamples are a few matrix products.

Shapes: N examples, R resamples, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.tasks.bootstrap import Floats, Weighted, intervals
from litebert.tasks.decode import Prediction
from litebert.tasks.entities import find_entities
from litebert.tasks.examples import ChoiceExample, Example, QuestionExample, TagExample, is_labelled
from litebert.tasks.squad_metric import score_answer
from litebert.tasks.task import Task

RESAMPLES = 1000
ERRORS = ("rmse",)  # metrics of which less is better, and which are no share of 1


@dataclass(frozen=True)
class Metric:
    """A score with the ends of its 95 % interval (None where no interval was asked for)."""

    value: float
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        """Plain data for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


class _Measure(NamedTuple):
    value: float
    weighted: Weighted


def score(
    task: Task,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Metric]:
    """The task's metrics (and those of its parts: RACE's levels, SQuAD's unanswerable questions), in their order.

    `predictions` are those of `decode`, or their values alone; 0 resamples leave out the intervals.
    """
    if not examples or len(examples) != len(predictions):
        raise InputError(f"{len(examples)} examples and {len(predictions)} predictions cannot be scored")
    for example in examples:
        if not is_labelled(example):
            raise InputError(f"{example.where}: no label to compare with; only labelled examples can be scored")
    values = [each.value if isinstance(each, Prediction) else each for each in predictions]
    measures = _measures(task, examples, values)
    ends = intervals([measure.weighted for measure in measures.values()], len(examples), resamples, seed)
    return {name: Metric(float(m.value), *pair) for (name, m), pair in zip(measures.items(), ends, strict=True)}


def _measures(task: Task, examples: Sequence[Example], values: list[Any]) -> dict[str, _Measure]:
    if task.kind == "question-answering":
        return _question_measures(examples, values)
    if task.kind == "token-classification":
        return _tag_measures(task, examples, values)
    gold: NDArray[Any]
    found: NDArray[Any]
    if task.kind == "multi-label":
        gold, found = (_indicators(rows, len(task.labels)) for rows in ([_label(e) for e in examples], values))
        return {name: _MULTI_LABEL[name](gold, found) for name in task.metrics}
    if task.kind == "regression":
        gold, found = np.array([_label(e) for e in examples], dtype=float), np.array(values, dtype=float)
        return {name: _REGRESSION[name](gold, found) for name in task.metrics}
    gold, found = np.array([_label(e) for e in examples]), np.array(values, dtype=int)
    measures = {name: _CLASSIFICATION[name](gold, found) for name in task.metrics}
    groups = [example.group if isinstance(example, ChoiceExample) else "" for example in examples]
    if len(set(groups) - {""}) > 1:
        for group in sorted(set(groups), reverse=True):  # RACE: middle, high
            measures[f"{group}_accuracy"] = _share(gold == found, np.array([g == group for g in groups]))
    return measures


def _label(example: Example) -> Any:
    assert not isinstance(example, TagExample | QuestionExample)
    return example.label


# ---------------------------------------------------------------------------------------------------------------------
# Shares of examples


def _share(hits: NDArray[Any], part: NDArray[np.bool_] | None = None) -> _Measure:
    """The mean over all examples, or over a part of them."""
    counted = np.ones(len(hits)) if part is None else part.astype(float)
    return _ratio(hits * counted, counted)


def _ratio(top: Floats, bottom: Floats) -> _Measure:
    columns = np.stack([top, bottom], axis=1).astype(float)

    def weighted(weights: Floats) -> Floats:
        above, below = (weights @ columns).T
        return np.asarray(np.divide(above, below, out=np.full(len(weights), np.nan), where=below > 0))

    return _Measure(float(top.sum() / bottom.sum()) if bottom.sum() else math.nan, weighted)


def _safe_divide(above: Floats, below: Floats) -> Floats:
    """0 where there is nothing to divide by, as scikit-learn has it."""
    result: Floats = np.divide(above, below, out=np.zeros(above.shape), where=below > 0)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Classification and multiple choice: gold and found are class ids [N]


def _accuracy(gold: NDArray[Any], found: NDArray[Any]) -> _Measure:
    from sklearn.metrics import accuracy_score

    return _Measure(accuracy_score(gold, found), _share(gold == found).weighted)


def _binary_f1(gold: NDArray[Any], found: NDArray[Any]) -> _Measure:
    """F1 of the class 1, as for MRPC and QQP."""
    from sklearn.metrics import f1_score

    columns = np.stack([(gold == 1) & (found == 1), gold == 1, found == 1], axis=1).astype(float)

    def weighted(weights: Floats) -> Floats:
        hits, real, claimed = (weights @ columns).T
        return _safe_divide(2 * hits, real + claimed)

    return _Measure(f1_score(gold == 1, found == 1, zero_division=0), weighted)


def _macro_f1(gold: NDArray[Any], found: NDArray[Any]) -> _Measure:
    from sklearn.metrics import f1_score

    classes = np.union1d(gold, found)
    real, claimed = gold[:, None] == classes, found[:, None] == classes  # [N, C]

    def weighted(weights: Floats) -> Floats:
        hits, total = weights @ (real & claimed), weights @ (real.astype(float) + claimed)  # [R, C]
        # Classes that a resample lacks do not count, as scikit-learn has it.
        return _safe_divide(_safe_divide(2 * hits, total).sum(1), (total > 0).sum(1).astype(float))

    return _Measure(f1_score(gold, found, average="macro", zero_division=0), weighted)


def _matthews(gold: NDArray[Any], found: NDArray[Any]) -> _Measure:
    from sklearn.metrics import matthews_corrcoef

    classes = np.union1d(gold, found)
    real, claimed = (gold[:, None] == classes).astype(float), (found[:, None] == classes).astype(float)  # [N, C]

    def weighted(weights: Floats) -> Floats:
        # Gorodkin's coefficient for any number of classes.
        total = weights.sum(1)
        per_real, per_claimed = weights @ real, weights @ claimed  # [R, C]
        covariance = (weights @ (gold == found)) * total - (per_real * per_claimed).sum(1)
        spread = (total**2 - (per_claimed**2).sum(1)) * (total**2 - (per_real**2).sum(1))
        return _safe_divide(covariance, np.sqrt(spread))

    return _Measure(matthews_corrcoef(gold, found), weighted)


_CLASSIFICATION: Mapping[str, Callable[[NDArray[Any], NDArray[Any]], _Measure]] = {
    "accuracy": _accuracy,
    "f1": _binary_f1,
    "macro_f1": _macro_f1,
    "matthews": _matthews,
}

# ---------------------------------------------------------------------------------------------------------------------
# Regression: gold and found are numbers [N]


def _pearson(gold: Floats, found: Floats) -> _Measure:
    from scipy.stats import pearsonr

    value = 0.0 if _is_constant(gold) or _is_constant(found) else pearsonr(gold, found).statistic
    x, y = gold - gold.mean(), found - found.mean()  # centred: the sums of squares stay accurate
    return _Measure(value, lambda weights: _correlation(weights, x, y))


def _spearman(gold: Floats, found: Floats) -> _Measure:
    from scipy.stats import spearmanr

    value = 0.0 if _is_constant(gold) or _is_constant(found) else spearmanr(gold, found).statistic
    return _Measure(value, lambda weights: _correlation(weights, _ranks(weights, gold), _ranks(weights, found)))


def _rmse(gold: Floats, found: Floats) -> _Measure:
    from sklearn.metrics import mean_squared_error

    errors = _ratio((gold - found) ** 2, np.ones(len(gold)))
    return _Measure(math.sqrt(mean_squared_error(gold, found)), lambda weights: np.sqrt(errors.weighted(weights)))


def _is_constant(values: Floats) -> bool:
    """A constant goes along with nothing: its correlation counts as 0."""
    return bool((values == values[0]).all())


def _correlation(weights: Floats, x: Floats, y: Floats) -> Floats:
    """Pearson of weighted points; x and y are [N], or [R, N] where they change with the weights."""
    total = weights.sum(1)
    mean_x, mean_y = (weights * x).sum(1) / total, (weights * y).sum(1) / total
    x, y = x - mean_x[:, None], y - mean_y[:, None]
    spread = (weights * x * x).sum(1) * (weights * y * y).sum(1)
    return _safe_divide((weights * x * y).sum(1), np.sqrt(spread))


def _ranks(weights: Floats, values: Floats) -> Floats:
    """The rank of each value in each resample, ties sharing the middle one: [R, N]."""
    distinct, place = np.unique(values, return_inverse=True)
    per_value = (
        weights @ (place[:, None] == np.arange(len(distinct))) if len(distinct) < 64 else _sum_by(weights, place)
    )
    upto = np.cumsum(per_value, axis=1)
    return (upto - (per_value - 1) / 2)[:, place]


def _sum_by(weights: Floats, place: NDArray[np.intp]) -> Floats:
    order = np.argsort(place, kind="stable")
    begins = np.concatenate([[0], np.flatnonzero(np.diff(place[order])) + 1])
    summed: Floats = np.add.reduceat(weights[:, order], begins, axis=1)
    return summed


_REGRESSION: Mapping[str, Callable[[Floats, Floats], _Measure]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "rmse": _rmse,
}

# ---------------------------------------------------------------------------------------------------------------------
# Multi-label: gold and found say of each label whether it applies, [N, C]


def _indicators(rows: Sequence[Any], num_labels: int) -> NDArray[np.bool_]:
    table = np.zeros((len(rows), num_labels), dtype=bool)
    for number, ids in enumerate(rows):
        table[number, list(ids)] = True
    return table


def _label_f1(average: str) -> Callable[[NDArray[Any], NDArray[Any]], _Measure]:
    def measure(gold: NDArray[Any], found: NDArray[Any]) -> _Measure:
        from sklearn.metrics import f1_score

        hits, total = (gold & found).astype(float), gold.astype(float) + found

        def weighted(weights: Floats) -> Floats:
            if average == "micro":
                return _safe_divide(2 * (weights @ hits.sum(1)), weights @ total.sum(1))
            per_label = _safe_divide(2 * (weights @ hits), weights @ total)
            return np.asarray(per_label.mean(1))

        return _Measure(f1_score(gold, found, average=average, zero_division=0), weighted)

    return measure


def _all_right(gold: NDArray[Any], found: NDArray[Any]) -> _Measure:
    from sklearn.metrics import accuracy_score

    return _Measure(accuracy_score(gold, found), _share((gold == found).all(1)).weighted)


_MULTI_LABEL: Mapping[str, Callable[[NDArray[Any], NDArray[Any]], _Measure]] = {
    "micro_f1": _label_f1("micro"),
    "macro_f1": _label_f1("macro"),
    "exact_match": _all_right,
}

# ---------------------------------------------------------------------------------------------------------------------
# Tags and answers: counted per example


def _tag_measures(task: Task, examples: Sequence[Example], values: list[Any]) -> dict[str, _Measure]:
    from sklearn.metrics import accuracy_score

    pairs = [(e.tags, tuple(v)) for e, v in zip(examples, values, strict=True) if isinstance(e, TagExample) and e.tags]
    for (gold, found), example in zip(pairs, examples, strict=True):
        if len(gold) != len(found):
            raise InputError(f"{example.where}: {len(gold)} words and {len(found)} predicted tags")
    measures = {}
    if "entity_f1" in task.metrics:
        named = [[find_entities([task.labels[tag] for tag in tags]) for tags in pair] for pair in pairs]
        hits = np.array([2.0 * len(gold & found) for gold, found in named])
        total = np.array([float(len(gold) + len(found)) for gold, found in named])
        measures["entity_f1"] = _ratio(hits, total)
    if "accuracy" in task.metrics:
        right = np.array([float(np.equal(gold, found).sum()) for gold, found in pairs])
        words = np.array([float(len(gold)) for gold, _ in pairs])
        flat = [np.concatenate([pair[side] for pair in pairs]) for side in (0, 1)]
        measures["accuracy"] = _Measure(accuracy_score(*flat), _ratio(right, words).weighted)
    return {name: measures[name] for name in task.metrics}


def _question_measures(examples: Sequence[Example], values: list[Any]) -> dict[str, _Measure]:
    questions = [example for example in examples if isinstance(example, QuestionExample)]
    scores = np.array([score_answer(v, q.answers) for q, v in zip(questions, values, strict=True)])  # [N, 2]
    exact, f1 = scores.T
    measures = {"f1": _share(f1), "exact_match": _share(exact)}
    impossible = np.array([question.impossible for question in questions])
    if impossible.any():
        measures["answerable_f1"] = _share(f1, ~impossible)
        measures["answerable_exact_match"] = _share(exact, ~impossible)
        measures["unanswerable_accuracy"] = _share(exact, impossible)
    return measures
