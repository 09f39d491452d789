"""The encoder of the paper and the released code: one class for ALBERT and BERT.

Shapes: B batch, S sequence, T tokens of a packed batch, N sequences of it, E embedding, H hidden, A heads, D = H / A.
Input is padded, [B, S] with a mask, or packed, [T] with the sequences' starts. Written `*` where both fit.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.errors import InputError
from litebert.model.config import Application, ModelConfig, check_depth, num_blocks, plan_of

# (query, key, value), each [*, A, D] -> context [*, A, D]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
# (hidden, starts, max_length, positions, stops) -> after each of so many applications, in rising order, the hidden
# states, [T, H] or [P, H] at positions, and those of each [CLS], [N, H]
Layers = Callable[[Tensor, Tensor, int, Tensor | None, Sequence[int]], list[tuple[Tensor, Tensor]]]


class EncoderOutput(NamedTuple):
    """The encoder's output; `pooled` is None without a pooler, the last two are None unless requested."""

    hidden: Tensor  # [*, H]
    pooled: Tensor | None  # [B or N, H]
    hidden_states: tuple[Tensor, ...] | None = None  # input of the first application, then each output
    attentions: tuple[Tensor, ...] | None = None  # per application [B, A, S, S]


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation function of a config's `hidden_act`."""
    if name == "gelu":
        return F.gelu
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return functools.partial(F.gelu, approximate="tanh")
    assert name == "relu", name
    return F.relu


class Embeddings(nn.Module):
    """Word + position + segment, LayerNorm, dropout: all of width E, or of H where the words are projected first."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        # No padding_idx: the released pad row is initialised and trained like any other.
        self.word = nn.Embedding(config.vocab_size, config.embedding_size)
        width = config.embedding_norm_size
        self.projection = nn.Linear(config.embedding_size, width, bias=False) if config.project_words_only else None
        self.position = nn.Embedding(config.max_position_embeddings, width)
        self.segment = nn.Embedding(config.type_vocab_size, width)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        words = self.word(input_ids)
        if self.projection is not None:
            words = self.projection(words)
        summed = words + self.position(position_ids) + self.segment(segment_ids)
        return self.dropout(self.norm(summed))  # [*, E], or [*, H]


class Attention(nn.Module):
    """Self-attention block with its output projection, dropout, residual and LayerNorm."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each [*, A, D]."""
        heads = (self.num_heads, -1)
        return (
            self.query(hidden).unflatten(-1, heads),
            self.key(hidden).unflatten(-1, heads),
            self.value(hidden).unflatten(-1, heads),
        )

    def merge(self, hidden: Tensor, context: Tensor) -> Tensor:
        """The heads' contexts [*, A, D] back into the hidden states [*, H]."""
        return self.norm(hidden + self.dropout(self.output(context.flatten(-2))))

    def forward(self, hidden: Tensor, attend: Attend) -> Tensor:
        return self.merge(hidden, attend(*self.project(hidden)))


class FeedForward(nn.Module):
    """FFN block with its dropout (transformers lost it in 2020), residual and LayerNorm."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.input = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation(config.hidden_act)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden + self.dropout(self.output(self.activation(self.input(hidden)))))


class Encoder(nn.Module):
    """Embeddings, projection, the planned applications of attention and FFN blocks, and a pooler."""

    def __init__(self, config: ModelConfig, pooler: bool = True):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        # Linear with bias, nothing after it; it exists only where E != H (or where the file has one).
        after = config.embedding_projection and not config.project_words_only
        self.projection = nn.Linear(config.embedding_size, config.hidden_size) if after else None
        attention_blocks, ffn_blocks = num_blocks(config)
        self.attention = nn.ModuleList(Attention(config) for _ in range(attention_blocks))
        self.ffn = nn.ModuleList(FeedForward(config) for _ in range(ffn_blocks))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if pooler else None
        self.plan = plan_of(config)
        self.fast_layers: Layers | None = None  # a faster way through the blocks, see fast/layers.py
        self.keeping: Callable[[], AbstractContextManager[None]] | None = None  # around a training pass, see adapter.py
        self.recompute = False  # keep only each layer's input for the backward pass, and run it forward once more there
        initialize(self, config.initializer_range)

    def set_depth(self, layers: int | None = None) -> None:
        """Apply the blocks as a model of `layers` layers would (None: the config's own depth)."""
        self.plan = plan_of(self.config, layers)

    def stop_after(self, layers: int | None = None) -> None:
        """Stop after the first `layers` layers (None: after all of them).

        With blocks shared by all layers this is `set_depth`; several groups are cut off here, and rearranged there.
        """
        self.plan = plan_of(self.config)[: None if layers is None else _num_applications(self.config, layers)]

    def at_depths(
        self, input_ids: Tensor, depths: Sequence[int], positions: Tensor | None = None, **inputs: Any
    ) -> list[EncoderOutput]:
        """The output after each of these numbers of layers, from one pass."""
        stops = [_num_applications(self.config, depth) for depth in depths]
        if inputs.get("starts") is not None and self._goes_fast:
            return self._run_fast(input_ids, stops, positions, **inputs)
        states = self(input_ids, **inputs, output_hidden_states=True).hidden_states
        outputs = []
        for stop in stops:
            hidden = states[stop]
            pooled = self._pool(first_tokens(hidden, inputs.get("starts")))
            if positions is not None:
                hidden = hidden.flatten(end_dim=-2)[positions]  # [P, H]
            outputs.append(EncoderOutput(hidden, pooled))
        return outputs

    def forward(
        self,
        input_ids: Tensor,  # [B, S] or packed [T]
        segment_ids: Tensor | None = None,  # like input_ids; all 0 where not given
        attention_mask: Tensor | None = None,  # [B, S], 1 = real token
        position_ids: Tensor | None = None,  # like input_ids; needed for packed input
        starts: Tensor | None = None,  # packed: [N + 1], sequence i is input_ids[starts[i]:starts[i + 1]]
        max_length: int | None = None,  # packed: no sequence is longer (a plain int, so that nothing waits for the GPU)
        positions: Tensor | None = None,  # [P] of the flattened tokens: only their hidden states are returned, [P, H]
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        token_type_ids: Tensor | None = None,  # the Hub's name for segment_ids
    ) -> EncoderOutput:
        if starts is not None and output_attentions:
            raise InputError("output_attentions: only for padded input")
        if starts is not None and self._goes_fast and not output_hidden_states:
            read = (segment_ids, position_ids, token_type_ids)
            return self._run_fast(input_ids, [len(self.plan)], positions, starts, max_length, *read)[0]

        hidden = self._embed(input_ids, segment_ids, position_ids, starts, token_type_ids)
        maps: list[Tensor] | None = [] if output_attentions else None
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        if starts is not None:
            attend = attend_packed(starts, max_length or self.config.max_position_embeddings, dropout)
        else:
            attend = attend_padded(attention_mask, dropout, maps)
        states = [hidden]
        with self.keeping() if self.keeping is not None and torch.is_grad_enabled() else contextlib.nullcontext():
            for step in self.plan:
                if self.recompute and torch.is_grad_enabled():
                    hidden = checkpoint(self._layer, step, hidden, attend, use_reentrant=False)  # as dropout drew
                else:
                    hidden = self._layer(step, hidden, attend)
                if output_hidden_states:
                    states.append(hidden)
        pooled = self._pool(first_tokens(hidden, starts))
        if positions is not None:
            hidden = hidden.flatten(end_dim=-2)[positions]  # [P, H]
        return EncoderOutput(
            hidden,
            pooled,
            tuple(states) if output_hidden_states else None,
            tuple(maps) if maps is not None else None,
        )

    def _embed(
        self,
        input_ids: Tensor,
        segment_ids: Tensor | None,
        position_ids: Tensor | None,
        starts: Tensor | None,
        token_type_ids: Tensor | None,
    ) -> Tensor:
        """The input of the first application, [*, H]."""
        if token_type_ids is not None:
            if segment_ids is not None:
                raise InputError("segment_ids and token_type_ids are the same input; give one")
            segment_ids = token_type_ids
        check_input(self.config, input_ids, segment_ids, position_ids, starts)
        if segment_ids is None:
            segment_ids = torch.zeros_like(input_ids)
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[-1], device=input_ids.device).expand_as(input_ids)
        hidden: Tensor = self.embeddings(input_ids, segment_ids, position_ids)
        return hidden if self.projection is None else self.projection(hidden)  # [*, E] -> [*, H]

    def _run_fast(
        self,
        input_ids: Tensor,
        stops: Sequence[int],
        positions: Tensor | None,
        starts: Tensor,
        max_length: int | None = None,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> list[EncoderOutput]:
        """The output after each of these numbers of applications, through the fast layers."""
        assert self.fast_layers is not None
        hidden = self._embed(input_ids, segment_ids, position_ids, starts, token_type_ids)
        rising = sorted(set(stops))
        longest = max_length or self.config.max_position_embeddings
        found = self.fast_layers(hidden, starts, longest, positions, rising)
        return [EncoderOutput(states, self._pool(first)) for states, first in (found[rising.index(n)] for n in stops)]

    def _layer(self, step: Application, hidden: Tensor, attend: Attend) -> Tensor:
        hidden = self.attention[step.attention](hidden, attend)
        output: Tensor = self.ffn[step.ffn](hidden)
        return output

    def _pool(self, first: Tensor) -> Tensor | None:
        return None if self.pooler is None else torch.tanh(self.pooler(first))

    @property
    def _goes_fast(self) -> bool:
        """Whether packed input goes through the fast layers, which drop nothing."""
        config = self.config
        drops = self.training and (config.hidden_dropout_prob > 0 or config.attention_probs_dropout_prob > 0)
        return self.fast_layers is not None and not drops


def _num_applications(config: ModelConfig, layers: int) -> int:
    check_depth(config, layers)
    return layers * config.inner_group_num


def first_tokens(hidden: Tensor, starts: Tensor | None) -> Tensor:
    """The states of each sequence's [CLS]: [B, H], or [N, H] of a packed batch (unused sequences give any row)."""
    if starts is None:
        return hidden[:, 0]
    return hidden[starts[:-1].clamp(max=hidden.shape[0] - 1)]


def mean_tokens(hidden: Tensor, starts: Tensor | None, mask: Tensor | None) -> Tensor:
    """The mean of each sequence's states: [B, S, H] -> [B, H], or packed [T, H] -> [N, H] (0 for an unused one)."""
    if starts is None:
        weights = torch.ones_like(hidden[..., :1]) if mask is None else mask[..., None].to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)
    rows = torch.searchsorted(starts, torch.arange(len(hidden), device=starts.device, dtype=starts.dtype), right=True)
    sums = hidden.new_zeros(len(starts) + 1, hidden.shape[1], dtype=torch.float32)
    sums = sums.index_add(0, rows, hidden.float())[1:-1]  # row 0 and the last hold what belongs to no sequence
    return (sums / starts.diff().clamp(min=1)[:, None]).to(hidden.dtype)


def pool_tokens(hidden: Tensor, pooling: str, starts: Tensor | None, mask: Tensor | None) -> Tensor:
    """One vector per text, [B or N, H]: the mean of its tokens, or the state of [CLS] ("first")."""
    return first_tokens(hidden, starts) if pooling == "first" else mean_tokens(hidden, starts, mask)


def pad_packed(values: Tensor, starts: Tensor, positions: Tensor, size: int, fill: float = 0) -> Tensor:
    """Packed values [T, ...] as rows [N, size, ...], one per sequence."""
    rows = torch.searchsorted(starts, torch.arange(len(values), device=values.device, dtype=starts.dtype), right=True)
    flat = values.new_full(((len(starts) - 1) * size, *values.shape[1:]), fill)
    return flat.index_copy(0, (rows - 1) * size + positions, values).unflatten(0, (-1, size))


def attend_padded(mask: Tensor | None, dropout: float, maps: list[Tensor] | None) -> Attend:
    """Attention over [B, S, A, D]; with `maps`, the probabilities are appended there."""
    # As released: added to the logits, finite, on keys only; a fully masked row stays free of NaN.
    bias = None if mask is None else (1.0 - mask[:, None, None, :].float()) * -10000.0  # [B, 1, 1, S]

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # [B, A, S, D]
        additive = None if bias is None else bias.to(query.dtype)
        if maps is None:
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=additive, dropout_p=dropout)
            return context.transpose(1, 2)
        logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, A, S, S]
        probabilities = (logits if additive is None else logits + additive).softmax(-1)
        maps.append(probabilities)
        return (F.dropout(probabilities, dropout) @ value).transpose(1, 2)

    return attend


def attend_packed(starts: Tensor, max_length: int, dropout: float) -> Attend:
    """Attention over [T, A, D], within each sequence, without padding."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if query.is_cuda:
            # The GPU's variable-length kernel takes half precision and no dropout.
            if dropout == 0.0 and query.dtype in (torch.bfloat16, torch.float16):
                return attend_varlen(query, key, value, starts, max_length)
            return attend_in_rows(query, key, value, starts, max_length, dropout)
        runs = equal_runs(starts)
        sizes = [length * count for length, count in runs]
        # For bf16 on a CPU, torch's fused kernel has a slow backward pass: 3.6x at 180 tokens.
        plainly = query.dtype == torch.bfloat16 and query.requires_grad
        attend_alike = attend_plainly if plainly else F.scaled_dot_product_attention
        pieces = []
        for (length, count), *parts in zip(runs, *(x.split(sizes) for x in (query, key, value)), strict=True):
            if length:
                q, k, v = (x.unflatten(0, (count, length)).transpose(1, 2) for x in parts)  # [count, A, S, D]
                context = attend_alike(q, k, v, dropout_p=dropout)
                pieces.append(context.transpose(1, 2).flatten(0, 1))
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    return attend


def equal_runs(starts: Tensor) -> list[tuple[int, int]]:
    """Neighbours of equal length, as (length, count): on a CPU they attend together."""
    return [(length, len(list(run))) for length, run in itertools.groupby(starts.diff().tolist())]


def attend_plainly(query: Tensor, key: Tensor, value: Tensor, dropout_p: float) -> Tensor:
    """Attention over [B, A, S, D] as the formula has it."""
    logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, A, S, S]
    return F.dropout(logits.softmax(-1).to(value.dtype), dropout_p) @ value


def attend_varlen(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, max_length: int) -> Tensor:
    """The GPU's kernel for packed sequences [T, A, D] in half precision."""
    from torch.nn.attention.varlen import varlen_attn  # loads torch._dynamo: more than a second, and only GPUs use it

    width = query.shape[-1]
    # It takes heads of a multiple of 8 only, and ALBERT-tiny's are 26 wide: zeros change no product.
    query, key, value = (F.pad(x, (0, -width % 8)) if width % 8 else x for x in (query, key, value))
    bounds = (starts, starts, max_length, max_length)
    context: Tensor = varlen_attn(query, key, value, *bounds, scale=1 / math.sqrt(width))  # type: ignore[assignment]
    return context[..., :width]


def attend_in_rows(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, max_length: int, dropout: float
) -> Tensor:
    """Packed attention [T, A, D] by way of padded rows [N, max_length, A, D]; no length is asked of the device."""
    num_tokens = len(query)
    columns = torch.arange(max_length, device=query.device)
    inside = columns < starts.diff()[:, None]  # [N, max_length]
    places = (starts[:-1, None] + columns).clamp(max=num_tokens - 1).long()
    query, key, value = (x[places].transpose(1, 2) for x in (query, key, value))  # [N, A, max_length, D]
    # An empty sequence looks at anything rather than at nothing, which would be NaN; it is never read.
    looked_at = (inside | (starts.diff() == 0)[:, None])[:, None, None, :]
    rows = F.scaled_dot_product_attention(query, key, value, attn_mask=looked_at, dropout_p=dropout).transpose(1, 2)
    tokens = torch.arange(num_tokens, device=starts.device, dtype=starts.dtype)
    row = torch.searchsorted(starts[1:].contiguous(), tokens, right=True)
    return rows[row, tokens - starts[row]]


def initialize(module: nn.Module, std: float) -> None:
    """Truncated normal, cut at two sigma, for every matrix; biases 0, LayerNorms 1 and 0, as released."""
    for child in module.modules():
        if isinstance(child, (nn.Linear, nn.Embedding)):
            # The bounds are absolute in torch: the default of +-2 would cut nothing at std 0.02.
            nn.init.trunc_normal_(child.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(child, nn.Linear) and child.bias is not None:
            nn.init.zeros_(child.bias)


def check_input(
    config: ModelConfig,
    input_ids: Tensor,
    segment_ids: Tensor | None,
    position_ids: Tensor | None,
    starts: Tensor | None,
) -> None:
    """Refuse input that would be an index error, which on a GPU kills the process."""
    packed = starts is not None
    if input_ids.ndim != (1 if packed else 2):
        kind = "packed input ids are [tokens]" if packed else "input ids are [batch, sequence]"
        raise InputError(f"{kind}, got {list(input_ids.shape)}")
    if input_ids.numel() == 0:
        raise InputError("input ids are empty")
    if packed and position_ids is None:
        raise InputError("packed input needs position_ids, which restart in every sequence")
    if not packed and input_ids.shape[1] > config.max_position_embeddings:
        raise InputError(
            f"the sequence has {input_ids.shape[1]} tokens, the model takes {config.max_position_embeddings} "
            "(max_position_embeddings); split it into windows"
        )
    if input_ids.device.type != "cpu" or torch.compiler.is_compiling():
        return  # reading the values would wait for the GPU; the caller has checked them
    for name, ids, size in (
        ("input_ids", input_ids, config.vocab_size),
        ("segment_ids", segment_ids, config.type_vocab_size),
        ("position_ids", position_ids, config.max_position_embeddings),
    ):
        if ids is None:
            continue
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= size:
            wrong = low if low < 0 else high
            raise InputError(f"{name} holds {wrong}; the model takes 0 to {size - 1}")
    if starts is not None:
        _check_starts(starts, len(input_ids))


def _check_starts(starts: Tensor, num_tokens: int) -> None:
    if starts.ndim != 1 or len(starts) < 2 or starts.is_floating_point():
        raise InputError(f"starts must be [sequences + 1] whole numbers, got {list(starts.shape)} of {starts.dtype}")
    if int(starts[0]) != 0 or int(starts[-1]) != num_tokens:
        raise InputError(
            f"starts run from {int(starts[0])} to {int(starts[-1])}; they must run from 0 to the number of packed "
            f"tokens, {num_tokens}"
        )
    if bool((starts.diff() < 0).any()):
        raise InputError("starts must never decrease: sequence i is tokens starts[i] to starts[i + 1]")
