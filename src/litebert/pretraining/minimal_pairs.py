"""Minimal pairs such as BLiMP's: does a model find the grammatical sentence of each pair more likely?

The likelihood of a sentence is its pseudo-log-likelihood (Salazar et al. 2020): the sum of log p(token | all others)
with each token masked in turn. As in the official protocol (BLiMP, BabyLM), sums are not divided by the length, a pair
counts as right if the good sentence scores strictly higher, and the total is the mean over phenomena (the UIDs).

    pairs = read_pairs("blimp/full")
    score_pairs(model, tokenizer, pairs, open_device(DeviceConfig())).accuracy    -> 0.74
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.errors import ConfigError, InputError
from litebert.model.heads import PretrainingModel
from litebert.pretraining.evaluate import load_pretrained
from litebert.remote import find_folder
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device, DeviceConfig, open_device


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one point; `phenomenon` is BLiMP's UID, `field` its wider area."""

    good: str
    bad: str
    phenomenon: str
    field: str = ""


@dataclass(frozen=True)
class PairScores:
    """Shares of pairs judged right, by phenomenon and by field, and how many pairs each rests on."""

    phenomena: dict[str, float]
    fields: dict[str, float]
    counts: dict[str, int]  # pairs by phenomenon
    clipped: int = 0  # sentences too long for the model, judged by their beginning

    @property
    def accuracy(self) -> float:
        """The mean over phenomena, each with the same weight."""
        return float(np.mean(list(self.phenomena.values())))

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        pairs = sum(self.counts.values())
        return {"accuracy": self.accuracy, "pairs": pairs, "fields": self.fields, "phenomena": self.phenomena}


def read_pairs(folder: Path | str, limit: int | None = None) -> list[MinimalPair]:
    """The pairs of every .jsonl file below a folder (or of one file); at most the first `limit` of each file."""
    folder = Path(folder)
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.jsonl"))
    if not files:
        raise ConfigError(f"{folder}: no .jsonl files with minimal pairs (sentence_good, sentence_bad) found")
    return [pair for file in files for pair in _read_file(file, limit)]


def _read_file(path: Path, limit: int | None) -> Iterator[MinimalPair]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if limit is not None and number > limit:
                return
            try:
                row = json.loads(line)
                good, bad = row["sentence_good"], row["sentence_bad"]
            except (ValueError, TypeError, KeyError, RecursionError):
                raise InputError(
                    f"{path}, line {number}: expected a JSON object with sentence_good and sentence_bad"
                ) from None
            if not isinstance(good, str) or not isinstance(bad, str) or not good.strip() or not bad.strip():
                raise InputError(f"{path}, line {number}: sentence_good and sentence_bad must be texts")
            yield MinimalPair(good, bad, str(row.get("UID", path.stem)), str(row.get("field", "")))


def score_pairs(
    model: PretrainingModel,
    tokenizer: Tokenizer,
    pairs: Sequence[MinimalPair],
    device: Device,
    max_tokens: int = 16_384,
) -> PairScores:
    """Judge every pair; `max_tokens` go through the model at a time."""
    if not pairs:
        raise InputError("pairs: must not be empty")
    sentences = sorted({text for pair in pairs for text in (pair.good, pair.bad)})  # many occur twice
    limit = min(model.config.max_position_embeddings, tokenizer.max_length or model.config.max_position_embeddings)
    encoded = [np.array(tokenizer.encode(text), dtype=np.int64) for text in sentences]
    values = pseudo_log_likelihoods(model, tokenizer, [ids[: limit - 2] for ids in encoded], device, max_tokens)
    likelihood = dict(zip(sentences, values.tolist(), strict=True))
    right: dict[str, list[bool]] = {}
    fields: dict[str, str] = {}
    for pair in pairs:
        right.setdefault(pair.phenomenon, []).append(likelihood[pair.good] > likelihood[pair.bad])
        fields[pair.phenomenon] = pair.field
    phenomena = {name: float(np.mean(right[name])) for name in sorted(right)}
    by_field = {
        field: float(np.mean([phenomena[name] for name in phenomena if fields[name] == field]))
        for field in sorted(set(fields.values()) - {""})
    }
    clipped = sum(len(ids) > limit - 2 for ids in encoded)
    return PairScores(phenomena, by_field, {name: len(right[name]) for name in phenomena}, clipped)


@torch.inference_mode()
def pseudo_log_likelihoods(
    model: PretrainingModel,
    tokenizer: Tokenizer,
    sentences: Sequence[NDArray[np.int64]],
    device: Device,
    max_tokens: int = 16_384,
) -> NDArray[np.float64]:
    """The sum of log p(token | the rest) for each sentence of ids, without [CLS] and [SEP].

    Sentences of one length go together, so that no batch holds padding.
    """
    if model.masked_lm is None:
        raise ConfigError("this model has no masked LM head, which minimal pairs need")
    was_training = model.training
    model.eval()
    totals = np.zeros(len(sentences))
    for owners, ids, places, targets in _maskings(tokenizer, sentences, max_tokens):
        tokens = torch.from_numpy(ids).to(device.device)  # [B, S]
        flat = torch.arange(len(ids)) * ids.shape[1] + torch.from_numpy(places)  # [B] into [B * S]
        with device.autocast():
            logits = model(tokens, positions=flat.to(device.device)).masked_lm  # [B, V]
        wanted = torch.from_numpy(targets).to(device.device)[:, None]
        found = logits.float().log_softmax(-1).gather(1, wanted)[:, 0]
        np.add.at(totals, owners, found.double().cpu().numpy())
    model.train(was_training)
    return totals


def _maskings(
    tokenizer: Tokenizer, sentences: Sequence[NDArray[np.int64]], max_tokens: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Batches of sentences with one token masked each: whose, ids [B, S], masked places [B], hidden tokens [B]."""
    lengths = np.array([len(ids) for ids in sentences])
    for length in np.unique(lengths[lengths > 0]):
        members = np.flatnonzero(lengths == length)
        per_batch = max(1, max_tokens // ((length + 2) * length))
        for start in range(0, len(members), per_batch):
            chosen = members[start : start + per_batch]
            inner = np.stack([sentences[i] for i in chosen])  # [C, S - 2]
            edge = np.ones((len(chosen), 1), dtype=np.int64)
            whole = np.concatenate([edge * tokenizer.cls_id, inner, edge * tokenizer.sep_id], axis=1)
            places = np.tile(np.arange(1, length + 1), len(chosen))
            ids = np.repeat(whole, length, axis=0)
            rows = np.arange(len(ids))
            targets = ids[rows, places]
            ids[rows, places] = tokenizer.mask_id
            yield np.repeat(chosen, length), ids, places, targets


def evaluate_pairs(
    source: Path | str,
    folder: Path | str,
    tokenizer: Path | str | None = None,
    limit: int | None = None,
    device: str = "auto",
) -> PairScores:
    """The scores of a model folder or Hub name on a folder of minimal pairs."""
    if limit is not None and limit < 1:
        raise ConfigError(f"limit: must be >= 1, got {limit}")
    pairs = read_pairs(folder, limit)
    model = load_pretrained(source)
    vocabulary = Tokenizer.load(tokenizer or find_folder(source))
    opened = open_device(DeviceConfig(device=device))
    return score_pairs(model.to(opened.device), vocabulary, pairs, opened)
