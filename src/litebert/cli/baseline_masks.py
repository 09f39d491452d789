"""Masks filled by counting, and by models, on the very same masks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from litebert.cli.baseline import MASKED_LM
from litebert.cli.early import check_files, check_models
from litebert.errors import ConfigError
from litebert.ladder.climb import Ladder, Rung
from litebert.model.folder import find_folder
from litebert.pretraining.baselines import score_baselines
from litebert.pretraining.batches import Batches
from litebert.pretraining.recipes import Recipe
from litebert.tasks.metrics import Metric
from litebert.text.build import build_store
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer

KIND = "ngram"
LENGTH = 128
ROW = 1024  # tokens of a batch
SPLIT = "dev"


def score_masks(
    kinds: Sequence[str],
    texts: Sequence[Path],
    dev: Path | None,
    models: Sequence[str],
    tokenizer: Path | None,
    num_tokens: int,
    seed: int,
) -> Ladder:
    """Count n-grams in `texts`, guess the masks of `dev` from what is visible, beside the models."""
    if any(kind not in (KIND, "all") for kind in kinds):
        raise ConfigError(f"--kind {','.join(kinds)}: masks are filled by {KIND} alone")
    if not texts or dev is None:
        raise ConfigError(
            f"{MASKED_LM}: name the text to count n-grams in (--text FILE) and another to score (--dev FILE)"
        )
    if dev.resolve() in [text.resolve() for text in texts]:
        raise ConfigError(f"--dev {dev}: is the text that n-grams are counted in; what they know by heart is no score")
    if tokenizer is None and not models:
        raise ConfigError(
            f"{MASKED_LM}: name a model (--model FOLDER) or a tokenizer (--tokenizer FOLDER) for its pieces"
        )
    check_files(*texts, dev)
    check_models(*models)
    pieces = Tokenizer.load(tokenizer or find_folder(models[0]))
    recipe = Recipe(max_length=LENGTH, short_probability=0.0, one_sentence="skip")  # as in `litebert evaluate`
    with tempfile.TemporaryDirectory(prefix="litebert-") as folder:
        counted = _store(texts, pieces, Path(folder) / "counted")
        scored = _store([dev], pieces, Path(folder) / "scored")
        training = Batches([counted], pieces, recipe, tokens_per_batch=ROW, row_tokens=ROW, seed=seed)
        evaluation = Batches([scored], pieces, recipe, tokens_per_batch=ROW, row_tokens=ROW, seed=seed)
        count = max(1, min(num_tokens // ROW, evaluation.steps_per_epoch))
        began = time.process_time()
        found = score_baselines([counted], training, evaluation, pieces, count)
        seconds = round(time.process_time() - began, 2)
        rungs = [
            _rung("unigram", "always the most frequent piece", found.unigram),
            _rung(KIND, "up to two visible pieces on the left, backing off to fewer", found.trigram, seconds=seconds),
        ]
        if found.connectives is not None:
            what = "the order of two segments from connectives and words for time"
            rungs.append(_rung("connectives", what, order=found.connectives))
        rungs += [_score_model(model, evaluation, count, pieces) for model in models]
    return Ladder(MASKED_LM, MASKED_LM, tuple(rungs), {"tokens scored": count * ROW})


def _store(texts: Sequence[Path], pieces: Tokenizer, folder: Path) -> TokenStore:
    build_store([str(text) for text in texts], pieces, folder, workers=1)
    return TokenStore.open(folder, pieces)


def _score_model(source: str, evaluation: Batches, count: int, pieces: Tokenizer) -> Rung:
    if Tokenizer.load(find_folder(source)).fingerprint != pieces.fingerprint:
        raise ConfigError(
            f"{source}: has another vocabulary than the masks that are guessed here; compare it by itself"
        )
    from litebert.model.count import count_parameters
    from litebert.pretraining.evaluate import evaluate_batches, load_pretrained
    from litebert.train.device import DeviceConfig, open_device

    device = open_device(DeviceConfig())
    model = load_pretrained(source)
    if model.config.max_position_embeddings < LENGTH:
        raise ConfigError(f"{source}: takes {model.config.max_position_embeddings} tokens, {LENGTH} are scored")
    scores = evaluate_batches(model.to(device.device), evaluation, count, device)
    what = f"a model of {count_parameters(model.config).total:,} parameters without heads"
    return _rung(source, what, scores.mlm_accuracy, scores.sentence_accuracy)


def _rung(
    name: str, what: str, masks: float | None = None, order: float | None = None, seconds: float | None = None
) -> Rung:
    found = {"masked_lm_accuracy": masks, "sentence_order_accuracy": order}
    return Rung(name, what, {SPLIT: {key: Metric(value) for key, value in found.items() if value is not None}}, seconds)
