"""Is a model ahead of simple methods that take seconds? Both are scored on the same examples, as paired differences.

baselines = cheap_baselines(task, train, dev)         -> [Baseline("always 'pos'", ...), Baseline("TF-IDF + ...", ...)]
compare(task, dev, predictions, baselines)            -> [Comparison("TF-IDF + ...", "accuracy", ...), ...]
strongest(comparisons, "accuracy").verdict            -> "ahead", "level" or "behind"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from litebert.baselines.table import guess, methods_of
from litebert.errors import DataError
from litebert.tasks.metrics import ERRORS, RESAMPLES, Metric, goodness, score, score_difference
from litebert.tasks.own import texts_of
from litebert.tasks.task import Example, Task, kind_of
from litebert.text.lexical import choose_analysis

# Fitting on this much text takes a few seconds on one core; larger training files are sampled.
MAX_CHARACTERS = 4_000_000
CHARACTERS_COST = 4  # factor if character n-grams are counted as well
LABELS_AT_ONCE = 50  # with more labels a linear model takes proportionally longer

Verdict = Literal["ahead", "level", "behind"]


@dataclass(frozen=True)
class Baseline:
    """A simple method and its prediction for each example."""

    name: str
    what: str
    values: list[Any]


@dataclass(frozen=True)
class Comparison:
    """A model compared with a baseline by one metric; `lead` is the model's score minus the baseline's."""

    baseline: str
    what: str
    metric: str
    score: Metric
    lead: Metric

    @property
    def verdict(self) -> Verdict:
        """By the 95 % interval of the lead: "level" if it contains 0."""
        low, high = self.lead.low, self.lead.high
        if low is None or high is None or low <= 0 <= high:
            return "level"
        return "ahead" if goodness(self.metric, low) > 0 else "behind"

    def verdict_at(self, median: float) -> Verdict:
        """The verdict for the best of several runs: "level" unless their median is on the same side."""
        better = goodness(self.metric, median) > goodness(self.metric, self.score.value)
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
    """A constant prediction, and the task kind's simple method that takes seconds, fitted on `train`."""
    name, values = kind_of(task).constant(task, train, examples)
    found = [Baseline(name, "the most common training label, or the mean", values)]
    methods = methods_of(task)
    sample = limit_examples(task, train, seed)
    try:
        what, by_split = guess(task, methods.cheap, sample, {"": list(examples)}, seed)
    except DataError:  # texts without a single word
        return found
    if len(sample) < len(train):
        what += f"; fitted on {len(sample):,} of {len(train):,} training examples"
    return [*found, Baseline(methods.cheap_name, what, by_split[""])]


def limit_examples(task: Task, train: Sequence[Example], seed: int = 0) -> list[Example]:
    """The training examples, or a random sample small enough to fit in a few seconds, in order."""
    texts = [" ".join(texts_of(example.asked)) for example in train]
    cost = CHARACTERS_COST if choose_analysis(texts).characters else 1
    budget = MAX_CHARACTERS / cost / max(1.0, len(task.labels) / LABELS_AT_ONCE)
    sizes = np.array([len(text) for text in texts])
    if sizes.sum() <= budget:
        return list(train)
    order = np.random.default_rng(seed).permutation(len(train))
    fits = max(1, int(np.searchsorted(np.cumsum(sizes[order]), budget, side="right")))
    return [train[i] for i in sorted(order[:fits].tolist())]


def compare(
    task: Task,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    baselines: Sequence[Baseline],
    resamples: int = RESAMPLES,
) -> list[Comparison]:
    """Compare a model with each baseline, by the deciding metric and by errors, where a constant is hard to beat."""
    metrics = dict.fromkeys([task.metrics[0], *(name for name in task.metrics if name in ERRORS)])
    found = []
    for baseline in baselines:
        scores = score(task, examples, baseline.values, resamples)
        leads = score_difference(task, examples, predictions, baseline.values, resamples)
        found += [Comparison(baseline.name, baseline.what, name, scores[name], leads[name]) for name in metrics]
    return found


def strongest(comparisons: Sequence[Comparison], metric: str) -> Comparison | None:
    """The baseline with the best score by a metric."""
    candidates = (each for each in comparisons if each.metric == metric)
    return max(candidates, key=lambda each: goodness(metric, each.score.value), default=None)
