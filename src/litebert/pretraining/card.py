"""The model card that stands in a model folder: what it is, how it was trained, what it scores, how to use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.model.config import ModelConfig
from litebert.pretraining.config import RunConfig
from litebert.pretraining.evaluate import Scores
from litebert.train.card import save_card


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
