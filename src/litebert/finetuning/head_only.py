"""A head without fine-tuning: a linear model fitted on the encoder's features of every training text.

    fit_head(model, task, split, device)  -> HeadFit(strength=0.01, loss=0.58, ...), and the model's head is set

scikit-learn fits it on standardised features, with the regularisation chosen by cross-validation on the training
examples. The result is an ordinary model that is saved, scored and served like any other.

Shapes: N rows (texts, words or pairs of options), H hidden, L labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.errors import ConfigError
from litebert.finetuning.data import Split
from litebert.finetuning.model import run_sequences
from litebert.model.heads import Model
from litebert.tasks.features import IGNORE, Feature
from litebert.tasks.task import Task, kind_of
from litebert.train.device import Device

Floats = NDArray[np.float64]

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # scikit-learn's C: the smaller, the stronger the regularisation
FOLDS = 5
SEARCH_ROWS = 5_000  # rows that the regularisation is chosen on
FIT_ROWS = 50_000  # rows that the head is fitted on
NEVER = -20.0  # the logit of a label that training never has


@dataclass(frozen=True)
class Rows:
    """What a head is fitted on: a feature vector and a target each; rows of one group (a text) are never torn apart."""

    features: Floats  # [N, H]
    targets: NDArray[Any]  # [N] or [N, L]
    groups: NDArray[np.int64]  # [N]

    def take(self, chosen: NDArray[Any]) -> Rows:
        """Some of the rows."""
        return Rows(self.features[chosen], self.targets[chosen], self.groups[chosen])


@dataclass(frozen=True)
class HeadFit:
    """How a head was fitted: the chosen C, its cross-validated loss, and how many rows it saw."""

    strength: float
    loss: float
    num_rows: int

    def describe(self) -> str:
        """In words: "a linear head fitted on 600 rows, C = 0.01 by cross-validation (loss 0.58)"."""
        return (
            f"a linear head fitted on {self.num_rows:,} rows of features, C = {self.strength:g} "
            f"by cross-validation (loss {self.loss:.3f})"
        )


@dataclass(frozen=True)
class Kind:
    """How the head of a kind of task is fitted: its rows, its weights ([L, H] and [L]) at a strength, and its loss."""

    rows: Callable[[Sequence[Feature], list[NDArray[Any]]], Rows]
    fit: Callable[[Rows, float, int], tuple[Floats, Floats]]
    loss: Callable[[Floats, NDArray[Any]], float]  # logits [N, L], targets


def check_kind(task: Task) -> None:
    """Refuse kinds of tasks that have no such head."""
    if not kind_of(task).has_linear_head:
        raise ConfigError(f"head_only: not for {task.kind}; preset: frozen trains its head on a frozen encoder")


def fit_head(model: Model, task: Task, split: Split, device: Device, seed: int = 0) -> HeadFit:
    """Give a model the linear head that fits a split best; the encoder stays as it is."""
    check_kind(task)
    kind = KINDS[kind_of(task).says]
    rows = _sample(kind.rows(split.features, read_features(model, task, split.features, device)), FIT_ROWS, seed)
    mean, scale = rows.features.mean(0), rows.features.std(0)
    scale[scale < 1e-6] = 1.0
    rows = Rows((rows.features - mean) / scale, rows.targets, rows.groups)
    classifier = model.classifier
    assert isinstance(classifier, nn.Linear)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that stops at its last iteration is good enough
        strength, loss = choose_strength(kind, rows, classifier.out_features, seed)
        weight, bias = kind.fit(rows, strength, classifier.out_features)
    weight = weight / scale
    with torch.no_grad():
        classifier.weight.copy_(torch.from_numpy(weight))
        classifier.bias.copy_(torch.from_numpy(bias - weight @ mean))
    return HeadFit(strength, loss, len(rows.features))


def choose_strength(kind: Kind, rows: Rows, num_labels: int, seed: int = 0) -> tuple[float, float]:
    """The regularisation with the least loss on held-out folds of the training rows."""
    rows = _sample(rows, SEARCH_ROWS, seed)
    names, places = np.unique(rows.groups, return_inverse=True)
    folds = (np.random.default_rng(seed).permutation(len(names)) % FOLDS)[places]
    losses = {}
    for strength in STRENGTHS:
        held_out = []
        for fold in range(min(FOLDS, len(names))):
            if len(names) == 1:
                break
            weight, bias = kind.fit(rows.take(folds != fold), strength, num_labels)
            asked = rows.take(folds == fold)
            held_out.append(kind.loss(asked.features @ weight.T + bias, asked.targets))
        losses[strength] = float(np.mean(held_out)) if held_out else np.inf
    best = min(losses, key=lambda strength: losses[strength])
    return best, losses[best]


def read_features(model: Model, task: Task, sequences: Sequence[Feature], device: Device) -> list[NDArray[Any]]:
    """The features that a model's head reads for each sequence: [H], or [len, H] if it labels tokens."""
    return [output["logits"] for output in run_sequences(_HeadInput(model), task, sequences, device)]


class _HeadInput(Model):
    """A model without its head: returns the head's features instead of logits."""

    def __init__(self, model: Model):
        nn.Module.__init__(self)
        self.config, self.encoder = model.config, model.encoder
        self.per_token = model.head == "token-classification"
        self.head = "token-classification" if self.per_token else "classification"  # type: ignore[misc]

    def forward(self, input_ids: Tensor, **inputs: Any) -> Tensor:
        if not self.per_token:
            return self.summarize(input_ids, **inputs)
        hidden: Tensor = self.encoder(input_ids, **inputs).hidden
        return hidden


def _sample(rows: Rows, most: int, seed: int) -> Rows:
    if len(rows.features) <= most:
        return rows
    return rows.take(np.sort(np.random.default_rng(seed).choice(len(rows.features), most, replace=False)))


# -- rows of each kind -------------------------------------------------------------------------------------------------


def _one_each(sequences: Sequence[Feature], features: list[NDArray[Any]]) -> Rows:
    targets = np.stack([np.asarray(sequence.target) for sequence in sequences])
    groups = np.array([sequence.example for sequence in sequences])
    return Rows(np.stack(features).astype(np.float64), targets, groups)


def _words(sequences: Sequence[Feature], features: list[NDArray[Any]]) -> Rows:
    kept = [np.asarray(sequence.target) != IGNORE for sequence in sequences]
    found = [part[chosen] for part, chosen in zip(features, kept, strict=True)]
    targets = [np.asarray(s.target)[chosen] for s, chosen in zip(sequences, kept, strict=True)]
    groups = [np.full(len(part), s.example) for part, s in zip(found, sequences, strict=True)]
    return Rows(np.concatenate(found).astype(np.float64), np.concatenate(targets), np.concatenate(groups))


def _option_pairs(sequences: Sequence[Feature], features: list[NDArray[Any]]) -> Rows:
    """Differences between the right option and each other one of its question, and their negatives."""
    by_example: dict[int, list[int]] = {}
    for number, sequence in enumerate(sequences):
        by_example.setdefault(sequence.example, []).append(number)
    gaps, groups = [], []
    for example, numbers in by_example.items():
        right = next(n for n in numbers if sequences[n].option == sequences[n].target)
        for other in numbers:
            if other != right:
                gaps.append(features[right].astype(np.float64) - features[other])
                groups.append(example)
    differences = np.stack(gaps)
    targets = np.repeat([1, 0], len(gaps))
    return Rows(np.concatenate([differences, -differences]), targets, np.array([*groups, *groups]))


# -- fits: standardised rows -> weights [L, H] and biases [L] ----------------------------------------------------------


def _logistic(rows: Rows, strength: float, intercept: bool = True) -> tuple[NDArray[Any], Floats, Floats]:
    """Classes that occur, and their weights and biases as logits of a softmax."""
    from sklearn.linear_model import LogisticRegression

    classes = np.unique(rows.targets)
    if len(classes) == 1:
        return classes, np.zeros((1, rows.features.shape[1])), np.zeros(1)
    model = LogisticRegression(C=strength, max_iter=300, fit_intercept=intercept).fit(rows.features, rows.targets)
    weight, bias = model.coef_, np.broadcast_to(model.intercept_, len(model.coef_))
    if len(classes) == 2:  # scikit-learn has one row for two classes
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return classes, weight, bias


def _fit_classes(rows: Rows, strength: float, num_labels: int) -> tuple[Floats, Floats]:
    classes, found, intercepts = _logistic(rows, strength)
    weight, bias = np.zeros((num_labels, rows.features.shape[1])), np.full(num_labels, NEVER)
    weight[classes], bias[classes] = found, intercepts
    return weight, bias


def _fit_label_sets(rows: Rows, strength: float, num_labels: int) -> tuple[Floats, Floats]:
    weight, bias = np.zeros((num_labels, rows.features.shape[1])), np.zeros(num_labels)
    for label in range(num_labels):
        one = Rows(rows.features, rows.targets[:, label] > 0.5, rows.groups)
        classes, found, intercepts = _logistic(one, strength)
        if len(classes) == 1:
            bias[label] = -NEVER if classes[0] else NEVER
        else:
            weight[label], bias[label] = found[1] - found[0], intercepts[1] - intercepts[0]
    return weight, bias


def _fit_number(rows: Rows, strength: float, num_labels: int) -> tuple[Floats, Floats]:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=1 / strength).fit(rows.features, rows.targets.astype(float))
    return model.coef_.reshape(1, -1), np.array([float(model.intercept_)])


def _fit_options(rows: Rows, strength: float, num_labels: int) -> tuple[Floats, Floats]:
    _, weight, _ = _logistic(rows, strength, intercept=False)
    return weight[-1:] - weight[:1], np.zeros(1)


# -- losses on held-out rows -------------------------------------------------------------------------------------------


def _softmax_loss(logits: Floats, targets: NDArray[Any]) -> float:
    top = logits.max(1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(logits - top).sum(1))
    return float((total - logits[np.arange(len(targets)), targets.astype(int)]).mean())


def _sigmoid_loss(logits: Floats, targets: NDArray[Any]) -> float:
    return float(np.logaddexp(0, np.where(targets.reshape(logits.shape) > 0.5, -logits, logits)).mean())


def _squared_error(logits: Floats, targets: NDArray[Any]) -> float:
    return float(((logits[:, 0] - targets.astype(float)) ** 2).mean())


# By what the predictions of a kind of task are.
KINDS: dict[str, Kind] = {
    "label": Kind(_one_each, _fit_classes, _softmax_loss),
    "number": Kind(_one_each, _fit_number, _squared_error),
    "labels": Kind(_one_each, _fit_label_sets, _sigmoid_loss),
    "tags": Kind(_words, _fit_classes, _softmax_loss),
    "option": Kind(_option_pairs, _fit_options, _sigmoid_loss),
}
