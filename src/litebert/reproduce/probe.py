"""A linear probe: what a logistic regression can read from frozen features of sentence pairs.

Shapes: T packed tokens, N sequences, H hidden.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from litebert.model.heads import PretrainingModel
from litebert.pretraining.batches import Batches
from litebert.reproduce.measure import Examples, encode, walk
from litebert.train.device import Device

# Strong enough that features of a few hundred dimensions do not fit a few thousand pairs by heart.
INVERSE_PENALTY = 0.01


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
