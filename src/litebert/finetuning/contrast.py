"""Losses that compare the vectors of a whole batch: similarity, and few labels.

    scored pairs        cosent (Su 2022), cosine (squared error)
    pairs, triplets     ranking: every other text of the batch is a negative (Henderson et al. 2017), with dropout as
                        the only difference between two equal sentences unsupervised SimCSE (Gao et al. 2021)
    both at once        the sum of cosent over the rows with a score and ranking over the rows without
    labelled texts      the cosine of two texts is 1 if they share a label, else 0 (as in SetFit, Tunstall 2022)

A batch is compared as a whole, across micro-batches and processes: every process gathers the vectors of all, computes
the loss of the whole batch, and passes the gradient to its own vectors. The sum is the gradient of one process with the
whole batch.

Shapes: B examples of the whole batch, K texts each (2: a pair, 3: a triplet), N = B * K rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.errors import ConfigError, DataError
from litebert.finetuning.config import FinetuneConfig
from litebert.finetuning.data import Data
from litebert.model.config import ModelConfig
from litebert.model.encoder import pool_tokens
from litebert.model.heads import Model
from litebert.tasks.task import SimilarityExample
from litebert.train.processes import World, gather_rows

if TYPE_CHECKING:
    from litebert.finetuning.model import Tensors

SIMCSE_DROPOUT = 0.1  # where the model has none: without it, a sentence has no second view


class Part(Protocol):
    """A micro-batch on the device."""

    @property
    def inputs(self) -> Tensors: ...
    @property
    def targets(self) -> Tensors: ...
    @property
    def max_length(self) -> int: ...


class Whole(NamedTuple):
    """All micro-batches of a step of one process: the loss is of all of them together."""

    parts: tuple[Part, ...]


# ---------------------------------------------------------------------------------------------------------------------
# Losses: the mean over a whole batch


def ranking_loss(vectors: Tensor, texts: Tensor, temperature: float = 0.05, symmetric: bool = False) -> Tensor:
    """Cross-entropy of finding each second text among all second (and third) texts of the batch.

    vectors [B, K, H]; texts [B, K] are equal for equal texts, so that a text is never its own negative.
    """
    size = len(vectors)
    unit = F.normalize(vectors, dim=-1)
    candidates = unit[:, 1:].transpose(0, 1).flatten(0, 1)  # [(K - 1) * B, H]: all second texts, then all third
    scores = unit[:, 0] @ candidates.T / temperature
    right = torch.arange(size, device=vectors.device)
    scores = scores.masked_fill(_same(texts, texts[:, 1:].T.flatten(), right), -torch.inf)
    loss = F.cross_entropy(scores, right)
    if not symmetric:
        return loss
    back = unit[:, 1] @ unit[:, 0].T / temperature  # [B, B]
    back = back.masked_fill(_same(texts, texts[:, 0], right), -torch.inf)
    return (loss + F.cross_entropy(back, right)) / 2


def _same(texts: Tensor, candidates: Tensor, right: Tensor) -> Tensor:
    """Candidates equal to a row's own first or second text [B, C], except the right one."""
    same = (texts[:, :2, None] == candidates).any(1)
    return same.index_put((right, right), torch.zeros((), dtype=torch.bool, device=texts.device))


def cosent_loss(vectors: Tensor, scores: Tensor, temperature: float = 0.05) -> Tensor:
    """log(1 + sum of exp((cos i - cos j) / temperature) over all pairs of pairs where j should be nearer than i)."""
    cosines = F.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1) / temperature  # [B]
    gaps = cosines[:, None] - cosines[None, :]
    gaps = gaps.masked_fill(scores[:, None] >= scores[None, :], -torch.inf)
    return torch.cat([gaps.new_zeros(1), gaps.flatten()]).logsumexp(0)


def cosine_loss(vectors: Tensor, scores: Tensor) -> Tensor:
    """Squared error of the cosine against a score between 0 and 1."""
    return (F.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1) - scores).square().mean()


def mixed_loss(
    vectors: Tensor, texts: Tensor, scores: Tensor, temperature: float = 0.05, symmetric: bool = False
) -> Tensor:
    """`ranking_loss` of the rows without a score (NaN) plus `cosent_loss` of those with one."""
    plain = scores.isnan()
    losses = []
    if bool(plain.any()):
        losses.append(ranking_loss(vectors[plain], texts[plain], temperature, symmetric))
    if not bool(plain.all()):
        losses.append(cosent_loss(vectors[~plain], scores[~plain], temperature))
    return torch.stack(losses).sum()


def label_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """Squared error of the cosine of each two texts [B, H] against 1 (same label) or 0; both count as much."""
    unit = F.normalize(vectors, dim=-1)
    apart = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    same = labels[:, None] == labels[None, :]
    error = (unit @ unit.T - same.float()).square()
    halves = [error[chosen].mean() for chosen in (same & apart, ~same) if bool(chosen.any())]
    return torch.stack(halves).mean() if halves else 0.0 * error.sum()


def _compare_labels(vectors: Tensor, _: Tensor, labels: Tensor) -> Tensor:
    """`label_loss` of single texts, with the signature of the other losses."""
    return label_loss(vectors[:, 0], labels)


# ---------------------------------------------------------------------------------------------------------------------
# A run's own


@dataclass(frozen=True)
class Contrast:
    """The loss of a run that compares the examples of a batch."""

    pooling: str
    texts: int  # K
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]  # vectors [B, K, H], texts [B, K], scores [B] (or labels)
    sizes: tuple[int, ...]  # of the vectors' beginnings that are compared too
    world: World
    dropout: float | None = None  # of the run; None: the model's own
    notes: tuple[str, ...] = ()

    def __call__(self, model: Model, whole: Whole) -> tuple[Tensor, Tensor]:
        """The mean loss of the whole batch, and this process's share of its sums."""
        vectors = self._gather(embed_parts(model, whole.parts, self.pooling))
        own = [self._rows(part.targets) for part in whole.parts]
        texts, scores = (gather_rows(torch.cat(column), self.world)[0] for column in zip(*own, strict=True))
        losses = [self.loss(vectors[..., :size], texts, scores) for size in (vectors.shape[-1], *self.sizes)]
        loss = torch.stack(losses).sum()
        share = sum(len(column[1]) for column in own)
        return loss, torch.stack([share * loss.detach(), loss.new_zeros(())])

    def _gather(self, own: Tensor) -> Tensor:
        """The vectors of all processes [B, K, H]; only this one's pass a gradient on."""
        rows = own.float().unflatten(0, (-1, self.texts))
        everywhere, start = gather_rows(rows, self.world)
        return torch.cat([everywhere[:start], rows, everywhere[start + len(rows) :]])

    def _rows(self, targets: Tensors) -> tuple[Tensor, Tensor]:
        if "labels" in targets:
            return targets["labels"][:, None], targets["labels"]
        texts = targets["texts"].unflatten(0, (-1, self.texts))
        return texts, targets["scores"].unflatten(0, (-1, self.texts))[:, 0]


def embed_parts(model: Model, parts: Sequence[Part], pooling: str) -> Tensor:
    """One vector per sequence of some micro-batches, in order: [N, H]."""
    vectors = []
    for part in parts:
        more = {"max_length": part.max_length} if "starts" in part.inputs else {}
        hidden = model.encoder(**part.inputs, **more).hidden
        vectors.append(pool_tokens(hidden, pooling, part.inputs.get("starts"), part.inputs.get("attention_mask")))
    return torch.cat(vectors)


def make_contrast(config: FinetuneConfig, data: Data, model: ModelConfig, world: World) -> Contrast:
    """What a run compares whose loss is not a sum over examples. Raises before anything is trained."""
    if config.few:
        _at_least_two(config, data, "few labels are learned by comparing texts")
        return Contrast("mean", 1, _compare_labels, (), world, config.dropout)
    first = data.train.examples[0]
    assert isinstance(first, SimilarityExample)
    chosen = config.similarity
    loss = chosen.loss
    if loss == "auto":
        loss = "cosent" if first.form == "scored" else "ranking"
    if loss in ("cosent", "cosine") and first.form != "scored":
        raise ConfigError(
            f"loss: {loss} learns from scores, and {first.where.rpartition(':')[0]} has none ({first.form}); add a "
            "column of scores (or name it: columns score=NAME), or use ranking"
        )
    # Examples from Python may be of both kinds: pairs or triplets with a score are compared by it.
    some_scored = first.form != "scored" and any(getattr(e, "score", None) is not None for e in data.train.examples)
    if loss == "ranking" and first.form == "scored":
        raise ConfigError("loss: ranking takes pairs that belong together, and these have scores; use cosent or cosine")
    hidden_size = model.hidden_size
    too_long = [size for size in chosen.sizes if size > hidden_size]
    if too_long:
        raise ConfigError(f"sizes: must be <= {hidden_size}, the model's vectors; got {too_long[0]}")
    if loss == "cosent" or (loss == "ranking" and first.form != "triplets"):
        why = "in-batch negatives are the other examples" if loss == "ranking" else "cosent compares pairs of pairs"
        _at_least_two(config, data, why)
    if first.form == "scored" and len({getattr(example, "score", None) for example in data.train.examples}) == 1:
        where = first.where.rpartition(":")[0]
        raise DataError(f"{where}: every score is {first.score:g}; pairs of different scores are what is learned from")
    low, high = data.task.scale or (0.0, 1.0)

    def compare(vectors: Tensor, texts: Tensor, scores: Tensor) -> Tensor:
        if loss == "ranking" and some_scored:
            return mixed_loss(vectors, texts, scores, chosen.temperature, chosen.symmetric)
        if loss == "ranking":
            return ranking_loss(vectors, texts, chosen.temperature, chosen.symmetric)
        if loss == "cosent":
            return cosent_loss(vectors, scores, chosen.temperature)
        return cosine_loss(vectors, (scores - low) / max(high - low, 1e-9))

    sizes = tuple(sorted({size for size in chosen.sizes if size < hidden_size}, reverse=True))
    texts = 3 if first.form == "triplets" else 2
    return Contrast(chosen.pooling, texts, compare, sizes, world, *_dropout_for(config, first, model))


def _at_least_two(config: FinetuneConfig, data: Data, why: str) -> None:
    if config.batch < 2:
        raise ConfigError(f"batch: must be >= 2, since {why} of a batch; got {config.batch}")
    if len(data.train.examples) < 2:
        raise DataError(f"{data.train.examples[0].where}: the only training example; {why}, so give at least two")


def _dropout_for(
    config: FinetuneConfig, first: SimilarityExample, model: ModelConfig
) -> tuple[float | None, tuple[str, ...]]:
    """The dropout of a run, and what to tell about it: single sentences are learned from by dropout alone."""
    if first.form != "sentences":
        return config.dropout, ()
    if config.dropout == 0:
        raise ConfigError("dropout: must be > 0 to learn from single sentences, which differ by dropout alone")
    if config.dropout is None and max(model.hidden_dropout_prob, model.attention_probs_dropout_prob) == 0:
        note = f"single sentences differ by dropout alone, and the model has none: dropout {SIMCSE_DROPOUT} is used"
        return SIMCSE_DROPOUT, (note,)
    return config.dropout, ()
