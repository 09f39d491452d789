"""A dozen held-out sentences with one word masked, and what the model puts there: for the report and the model card."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from litebert.model.heads import PretrainingModel
from litebert.pretraining.chapters import held_out_documents
from litebert.pretraining.data import Data
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.text.words import readable
from litebert.train.device import Device

Ids = npt.NDArray[np.int64]


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
    stores = data.eval_stores or data.stores
    for store in stores:
        wanted = -(-count // len(stores))
        for sentences in _documents(store, data, generator, 4 * wanted):
            # As in training: [CLS] A [SEP] B [SEP], no longer than the positions that were trained.
            ids, segments = _assemble(sentences, tokenizer, min(64, data.last_length), data.config.recipe.pairs)
            single = _single_words(ids, words, tokenizer)
            if len(ids) < 10 or not len(single):
                continue
            place = int(generator.choice(single))
            answer = int(ids[place])
            ids[place] = tokenizer.mask_id
            inputs, types = (torch.from_numpy(array)[None].to(device.device) for array in (ids, segments))
            with device.autocast():
                position = torch.tensor([place], device=device.device)
                logits = model(inputs, positions=position, segment_ids=types).masked_lm
            best = logits[0].float().softmax(-1).topk(guesses)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            samples.append(
                {
                    "text": tokenizer.decode(_without_separators(ids, tokenizer), keep_special=True),
                    "answers": [readable(tokenizer.piece(answer))],
                    "guesses": [[{"token": readable(tokenizer.piece(i)), "probability": p} for i, p in pairs]],
                }
            )
            if len(samples) % wanted == 0:
                break
    model.train(was_training)
    return samples[:count]


def _documents(store: TokenStore, data: Data, generator: np.random.Generator, most: int) -> list[list[Ids]]:
    """Two sentences from the beginning of some documents: held-out ones where there are any."""
    aside = held_out_documents(len(store), 0 if data.eval_stores else data.config.data.held_out)
    numbers = np.flatnonzero(aside) if aside.any() else np.arange(len(store))
    chosen = generator.choice(numbers, size=min(most, len(numbers)), replace=False)
    return [[part.astype(np.int64) for part in store.document(int(number))[:2]] for number in chosen]


def _assemble(sentences: list[Ids], tokenizer: Tokenizer, length: int, pairs: bool) -> tuple[Ids, Ids]:
    """Ids and segments of one or two sentences, cut to `length`."""
    ids, segments = [tokenizer.cls_id], [0]
    parts = sentences if pairs else [np.concatenate(sentences)]
    for number, part in enumerate(parts):
        ids += [*part.tolist(), tokenizer.sep_id]
        segments += [number] * (len(part) + 1)
    if len(ids) > length:
        ids, segments = [*ids[: length - 1], tokenizer.sep_id], segments[:length]
    return np.array(ids, np.int64), np.array(segments, np.int64)


def _without_separators(ids: Ids, tokenizer: Tokenizer) -> Ids:
    return ids[(ids != tokenizer.cls_id) & (ids != tokenizer.sep_id)]


def _single_words(text: Ids, starts: npt.NDArray[np.bool_], tokenizer: Tokenizer) -> Ids:
    """Places of words that are one piece of letters: what a person can judge at a glance."""
    begins = starts[text]
    whole = begins & np.append(begins[1:], True)
    letters = [readable(tokenizer.piece(int(i))).isalpha() for i in text]
    return np.flatnonzero(whole & np.array(letters))
