"""Is a model ahead of the simple methods that take seconds? Both are scored on the same examples, pair by pair.

baselines = cheap_baselines(task, train, dev)         -> [Baseline("always 'pos'", ...), Baseline("TF-IDF + ...", ...)]
compare(task, dev, predictions, baselines)            -> [Comparison("TF-IDF + ...", "accuracy", ...), ...]
strongest(comparisons, "accuracy").verdict            -> "ahead", "level" or "behind"
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from litebert.baselines.features import choose_analysis
from litebert.baselines.table import guess, methods_of
from litebert.errors import DataError
from litebert.tasks.examples import Example
from litebert.tasks.metrics import ERRORS, RESAMPLES, Metric, score, score_difference
from litebert.tasks.task import Task, kind_of

# Fitting on so much text takes a few seconds on one core; larger training files are sampled.
MAX_CHARACTERS = 4_000_000
CHARACTERS_COST = 4  # times as much where n-grams of characters are counted as well
LABELS_AT_ONCE = 50  # a linear model of more labels takes longer, in proportion

Verdict = Literal["ahead", "level", "behind"]


@dataclass(frozen=True)
class Baseline:
    """A simple method and what it predicts for each example."""

    name: str
    what: str
    values: list[Any]


@dataclass(frozen=True)
class Comparison:
    """A baseline beside a model, by one metric; `lead` is the model's score less the baseline's, with its interval."""

    baseline: str
    what: str
    metric: str
    score: Metric
    lead: Metric

    @property
    def verdict(self) -> Verdict:
        """By the 95 % interval of the lead: "level" where it contains 0."""
        low, high = self.lead.low, self.lead.high
        if low is None or high is None or low <= 0 <= high:
            return "level"
        return "ahead" if (low > 0) != (self.metric in ERRORS) else "behind"

    def verdict_at(self, median: float) -> Verdict:
        """The verdict of the best of several runs: no better, and no worse, than that of their median."""
        gap = median - self.score.value
        better = gap < 0 if self.metric in ERRORS else gap > 0
        agrees = {"ahead": better, "behind": not better, "level": True}[self.verdict]
        return self.verdict if agrees else "level"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "baseline": self.baseline,
            "what": self.what,
            "metric": self.metric,
            "score": self.score.as_dict(),
            "lead": self.lead.as_dict(),
            "verdict": self.verdict,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Comparison:
        """The reverse of `as_dict`."""
        return cls(data["baseline"], data["what"], data["metric"], Metric(**data["score"]), Metric(**data["lead"]))


def cheap_baselines(task: Task, train: Sequence[Example], examples: Sequence[Example], seed: int = 0) -> list[Baseline]:
    """A constant, and the simple method of the kind of task that takes seconds, fitted on `train`."""
    name, values = kind_of(task).constant(task, train, examples)
    found = [Baseline(name, "the most common label of the training examples, or their mean", values)]
    methods = methods_of(task)
    sample = limit_examples(task, train, seed)
    try:
        what, by_split = guess(task, methods.cheap, sample, {"": list(examples)}, seed)
    except DataError:  # texts without a single word: there is nothing to count
        return found
    if len(sample) < len(train):
        what += f"; fitted on {len(sample):,} of {len(train):,} training examples"
    return [*found, Baseline(methods.cheap_name, what, by_split[""])]


def limit_examples(task: Task, train: Sequence[Example], seed: int = 0) -> list[Example]:
    """The training examples, or a random sample of as many as take a few seconds, in their order."""
    texts = [texts_of(example) for example in train]
    cost = CHARACTERS_COST if choose_analysis(texts).characters else 1
    budget = MAX_CHARACTERS / cost / max(1.0, len(task.labels) / LABELS_AT_ONCE)
    sizes = np.array([len(text) for text in texts])
    if sizes.sum() <= budget:
        return list(train)
    order = np.random.default_rng(seed).permutation(len(train))
    fits = max(1, int(np.searchsorted(np.cumsum(sizes[order]), budget, side="right")))
    return [train[i] for i in sorted(order[:fits].tolist())]


def texts_of(example: Example) -> str:
    """All texts of an example as one, its label aside."""

    def flatten(part: Any) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, tuple):
            for each in part:
                yield from flatten(each)

    return " ".join(flatten(example.asked))


def compare(
    task: Task,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    baselines: Sequence[Baseline],
    resamples: int = RESAMPLES,
) -> list[Comparison]:
    """The model beside each baseline: by the metric that decides, and by errors, where a constant is hard to beat."""
    metrics = dict.fromkeys([task.metrics[0], *(name for name in task.metrics if name in ERRORS)])
    found = []
    for baseline in baselines:
        scores = score(task, examples, baseline.values, resamples)
        leads = score_difference(task, examples, predictions, baseline.values, resamples)
        found += [Comparison(baseline.name, baseline.what, name, scores[name], leads[name]) for name in metrics]
    return found


def strongest(comparisons: Sequence[Comparison], metric: str) -> Comparison | None:
    """The baseline with the best score by a metric."""
    return max((each for each in comparisons if each.metric == metric), key=_goodness, default=None)


def _goodness(comparison: Comparison) -> float:
    value = comparison.score.value
    if math.isnan(value):
        return -math.inf
    return -value if comparison.metric in ERRORS else value
