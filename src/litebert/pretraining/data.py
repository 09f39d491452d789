"""Tokenizer, stores and batches of a run, from its config; without torch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from litebert.errors import ConfigError
from litebert.model.config import vary
from litebert.pretraining.batches import Batches
from litebert.pretraining.chapters import count_held_out
from litebert.pretraining.config import RunConfig
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer


def load_tokenizer(config: RunConfig) -> Tokenizer:
    """The run's tokenizer; stores and tokenizer are required."""
    if not config.data.stores:
        raise ConfigError(
            "data.stores: name at least one token store, for example data.stores=[store]; "
            "`litebert corpus build` makes one"
        )
    if not config.data.tokenizer:
        raise ConfigError("data.tokenizer: name the tokenizer folder that the stores were built with")
    return Tokenizer.load(config.data.tokenizer)


def settle(config: RunConfig, tokenizer: Tokenizer) -> RunConfig:
    """The config with the tokenizer's vocabulary and the row length filled in."""
    model = vary(
        config.model,
        vocab_size=tokenizer.vocab_size,
        pad_token_id=tokenizer.pad_id,
        embedding_projection=config.model.embedding_projection,
    )
    data = dataclasses.replace(config.data, row_tokens=config.row_tokens)
    return dataclasses.replace(config, model=model, data=data)


class Data:
    """The stores of a run and its batches, for training at any length and for evaluation."""

    def __init__(self, config: RunConfig, tokenizer: Tokenizer):
        self.config = config
        self.tokenizer = tokenizer
        self.stores = [TokenStore.open(path, tokenizer) for path in config.data.stores]
        self.eval_stores = [TokenStore.open(path, tokenizer) for path in config.data.eval_stores]
        for store in self.stores:  # now, before a folder is made
            count_held_out(len(store), config.data.held_out)
        self._evaluation: dict[int, Batches] = {}

    def training(self, length: int, mask_rate: float | None = None, batch_tokens: int | None = None) -> Batches:
        """Batches of sequences up to `length` tokens; mask rate and batch size are the config's where not given.

        When the batch grows during a run, the rows between the old place in the data and the new one are skipped.
        """
        recipe = self.config.recipe
        return Batches(
            self.stores,
            self.tokenizer,
            dataclasses.replace(recipe, max_length=length, mask_rate=mask_rate or recipe.mask_rate),
            tokens_per_batch=batch_tokens or self.config.batch_tokens,
            row_tokens=self.config.row_tokens,
            seed=self.config.seed,
            weights=self.config.data.weights,
            held_out=self.config.data.held_out,
        )

    def evaluation(self, length: int) -> Batches | None:
        """Batches of one row each from documents that are never trained on; None if there are none."""
        if not self.config.data.held_out and not self.eval_stores:
            return None
        if length not in self._evaluation:
            self._evaluation[length] = self._held_out_batches(length)
        return self._evaluation[length]

    def _held_out_batches(self, length: int) -> Batches:
        recipe = dataclasses.replace(self.config.recipe, max_length=length, short_probability=0.0)
        return Batches(
            self.eval_stores or self.stores,
            self.tokenizer,
            recipe,
            tokens_per_batch=self.config.row_tokens,
            row_tokens=self.config.row_tokens,
            seed=self.config.seed,
            split="train" if self.eval_stores else "held-out",
            held_out=0 if self.eval_stores else self.config.data.held_out,
        )

    def fingerprints(self) -> list[list[int | str]]:
        """What identifies a corpus, wherever it is stored: counts of each store and a sum of its content."""
        return [[len(store), store.num_sentences, store.num_tokens, store.content_sum] for store in self.stores]

    def check_stores(self, saved: object, where: Path) -> None:
        """Refuse to resume with other stores than the checkpoint's (litebert 0.1 recorded only their counts)."""
        now = self.fingerprints()
        if (
            not isinstance(saved, list)
            or len(saved) != len(now)
            or any(old[:3] != new[:3] or old[3:] not in ([], new[3:]) for old, new in zip(saved, now, strict=True))
        ):
            raise ConfigError(
                f"{where}: trained on stores with other content than {', '.join(self.config.data.stores)}; "
                "resume with the run's own stores, or start a new run in another folder"
            )

    @property
    def longest(self) -> int:
        """The longest sequences of the run."""
        return max([stage.value for stage in self.config.length] or [self.config.recipe.max_length])

    @property
    def last_length(self) -> int:
        """The length that the run ends with."""
        return self.config.length[-1].value if self.config.length else self.config.recipe.max_length
