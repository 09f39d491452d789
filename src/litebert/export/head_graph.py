"""The heads of model/heads.py as ONNX graphs, on top of the encoder's.

Shapes: B batch, S sequence, P positions to predict, K best starts, Q best ends of each, E embedding, H hidden,
V vocabulary, L applications, A heads.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from litebert.export.encoder_graph import Encoded, add_encoder, first_token, word_table
from litebert.export.graph import Graph, to_numpy
from litebert.export.smooth import Peaks
from litebert.model.heads import (
    AnswerModel,
    ClassificationModel,
    Model,
    MultipleChoiceModel,
    PretrainingModel,
    SpanModel,
    TokenClassificationModel,
)

BEAM = 5  # starts, and ends of each start, as AnswerModel searches


def build_onnx(
    model: Model,
    int8: bool = False,
    attentions: bool = False,
    peaks: Peaks | None = None,
    every_position: bool = False,
) -> Any:
    """The ONNX model of any head; every output that the encoder and the head can give is one of the graph's.

    With `every_position`, masked words are predicted at all tokens [B, S, V] instead of those of a further input.
    """
    graph = Graph(int8, peaks)
    encoded = add_encoder(graph, model.encoder)
    if isinstance(model, PretrainingModel):
        _pretraining(graph, model, encoded, every_position)
    elif isinstance(model, (ClassificationModel, MultipleChoiceModel)):
        _pooled_classifier(graph, model, encoded)
    elif isinstance(model, TokenClassificationModel):
        logits = _linear(graph, encoded.hidden, "classifier", model.classifier)
        graph.output("logits", logits, "batch", "sequence", model.config.num_labels)
    elif isinstance(model, SpanModel):
        _span(graph, model, encoded)
    elif isinstance(model, AnswerModel):
        _answer(graph, model, encoded)
    else:
        assert model.head == "encoder", model.head
    graph.output("hidden", encoded.hidden, "batch", "sequence", model.config.hidden_size)
    if encoded.pooled is not None:
        graph.output("pooled", encoded.pooled, "batch", model.config.hidden_size)
    if attentions:
        layers = [graph.op("Unsqueeze", layer, graph.integers(1)) for layer in encoded.attentions]
        stacked = graph.op("Concat", *layers, axis=1)
        shape = ("batch", len(layers), model.config.num_attention_heads, "sequence", "sequence")
        graph.output("attentions", stacked, *shape)
    return graph.model(f"{model.config.model_type}-{model.head}")


def _linear(graph: Graph, x: str, name: str, layer: nn.Linear) -> str:
    return graph.linear(x, name, layer.weight, layer.bias)


def _pretraining(graph: Graph, model: PretrainingModel, encoded: Encoded, every_position: bool) -> None:
    config = model.config
    if model.masked_lm is not None:
        head = model.masked_lm
        chosen = graph.op("Reshape", encoded.hidden, graph.integers(-1, config.hidden_size))  # [B * S, H]
        if not every_position:
            chosen = graph.op("Gather", chosen, graph.input("positions", "predictions"))  # [P, H]
        narrow = graph.activation(_linear(graph, chosen, "masked_lm.dense", head.dense), config.hidden_act)
        narrow = graph.norm(narrow, "masked_lm.norm", head.norm)  # [P, E]
        logits = _words(graph, model, narrow)
        if every_position:
            whole = graph.op("Concat", graph.op("Shape", "input_ids"), graph.integers(config.vocab_size), axis=0)
            graph.output("masked_lm", graph.op("Reshape", logits, whole), "batch", "sequence", config.vocab_size)
        else:
            graph.output("masked_lm", logits, "predictions", config.vocab_size)
    if model.sentence is not None:
        assert encoded.pooled is not None
        graph.output("sentence", _linear(graph, encoded.pooled, "sentence", model.sentence), "batch", 2)


def _words(graph: Graph, model: PretrainingModel, narrow: str) -> str:
    """The logits of words [P, V] from the masked LM head's states [P, E]."""
    head, projection = model.masked_lm, model.encoder.embeddings.projection
    assert head is not None
    if projection is not None:
        narrow = graph.linear(narrow, "masked_lm.projection", projection.weight.T)  # [P, H] -> [P, E]
    if head.output is not None:
        return graph.linear(narrow, "masked_lm.output", head.output.weight, head.bias)
    bias = graph.array("masked_lm.bias", to_numpy(head.bias))
    table, scale = word_table(graph, model.encoder.embeddings)
    if scale is None:
        return graph.op("Gemm", narrow, table, bias, transB=1)
    # The runtime turns the table round when it loads the file; the file holds it once.
    matrix = graph.op("Transpose", table, perm=[1, 0])
    return graph.op("Add", graph.int8_product(narrow, matrix, scale), bias)


def _pooled_classifier(graph: Graph, model: ClassificationModel | MultipleChoiceModel, encoded: Encoded) -> None:
    summary = _mean_tokens(graph, encoded.hidden) if model.config.pooling == "mean" else encoded.pooled
    assert summary is not None
    logits = _linear(graph, summary, "classifier", model.classifier)
    if model.head == "multiple-choice":  # one number per option; which options belong together, the caller knows
        graph.output("logits", graph.op("Squeeze", logits, graph.integers(-1)), "batch")
    else:
        graph.output("logits", logits, "batch", model.config.num_labels)


def _mean_tokens(graph: Graph, hidden: str) -> str:
    """The mean over the tokens that are no padding: [B, S, H] -> [B, H]."""
    weights = graph.op("Unsqueeze", graph.cast_float("attention_mask"), graph.integers(-1))  # [B, S, 1]
    total = graph.op("ReduceSum", graph.op("Mul", hidden, weights), graph.integers(1), keepdims=0)
    return graph.op("Div", total, graph.op("ReduceSum", weights, graph.integers(1), keepdims=0))


def _span(graph: Graph, model: SpanModel, encoded: Encoded) -> None:
    both = graph.ops("Split", 2, _linear(graph, encoded.hidden, "span", model.span), axis=-1, num_outputs=2)
    for name, logits in zip(("start", "end"), both, strict=True):
        graph.output(name, graph.op("Squeeze", logits, graph.integers(-1)), "batch", "sequence")


def _answer(graph: Graph, model: AnswerModel, encoded: Encoded) -> None:
    hidden, width = encoded.hidden, model.config.hidden_size
    outside = graph.cast_float(graph.input("outside", "batch", "sequence"))
    start = graph.op("Squeeze", _linear(graph, hidden, "start", model.start), graph.integers(-1))
    start = _exclude(graph, start, outside)  # [B, S]

    weights = graph.op("Unsqueeze", graph.op("Softmax", start, axis=-1), graph.integers(1))  # [B, 1, S]
    summary = graph.op("Squeeze", graph.op("MatMul", weights, hidden), graph.integers(1))  # [B, H]
    joined = graph.op("Concat", summary, first_token(graph, hidden), axis=-1)
    inner = graph.op("Tanh", _linear(graph, joined, "answerable_hidden", model.answerable_hidden))
    answerable = graph.op("Squeeze", _linear(graph, inner, "answerable", model.answerable), graph.integers(-1))

    beam = graph.op("Min", graph.integers(BEAM), graph.size("input_ids", 1))
    start_log_prob, start_index = graph.ops("TopK", 2, graph.op("LogSoftmax", start, axis=-1), beam, axis=-1)  # [B, K]
    columns = graph.op("Unsqueeze", start_index, graph.integers(-1))  # [B, K, 1]
    to_width = graph.op("Concat", graph.op("Shape", start_index), graph.integers(width), axis=0)
    chosen = graph.op("GatherElements", hidden, graph.op("Expand", columns, to_width), axis=1)  # [B, K, H]
    # A matrix over [token, start] is the sum of its halves: S + K rows go through it instead of S * K.
    token_half, start_half = model.end_hidden.weight.split(width, dim=1)
    of_token = graph.linear(hidden, "end_hidden.token", token_half, model.end_hidden.bias)
    of_start = graph.linear(chosen, "end_hidden.start", start_half)
    inner = graph.op(
        "Add",
        graph.op("Unsqueeze", of_token, graph.integers(1)),  # [B, 1, S, H]
        graph.op("Unsqueeze", of_start, graph.integers(2)),  # [B, K, 1, H]
    )
    inner = graph.norm(graph.op("Tanh", inner), "end_norm", model.end_norm)
    end = graph.op("Squeeze", _linear(graph, inner, "end", model.end), graph.integers(-1))  # [B, K, S]
    end = _exclude(graph, end, graph.op("Unsqueeze", outside, graph.integers(1)))
    end_log_prob, end_index = graph.ops("TopK", 2, graph.op("LogSoftmax", end, axis=-1), beam, axis=-1)  # [B, K, Q]

    graph.output("start_index", start_index, "batch", "starts", index=True)
    graph.output("start_log_prob", start_log_prob, "batch", "starts")
    for name, value in (("end_index", end_index), ("end_log_prob", end_log_prob)):
        turned = graph.op("Transpose", value, perm=[0, 2, 1])  # [B, Q, K]
        graph.output(name, turned, "batch", "ends", "starts", index=name == "end_index")
    graph.output("answerable", answerable, "batch")


def _exclude(graph: Graph, logits: str, outside: str) -> str:
    inside = graph.op("Sub", graph.number(1.0), outside)
    return graph.op("Sub", graph.op("Mul", logits, inside), graph.op("Mul", outside, graph.number(1e30)))
