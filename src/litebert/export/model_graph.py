"""The models of model/ as ONNX graphs: the same arithmetic in the same order, every block stored once.

Shapes: B batch, S sequence, P positions to predict, K best starts, Q best ends of each, E embedding, H hidden,
V vocabulary, L applications, A heads, D = H / A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from litebert.export.graph import Form, Graph, Rounded, to_numpy
from litebert.export.quantize import Statistics
from litebert.model.config import EXIT_HEADS, Application
from litebert.model.encoder import Attention, Embeddings, Encoder, FeedForward
from litebert.model.heads import (
    AnswerModel,
    ClassificationModel,
    Model,
    MultipleChoiceModel,
    PretrainingModel,
    SpanModel,
    TokenClassificationModel,
    _Classifier,
)
from litebert.predict.load import STAGES

WORD = "encoder.embeddings.word"
BEAM = 5  # starts, and ends of each start, as AnswerModel searches


def build_onnx(
    model: Model,
    form: Form = "fp32",
    statistics: Statistics | None = None,
    rounded: Rounded | None = None,
    *,
    attentions: bool = False,
    every_position: bool = False,
    shown: int = 0,
    exits: bool = False,
) -> Any:
    """The ONNX model of any head, with every output of the encoder and the head.

    With `every_position`, masked words are predicted at all tokens [B, S, V], not at the positions of an extra input.
    With `shown`, the graph also outputs the attention maps and the states between applications of the first `shown`
    tokens, for pictures; so few tokens cost no time. With `exits`, also what each exit before full depth says: those of
    exit 3 end in `_3`.
    """
    graph = Graph(form, statistics, rounded)
    encoded = add_encoder(graph, model.encoder)
    if isinstance(model, PretrainingModel):
        _pretraining(graph, model, encoded, every_position)
    elif isinstance(model, (ClassificationModel, MultipleChoiceModel)):
        _pooled_classifier(graph, model, encoded)
    elif isinstance(model, TokenClassificationModel):
        _name_outputs(graph, model, _linear(graph, encoded.hidden, "classifier", model.classifier))
    elif isinstance(model, SpanModel):
        _name_outputs(graph, model, _linear(graph, encoded.hidden, "span", model.span))
    elif isinstance(model, AnswerModel):
        _answer(graph, model, encoded)
    else:
        assert model.head == "encoder", model.head
    if exits and model.exits is not None:
        for depth in model.config.exits[:-1]:
            states = encoded.states[depth * model.config.inner_group_num]
            _exit(graph, model, depth, _summary(graph, model, states, _pool(graph, model.encoder, states)))
    graph.output("hidden", encoded.hidden, "batch", "sequence", model.config.hidden_size)
    if encoded.pooled is not None:
        graph.output("pooled", encoded.pooled, "batch", model.config.hidden_size)
    if attentions:
        shape = (model.config.num_attention_heads, "sequence", "sequence")
        graph.output("attentions", _stack(graph, encoded.attentions), "batch", len(encoded.attentions), *shape)
    elif shown:
        maps = _first_tokens(graph, _first_tokens(graph, _stack(graph, encoded.attentions), 3, shown), 4, shown)
        shape = (model.config.num_attention_heads, "shown", "shown")
        graph.output("attentions", maps, "batch", len(encoded.attentions), *shape)
        states = _stack(graph, [_first_tokens(graph, state, 1, shown) for state in encoded.states])
        graph.output("states", states, "batch", len(encoded.states), "shown", model.config.hidden_size)
    return graph.model(f"{model.config.model_type}-{model.head}")


# ---------------------------------------------------------------------------------------------------------------------
# The encoder


class Encoded(NamedTuple):
    """The names of the encoder's values in the graph."""

    hidden: str  # [B, S, H]
    pooled: str | None  # [B, H]
    attentions: list[str]  # per application [B, A, S, S]
    states: list[str]  # input of the first application, then each output [B, S, H]


def add_encoder(graph: Graph, encoder: Encoder) -> Encoded:
    """Inputs, embeddings, every application of the plan, and the pooler if there is one."""
    for name in ("input_ids", "attention_mask", "segment_ids"):
        graph.input(name, "batch", "sequence")
    maps, states = _apply(graph, encoder, encoder.plan, _begin(graph, encoder))
    return Encoded(states[-1], _pool(graph, encoder, states[-1]), maps, states)


def _begin(graph: Graph, encoder: Encoder) -> str:
    """The states before the first application [B, S, H]."""
    hidden = _embeddings(graph, encoder.embeddings)
    if encoder.projection is None:
        return hidden
    return graph.linear(hidden, "encoder.projection", encoder.projection.weight, encoder.projection.bias)


def _apply(
    graph: Graph, encoder: Encoder, plan: Sequence[Application], hidden: str, unfinished: bool = False
) -> tuple[list[str], list[str]]:
    """Attention maps of some applications, and the states before and after each of them.

    `unfinished`: the last one is without its FFN.
    """
    # As in attend_padded: -10000 is added to the logits of padding, so that nothing becomes NaN.
    padding = graph.op("Sub", graph.number(1.0), graph.cast_float("attention_mask"))
    bias = graph.op("Unsqueeze", graph.op("Mul", padding, graph.number(-10000.0)), graph.integers(1, 2))  # [B, 1, 1, S]
    maps, states = [], [hidden]
    for number, step in enumerate(plan, 1):
        attention = encoder.attention[step.attention]
        assert isinstance(attention, Attention)
        hidden, probabilities = _attention(graph, f"encoder.attention.{step.attention}", attention, hidden, bias)
        if not (unfinished and number == len(plan)):
            hidden = _feed_forward(graph, encoder, step, hidden)
        maps.append(probabilities)
        states.append(hidden)
    return maps, states


def _pool(graph: Graph, encoder: Encoder, hidden: str) -> str | None:
    if encoder.pooler is None:
        return None
    first = first_token(graph, hidden)
    return graph.op("Tanh", graph.linear(first, "encoder.pooler", encoder.pooler.weight, encoder.pooler.bias))


# ---------------------------------------------------------------------------------------------------------------------
# A model with exits, in parts


def layers_apart(model: Model) -> int | None:
    """How many layers one part applies, so that all exits can be reached; None if a model cannot be taken apart.

    Its layers must all be the same, and its heads know exits.
    """
    config, encoder = model.config, model.encoder
    inner = config.inner_group_num
    same = len({encoder.plan[begin : begin + inner] for begin in range(0, len(encoder.plan), inner)}) == 1
    if len(config.exits) < 2 or not same or model.head not in (*EXIT_HEADS, "answer"):
        return None
    return math.gcd(*config.exits)


def build_stages(model: Model, form: Form = "fp32", statistics: Statistics | None = None) -> dict[str, Any]:
    """The ONNX models of each part: ids -> states, states -> states some layers on, states -> what each exit says.

    The outputs of exit 3 end in `_3`; heads that are the same at every depth have their plain names. Where the head
    reads [CLS] alone, the last FFN of the layers is a part of its own: an exit needs it for that state only.
    """
    width, count = model.config.hidden_size, layers_apart(model)
    by_first = model.head in ("classification", "multiple-choice") and model.config.pooling == "first"
    assert count is not None
    begin, layers, finish, heads = (Graph(form, statistics) for _ in STAGES)
    for name in ("input_ids", "segment_ids"):
        begin.input(name, "batch", "sequence")
    begin.output("states", _begin(begin, model.encoder), "batch", "sequence", width)
    layers.input("before", "batch", "sequence", width, index=False)
    layers.input("attention_mask", "batch", "sequence")
    plan = model.encoder.plan[: count * model.config.inner_group_num]
    _, states = _apply(layers, model.encoder, plan, "before", unfinished=by_first)
    layers.output("states", states[-1], "batch", "sequence", width)
    if by_first:
        finish.input("before", "batch", "sequence", width, index=False)
        finish.output("states", _feed_forward(finish, model.encoder, plan[-1], "before"), "batch", "sequence", width)
    heads.input("states", "batch", "sequence", width, index=False)
    if model.config.pooling == "mean" or model.head == "answer":
        heads.input("attention_mask", "batch", "sequence")
    pooled = _pool(heads, model.encoder, "states")
    if pooled is not None:
        heads.output("pooled", pooled, "batch", width)
    if isinstance(model, AnswerModel):
        _answer(heads, model, Encoded("states", pooled, [], []))
    else:
        summary = _summary(heads, model, "states", pooled)
        for depth in model.config.exits:
            _exit(heads, model, depth, summary)
    return {
        name: graph.model(f"{model.config.model_type}-{model.head}-{name}")
        for name, graph in zip(STAGES, (begin, layers, finish, heads), strict=True)
        if name != "finish" or by_first
    }


def _summary(graph: Graph, model: Model, states: str, pooled: str | None) -> str:
    """What a linear head reads of the states [B, S, H]: all of them, or one vector [B, H]."""
    if model.head in ("span", "token-classification"):
        return states
    summary = _mean_tokens(graph, states) if model.config.pooling == "mean" else pooled
    assert summary is not None
    return summary


def _exit(graph: Graph, model: Model, depth: int, summary: str) -> None:
    """Add the outputs of the head of an exit."""
    assert isinstance(model, (_Classifier, SpanModel))
    full = model.span if isinstance(model, SpanModel) else model.classifier
    own = None if model.exits is None or str(depth) not in model.exits else model.exits[str(depth)]
    layer, name = (full, "full") if own is None else (own, f"exits.{depth}")
    assert isinstance(layer, nn.Linear)
    _name_outputs(graph, model, _linear(graph, summary, name, layer), f"_{depth}")


def _name_outputs(graph: Graph, model: Model, said: str, ending: str = "") -> None:
    """Add the outputs of a linear head to the graph."""
    labels = model.config.num_labels
    if model.head == "span":
        both = graph.ops("Split", 2, said, axis=-1, num_outputs=2)
        for name, logits in zip(("start", "end"), both, strict=True):
            graph.output(f"{name}{ending}", graph.op("Squeeze", logits, graph.integers(-1)), "batch", "sequence")
    elif model.head == "token-classification":
        graph.output(f"logits{ending}", said, "batch", "sequence", labels)
    elif model.head == "multiple-choice":  # one number per option; which options belong together, the caller knows
        graph.output(f"logits{ending}", graph.op("Squeeze", said, graph.integers(-1)), "batch")
    else:
        graph.output(f"logits{ending}", said, "batch", labels)


def _stack(graph: Graph, values: list[str]) -> str:
    """[B, ...] each -> [B, N, ...]."""
    return graph.op("Concat", *(graph.op("Unsqueeze", value, graph.integers(1)) for value in values), axis=1)


def _first_tokens(graph: Graph, x: str, axis: int, count: int) -> str:
    return graph.op("Slice", x, graph.integers(0), graph.integers(count), graph.integers(axis))


def first_token(graph: Graph, hidden: str) -> str:
    """The states of [CLS]: [B, S, H] -> [B, H]."""
    return graph.op("Gather", hidden, graph.array("first", np.array(0, np.int64)), axis=1)


def word_table(graph: Graph, embeddings: Embeddings) -> tuple[str, str | None]:
    """The word embeddings [V, E], once for looking up and predicting; where they are rounded also their scales [V]."""
    return graph.table(WORD, to_numpy(embeddings.word.weight), words=True)


def _look_up(graph: Graph, table: str, scale: str | None, numbers: str) -> str:
    rows = graph.op("Gather", table, numbers)
    if scale is None:
        return rows
    of_each = graph.op("Unsqueeze", graph.op("Gather", scale, numbers), graph.integers(-1))
    return graph.op("Mul", graph.cast_float(rows), of_each)


def _embeddings(graph: Graph, embeddings: Embeddings) -> str:
    words = _look_up(graph, *word_table(graph, embeddings), "input_ids")  # [B, S, E]
    prefix = "encoder.embeddings"
    if embeddings.projection is not None:
        words = graph.linear(words, f"{prefix}.projection", embeddings.projection.weight)  # [B, S, H]
    table, scale = graph.table(f"{prefix}.position", to_numpy(embeddings.position.weight))
    if scale is not None:
        table = graph.op("Mul", graph.cast_float(table), graph.op("Unsqueeze", scale, graph.integers(-1)))
    positions = graph.op("Slice", table, graph.integers(0), graph.size("input_ids", 1), graph.integers(0))  # [S, E]
    segments = graph.op(
        "Gather", graph.array(f"{prefix}.segment.weight", to_numpy(embeddings.segment.weight)), "segment_ids"
    )
    return graph.norm(graph.op("Add", graph.op("Add", words, positions), segments), f"{prefix}.norm", embeddings.norm)


def _attention(graph: Graph, name: str, block: Attention, hidden: str, bias: str) -> tuple[str, str]:
    heads, width = block.num_heads, block.output.in_features
    scale = (width // heads) ** -0.5
    # One product for all three; the queries contain the logits' scale.
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


def _feed_forward(graph: Graph, encoder: Encoder, step: Application, hidden: str) -> str:
    name, block = f"encoder.ffn.{step.ffn}", encoder.ffn[step.ffn]
    assert isinstance(block, FeedForward)
    inner = graph.linear(hidden, f"{name}.input", block.input.weight, block.input.bias)
    inner = graph.activation(inner, encoder.config.hidden_act)
    output = graph.linear(inner, f"{name}.output", block.output.weight, block.output.bias)
    return graph.norm(graph.op("Add", hidden, output), f"{name}.norm", block.norm)


# ---------------------------------------------------------------------------------------------------------------------
# The heads


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
    return graph.op("Add", graph.product(narrow, matrix, scale), bias)


def _pooled_classifier(graph: Graph, model: ClassificationModel | MultipleChoiceModel, encoded: Encoded) -> None:
    summary = _mean_tokens(graph, encoded.hidden) if model.config.pooling == "mean" else encoded.pooled
    assert summary is not None
    _name_outputs(graph, model, _linear(graph, summary, "classifier", model.classifier))


def _mean_tokens(graph: Graph, hidden: str) -> str:
    """The mean over all tokens except padding: [B, S, H] -> [B, H]."""
    weights = graph.op("Unsqueeze", graph.cast_float("attention_mask"), graph.integers(-1))  # [B, S, 1]
    total = graph.op("ReduceSum", graph.op("Mul", hidden, weights), graph.integers(1), keepdims=0)
    return graph.op("Div", total, graph.op("ReduceSum", weights, graph.integers(1), keepdims=0))


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

    beam = graph.op("Min", graph.integers(BEAM), graph.size("attention_mask", 1))
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
