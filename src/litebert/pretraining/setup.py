"""What a run is made of: tokenizer, data, model and optimiser, each from the config."""

from __future__ import annotations

import dataclasses

from litebert.errors import ConfigError
from litebert.model.config import vary
from litebert.model.heads import MaskedLMModel, PretrainingModel
from litebert.model.hub import load_model_and_report
from litebert.pretraining.batches import Batches
from litebert.pretraining.config import RunConfig
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.distributed import World
from litebert.train.optimizer import AdamW, Lamb, parameter_groups


def load_tokenizer(config: RunConfig) -> Tokenizer:
    """The run's tokenizer; without stores or tokenizer there is nothing to train on."""
    if not config.data.stores:
        raise ConfigError(
            "data.stores: name at least one token store (litebert corpus build makes one), "
            "for example --set data.stores=[store]"
        )
    if not config.data.tokenizer:
        raise ConfigError("data.tokenizer: name the tokenizer folder that the stores were built with")
    return Tokenizer.load(config.data.tokenizer)


def fit_vocabulary(config: RunConfig, tokenizer: Tokenizer) -> RunConfig:
    """The config with the model's vocabulary set to the tokenizer's."""
    if config.model.vocab_size == tokenizer.vocab_size and config.model.pad_token_id == tokenizer.pad_id:
        return config
    model = vary(
        config.model,
        vocab_size=tokenizer.vocab_size,
        pad_token_id=tokenizer.pad_id,
        embedding_projection=config.model.embedding_projection,
    )
    return dataclasses.replace(config, model=model)


def make_model(config: RunConfig) -> PretrainingModel:
    """The model at its start: random weights, or those of another model, also of a shallower one."""
    cls = MaskedLMModel if config.recipe.objective == "none" else PretrainingModel
    if config.init_from is None:
        return cls(config.model)
    source, _ = load_model_and_report(config.init_from, cls.head, new_head=True)
    if source.config.vocab_size != config.model.vocab_size:
        raise ConfigError(
            f"init_from: {config.init_from} has {source.config.vocab_size} pieces, the tokenizer "
            f"{config.model.vocab_size}; "
            "continue with the tokenizer of that model"
        )
    model = cls(config.model)
    try:
        model.load_state_dict(source.state_dict())
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ConfigError(f"init_from: {config.init_from} does not fit the model of this config: {reason}") from None
    return model


def make_optimizer(model: PretrainingModel, config: RunConfig) -> AdamW:
    """LAMB or AdamW over the model's parameters, by role."""
    optim = config.optim
    cls = Lamb if optim.name == "lamb" else AdamW
    return cls(
        parameter_groups(model, optim.weight_decay),
        lr=config.learning_rate().peak,
        betas=(optim.beta1, optim.beta2),
        eps=optim.eps,
        bias_correction=optim.bias_correction,
    )


class Data:
    """The stores of a run and its batches, for training at any length and for evaluation."""

    def __init__(self, config: RunConfig, tokenizer: Tokenizer):
        self.config = config
        self.tokenizer = tokenizer
        self.stores = [TokenStore.open(path, tokenizer) for path in config.data.stores]
        self.eval_stores = [TokenStore.open(path, tokenizer) for path in config.data.eval_stores]

    def training(self, length: int) -> Batches:
        """Batches of sequences up to `length` tokens."""
        return Batches(
            self.stores,
            self.tokenizer,
            dataclasses.replace(self.config.recipe, max_length=length),
            tokens_per_batch=self.config.batch_tokens,
            row_tokens=self.config.row_tokens,
            seed=self.config.seed,
            weights=self.config.data.weights,
            held_out=self.held_out,
        )

    def evaluation(self, world: World) -> Batches | None:
        """Batches of documents that are never trained on, one row per process; None if none are kept aside."""
        if not self.held_out and not self.eval_stores:
            return None
        recipe = dataclasses.replace(self.config.recipe, max_length=self.last_length, short_probability=0.0)
        tokens = self.config.row_tokens * world.size
        return Batches(
            self.eval_stores or self.stores,
            self.tokenizer,
            recipe,
            tokens_per_batch=tokens,
            row_tokens=self.config.row_tokens,
            seed=self.config.seed,
            split="train" if self.eval_stores else "held-out",
            held_out=0 if self.eval_stores else self.held_out,
        )

    @property
    def held_out(self) -> int | float:
        """Documents kept aside, as a count or a share."""
        held_out = self.config.data.held_out
        return int(held_out) if held_out >= 1 else held_out

    @property
    def last_length(self) -> int:
        """The length that the run ends with, and is evaluated at."""
        return self.config.length[-1].value if self.config.length else self.config.recipe.max_length
