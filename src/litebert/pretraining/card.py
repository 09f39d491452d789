"""The model card that stands in a model folder: what it is, how it was trained, what it scores, how to use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.files import write_atomic
from litebert.model.config import ModelConfig
from litebert.pretraining.config import RunConfig
from litebert.pretraining.evaluate import Scores
from litebert.train.card import config_section


def write_card(
    folder: Path, config: RunConfig, scores: Scores | None, samples: Sequence[dict[str, Any]], facts: dict[str, Any]
) -> Path:
    """Write README.md into a model folder."""
    model = config.model
    auto_class = "AutoModelForMaskedLM" if facts["objective"] == "none" else "AutoModelForPreTraining"
    held_out = config.data.held_out > 0 or bool(config.data.eval_stores)
    lines = [
        "---",
        "library_name: litebert",
        f"tags: [{model.model_type}, masked-language-modeling, {facts['objective']}]",
        "pipeline_tag: fill-mask",
        "---",
        "",
        f"# {model.model_type.upper()} pretrained with litebert",
        "",
        f"{facts['backbone_parameters']:,} parameters: {model.num_hidden_layers} layers of {model.hidden_size}, "
        f"{model.num_attention_heads} heads, embeddings of {model.embedding_size}, {describe_sharing(model)}; "
        f"a vocabulary of {model.vocab_size:,} pieces.",
        "",
        f"Trained for {facts['steps']:,} steps on {facts['tokens']:,} tokens in {facts['seconds'] / 60:.1f} minutes on "
        f"{facts['hardware']['name']} ({facts['hardware']['precision']}), objective masked LM"
        + ("" if facts["objective"] == "none" else f" + {facts['objective'].upper()}")
        + (f", starting from `{config.init_from}`." if config.init_from else ", from random weights."),
        "",
    ]
    if scores is not None:
        lines += ["## Scores on held-out documents", "", "| | accuracy | loss | predictions |", "|---|---|---|---|"]
        if scores.mlm_accuracy is not None:
            lines.append(f"| masked LM | {scores.mlm_accuracy:.1%} | {scores.mlm_loss:.3f} | {scores.mlm_count:,} |")
        if scores.sentence_accuracy is not None:
            name = {"sop": "sentence order", "nsp": "next sentence"}[facts["objective"]]
            line = (
                f"| {name} | {scores.sentence_accuracy:.1%} | {scores.sentence_loss:.3f} | {scores.sentence_count:,} |"
            )
            lines.append(line)
        lines.append("")
    if samples:
        source = "held-out text" if held_out else "text it was trained on"
        lines += ["## Masks it fills", "", f"| {source} | right | guesses |", "|---|---|---|"]
        for sample in samples:
            guesses = ", ".join(f"{g['token']} {g['probability']:.0%}" for g in sample["guesses"][0][:3])
            lines.append(f"| {_cell(sample['text'])} | {_cell(sample['answers'][0])} | {_cell(guesses)} |")
        lines.append("")
    lines += [
        "## Use",
        "",
        "```python",
        "from litebert import load_model",
        'model = load_model("this/folder")',
        "```",
        "",
        f"The folder also opens in transformers: `{auto_class}.from_pretrained(...)`."
        if model.fits_hub
        else "This sharing mode does not exist in transformers; the folder opens in litebert only.",
        "",
        *config_section(config, facts),
    ]
    write_atomic(folder / "README.md", "\n".join(lines))
    return folder / "README.md"


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
