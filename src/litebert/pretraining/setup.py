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


def settle(config: RunConfig, tokenizer: Tokenizer) -> RunConfig:
    """The config with what it leaves open: the vocabulary, which is the tokenizer's, and the row length."""
    model = vary(
        config.model,
        vocab_size=tokenizer.vocab_size,
        pad_token_id=tokenizer.pad_id,
        embedding_projection=config.model.embedding_projection,
    )
    data = dataclasses.replace(config.data, row_tokens=config.row_tokens)
    return dataclasses.replace(config, model=model, data=data)


def make_model(config: RunConfig, load: bool = True) -> tuple[PretrainingModel, list[str]]:
    """The model at its start, random or from another model (also a shallower one), and notes about that."""
    cls = MaskedLMModel if config.recipe.objective == "none" else PretrainingModel
    model = cls(config.model)
    if config.init_from is None or not load:
        return model, []
    source, report = load_model_and_report(config.init_from, cls.head, new_head=True)
    if source.config.vocab_size != config.model.vocab_size:
        raise ConfigError(
            f"init_from: {config.init_from} has {source.config.vocab_size} pieces, the tokenizer "
            f"{config.model.vocab_size}; continue with the tokenizer of that model"
        )
    differences = {
        field.name: (getattr(source.config, field.name), getattr(config.model, field.name))
        for field in dataclasses.fields(config.model)
        if field.name in _DECISIVE and getattr(source.config, field.name) != getattr(config.model, field.name)
    }
    if differences:
        listed = ", ".join(f"{name} {old} there, {new} here" for name, (old, new) in differences.items())
        raise ConfigError(f"init_from: {config.init_from} does not fit the model of this config: {listed}")
    try:
        model.load_state_dict(source.state_dict())
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ConfigError(f"init_from: {config.init_from} does not fit the model of this config: {reason}") from None
    notes = [f"{config.init_from} has no {', '.join(report.missing)}: begun at random"] if report.missing else []
    return model, notes


# What must agree with the model to start from: everything that decides what its weights compute.
_DECISIVE = (
    "embedding_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "sharing",
    "inner_group_num",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "embedding_projection",
)


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

    def evaluation(self) -> Batches | None:
        """Batches of one row each from documents that are never trained on; None if none are kept aside."""
        if not self.held_out and not self.eval_stores:
            return None
        recipe = dataclasses.replace(self.config.recipe, max_length=self.last_length, short_probability=0.0)
        return Batches(
            self.eval_stores or self.stores,
            self.tokenizer,
            recipe,
            tokens_per_batch=self.config.row_tokens,
            row_tokens=self.config.row_tokens,
            seed=self.config.seed,
            split="train" if self.eval_stores else "held-out",
            held_out=0 if self.eval_stores else self.held_out,
        )

    def fingerprints(self) -> list[list[int]]:
        """What tells one corpus from another, wherever it lies: documents, sentences and tokens of each store."""
        return [[len(store), store.num_sentences, store.num_tokens] for store in self.stores]

    @property
    def held_out(self) -> int | float:
        """Documents kept aside, as a count or a share."""
        held_out = self.config.data.held_out
        return int(held_out) if held_out >= 1 else held_out

    @property
    def last_length(self) -> int:
        """The length that the run ends with, and is evaluated at."""
        return self.config.length[-1].value if self.config.length else self.config.recipe.max_length
