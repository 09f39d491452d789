"""The examples of a run and their sequences, from its config; without torch."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from litebert.baselines.table import Baseline, cheap_baselines
from litebert.errors import ConfigError, DataError, did_you_mean
from litebert.finetuning.config import FinetuneConfig, is_comparison
from litebert.machine import usable_cpus
from litebert.model.config import ModelConfig
from litebert.tasks.features import Feature, make_features
from litebert.tasks.read import read_task
from litebert.tasks.tables import format_of
from litebert.tasks.task import Example, Task, TaskData, kind_of
from litebert.text.readers import Document, read_documents
from litebert.text.sentences import split_sentences
from litebert.text.sources import ending_of, find_sources
from litebert.text.tokenizer import Tokenizer

MOST_UNKNOWN = 0.05  # of the tokens of the training texts, before a warning
UNKNOWN_SAMPLE = 2000  # sequences are enough to tell


@dataclass(frozen=True)
class Split:
    """Examples with their sequences."""

    name: str
    examples: list[Example]
    features: list[Feature]

    @property
    def is_labelled(self) -> bool:
        """Whether all examples have labels."""
        return all(example.is_labelled for example in self.examples)


class Data:
    """The examples of a run as sequences; dev and test are tokenized on first use."""

    def __init__(self, task: Task, examples: TaskData, tokenizer: Tokenizer, limit: int = 0):
        self.task, self.tokenizer, self.notes = task, tokenizer, list(examples.notes)
        self._examples, self._limit, self._warned = examples, limit, False

    @cached_property
    def train(self) -> Split:
        """The training split; a test-only task has none."""
        split = self._split("train", self._examples.train)
        if not split.examples:
            raise DataError("no training examples; name a training file (train)")
        unlabelled = next((example.where for example in split.examples if not example.is_labelled), None)
        if unlabelled:
            raise DataError(f"{unlabelled}: no label; every training example needs one")
        return split

    @cached_property
    def dev(self) -> list[Split]:
        """The dev splits; the first one selects the best weights, the others are scored too."""
        splits = [self._split(name, examples) for name, examples in self._examples.dev.items()]
        for split in splits:
            if not split.examples:
                raise DataError(f"{split.name}: no examples in it; without a dev split, leave it out")
        return splits

    @cached_property
    def test(self) -> list[Split]:
        """The test splits, for which predictions are written."""
        return [self._split(name, examples, everything=True) for name, examples in self._examples.test.items()]

    @cached_property
    def baselines(self) -> list[Baseline]:
        """Predictions of simple methods for the first dev split, if it has labels; computed once for all seeds."""
        if not self.dev or not self.dev[0].is_labelled:
            return []
        return cheap_baselines(self.task, self.train.examples, self.dev[0].examples)

    def all_notes(self) -> list[str]:
        """Notes about what was guessed, repaired or truncated in training and dev data, each once."""
        _ = self.train, self.dev
        notes, self.notes = self.notes, []
        return notes if self.dev else [*notes, "no dev split: the last weights are kept, and nothing is scored"]

    def warnings(self) -> list[str]:
        """Warnings about data that the model cannot learn from, once per run."""
        if self._warned:
            return []
        self._warned = True
        share = unknown_share(self.train.features, self.tokenizer)
        if share <= MOST_UNKNOWN:
            return []
        return [
            f"{100 * share:.0f} % of the training tokens are unknown to the model's vocabulary. Use a model of the "
            "texts' language (model), or pretrain one: litebert tokenizer train, then litebert pretrain"
        ]

    def _split(self, name: str, examples: list[Example], everything: bool = False) -> Split:
        if self._limit and not everything:
            examples = examples[: self._limit]
        features = make_features(self.task, examples, self.tokenizer, usable_cpus())
        self.notes.extend(f"{name}: {note}" for note in kind_of(self.task).notes(self.task, examples, features))
        return Split(name, examples, features)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the training sequences and their targets: a run is resumed only with the data it began with."""
        digest = hashlib.sha256()
        for sequence in self.train.features:
            digest.update(sequence.ids.tobytes())
            digest.update(repr(np.asarray(sequence.target).tolist()).encode())
        return digest.hexdigest()


def unknown_share(features: list[Feature], tokenizer: Tokenizer) -> float:
    """The share of the text's tokens (specials aside) that are the unknown one, in a sample over all sequences."""
    step = -(-len(features) // UNKNOWN_SAMPLE)
    ids = np.concatenate([sequence.ids for sequence in features[::step]])
    ids = ids[~np.isin(ids, [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id])]
    return float((ids == tokenizer.unk_id).mean()) if len(ids) else 0.0


def read_data(
    config: FinetuneConfig, tokenizer: Tokenizer, model: ModelConfig, examples: TaskData | None = None
) -> Data:
    """Read the files of a config, or take examples; the task gets the lengths that the config and the model allow."""
    source = config.data
    how = config.similarity.pairs
    if how != "none" and (examples is not None or source.train is None):
        raise ConfigError("pairs: are made from a text file; name it as the training file (train)")
    if how != "none" and not is_comparison(config.task):
        raise ConfigError(f"pairs: are for the task similarity, not {config.task}")
    if examples is not None:
        return Data(settle_task(examples.task, config, model), examples, tokenizer, source.limit)
    train: Any = source.train
    if is_comparison(config.task) and train is not None:
        if how == "none" and is_plain_text(train):
            how = "sentences"
        if how != "none":
            train = make_pairs(train, how, config.similarity.num_pairs, config.seed)
    found = read_task(
        config.task,
        folder=source.folder,
        train=train,
        dev=source.dev,
        test=source.test,
        columns=source.columns or None,
        encoding=source.encoding,
    )
    wanted = source.test is not None if source.predict_test is None else source.predict_test
    if not wanted:
        found = dataclasses.replace(found, test={})
    return Data(settle_task(found.task, config, model), found, tokenizer, source.limit)


def settle_task(task: Task, config: FinetuneConfig, model: ModelConfig) -> Task:
    """The task with the config's changes: its length, up to the model's limit, and the no-answer head."""
    length = min(config.max_length or task.max_length, model.max_position_embeddings)
    metrics = task.metrics or kind_of(task).metrics
    if config.metric is not None:
        if config.metric not in metrics:
            hint = did_you_mean(config.metric, metrics)
            raise ConfigError(f"metric: {task.name} has no {config.metric!r}{hint or '.'} It has: {', '.join(metrics)}")
        metrics = (config.metric, *(name for name in metrics if name != config.metric))
    head = task.answerable_head if config.answerable_head is None else config.answerable_head
    stride = config.stride or task.stride
    task = dataclasses.replace(task, max_length=length, stride=stride, metrics=metrics, answerable_head=head)
    if kind_of(task).compares:
        chosen = config.similarity
        task = dataclasses.replace(task, pooling=chosen.pooling, normalize=chosen.normalize, sizes=chosen.sizes)
    return task


def open_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model folder."""
    return Tokenizer.from_pretrained(model)


# ---------------------------------------------------------------------------------------------------------------------
# Training pairs from any text, without labels: texts close together in a document are close in meaning

SHORTEST, LONGEST = 20, 1000  # characters of a sentence; shorter ones are headings and fragments
LONGEST_TITLE = 100
PARAGRAPHS = 3  # that the title of a document is paired with: later ones are about details


def make_pairs(source: Path | str, how: str, most: int, seed: int = 0) -> dict[str, list[str]]:
    """Columns of at most `most` sentences or pairs, each as likely as any other, in the order of the text.

    make_pairs("wiki.txt.xz", "adjacent", 1000)   -> {"text": ["It was built in 1902.", ...], "pair": ["It fell", ...]}
    make_pairs("wiki.txt.xz", "titles", 1000)     -> {"text": ["Town hall", ...], "pair": ["The hall was built", ...]}
    make_pairs("wiki.txt.xz", "sentences", 1000)  -> {"text": ["It was built in 1902.", ...]}     for SimCSE
    """
    if ending_of(str(source)) in (".csv", ".tsv"):
        raise DataError(f"{source}: a table, whose columns hold pairs already; leave out pairs, or give plain text")
    kept: list[tuple[int, tuple[str, ...]]] = []
    random = np.random.default_rng(seed)
    number = -1
    for number, found in enumerate(_all(source, how)):
        if number < most:
            kept.append((number, found))
        elif (place := int(random.integers(number + 1))) < most:  # a reservoir: one pass, whatever the length
            kept[place] = (number, found)
    if number < 1:
        what = {"titles": "no titles with paragraphs", "adjacent": "no two sentences in a row"}
        raise DataError(f"{source}: {what.get(how, 'no two sentences')} to learn from ({SHORTEST} characters or more)")
    columns = zip(*(found for _, found in sorted(kept)), strict=True)
    return {name: list(values) for name, values in zip(("text", "pair"), columns, strict=False)}


def is_plain_text(path: str) -> bool:
    """Whether a training file is plain text, not a table, so that its sentences are the examples."""
    if Path(path).is_dir():
        return False
    try:
        return format_of(path) == "csv" and ".csv" not in Path(path).name.lower()
    except DataError:
        return False


def _all(source: Path | str, how: str) -> Iterator[tuple[str, ...]]:
    for file in find_sources([source]):
        for document in read_documents(file.path):
            if how == "titles":
                yield from _titles(document)
            elif how == "adjacent":
                yield from ((a, b) for a, b in pairwise(_sentences(document)) if _fits(a) and _fits(b) and a != b)
            else:
                yield from ((text,) for text in _sentences(document) if _fits(text))


def _sentences(document: Document) -> list[str]:
    if document.are_sentences:
        return document.lines
    return [sentence for line in document.lines for sentence in split_sentences(line)]


def _titles(document: Document) -> Iterator[tuple[str, str]]:
    """The first line with the paragraphs after it, and every other short line with the one after it."""
    for number, line in enumerate(document.lines):
        after = document.lines[number + 1 : number + 1 + (PARAGRAPHS if number == 0 else 1)]
        if len(line) <= LONGEST_TITLE:
            yield from ((line, paragraph) for paragraph in after if len(paragraph) > max(LONGEST_TITLE, 2 * len(line)))


def _fits(sentence: str) -> bool:
    return SHORTEST <= len(sentence) <= LONGEST
