"""What counting alone scores on the very batches that a model is scored on: n-gram guesses, order from connectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from litebert.pretraining.assembly import Batch
from litebert.pretraining.batches import Batches
from litebert.text.ngram import ConnectiveOrder, NgramModel
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer

Ids = npt.NDArray[np.int64]


class Baselines(NamedTuple):
    """Accuracies of the simple guesses; order is None without an order objective."""

    unigram: float
    trigram: float  # from the visible text on the left, up to two tokens of it
    connectives: float | None

    def as_dict(self) -> dict[str, dict[str, float]]:
        """In the form of a run's baselines.json."""
        result = {"mlm": {"unigram": self.unigram, "trigram": self.trigram}}
        if self.connectives is not None:
            result["sentence"] = {"chance": 0.5, "connectives": self.connectives}
        return result


def score_baselines(
    stores: Iterable[TokenStore], training: Batches, evaluation: Batches, tokenizer: Tokenizer, num_batches: int
) -> Baselines:
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
    return Baselines(_accuracy(unigram, masked), _accuracy(trigram, masked), connectives)


def _accuracy(model: NgramModel, examples: list[tuple[Ids, Ids]]) -> float:
    """The share of masked places guessed right by a model that, like ours, does not see what is masked."""
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
        assert isinstance(batch, Batch)
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
