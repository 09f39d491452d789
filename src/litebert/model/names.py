"""The only place that knows foreign names of tensors and heads: the Hub's ALBERT and BERT, TensorFlow's.

Blocks: ours are numbered 0, 1, ...; block b is `inner_group b % inner` of `group b // inner` in ALBERT's files, and
layer b in BERT's. TensorFlow kernels are [in, out] and are transposed; `output_weights` and embeddings are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from litebert.model.config import ModelConfig, num_blocks


class Names(NamedTuple):
    """One module's name in each world, without `.weight` / `.bias`."""

    ours: str
    albert: str | None
    bert: str | None
    tf_albert: str | None
    tf_bert: str | None
    kind: str = "linear"  # TF: kernel + bias; norm: gamma + beta; head: output_weights; embedding, matrix, bias: alone


_G = "albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
_B = "bert.encoder.layer.{block}"
_TG = "bert/encoder/transformer/group_{group}/inner_group_{inner}"
_TB = "bert/encoder/layer_{block}"

TABLE: tuple[Names, ...] = (
    *(
        Names(
            f"encoder.embeddings.{ours}",
            f"albert.embeddings.{hub}_embeddings",
            f"bert.embeddings.{hub}_embeddings",
            f"bert/embeddings/{hub}_embeddings",
            f"bert/embeddings/{hub}_embeddings",
            "embedding",
        )
        for ours, hub in (("word", "word"), ("position", "position"), ("segment", "token_type"))
    ),
    Names(
        "encoder.embeddings.norm",
        "albert.embeddings.LayerNorm",
        "bert.embeddings.LayerNorm",
        "bert/embeddings/LayerNorm",
        "bert/embeddings/LayerNorm",
        "norm",
    ),
    Names(
        "encoder.projection",
        "albert.encoder.embedding_hidden_mapping_in",
        None,
        "bert/encoder/embedding_hidden_mapping_in",
        None,
    ),
    # Only in brightmart/albert_zh's graph, which is BERT's with one `layer_shared`.
    Names("encoder.embeddings.projection", None, None, None, "bert/embeddings/word_embeddings_2", "matrix"),
    *(
        Names(
            f"encoder.attention.{{block}}.{name}",
            f"{_G}.attention.{name}",
            f"{_B}.attention.self.{name}",
            f"{_TG}/attention_1/self/{name}",
            f"{_TB}/attention/self/{name}",
        )
        for name in ("query", "key", "value")
    ),
    Names(
        "encoder.attention.{block}.output",
        f"{_G}.attention.dense",
        f"{_B}.attention.output.dense",
        f"{_TG}/attention_1/output/dense",
        f"{_TB}/attention/output/dense",
    ),
    Names(
        "encoder.attention.{block}.norm",
        f"{_G}.attention.LayerNorm",
        f"{_B}.attention.output.LayerNorm",
        f"{_TG}/LayerNorm",
        f"{_TB}/attention/output/LayerNorm",
        "norm",
    ),
    Names(
        "encoder.ffn.{block}.input",
        f"{_G}.ffn",
        f"{_B}.intermediate.dense",
        f"{_TG}/ffn_1/intermediate/dense",
        f"{_TB}/intermediate/dense",
    ),
    Names(
        "encoder.ffn.{block}.output",
        f"{_G}.ffn_output",
        f"{_B}.output.dense",
        f"{_TG}/ffn_1/intermediate/output/dense",
        f"{_TB}/output/dense",
    ),
    Names(
        "encoder.ffn.{block}.norm",
        f"{_G}.full_layer_layer_norm",
        f"{_B}.output.LayerNorm",
        f"{_TG}/LayerNorm_1",
        f"{_TB}/output/LayerNorm",
        "norm",
    ),
    Names("encoder.pooler", "albert.pooler", "bert.pooler.dense", "bert/pooler/dense", "bert/pooler/dense"),
    Names(
        "masked_lm.dense",
        "predictions.dense",
        "cls.predictions.transform.dense",
        "cls/predictions/transform/dense",
        "cls/predictions/transform/dense",
    ),
    Names(
        "masked_lm.norm",
        "predictions.LayerNorm",
        "cls.predictions.transform.LayerNorm",
        "cls/predictions/transform/LayerNorm",
        "cls/predictions/transform/LayerNorm",
        "norm",
    ),
    Names(
        "masked_lm",
        "predictions",
        "cls.predictions",
        "cls/predictions/output",
        "cls/predictions/output",
        "bias",
    ),
    # Only where it is not the word embeddings themselves; TensorFlow's heads are always tied.
    Names("masked_lm.output", "predictions.decoder", "cls.predictions.decoder", None, None, "matrix"),
    Names(
        "sentence",
        "sop_classifier.classifier",
        "cls.seq_relationship",
        "cls/seq_relationship/output",
        "cls/seq_relationship/output",
        "head",
    ),
    Names("classifier", "classifier", "classifier", "output", "output", "head"),
    Names("span", "qa_outputs", "qa_outputs", "cls/squad/output", "cls/squad/output", "head"),
    # SQuAD 2.0: no such head in transformers.
    Names("start", None, None, "start_logits/dense", None),
    Names("end_hidden", None, None, "end_logits/dense_0", None),
    Names("end_norm", None, None, "end_logits/LayerNorm", None, "norm"),
    Names("end", None, None, "end_logits/dense_1", None),
    Names("answerable_hidden", None, None, "answer_class/dense_0", None),
    Names("answerable", None, None, "answer_class/dense_1", None),
)

# Our head -> transformers' class for ALBERT and for BERT; None, or no entry: it has no such class.
HUB_CLASSES: dict[str, tuple[str | None, str | None]] = {
    "encoder": ("AlbertModel", "BertModel"),
    "pretraining": ("AlbertForPreTraining", "BertForPreTraining"),
    "masked-lm": ("AlbertForMaskedLM", "BertForMaskedLM"),
    "sentence-order": (None, "BertForNextSentencePrediction"),
    "classification": ("AlbertForSequenceClassification", "BertForSequenceClassification"),
    "token-classification": ("AlbertForTokenClassification", "BertForTokenClassification"),
    "multiple-choice": ("AlbertForMultipleChoice", "BertForMultipleChoice"),
    "span": ("AlbertForQuestionAnswering", "BertForQuestionAnswering"),
}

_TF_SUFFIXES = {
    "linear": {"weight": "/kernel", "bias": "/bias"},
    "norm": {"weight": "/gamma", "bias": "/beta"},
    "embedding": {"weight": ""},
    "head": {"weight": "_weights", "bias": "_bias"},
    "bias": {"bias": "_bias"},
    "matrix": {"weight": ""},
}


class TensorPlace(NamedTuple):
    """Where one of our tensors is in a file."""

    name: str
    transpose: bool = False


def hub_class(head: str, model_type: str) -> str | None:
    """transformers' class for one of our heads; None if it has none."""
    return HUB_CLASSES.get(head, (None, None))[model_type == "bert"]


def hub_names(config: ModelConfig) -> dict[str, str]:
    """Our tensor name -> the Hub's, for every tensor that transformers has a place for, and for the heads of exits."""
    result = {}
    for row in TABLE:
        pattern = row.bert if config.model_type == "bert" else row.albert
        if pattern is None:
            continue
        for values in _blocks(row.ours, config):
            for part in _TF_SUFFIXES[row.kind]:
                result[f"{row.ours.format(**values)}.{part}"] = f"{pattern.format(**values)}.{part}"
    for depth in config.exits[:-1]:  # ours alone, beside the names that transformers reads
        result |= {f"exits.{depth}.{part}": f"exits.{depth}.{part}" for part in ("weight", "bias")}
    return result


def tf_names(config: ModelConfig, layer_shared: bool = False) -> dict[str, TensorPlace]:
    """Our tensor name -> its place in a TensorFlow checkpoint: Google's, or brightmart's with its `layer_shared`."""
    result = {}
    for row in TABLE:
        pattern = row.tf_bert if config.model_type == "bert" or layer_shared else row.tf_albert
        if pattern is None:
            continue
        if layer_shared:
            pattern = pattern.replace(_TB, "bert/encoder/layer_shared")
        for values in _blocks(row.ours, config):
            for part, suffix in _TF_SUFFIXES[row.kind].items():
                name = pattern.format(**values) + suffix
                transpose = suffix == "/kernel" or row.kind == "matrix"
                result[f"{row.ours.format(**values)}.{part}"] = TensorPlace(name, transpose)
    return result


def clean_hub_name(name: str, model_type: str) -> str | None:
    """A tensor name found in a Hub file in its plain spelling, or None for one without content.

    'embeddings.word_embeddings.weight' -> 'albert.embeddings.word_embeddings.weight' (a file of the bare encoder)
    'bert.embeddings.LayerNorm.gamma' -> 'bert.embeddings.LayerNorm.weight' (files of 2019)
    """
    if name.endswith(("position_ids", "token_type_ids")):
        return None  # buffers
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"{model_type}.{name}"
    return name


def _blocks(pattern: str, config: ModelConfig) -> Iterable[dict[str, int]]:
    if "{block}" not in pattern:
        return [{}]
    attention_blocks, ffn_blocks = num_blocks(config)
    count = attention_blocks if ".attention." in pattern else ffn_blocks
    inner = config.inner_group_num
    return [{"block": b, "group": b // inner, "inner": b % inner} for b in range(count)]
