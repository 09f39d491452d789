"""The ladder: the same files and the same scores for one simple method after another, the simplest first.

climb(read_task("sst-2", folder="glue/SST-2"), ["bow", "tfidf"])
-> Ladder(rungs=(Rung("majority", ...), Rung("bow", ...), Rung("tfidf", ...)), ...)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from litebert.errors import ConfigError, DataError, MissingExtraError, check_choice
from litebert.extras import require
from litebert.ladder.choices import choose_by_similarity, choose_by_window
from litebert.ladder.encoders import WORDS, make_encoder
from litebert.ladder.questions import guess_answers
from litebert.ladder.tags import guess_tags, guess_tags_by_vectors
from litebert.ladder.texts import guess_labels
from litebert.tasks.constant import constant_values
from litebert.tasks.examples import Example, QuestionExample, is_labelled
from litebert.tasks.metrics import RESAMPLES, Metric, score
from litebert.tasks.task import Kind, Task, TaskData

MAJORITY = "majority"
KINDS = ("bow", "tfidf", "ngram", "word2vec", "fasttext")
# What makes sense for which task, from the simple to the less simple.
APPLICABLE: Mapping[Kind, tuple[str, ...]] = {
    "classification": KINDS,
    "regression": KINDS,
    "multi-label": KINDS,
    "token-classification": ("bow", "ngram", "word2vec", "fasttext"),
    "multiple-choice": ("bow", "tfidf", "word2vec", "fasttext"),
    "question-answering": ("bow", "tfidf", "word2vec", "fasttext"),
}

Values = dict[str, list[Any]]  # by split


@dataclass(frozen=True)
class Rung:
    """A method with its scores on each split; `seconds` are of the processor."""

    name: str
    what: str
    scores: Mapping[str, Mapping[str, Metric]]
    seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        splits = {
            split: {name: metric.as_dict() for name, metric in metrics.items()}
            for split, metrics in self.scores.items()
        }
        return {"name": self.name, "what": self.what, "seconds": self.seconds, "splits": splits}


@dataclass(frozen=True)
class Ladder:
    """All rungs, and what they stand on."""

    task: str
    kind: str
    rungs: tuple[Rung, ...]
    examples: Mapping[str, int] = field(default_factory=dict)  # by split, "train" among them
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rungs = [rung.as_dict() for rung in self.rungs]
        return {
            "task": self.task,
            "kind": self.kind,
            "examples": dict(self.examples),
            "rungs": rungs,
            "notes": list(self.notes),
        }


def climb(
    data: TaskData,
    kinds: Sequence[str] = KINDS,
    *,
    corpus: Iterable[list[str]] | None = None,
    max_train: int = 0,
    seed: int = 0,
    resamples: int = RESAMPLES,
    on_start: Callable[[str], None] = lambda kind: None,
) -> Ladder:
    """Score the majority class and each kind on all labelled splits.

    `corpus` (lists of words) is what word vectors are trained on instead of the training texts; `max_train` takes a
    random sample of the training examples.
    """
    kinds, missing = check_kinds(kinds, data.task.kind)
    train, splits, notes = _usable(data, max_train, seed)
    rungs = []
    for kind in (MAJORITY, *kinds):
        on_start(kind)
        began = time.process_time()
        what, values = _guess(data.task, kind, train, splits, seed, corpus)
        seconds = time.process_time() - began
        scores = {name: score(data.task, splits[name], values[name], resamples, seed) for name in splits}
        rungs.append(Rung(kind, what, scores, round(seconds, 2)))
    scored = [example for examples in splits.values() for example in examples]
    if any(isinstance(example, QuestionExample) and example.impossible for example in scored):
        notes.append("all but the majority always answer, so they get every question without an answer wrong")
    notes += missing
    sizes = {"train": len(train), **{name: len(examples) for name, examples in splits.items()}}
    return Ladder(data.task.name, data.task.kind, tuple(rungs), sizes, tuple(notes))


def check_kinds(kinds: Sequence[str], task_kind: Kind) -> tuple[list[str], list[str]]:
    """["all"] -> all that apply and are installed, in the ladder's order; and what is to be said about the others."""
    possible = APPLICABLE[task_kind]
    for kind in kinds:
        check_choice("--kind", kind, (*KINDS, "all"))
        if kind != "all" and kind not in possible:
            raise ConfigError(f"--kind {kind}: means nothing for {task_kind}; there are {', '.join(possible)}")
    wanted = [kind for kind in possible if kind in kinds or "all" in kinds]
    notes = []
    if any(kind not in WORDS for kind in wanted):
        # Told before minutes of work, not after.
        try:
            require("gensim", f"--kind {','.join(kind for kind in wanted if kind not in WORDS)}")
        except MissingExtraError as error:
            if "all" not in kinds:
                raise
            notes.append(f"left out: {error}")
            wanted = [kind for kind in wanted if kind in WORDS]
    return wanted, notes


def _usable(data: TaskData, max_train: int, seed: int) -> tuple[list[Example], dict[str, list[Example]], list[str]]:
    if max_train < 0:
        raise ConfigError(f"--max-train: must be at least 1, got {max_train}")
    train, notes = data.train, list(data.notes)
    unlabelled = next((example.where for example in train if not is_labelled(example)), None)
    if unlabelled is not None:
        raise DataError(f"{unlabelled}: no label, in a training file")
    if not train:
        raise DataError("no training examples; name a training file (--train)")
    if max_train and max_train < len(train):
        chosen = np.random.default_rng(seed).choice(len(train), max_train, replace=False)
        notes.append(f"learnt from {max_train:,} of {len(train):,} training examples, drawn at random (--max-train)")
        train = [train[i] for i in sorted(chosen.tolist())]
    splits = {}
    for name, examples in {**data.dev, **data.test}.items():
        if any(map(is_labelled, examples)):
            splits[name] = examples  # `score` names a row without a label
        else:
            notes.append(f"{name}: no labels, so nothing is scored")
    if not splits:
        raise DataError("no labelled examples to score on; name a dev file (--dev)")
    return train, splits, notes


def _guess(
    task: Task,
    kind: str,
    train: list[Any],
    splits: Mapping[str, list[Any]],
    seed: int,
    corpus: Iterable[list[str]] | None,
) -> tuple[str, Values]:
    if kind == MAJORITY:
        found = {name: constant_values(task, train, examples) for name, examples in splits.items()}
        return next(iter(found.values()))[0], {name: values for name, (_, values) in found.items()}
    if task.kind == "token-classification":
        if kind in WORDS:
            return guess_tags(kind, train, splits)
        return guess_tags_by_vectors(task, kind, train, splits, seed, corpus)
    if task.kind == "multiple-choice":
        if kind == "bow":
            return choose_by_window(splits)
        return choose_by_similarity(train, splits, make_encoder(kind, seed, corpus))
    encoder = make_encoder(kind, seed, corpus)
    if task.kind == "question-answering":
        return guess_answers(train, splits, encoder, seed)
    return guess_labels(task, train, splits, encoder, seed)
