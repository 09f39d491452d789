"""Score simple methods on the same files and with the same metrics, and say whether a model is ahead of them.

score_baselines(read_task("sst-2", folder="glue/SST-2"), ["bow", "tfidf"])
-> BaselineTable(methods=(Method("majority", ...), Method("bow", ...), Method("tfidf", ...)), ...)

baselines = cheap_baselines(task, train, dev)         -> [Baseline("always 'pos'", ...), Baseline("TF-IDF + ...", ...)]
compare(task, dev, predictions, baselines)            -> [Comparison("TF-IDF + ...", "accuracy", ...), ...]
strongest(comparisons, "accuracy").verdict            -> "ahead", "level" or "behind"
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from litebert.baselines.features import make_encoder
from litebert.baselines.labels import guess_labels, guess_tags, guess_tags_by_vectors
from litebert.baselines.overlap import choose_by_similarity, choose_by_window, guess_answers, guess_similarity
from litebert.errors import ConfigError, DataError, MissingExtraError, check_choice
from litebert.extras import require
from litebert.tasks.metrics import (
    ERRORS,
    RESAMPLES,
    Metric,
    goodness,
    score,
    score_difference,
    show_interval,
    show_value,
)
from litebert.tasks.own import texts_of
from litebert.tasks.task import Example, QuestionExample, Task, TaskData, kind_of
from litebert.text.lexical import WORDS, choose_analysis

MAJORITY = "majority"
KINDS = ("bow", "tfidf", "ngram", "word2vec", "fasttext")
Values = dict[str, list[Any]]  # by split


@dataclass(frozen=True)
class Method:
    """A method with its scores on each split; `seconds` is CPU time."""

    name: str
    what: str
    scores: Mapping[str, Mapping[str, Metric]]
    seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        splits = asdict(self)["scores"]
        return {"name": self.name, "what": self.what, "seconds": self.seconds, "splits": splits}


@dataclass(frozen=True)
class BaselineTable:
    """All methods, and the examples they were scored on."""

    task: str
    kind: str
    methods: tuple[Method, ...]
    examples: Mapping[str, int] = field(default_factory=dict)  # by split, "train" among them
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "task": self.task,
            "kind": self.kind,
            "examples": dict(self.examples),
            "methods": [method.as_dict() for method in self.methods],
            "notes": list(self.notes),
        }


def score_baselines(
    data: TaskData,
    kinds: Sequence[str] = KINDS,
    *,
    corpus: Iterable[list[str]] | None = None,
    max_train: int = 0,
    seed: int = 0,
    resamples: int = RESAMPLES,
    on_start: Callable[[str], None] = lambda kind: None,
) -> BaselineTable:
    """Score the majority class and each kind on all labelled splits.

    Word vectors are trained on `corpus` (lists of words) instead of the training texts; `max_train` fits on a random
    sample of the training examples.
    """
    kinds, missing = check_kinds(kinds, data.task.kind)
    train, splits, notes = _usable(data, max_train, seed)
    methods = []
    for kind in (MAJORITY, *kinds):
        on_start(kind)
        began = time.process_time()
        what, values = guess(data.task, kind, train, splits, seed, corpus)
        seconds = time.process_time() - began
        scores = {name: score(data.task, splits[name], values[name], resamples, seed) for name in splits}
        methods.append(Method(kind, what, scores, round(seconds, 2)))
    scored = [example for examples in splits.values() for example in examples]
    if any(isinstance(example, QuestionExample) and example.impossible for example in scored):
        notes.append("all methods except the majority always answer, so they miss every question without an answer")
    notes += missing
    sizes = {"train": len(train), **{name: len(examples) for name, examples in splits.items()}}
    return BaselineTable(data.task.name, data.task.kind, tuple(methods), sizes, tuple(notes))


def check_kinds(kinds: Sequence[str], task_kind: str) -> tuple[list[str], list[str]]:
    """["all"] -> all applicable and installed methods, the simplest first, and notes about those left out."""
    possible = methods_of(task_kind).kinds
    for kind in kinds:
        check_choice("method", kind, (*KINDS, "all"))
        if kind != "all" and kind not in possible:
            raise ConfigError(f"method: {kind} does not apply to {task_kind}; choose from {', '.join(possible)}")
    wanted = [kind for kind in possible if kind in kinds or "all" in kinds]
    notes = []
    if any(kind not in WORDS for kind in wanted):
        # Check before minutes of work, not after.
        try:
            require("gensim", " and ".join(kind for kind in wanted if kind not in WORDS))
        except MissingExtraError as error:
            if "all" not in kinds:
                raise
            notes.append(f"left out: {error}")
            wanted = [kind for kind in wanted if kind in WORDS]
    return wanted, notes


def _usable(data: TaskData, max_train: int, seed: int) -> tuple[list[Example], dict[str, list[Example]], list[str]]:
    if max_train < 0:
        raise ConfigError(f"max_train: must be >= 0 (0: all), got {max_train}")
    train, notes = data.train, list(data.notes)
    unlabelled = next((example.where for example in train if not example.is_labelled), None)
    if unlabelled is not None:
        raise DataError(f"{unlabelled}: training example without a label")
    if not train:
        raise DataError("no training examples; name a training file (train)")
    if max_train and max_train < len(train):
        chosen = np.random.default_rng(seed).choice(len(train), max_train, replace=False)
        notes.append(f"fitted on a random sample of {max_train:,} of {len(train):,} training examples (max_train)")
        train = [train[i] for i in sorted(chosen.tolist())]
    splits = {}
    for name, examples in {**data.dev, **data.test}.items():
        if any(example.is_labelled for example in examples):
            splits[name] = examples  # `score` names a row without a label
        else:
            notes.append(f"{name}: no labels, not scored")
    if not splits:
        raise DataError("no labelled examples to score; name a dev file (dev)")
    return train, splits, notes


def guess(
    task: Task,
    kind: str,
    train: list[Any],
    splits: Mapping[str, list[Any]],
    seed: int = 0,
    corpus: Iterable[list[str]] | None = None,
) -> tuple[str, Values]:
    """A description of a method, and its prediction for each example of each split."""
    if kind == MAJORITY:
        found = {name: kind_of(task).constant(task, train, examples) for name, examples in splits.items()}
        return next(iter(found.values()))[0], {name: values for name, (_, values) in found.items()}
    return methods_of(task).guess(task, kind, train, splits, seed, corpus)


def _guess_labels(task: Task, kind: str, train: Any, splits: Any, seed: int, corpus: Any) -> tuple[str, Values]:
    return guess_labels(task, train, splits, make_encoder(kind, seed, corpus), seed)


def _guess_tags(task: Task, kind: str, train: Any, splits: Any, seed: int, corpus: Any) -> tuple[str, Values]:
    if kind in WORDS:
        return guess_tags(kind, train, splits)
    return guess_tags_by_vectors(task, kind, train, splits, seed, corpus)


def _guess_choices(task: Task, kind: str, train: Any, splits: Any, seed: int, corpus: Any) -> tuple[str, Values]:
    if kind == "bow":
        return choose_by_window(splits)
    return choose_by_similarity(train, splits, make_encoder(kind, seed, corpus))


def _guess_answers(task: Task, kind: str, train: Any, splits: Any, seed: int, corpus: Any) -> tuple[str, Values]:
    return guess_answers(train, splits, make_encoder(kind, seed, corpus), seed)


def _guess_similarity(task: Task, kind: str, train: Any, splits: Any, seed: int, corpus: Any) -> tuple[str, Values]:
    return guess_similarity(kind, splits, make_encoder(kind, seed, corpus))


@dataclass(frozen=True)
class Methods:
    """The methods for a kind of task, the simplest first, and the best one that takes only seconds."""

    guess: Callable[..., tuple[str, Values]]
    kinds: tuple[str, ...]
    cheap: str
    cheap_name: str


# By the kind of prediction a task makes.
METHODS: dict[str, Methods] = {
    "label": Methods(_guess_labels, KINDS, "tfidf", "TF-IDF + logistic regression"),
    "number": Methods(_guess_labels, KINDS, "tfidf", "TF-IDF + ridge regression"),
    "labels": Methods(_guess_labels, KINDS, "tfidf", "TF-IDF + logistic regression per label"),
    "tags": Methods(_guess_tags, ("bow", "ngram", "word2vec", "fasttext"), "bow", "most frequent tag of each word"),
    "option": Methods(_guess_choices, ("bow", "tfidf", "word2vec", "fasttext"), "bow", "words shared with the passage"),
    "text": Methods(
        _guess_answers, ("bow", "tfidf", "word2vec", "fasttext"), "tfidf", "words shared with the question (TF-IDF)"
    ),
    "nearness": Methods(_guess_similarity, KINDS, "tfidf", "shared words (TF-IDF; BM25 for search)"),
}


def methods_of(task: Task | str) -> Methods:
    """The methods for a task or kind of task."""
    return METHODS[kind_of(task).says]


def rows_of(table: BaselineTable) -> tuple[list[str], list[list[str]]]:
    """A header and one row per split and method; a score reads "80.3 (77.6 – 82.9)"."""
    splits = list(dict.fromkeys(split for method in table.methods for split in method.scores))
    metrics = list(
        dict.fromkeys(name for method in table.methods for scores in method.scores.values() for name in scores)
    )
    many = len(splits) > 1
    rows = []
    for split in splits:
        for method in table.methods:
            if split in method.scores:
                cells = [show_score(method.scores[split].get(name), name) for name in metrics]
                seconds = "" if method.seconds is None else f"{method.seconds:.1f}"
                rows.append([method.name, *([split] if many else []), *cells, seconds])
    names = [name.replace("_", " ") for name in metrics]
    return ["method", *(["split"] if many else []), *names, "s"], rows


def show_score(metric: Metric | None, name: str = "") -> str:
    """A score with its interval; "–" if there is no such score."""
    interval = show_interval(metric, name)
    return show_value(metric.value if metric else None, name) + (f" ({interval})" if interval else "")


# ---------------------------------------------------------------------------------------------------------------------
# Is a model ahead of methods that take seconds? Both are scored on the same examples, as paired differences

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
        return {**asdict(self), "verdict": self.verdict}

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
