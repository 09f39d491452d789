"""Intrinsic evaluation (Table 5): masked LM, sentence-order and next-sentence accuracy on unseen text; the model card.

Also detects plateaus: a run that fills masks no better than by always predicting the most frequent token. Deep and wide
shared stacks can stay there while their loss looks calm."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from litebert.errors import ConfigError, DataError
from litebert.model.config import ModelConfig
from litebert.model.heads import PretrainingModel
from litebert.model.hub import load_model
from litebert.pretraining.batches import Batch, Batches
from litebert.pretraining.chapters import Store, held_out_documents
from litebert.pretraining.config import RunConfig
from litebert.pretraining.data import Data
from litebert.pretraining.masking import Vocabulary
from litebert.pretraining.objective import run_model, score, to_device
from litebert.pretraining.recipes import Objective, Recipe
from litebert.remote import find_folder
from litebert.text.build import build_store
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.text.words import readable
from litebert.train.device import Device, DeviceConfig, open_device
from litebert.train.folder import save_card
from litebert.train.processes import World, sum_totals


@dataclass(frozen=True)
class Scores:
    """Mean losses and accuracies over some batches; None if there was nothing to score."""

    mlm_loss: float | None
    mlm_accuracy: float | None
    mlm_count: int
    sentence_loss: float | None
    sentence_accuracy: float | None
    sentence_count: int

    def as_dict(self) -> dict[str, float | int]:
        """What there is, as plain numbers."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value is not None}


@torch.inference_mode()
def evaluate_batches(
    model: PretrainingModel, batches: Batches, num_batches: int, device: Device, world: World | None = None
) -> Scores:
    """Scores over the first `num_batches` batches, shared among the processes; always the same masks."""
    world = world or World()
    was_training = model.training
    model.eval()
    totals = torch.zeros(6, device=device.device)
    for number in range(world.rank, num_batches, world.size):
        batch = batches.batch(number)
        with device.autocast():
            inputs = to_device(batch, device.device, batches.recipe.max_length)
            totals += score(run_model(model, inputs), inputs).stacked()
    model.train(was_training)
    mlm_loss, mlm_correct, mlm_count, loss, correct, count = sum_totals(totals, world).tolist()
    return Scores(
        mlm_loss / mlm_count if mlm_count else None,
        mlm_correct / mlm_count if mlm_count else None,
        int(mlm_count),
        loss / count if count else None,
        correct / count if count else None,
        int(count),
    )


@dataclass(frozen=True)
class Intrinsic:
    """The three accuracies of Table 5; None where the model has no such head, or the text nothing to ask it about."""

    mlm_accuracy: float | None
    sop_accuracy: float | None
    nsp_accuracy: float | None
    mlm_count: int
    sop_count: int
    nsp_count: int

    def as_dict(self) -> dict[str, float | int | None]:
        """As plain data."""
        return dataclasses.asdict(self)


def pair_batches(
    stores: Sequence[Store],
    tokenizer: Vocabulary,
    recipe: Recipe,
    objective: Objective,
    *,
    seed: int = 0,
    held_out: float = 0.0,
    rows: int = 1,
) -> Batches:
    """Batches of full-length pairs labelled for an objective, regardless of the model's own.

    No short examples: every pair has full context, as in the paper's development set. `rows` of 1,024 tokens go through
    the model at a time; the sequences are the same for any number of them.
    """
    pairs = dataclasses.replace(
        recipe, objective=objective, pairs_without_objective=False, short_probability=0.0, one_sentence="skip"
    )
    row = max(1024, recipe.max_length)
    return Batches(stores, tokenizer, pairs, tokens_per_batch=rows * row, row_tokens=row, seed=seed, held_out=held_out)


def count_batches(batches: Batches, num_tokens: int) -> int:
    """The number of batches that hold about `num_tokens`, at least one and at most an epoch."""
    return max(1, min(num_tokens // (batches.rows_per_batch * batches.row_tokens), batches.steps_per_epoch))


def evaluate_intrinsic(
    model: PretrainingModel,
    stores: Sequence[Store],
    tokenizer: Vocabulary,
    recipe: Recipe,
    device: Device,
    num_tokens: int = 200_000,
) -> Intrinsic:
    """Masked LM accuracy, and the sentence head's accuracy on swapped pairs (SOP) and on random ones (NSP).

    The sentence head is used as it is, so a model trained on one objective is scored on both. Swapped pairs need a
    document of two sentences, random ones two documents; masked LM is scored on any text.
    """
    if model.masked_lm is None and model.sentence is None:
        raise ConfigError("this model has no masked LM head and no sentence head; nothing to score")

    def scored(objective: Objective) -> Scores:
        batches = pair_batches(stores, tokenizer, recipe, objective)
        return evaluate_batches(model, batches, count_batches(batches, num_tokens), device)

    try:
        sop = scored("sop")
    except DataError:  # no document has two sentences; if there is nothing at all, "none" says so
        sop = scored("none")
    try:
        nsp = scored("nsp")
    except DataError:
        nsp = dataclasses.replace(sop, sentence_accuracy=None, sentence_count=0)
    return Intrinsic(
        sop.mlm_accuracy,
        sop.sentence_accuracy,
        nsp.sentence_accuracy,
        sop.mlm_count,
        sop.sentence_count,
        nsp.sentence_count,
    )


def evaluate_model(
    source: Path | str,
    *,
    stores: Sequence[Path | str] = (),
    texts: Sequence[Path | str] = (),
    tokenizer: Path | str | None = None,
    max_length: int | None = None,
    tokens: int = 200_000,
    device: str = "auto",
) -> Intrinsic:
    """The intrinsic scores of a model folder or Hub name on about `tokens` tokens of stores or text files."""
    if not stores and not texts:
        raise ConfigError("nothing to score on: name token stores (stores) or text files (texts)")
    model = load_pretrained(source)
    vocabulary = Tokenizer.load(tokenizer or find_folder(source))
    if vocabulary.vocab_size > model.config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {vocabulary.vocab_size} pieces, the model {model.config.vocab_size}; "
            "name the tokenizer the model was trained with (tokenizer)"
        )
    limit = model.config.max_position_embeddings
    if max_length is not None and not 8 <= max_length <= limit:
        raise ConfigError(f"max_length: must be 8 to {limit}, got {max_length}")
    if tokens < 1:
        raise ConfigError(f"tokens: must be >= 1, got {tokens}")
    opened = open_device(DeviceConfig(device=device))
    model = model.to(opened.device)
    recipe = Recipe(max_length=min(max_length or vocabulary.max_length or 512, limit))
    with tempfile.TemporaryDirectory(prefix="litebert-") as folder:
        paths = list(stores)
        if texts:
            build_store([str(text) for text in texts], vocabulary, Path(folder) / "store", workers=1)
            paths.append(Path(folder) / "store")
        found = [TokenStore.open(path, vocabulary) for path in paths]
        return evaluate_intrinsic(model, found, vocabulary, recipe, opened, tokens)


def load_pretrained(source: Path | str) -> PretrainingModel:
    """A model with whichever of the two pretraining heads its folder holds."""
    model = load_model(source)
    if not isinstance(model, PretrainingModel):
        raise ConfigError(
            f"{source}: holds a {model.head} model, which predicts neither masks nor sentence order; "
            "give a pretrained model"
        )
    return model


# A model counts as reading if its accuracy is this far above the commonest token's. On the 6,000 masks of a small
# evaluation the standard error is about 0.003, so chance does not reach it; a model that reads soon exceeds it by far.
LEAST_LEARNED = 0.01
PATIENCE = 200  # steps after the warm-up in which nothing is expected


def commonest_share(batches: Iterable[Batch]) -> float:
    """Masked-LM accuracy of always answering the commonest token, which needs no reading."""
    labels = np.concatenate([batch.labels for batch in batches])
    counts = np.bincount(labels[labels >= 0], minlength=1)
    return float(counts.max() / max(1, counts.sum()))


class PlateauWatch:
    """Reports once, after two evaluations in a row at the plateau after the warm-up."""

    def __init__(self, warmup_steps: int):
        self._warmup_steps = warmup_steps
        self._since: int | None = None  # the first evaluation of the present row
        self._reported = False

    def look(self, step: int, accuracy: float, floor: float) -> int | None:
        """The step since which nothing was learned, once, when it should be reported."""
        if accuracy - floor >= LEAST_LEARNED or step < self._warmup_steps + PATIENCE:
            self._since = None
        elif self._since is None:
            self._since = step
        elif not self._reported:
            self._reported = True
            return self._since
        return None


# ---------------------------------------------------------------------------------------------------------------------
# The model card, with masks that the model fills


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
