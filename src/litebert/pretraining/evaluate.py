"""Intrinsic evaluation (Table 5): masked LM, sentence-order and next-sentence accuracy on text a model has not seen.

Also detects plateaus: a run that fills masks no better than by always predicting the most frequent token. Deep and wide
shared stacks can stay there while their loss looks calm."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from litebert.errors import ConfigError, DataError
from litebert.model.heads import PretrainingModel
from litebert.model.hub import load_model
from litebert.pretraining.batches import Batch, Batches
from litebert.pretraining.chapters import Store
from litebert.pretraining.masking import Vocabulary
from litebert.pretraining.objective import run_model, score, to_device
from litebert.pretraining.recipes import Objective, Recipe
from litebert.remote import find_folder
from litebert.text.build import build_store
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device, DeviceConfig, open_device
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
    """The three accuracies of Table 5; None where the model has no such head."""

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

    The sentence head is used as it is, so a model trained on one objective is scored on both.
    """
    if model.masked_lm is None and model.sentence is None:
        raise ConfigError("this model has no masked LM head and no sentence head; nothing to score")
    scores = []
    objectives: tuple[Objective, ...] = ("sop", "nsp")
    for objective in objectives:
        batches = pair_batches(stores, tokenizer, recipe, objective)
        scores.append(evaluate_batches(model, batches, count_batches(batches, num_tokens), device))
    sop, nsp = scores
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
        try:
            return evaluate_intrinsic(model, found, vocabulary, recipe, opened, tokens)
        except DataError as error:
            if not texts:
                raise
            made = str(Path(folder) / "store")  # people know their texts, not the store made of them
            raise DataError(str(error).replace(made, ", ".join(map(str, texts)))) from None


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
