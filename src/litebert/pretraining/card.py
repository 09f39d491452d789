"""The model card of a pretrained model: what it is, how it was trained, what it scores, and masks that it fills."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from litebert.model.config import ModelConfig
from litebert.model.heads import PretrainingModel
from litebert.pretraining.chapters import held_out_documents
from litebert.pretraining.config import RunConfig
from litebert.pretraining.data import Data
from litebert.pretraining.evaluate import Scores
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.text.words import readable
from litebert.train.device import Device
from litebert.train.folder import save_card


def write_card(
    folder: Path, config: RunConfig, scores: Scores | None, samples: Sequence[dict[str, Any]], facts: dict[str, Any]
) -> Path:
    """Write README.md into a model folder."""
    model, objective = config.model, facts["objective"]
    auto_class = "AutoModelForMaskedLM" if objective == "none" else "AutoModelForPreTraining"
    return save_card(
        folder,
        tags=(model.model_type, "masked-language-modeling", objective),
        pipeline="fill-mask",
        title=f"{model.model_type.upper()} pretrained with litebert",
        body=[*_describe(config, facts), *_score_table(scores, objective), *_sample_table(samples, config)],
        code=("from litebert import load_model", 'model = load_model("this/folder")'),
        elsewhere=f"The folder also opens in transformers: `{auto_class}.from_pretrained(...)`."
        if model.fits_hub
        else "This sharing mode does not exist in transformers; the folder opens in litebert only.",
        config=config,
        facts=facts,
    )


def _describe(config: RunConfig, facts: dict[str, Any]) -> list[str]:
    model, objective, hardware = config.model, facts["objective"], facts["hardware"]
    return [
        f"{facts['backbone_parameters']:,} parameters without heads: {model.num_hidden_layers} layers of "
        f"{model.hidden_size}, {model.num_attention_heads} attention heads, embeddings of {model.embedding_size}, "
        f"{describe_sharing(model)}; a vocabulary of {model.vocab_size:,} pieces.",
        "",
        f"Trained for {facts['steps']:,} steps on {facts['tokens']:,} tokens in {facts['seconds'] / 60:.1f} minutes on "
        f"{hardware['name']} ({hardware['precision']}), objective masked LM"
        + ("" if objective == "none" else f" + {objective.upper()}")
        + (f", starting from `{config.init_from}`." if config.init_from else ", from random weights."),
        "",
    ]


def _score_table(scores: Scores | None, objective: str) -> list[str]:
    if scores is None:
        return []
    lines = ["## Scores on held-out documents", "", "| | accuracy | loss | predictions |", "|---|---|---|---|"]
    if scores.mlm_accuracy is not None:
        lines.append(f"| masked LM | {scores.mlm_accuracy:.1%} | {scores.mlm_loss:.3f} | {scores.mlm_count:,} |")
    if scores.sentence_accuracy is not None:
        name = {"sop": "sentence order", "nsp": "next sentence"}[objective]
        accuracy, loss = f"{scores.sentence_accuracy:.1%}", f"{scores.sentence_loss:.3f}"
        lines.append(f"| {name} | {accuracy} | {loss} | {scores.sentence_count:,} |")
    return [*lines, ""]


def _sample_table(samples: Sequence[dict[str, Any]], config: RunConfig) -> list[str]:
    if not samples:
        return []
    held_out = config.data.held_out > 0 or bool(config.data.eval_stores)
    source = "held-out text" if held_out else "text it was trained on"
    lines = ["## Masks it fills", "", f"| {source} | right | guesses |", "|---|---|---|"]
    for sample in samples:
        guesses = ", ".join(f"{g['token']} {g['probability']:.0%}" for g in sample["guesses"][0][:3])
        lines.append(f"| {_cell(sample['text'])} | {_cell(sample['answers'][0])} | {_cell(guesses)} |")
    return [*lines, ""]


def describe_sharing(model: ModelConfig) -> str:
    """What the layers have in common: ALBERT-base -> "all layers share one block"."""
    if model.sharing == "none":
        return "no sharing"
    blocks = "one block" if model.inner_group_num == 1 else f"{model.inner_group_num} blocks"
    what = {"all": blocks, "attention": "attention", "ffn": "the feed-forward part"}[model.sharing]
    if model.num_hidden_groups == 1:
        return f"all layers share {what}"
    return f"layers in {model.num_hidden_groups} groups, each sharing {what}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


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
    """Two sentences from the beginning of some documents, held-out ones if there are any."""
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
    """Positions of words that are one piece of letters, so that readers can judge them at a glance."""
    begins = starts[text]
    whole = begins & np.append(begins[1:], True)
    letters = [readable(tokenizer.piece(int(i))).isalpha() for i in text]
    return np.flatnonzero(whole & np.array(letters))
