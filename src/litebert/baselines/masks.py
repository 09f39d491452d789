"""Baselines for pretrained models: masked tokens from n-grams, the order of segments from connectives.

score_mask_baselines(stores, training, evaluation, tokenizer, 40)  -> MaskBaselines(unigram=0.05, trigram=0.21, ...)
score_masks(["ngram"], [Path("text.txt")], Path("other.txt"), ["run/model"])  -> BaselineTable(...)
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from litebert.baselines.table import BaselineTable, Method
from litebert.errors import ConfigError, InputError
from litebert.pretraining.batches import Batches
from litebert.pretraining.recipes import Recipe
from litebert.remote import find_folder
from litebert.tasks.metrics import Metric
from litebert.text.build import build_store
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer

Ids = npt.NDArray[np.int64]

MASKED_LM = "masked-lm"
KIND = "ngram"
LENGTH = 128
ROW = 1024  # tokens of a batch
SPLIT = "dev"

Tokens = npt.NDArray[np.integer]
Pair = tuple[str, str]

# Words that show order without saying what happened.
CONNECTIVES = (
    "after afterwards again already also and as at because before but by during early eventually finally first for "
    "from however in instead last late later meanwhile next now on once second since so soon still suddenly than then "
    "therefore third though thus today together tomorrow tonight too until when whenever where which while yet"
).split()
TIMES = "afternoon day evening hour hours midnight minutes morning night noon week weeks year years".split()


class MaskBaselines(NamedTuple):
    """Accuracies of the simple guesses; `connectives` is None without a sentence-order objective."""

    unigram: float
    trigram: float  # from up to two visible tokens on the left
    connectives: float | None

    def as_dict(self) -> dict[str, dict[str, float]]:
        """In the form of a run's baselines.json."""
        result = {"mlm": {"unigram": self.unigram, "trigram": self.trigram}}
        if self.connectives is not None:
            result["sentence"] = {"chance": 0.5, "connectives": self.connectives}
        return result


def score_mask_baselines(
    stores: Iterable[TokenStore], training: Batches, evaluation: Batches, tokenizer: Tokenizer, num_batches: int
) -> MaskBaselines:
    """Fit the guesses on the training text, score them on the first `num_batches` evaluation batches."""
    text = [np.concatenate(document).astype(np.int64) for store in stores for document in store.documents()]
    trigram = NgramModel.fit(text, tokenizer.vocab_size, order=3)
    unigram = NgramModel(trigram.vocab_size, trigram.best[:1])
    sequences = list(_sequences(evaluation, num_batches))
    connectives = None
    if evaluation.recipe.objective == "sop":
        learn = [row for row in _sequences(training, min(40, training.steps_per_epoch)) if row[3] >= 0]
        scored = [row for row in sequences if row[3] >= 0]
        order = ConnectiveOrder.fit([_texts(row[0], row[2], tokenizer) for row in learn], [row[3] for row in learn])
        pairs = [_texts(row[0], row[2], tokenizer) for row in scored]
        connectives = order.accuracy(pairs, [row[3] for row in scored])
    masked = [(ids, places) for ids, places, _, _ in sequences]
    return MaskBaselines(_accuracy(unigram, masked), _accuracy(trigram, masked), connectives)


def score_masks(
    kinds: Sequence[str],
    train_text: Sequence[Path],
    text: Path | None,
    models: Sequence[str] = (),
    tokenizer: Path | None = None,
    num_tokens: int = 200_000,
    seed: int = 0,
) -> BaselineTable:
    """Count n-grams in `train_text` and guess the masks of `text` from the visible tokens, beside the models."""
    if any(kind not in (KIND, "all") for kind in kinds):
        raise ConfigError(f"method: {', '.join(kinds)}: the only baseline for {MASKED_LM} is {KIND}")
    if not train_text or text is None:
        raise ConfigError(f"{MASKED_LM}: give text to count n-grams in (train_text) and other text to score on (text)")
    if text.resolve() in [each.resolve() for each in train_text]:
        raise ConfigError(f"text: {text} is also the text that n-grams are counted in; score other text")
    if tokenizer is None and not models:
        raise ConfigError(f"{MASKED_LM}: name a model or a tokenizer folder; it decides which tokens are masked")
    pieces = Tokenizer.load(tokenizer or find_folder(models[0]))
    recipe = Recipe(max_length=LENGTH, short_probability=0.0, one_sentence="skip")  # as in `litebert evaluate`
    with tempfile.TemporaryDirectory(prefix="litebert-") as folder:
        counted = _store(train_text, pieces, Path(folder) / "counted")
        scored = _store([text], pieces, Path(folder) / "scored")
        training = Batches([counted], pieces, recipe, tokens_per_batch=ROW, row_tokens=ROW, seed=seed)
        evaluation = Batches([scored], pieces, recipe, tokens_per_batch=ROW, row_tokens=ROW, seed=seed)
        count = max(1, min(num_tokens // ROW, evaluation.steps_per_epoch))
        began = time.process_time()
        found = score_mask_baselines([counted], training, evaluation, pieces, count)
        seconds = round(time.process_time() - began, 2)
        methods = [
            _method("unigram", "always the most frequent token", found.unigram),
            _method(KIND, "up to two visible tokens on the left, backing off to fewer", found.trigram, seconds=seconds),
        ]
        if found.connectives is not None:
            what = "the order of two segments from connectives and words for time"
            methods.append(_method("connectives", what, order=found.connectives))
        methods += [_score_model(model, evaluation, count, pieces) for model in models]
    return BaselineTable(MASKED_LM, MASKED_LM, tuple(methods), {"tokens scored": count * ROW})


def _accuracy(model: NgramModel, examples: list[tuple[Ids, Ids]]) -> float:
    """The share of masked tokens guessed right; like our models, the n-gram model does not see masked tokens."""
    right = []
    for ids, places in examples:
        visible_from = 0
        for place in places.tolist():  # in order
            right.append(model.guess(ids[visible_from:place]) == ids[place])
            visible_from = place + 1
    return float(np.mean(right))


def _sequences(batches: Batches, count: int) -> Iterator[tuple[Ids, Ids, Ids, int]]:
    """Each sequence with its masks undone: ids, places to predict, segments, order label."""
    for number in range(count):
        batch = batches.batch(number)
        ids = batch.tokens.astype(np.int64)
        real = batch.labels >= 0
        places = batch.masked[real].astype(np.int64)
        ids[places] = batch.labels[real]
        for i in range(batch.num_sequences):
            first, last = int(batch.starts[i]), int(batch.starts[i + 1])
            own = places[(places >= first) & (places < last)] - first
            yield ids[first:last], own, batch.segments[first:last].astype(np.int64), int(batch.order[i])


def _texts(ids: Ids, segments: Ids, tokenizer: Tokenizer) -> tuple[str, str]:
    first, second = (tokenizer.decode(ids[segments == segment]) for segment in (0, 1))
    return first, second


def _store(texts: Sequence[Path], pieces: Tokenizer, folder: Path) -> TokenStore:
    build_store([str(text) for text in texts], pieces, folder, workers=1)
    return TokenStore.open(folder, pieces)


def _score_model(source: str, evaluation: Batches, count: int, pieces: Tokenizer) -> Method:
    if Tokenizer.load(find_folder(source)).fingerprint != pieces.fingerprint:
        raise ConfigError(f"{source}: its vocabulary differs from the one whose tokens are masked; score it separately")
    # torch is loaded only where there is a model to score.
    from litebert.model.count import count_parameters
    from litebert.pretraining.evaluate import evaluate_batches, load_pretrained
    from litebert.train.device import DeviceConfig, open_device

    device = open_device(DeviceConfig())
    model = load_pretrained(source)
    if model.config.max_position_embeddings < LENGTH:
        raise ConfigError(f"{source}: takes at most {model.config.max_position_embeddings} tokens; {LENGTH} are needed")
    scores = evaluate_batches(model.to(device.device), evaluation, count, device)
    what = f"a model of {count_parameters(model.config).total:,} parameters without heads"
    return _method(source, what, scores.mlm_accuracy, scores.sentence_accuracy)


def _method(
    name: str, what: str, masks: float | None = None, order: float | None = None, seconds: float | None = None
) -> Method:
    found = {"masked_lm_accuracy": masks, "sentence_order_accuracy": order}
    scores = {key: Metric(value) for key, value in found.items() if value is not None}
    return Method(name, what, {SPLIT: scores}, seconds)


@dataclass(frozen=True)
class NgramModel:
    """Guesses a token from the tokens on its left: the longest known context, its most frequent continuation."""

    vocab_size: int
    best: tuple[dict[int, int], ...]  # best[k]: context of k tokens as one number -> the token that follows most often

    @classmethod
    def fit(cls, sequences: Iterable[Tokens], vocab_size: int, order: int = 3) -> NgramModel:
        """Count n-grams up to `order` (1 is the unigram guess); ties go to the smaller id."""
        rows = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
        if not any(len(row) for row in rows):
            raise InputError("sequences: no tokens to count")
        best = []
        for n in range(1, order + 1):
            grams = [_as_numbers(row, n, vocab_size) for row in rows if len(row) >= n]
            unique, counts = np.unique(np.concatenate(grams or [rows[0][:0]]), return_counts=True)
            ascending = np.argsort(counts[::-1], kind="stable")  # reversed, so that of equals the smallest id is last
            contexts, tokens = np.divmod(unique[::-1][ascending], vocab_size)
            best.append(dict(zip(contexts.tolist(), tokens.tolist(), strict=True)))
        return cls(vocab_size, tuple(best))

    def guess(self, left: Sequence[int] | Tokens) -> int:
        """The likeliest next token, backing off to shorter contexts: [.., 7, 5] -> 9."""
        for n in range(min(len(self.best) - 1, len(left)), -1, -1):
            context = 0
            for token in left[len(left) - n :]:
                context = context * self.vocab_size + int(token)
            if context in self.best[n]:
                return self.best[n][context]
        raise AssertionError("the empty context is always known")


@dataclass(frozen=True)
class ConnectiveOrder:
    """Predicts the order of two segments from connectives and words for time alone, by logistic regression."""

    weights: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, pairs: Sequence[Pair], labels: Sequence[int], steps: int = 8) -> ConnectiveOrder:
        """Learn from segment pairs; labels are 0 = right order, 1 = swapped."""
        features, targets = _order_features(pairs), np.asarray(labels, dtype=np.float64)
        weights = np.zeros(features.shape[1])
        for _ in range(steps):  # Newton's method, with a small ridge
            chance = 1 / (1 + np.exp(-features @ weights))
            gradient = features.T @ (chance - targets) + weights
            curvature = (features.T * (chance * (1 - chance))) @ features + np.eye(len(weights))
            weights = weights - np.linalg.solve(curvature, gradient)
        return cls(weights)

    def predict(self, pairs: Sequence[Pair]) -> npt.NDArray[np.int64]:
        """0 or 1 for each pair."""
        return (_order_features(pairs) @ self.weights > 0).astype(np.int64)

    def accuracy(self, pairs: Sequence[Pair], labels: Sequence[int]) -> float:
        """The share of pairs predicted correctly."""
        return float(np.mean(self.predict(pairs) == np.asarray(labels)))


def _as_numbers(row: npt.NDArray[np.int64], n: int, vocab_size: int) -> npt.NDArray[np.int64]:
    """Each n-gram as one number, the last token least significant."""
    windows = np.lib.stride_tricks.sliding_window_view(row, n)
    return windows @ (vocab_size ** np.arange(n - 1, -1, -1, dtype=np.int64))


def _order_features(pairs: Sequence[Pair]) -> npt.NDArray[np.float64]:
    """For each word, its count in A less its count in B; also whether it opens A or B."""
    column = {word: index for index, word in enumerate([*CONNECTIVES, *TIMES])}
    features = np.zeros((len(pairs), 2 * len(column)))
    for row, pair in enumerate(pairs):
        for text, sign in zip(pair, (1, -1), strict=True):
            words = re.findall(r"[a-z]+", text.lower())
            for place, word in enumerate(words):
                if word in column:
                    features[row, column[word]] += sign
                    if place == 0:
                        features[row, len(column) + column[word]] += sign
    return features
