"""Measurements of a pretrained model: accuracy per held-out sequence, how far each layer moves a token, linear probes.

Shapes: T packed tokens, N sequences, P positions to predict, H hidden, L applications.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from litebert.model.heads import PretrainingModel
from litebert.pretraining.batches import Batch, Batches
from litebert.pretraining.evaluate import commonest_share, count_batches
from litebert.pretraining.objective import Inputs, run_model, to_device
from litebert.train.device import Device

# Strong enough that a few hundred features do not overfit a few thousand pairs.
INVERSE_PENALTY = 0.01

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Examples:
    """Correct answers and all answers of each held-out sequence."""

    right: Floats  # [N]
    count: Floats  # [N]

    @property
    def accuracy(self) -> float:
        """In percent, over all answers."""
        return 100 * float(self.right.sum() / self.count.sum())


def first_batches(batches: Batches, num_tokens: int) -> Iterator[Batch]:
    """Batches of about `num_tokens` tokens, at most one epoch."""
    for number in range(count_batches(batches, num_tokens)):
        batch = batches.batch(number)
        yield batch


def walk(batches: Batches, num_tokens: int, device: Device) -> Iterator[tuple[Batch, Inputs]]:
    """The first batches, each with the inputs for a model."""
    for batch in first_batches(batches, num_tokens):
        yield batch, to_device(batch, device.device, batches.recipe.max_length)


def mlm_floor(batches: Batches, num_tokens: int) -> float:
    """MLM accuracy, in percent, of always predicting the most frequent token."""
    return 100 * commonest_share(first_batches(batches, num_tokens))


@torch.inference_mode()
def score_examples(
    model: PretrainingModel, batches: Batches, num_tokens: int, device: Device
) -> tuple[Examples | None, Examples | None]:
    """Masked words and sentence pairs, counted per sequence; None if the model has no such head."""
    model.eval()
    masked: list[Floats] = []
    pairs: list[Floats] = []
    for batch, inputs in walk(batches, num_tokens, device):
        with device.autocast():
            output = run_model(model, inputs)
        if output.masked_lm is not None:
            real = batch.labels >= 0
            hits = (output.masked_lm.argmax(-1) == inputs.labels).cpu().numpy()[real]
            sequence = np.searchsorted(batch.starts, batch.masked[real], side="right") - 1
            size = batch.num_sequences
            masked.append(
                np.stack([np.bincount(sequence, hits, size), np.bincount(sequence, None, size).astype(float)])
            )
        if output.sentence is not None:
            labelled = batch.order >= 0
            hits = (output.sentence.argmax(-1) == inputs.order).cpu().numpy()[labelled]
            pairs.append(np.stack([hits.astype(float), np.ones(len(hits))]))
    return _examples(masked), _examples(pairs)


def _examples(parts: list[Floats]) -> Examples | None:
    return Examples(*np.concatenate(parts, axis=1)) if parts else None


@dataclass(frozen=True)
class Layers:
    """Means over tokens of how each application changes its input (Figure 1)."""

    l2: tuple[float, ...]
    angle: tuple[float, ...]  # degrees

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that claims refer to."""
        return {
            "l2_roughness": roughness(self.l2),
            "angle_roughness": roughness(self.angle),
            "last_l2": self.l2[-1] / max(self.l2),
        }


def roughness(values: Sequence[float]) -> float:
    """Mean absolute change between neighbours, as a share of the mean: [2, 2, 2] -> 0, [1, 3, 1] -> 1.2."""
    if len(values) < 2:
        return 0.0
    return float(np.abs(np.diff(values)).mean() / np.mean(values))


@torch.inference_mode()
def layer_distances(model: PretrainingModel, batches: Batches, num_tokens: int, device: Device) -> Layers:
    """L2 distance and angle between input and output of each application, over the tokens of held-out text."""
    model.eval()
    sums = torch.zeros(2, len(model.encoder.plan), dtype=torch.float64)
    count = 0
    for batch, inputs in walk(batches, num_tokens, device):
        with device.autocast():
            states = encode(model, inputs, all_layers=True)
        real = int(batch.starts[batch.num_sequences])
        count += real
        for number, (before, after) in enumerate(pairwise(states)):
            before, after = before[:real].float(), after[:real].float()  # [T, H]
            sums[0, number] += float((after - before).norm(dim=-1).sum())
            cosine = torch.nn.functional.cosine_similarity(before, after, dim=-1).clamp(-1, 1)
            sums[1, number] += float(torch.rad2deg(torch.arccos(cosine)).sum())
    l2, angle = (sums / max(count, 1)).tolist()
    return Layers(tuple(l2), tuple(angle))


def encode(model: PretrainingModel, inputs: Inputs, all_layers: bool = False) -> tuple[Tensor, ...]:
    """Hidden states [T, H]: the last, or the input of the first application and the output of each."""
    output = model.encoder(
        inputs.tokens,
        segment_ids=inputs.segments,
        position_ids=inputs.positions,
        starts=inputs.starts,
        max_length=inputs.max_length,
        output_hidden_states=all_layers,
    )
    if all_layers:
        assert output.hidden_states is not None
        return output.hidden_states
    return (output.hidden,)


# -- a linear probe ----------------------------------------------------------------------------------------------------


def probe_pairs(
    model: PretrainingModel, training: Batches, held_out: Batches, num_tokens: int, device: Device
) -> Examples:
    """Fit on four times `num_tokens` tokens of training text, score on `num_tokens` tokens of held-out text."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    features, labels = pair_features(model, training, 4 * num_tokens, device)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=INVERSE_PENALTY, max_iter=300))
    classifier.fit(features, labels)
    features, labels = pair_features(model, held_out, num_tokens, device)
    right = (classifier.predict(features) == labels).astype(np.float64)
    return Examples(right, np.ones_like(right))


@torch.inference_mode()
def pair_features(
    model: PretrainingModel, batches: Batches, num_tokens: int, device: Device
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Features [N, 4 H] of labelled pairs: the means a and b of both segments, |a - b| and a * b; and the labels."""
    model.eval()
    features, labels = [], []
    for batch, inputs in walk(batches, num_tokens, device):
        with device.autocast():
            (hidden,) = encode(model, inputs)  # [T, H]
        real = int(batch.starts[batch.num_sequences])
        sequence = np.repeat(np.arange(batch.num_sequences), np.diff(batch.starts[: batch.num_sequences + 1]))
        place = torch.from_numpy(2 * sequence + batch.segments[:real]).to(device.device)  # (sequence, segment)
        sums = torch.zeros(2 * batch.num_sequences, hidden.shape[1], device=device.device)
        sums.index_add_(0, place, hidden[:real].float())
        counts = torch.bincount(place, minlength=2 * batch.num_sequences).clamp(min=1)
        means = (sums / counts[:, None]).view(batch.num_sequences, 2, -1)
        a, b = means[:, 0], means[:, 1]
        order = batch.order[: batch.num_sequences]
        labelled = order >= 0
        features.append(torch.cat([a, b, (a - b).abs(), a * b], dim=1).cpu().numpy()[labelled])
        labels.append(order[labelled].astype(np.int64))
    return np.concatenate(features), np.concatenate(labels)
