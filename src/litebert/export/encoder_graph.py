"""The encoder of model/encoder.py as an ONNX graph: the same arithmetic in the same order, blocks stored once.

Shapes: B batch, S sequence, E embedding, H hidden, A heads, D = H / A, L applications.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from litebert.export.graph import Graph, quantize, to_numpy
from litebert.model.encoder import Attention, Embeddings, Encoder, FeedForward

WORD = "encoder.embeddings.word"


class Encoded(NamedTuple):
    """The names of the encoder's values in the graph."""

    hidden: str  # [B, S, H]
    pooled: str | None  # [B, H]
    attentions: list[str]  # per application [B, A, S, S]


def add_encoder(graph: Graph, encoder: Encoder) -> Encoded:
    """Inputs, embeddings, every application of the plan, and the pooler where there is one."""
    for name in ("input_ids", "attention_mask", "segment_ids"):
        graph.input(name, "batch", "sequence")
    hidden = _embeddings(graph, encoder.embeddings)
    if encoder.projection is not None:
        hidden = graph.linear(hidden, "encoder.projection", encoder.projection.weight, encoder.projection.bias)
    # As in attend_padded: -10000 is added to the logits of padding, so that nothing becomes NaN.
    padding = graph.op("Sub", graph.number(1.0), graph.cast_float("attention_mask"))
    bias = graph.op("Unsqueeze", graph.op("Mul", padding, graph.number(-10000.0)), graph.integers(1, 2))  # [B, 1, 1, S]
    maps = []
    for step in encoder.plan:
        attention, ffn = encoder.attention[step.attention], encoder.ffn[step.ffn]
        assert isinstance(attention, Attention)
        assert isinstance(ffn, FeedForward)
        hidden, probabilities = _attention(graph, f"encoder.attention.{step.attention}", attention, hidden, bias)
        hidden = _feed_forward(graph, f"encoder.ffn.{step.ffn}", ffn, encoder.config.hidden_act, hidden)
        maps.append(probabilities)
    pooled = None
    if encoder.pooler is not None:
        pooled = graph.op(
            "Tanh",
            graph.linear(first_token(graph, hidden), "encoder.pooler", encoder.pooler.weight, encoder.pooler.bias),
        )
    return Encoded(hidden, pooled, maps)


def first_token(graph: Graph, hidden: str) -> str:
    """The states of [CLS]: [B, S, H] -> [B, H]."""
    return graph.op("Gather", hidden, graph.array("first", np.array(0, np.int64)), axis=1)


def word_table(graph: Graph, embeddings: Embeddings) -> tuple[str, str | None]:
    """The word embeddings [V, E], once for looking up and predicting; with int8 also the scale [V] of each row."""
    table = to_numpy(embeddings.word.weight)
    if not graph.int8:
        return graph.array(f"{WORD}.weight", table), None
    values, scale = quantize(table.T)  # one scale per word: its row here is its column where words are predicted
    return graph.array(f"{WORD}.weight.int8", values.T), graph.array(f"{WORD}.scale", scale)


def _embeddings(graph: Graph, embeddings: Embeddings) -> str:
    table, scale = word_table(graph, embeddings)
    words = graph.op("Gather", table, "input_ids")  # [B, S, E]
    if scale is not None:
        of_each = graph.op("Unsqueeze", graph.op("Gather", scale, "input_ids"), graph.integers(-1))
        words = graph.op("Mul", graph.cast_float(words), of_each)
    prefix = "encoder.embeddings"
    if embeddings.projection is not None:
        words = graph.linear(words, f"{prefix}.projection", embeddings.projection.weight)  # [B, S, H]
    positions = graph.op(
        "Slice",
        graph.array(f"{prefix}.position.weight", to_numpy(embeddings.position.weight)),
        graph.integers(0),
        graph.size("input_ids", 1),
        graph.integers(0),
    )  # [S, E]
    segments = graph.op(
        "Gather", graph.array(f"{prefix}.segment.weight", to_numpy(embeddings.segment.weight)), "segment_ids"
    )
    return graph.norm(graph.op("Add", graph.op("Add", words, positions), segments), f"{prefix}.norm", embeddings.norm)


def _attention(graph: Graph, name: str, block: Attention, hidden: str, bias: str) -> tuple[str, str]:
    heads, width = block.num_heads, block.output.in_features
    scale = (width // heads) ** -0.5
    # One product for all three; the logits' scale lies in the queries.
    weight = torch.cat([block.query.weight * scale, block.key.weight, block.value.weight])
    bias_all = torch.cat([block.query.bias * scale, block.key.bias, block.value.bias])
    joined = graph.linear(hidden, f"{name}.qkv", weight, bias_all)  # [B, S, 3 * H]
    parts = graph.ops("Split", 3, joined, axis=-1, num_outputs=3)
    by_head = graph.integers(0, 0, heads, width // heads)
    query, key, value = (graph.op("Reshape", part, by_head) for part in parts)  # [B, S, A, D]
    logits = graph.op(
        "MatMul", graph.op("Transpose", query, perm=[0, 2, 1, 3]), graph.op("Transpose", key, perm=[0, 2, 3, 1])
    )
    probabilities = graph.op("Softmax", graph.op("Add", logits, bias), axis=-1)  # [B, A, S, S]
    context = graph.op("MatMul", probabilities, graph.op("Transpose", value, perm=[0, 2, 1, 3]))
    context = graph.op("Reshape", graph.op("Transpose", context, perm=[0, 2, 1, 3]), graph.integers(0, 0, width))
    output = graph.linear(context, f"{name}.output", block.output.weight, block.output.bias)
    return graph.norm(graph.op("Add", hidden, output), f"{name}.norm", block.norm), probabilities


def _feed_forward(graph: Graph, name: str, block: FeedForward, hidden_act: str, hidden: str) -> str:
    inner = graph.activation(graph.linear(hidden, f"{name}.input", block.input.weight, block.input.bias), hidden_act)
    output = graph.linear(inner, f"{name}.output", block.output.weight, block.output.bias)
    return graph.norm(graph.op("Add", hidden, output), f"{name}.norm", block.norm)
