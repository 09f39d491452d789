"""A dozen held-out sentences with one word masked, and what the model puts there: for the report and the model card."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from litebert.model.heads import PretrainingModel
from litebert.pretraining.chapters import held_out_documents
from litebert.pretraining.setup import Data
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device


@torch.inference_mode()
def fill_samples(
    model: PretrainingModel, tokenizer: Tokenizer, data: Data, device: Device, count: int = 12, guesses: int = 5
) -> list[dict[str, Any]]:
    """Masked sentences with the right word and the best guesses, good and bad ones alike (chosen by a fixed seed)."""
    if model.masked_lm is None:
        return []
    was_training = model.training
    model.eval()
    generator = np.random.default_rng(7)
    words = tokenizer.word_starts("spaces")
    samples: list[dict[str, Any]] = []
    limit = min(60, model.config.max_position_embeddings - 2)
    stores = data.eval_stores or data.stores
    for store in stores:
        wanted = -(-count // len(stores))
        for sentences in _documents(store, data, generator, 4 * wanted):
            text = np.concatenate(sentences)[:limit].astype(np.int64)
            single = _single_words(text, words, tokenizer)
            if len(text) < 8 or not len(single):
                continue
            place = int(generator.choice(single))
            ids = np.concatenate([[tokenizer.cls_id], text, [tokenizer.sep_id]])
            ids[place + 1] = tokenizer.mask_id
            inputs = torch.from_numpy(ids)[None].to(device.device)
            with device.autocast():
                logits = model(inputs, positions=torch.tensor([place + 1], device=device.device)).masked_lm
            best = logits[0].float().softmax(-1).topk(guesses)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            samples.append(
                {
                    "text": tokenizer.decode(ids[1:-1], keep_special=True),
                    "answers": [_readable(tokenizer.piece(int(text[place])))],
                    "guesses": [[{"token": _readable(tokenizer.piece(i)), "probability": p} for i, p in pairs]],
                }
            )
            if len(samples) % wanted == 0:
                break
    model.train(was_training)
    return samples[:count]


def _documents(store: TokenStore, data: Data, generator: np.random.Generator, most: int) -> list[list[np.ndarray]]:
    """Two sentences from the beginning of some documents: held-out ones where there are any."""
    aside = held_out_documents(len(store), 0 if data.eval_stores else data.held_out)
    numbers = np.flatnonzero(aside) if aside.any() else np.arange(len(store))
    chosen = generator.choice(numbers, size=min(most, len(numbers)), replace=False)
    return [store.document(int(number))[:2] for number in chosen]


def _single_words(text: np.ndarray, starts: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """Places of words that are one piece of letters: what a person can judge at a glance."""
    begins = starts[text]
    whole = begins & np.append(begins[1:], True)
    letters = [_readable(tokenizer.piece(int(i))).isalpha() for i in text]
    return np.flatnonzero(whole & np.array(letters))


def _readable(piece: str) -> str:
    return piece.replace("▁", "").removeprefix("##")
