"""The encoder's layers with hand-written gradients: the results of `encoder.py`, near the hardware's limit.

What makes them fast, for a packed batch without dropout:

- Half-precision working weights are made once per change of the parameters, not once per application, with queries,
  keys and values as one matrix.
- Between two matrix products lies one kernel (`triton_ops.py`), and no tensor is read twice for a bias's gradient.
- A layer's backward hands on two gradients, of its branch and of its residual, and the next kernel adds them.
- Weight gradients of all applications of a shared layer are summed in one float32 tensor by the matrix product itself.
- The last application is computed only where its output is used: at the positions to predict and each [CLS]. Keys and
  values are needed for all tokens; queries, the output projection and the FFN are not.
- The activation is recomputed in the backward pass, where its input is read anyway. `recompute` keeps only the input of
  each layer.

Shapes: T packed tokens, N sequences, H hidden, A heads, D = H / A, I intermediate, Q rows asked for in the last layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from litebert.model.encoder import Attention, Encoder, FeedForward
from litebert.model.fast import plain_ops
from litebert.model.fast.plain_ops import Packing

HEAD_WIDTHS = (16, 32, 64, 128)  # that the attention kernels know
# A gradient in two parts that the next kernel adds: of the branch, and of the residual beside it.
Pair = tuple[Tensor, Tensor | None]


class AttentionWeights(NamedTuple):
    """An attention block's working weights, or its gradients."""

    qkv: Tensor  # [3 H, H]: queries, keys and values, one under the other
    qkv_bias: Tensor
    output: Tensor  # [H, H]
    output_bias: Tensor
    norm: Tensor
    norm_bias: Tensor

    @classmethod
    def of(cls, block: Attention) -> AttentionWeights:
        """The block's parameters, merged."""
        parts = (block.query, block.key, block.value)
        return cls(
            torch.cat([part.weight for part in parts]),
            torch.cat([part.bias for part in parts]),
            block.output.weight,
            block.output.bias,
            block.norm.weight,
            block.norm.bias,
        )

    def by_parameter(self) -> list[Tensor]:
        """In the order of `parameters_of`, queries, keys and values apart again."""
        q, k, v = self.qkv.chunk(3)
        q_bias, k_bias, v_bias = self.qkv_bias.chunk(3)
        return [q, q_bias, k, k_bias, v, v_bias, self.output, self.output_bias, self.norm, self.norm_bias]


class FeedForwardWeights(NamedTuple):
    """An FFN block's working weights."""

    input: Tensor  # [I, H]
    input_bias: Tensor
    output: Tensor  # [H, I]
    output_bias: Tensor
    norm: Tensor
    norm_bias: Tensor

    @classmethod
    def of(cls, block: FeedForward) -> FeedForwardWeights:
        """The block's parameters."""
        return cls(
            block.input.weight,
            block.input.bias,
            block.output.weight,
            block.output.bias,
            block.norm.weight,
            block.norm.bias,
        )


@dataclass
class AttentionSums:
    """An attention block's gradients, summed over its applications."""

    qkv: Tensor
    output: Tensor
    biases: Any  # three vectors: of queries, keys and values
    norm: Any  # three vectors: the LayerNorm's weight and bias, the output projection's bias

    def by_parameter(self) -> list[Tensor]:
        """In the order of `parameters_of`."""
        norm, norm_bias, output_bias = self.norm.result()
        biases = self.biases.result().flatten()
        return AttentionWeights(self.qkv, biases, self.output, output_bias, norm, norm_bias).by_parameter()


@dataclass
class FeedForwardSums:
    """An FFN block's gradients, summed over its applications."""

    input: Tensor
    output: Tensor
    bias: Any  # one vector: the input projection's bias
    norm: Any  # three vectors, as above

    def by_parameter(self) -> list[Tensor]:
        """In the order of `parameters_of`."""
        norm, norm_bias, output_bias = self.norm.result()
        return [self.input, self.bias.result()[0], self.output, output_bias, norm, norm_bias]


def parameters_of(block: Attention | FeedForward) -> list[nn.Parameter]:
    """A block's parameters in the order of its gradients."""
    if isinstance(block, FeedForward):
        parts: tuple[nn.Module, ...] = (block.input, block.output, block.norm)
    else:
        parts = (block.query, block.key, block.value, block.output, block.norm)
    return [parameter for part in parts for parameter in part.parameters()]  # weight, then bias


@dataclass
class AttentionSaved:
    """What an attention block's backward needs."""

    hidden: Tensor  # [T, H] its input
    rows: Tensor | None  # [Q] of the input that asked, None for all
    q: Tensor  # [Q, A, D]
    k: Tensor  # [T, A, D]
    v: Tensor
    context: Tensor  # [Q, A, D]
    lse: Tensor  # [A, Q]
    normed: Tensor  # [Q, H]
    rstd: Tensor  # [Q]


@dataclass
class FeedForwardSaved:
    """What an FFN block's backward needs."""

    hidden: Tensor  # [Q, H] its input
    inner: Tensor  # [Q, I] before the activation
    normed: Tensor
    rstd: Tensor


@dataclass(frozen=True)
class Asked:
    """The rows used after the last layer, sorted by sequence.

    Entries beyond the last token are filler: they come last, belong to no sequence and carry no gradient.
    """

    rows: Tensor  # [Q] indices of tokens, ascending
    starts: Tensor  # [N + 1] of them per sequence
    place: Tensor  # [Q]: where the i-th row that was asked for stands among `rows`

    @classmethod
    def at(cls, positions: Tensor, starts: Tensor, num_tokens: int) -> Asked:
        """`positions` to predict, where 0 (always a [CLS], never masked) is an unused place, and every [CLS]."""
        predicted = torch.where(positions > 0, positions, num_tokens)
        rows, order = torch.cat([predicted, starts[:-1].long()]).sort(stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        return cls(rows.clamp(max=num_tokens - 1), torch.searchsorted(rows, starts.long()).int(), place)


class FastLayers:
    """Runs an encoder's planned applications; the encoder keeps its parameters, this holds working copies of them."""

    def __init__(self, encoder: Encoder, dtype: torch.dtype, ops: Any = plain_ops, recompute: bool = False):
        config = encoder.config
        self.encoder, self.dtype, self.ops, self.recompute = encoder, dtype, ops, recompute
        self.heads, self.eps = config.num_attention_heads, config.layer_norm_eps
        self.tanh = config.hidden_act != "gelu"
        self._exact = torch.float64 if dtype == torch.float64 else torch.float32  # what gradients are summed in
        self._made_from: list[tuple[int, int]] = []
        self._attention: list[AttentionWeights] = []
        self._ffn: list[FeedForwardWeights] = []

    @staticmethod
    def fits(encoder: Encoder) -> bool:
        """Whether this model's layers can be run here: a GELU, heads of a width that the kernels know, no adapter."""
        config = encoder.config
        if any(type(module).__name__ == "AdaptedLinear" for module in encoder.modules()):
            return False  # its branch is not in the matrices that the kernels read
        width = config.hidden_size // config.num_attention_heads
        return config.hidden_act != "relu" and width in HEAD_WIDTHS

    def __call__(
        self, hidden: Tensor, starts: Tensor, max_length: int, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Hidden states after the last layer, [T, H] or [P, H] at `positions`, and those of each [CLS], [N, H]."""
        self._refresh()
        asked = None if positions is None else Asked.at(positions, starts, len(hidden))
        hidden = hidden.to(self.dtype)
        if torch.is_grad_enabled():
            hidden = _Layers.apply(hidden, self, starts, max_length, asked, *self._parameters())
        else:
            hidden, _ = self.forward(hidden, starts, max_length, asked, keep=False)
        if asked is None:
            return hidden, hidden[starts[:-1].clamp(max=len(hidden) - 1)]
        assert positions is not None
        hidden = hidden.index_select(0, asked.place)  # back in the order of asking
        return hidden[: len(positions)], hidden[len(positions) :]

    def forget(self) -> None:
        """Refresh the working weights at the next call, even if no parameter changes until then."""
        self._made_from = []

    # -- forward -------------------------------------------------------------------------------------------------------

    def forward(
        self, hidden: Tensor, starts: Tensor, max_length: int, asked: Asked | None, keep: bool
    ) -> tuple[Tensor, list[Any]]:
        """All applications; with `keep`, also what the backward pass needs of each."""
        saved: list[Any] = []
        plan = self.encoder.plan
        for number, step in enumerate(plan):
            rows = asked if number == len(plan) - 1 else None
            attention, ffn = self._attention[step.attention], self._ffn[step.ffn]
            before = hidden
            hidden, first = self.attend(hidden, attention, starts, max_length, rows)
            hidden, second = self.feed_forward(hidden, ffn)
            if keep:
                saved.append(before if self.recompute else (first, second))
        return hidden, saved

    def attend(
        self, hidden: Tensor, weights: AttentionWeights, starts: Tensor, max_length: int, asked: Asked | None
    ) -> tuple[Tensor, AttentionSaved]:
        """An attention block: [T, H] -> [T, H], or [Q, H] at the rows asked for."""
        ops, width = self.ops, hidden.shape[1]
        if asked is None:
            rows, asking = None, hidden
            q, k, v = self._heads(ops.linear(hidden, weights.qkv, weights.qkv_bias))
        else:
            rows, asking = asked.rows, hidden[asked.rows]
            of_queries, of_rest = slice(None, width), slice(width, None)
            (q,) = self._heads(ops.linear(asking, ops.cut(weights.qkv, of_queries), weights.qkv_bias[of_queries]))
            k, v = self._heads(ops.linear(hidden, ops.cut(weights.qkv, of_rest), weights.qkv_bias[of_rest]))
        context, lse = ops.attend(q, k, v, _packing(starts, max_length, asked))
        branch = ops.linear(context.flatten(1), weights.output)
        out, normed, rstd = ops.add_norm(asking, branch, weights.output_bias, weights.norm, weights.norm_bias, self.eps)
        return out, AttentionSaved(hidden, rows, q, k, v, context, lse, normed, rstd)

    def feed_forward(self, hidden: Tensor, weights: FeedForwardWeights) -> tuple[Tensor, FeedForwardSaved]:
        """An FFN block."""
        ops = self.ops
        inner = ops.linear(hidden, weights.input, weights.input_bias)
        branch = ops.linear(ops.gelu(inner, self.tanh), weights.output)
        out, normed, rstd = ops.add_norm(hidden, branch, weights.output_bias, weights.norm, weights.norm_bias, self.eps)
        return out, FeedForwardSaved(hidden, inner, normed, rstd)

    def _heads(self, projected: Tensor) -> tuple[Tensor, ...]:
        """[T, n H] -> n views [T, A, D]."""
        parts = projected.shape[1] // self.encoder.config.hidden_size
        return projected.view(len(projected), parts, self.heads, -1).unbind(1)

    # -- backward ------------------------------------------------------------------------------------------------------

    def backward(
        self, grad: Tensor, saved: list[Any], starts: Tensor, max_length: int, asked: Asked | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The gradients of the input and of every parameter, float32 (or float64), summed over the applications."""
        attention_sums = [self._attention_sums(weights) for weights in self._attention]
        ffn_sums = [self._ffn_sums(weights) for weights in self._ffn]
        pair: Pair = (grad, None)
        for number, step in reversed(list(enumerate(self.encoder.plan))):
            kept = saved.pop()
            attention, ffn = self._attention[step.attention], self._ffn[step.ffn]
            rows = asked if number == len(self.encoder.plan) - 1 else None
            if self.recompute:
                hidden, first = self.attend(kept, attention, starts, max_length, rows)
                _, second = self.feed_forward(hidden, ffn)
            else:
                first, second = kept
            pair = self.feed_forward_backward(pair, second, ffn, ffn_sums[step.ffn])
            packing = _packing(starts, max_length, rows)
            pair = self.attend_backward(pair, first, attention, attention_sums[step.attention], packing)
        first_part, second_part = pair
        grad = first_part if second_part is None else first_part + second_part
        sums: Iterable[AttentionSums | FeedForwardSums] = (*attention_sums, *ffn_sums)
        return grad, [tensor for block in sums for tensor in block.by_parameter()]

    def feed_forward_backward(
        self, pair: Pair, saved: FeedForwardSaved, weights: FeedForwardWeights, sums: FeedForwardSums
    ) -> Pair:
        """Adds the FFN block's gradients to `sums`; returns those of its input, branch and residual."""
        ops = self.ops
        summed = ops.add_norm_backward(*pair, saved.normed, saved.rstd, weights.norm, sums.norm)
        inner = saved.inner
        grad = ops.linear_backward(summed, weights.output)
        ops.gelu_backward(inner, grad, self.tanh, sums.bias)  # inner is now the activation
        ops.add_weight_gradient(sums.output, summed, inner)
        ops.add_weight_gradient(sums.input, grad, saved.hidden)
        return ops.linear_backward(grad, weights.input), summed

    def attend_backward(
        self, pair: Pair, saved: AttentionSaved, weights: AttentionWeights, sums: AttentionSums, packing: Packing
    ) -> Pair:
        """Adds the attention block's gradients to `sums`; returns those of its input, branch and residual."""
        ops, width = self.ops, saved.hidden.shape[1]
        summed = ops.add_norm_backward(*pair, saved.normed, saved.rstd, weights.norm, sums.norm)
        ops.add_weight_gradient(sums.output, summed, saved.context.flatten(1))
        grad = ops.linear_backward(summed, weights.output).view_as(saved.context)

        # One buffer for the gradients of queries, keys and values, or two where few rows ask.
        parts = 3 if saved.rows is None else 2
        joint = torch.empty(len(saved.hidden), parts * width, dtype=grad.dtype, device=grad.device)
        dq = joint if saved.rows is None else torch.empty_like(summed)
        out = self._heads(joint) if saved.rows is None else (*self._heads(dq), *self._heads(joint))
        ops.attend_backward(grad, saved.q, saved.k, saved.v, saved.context, saved.lse, packing, out, sums.biases)
        if saved.rows is None:
            ops.add_weight_gradient(sums.qkv, joint, saved.hidden)
            return ops.linear_backward(joint, weights.qkv), summed
        asking = saved.hidden[saved.rows]
        ops.add_weight_gradient(sums.qkv[:width], dq, asking)
        ops.add_weight_gradient(sums.qkv[width:], joint, saved.hidden)
        total = ops.linear_backward(joint, ops.cut(weights.qkv, slice(width, None)))
        of_asking = ops.linear_backward(dq, ops.cut(weights.qkv, slice(None, width)))
        total.index_add_(0, saved.rows, of_asking + summed)
        return total, None

    def _attention_sums(self, weights: AttentionWeights) -> AttentionSums:
        width = self.encoder.config.hidden_size
        return AttentionSums(
            self._zeros(weights.qkv), self._zeros(weights.output), self._vectors(3, width), self._vectors(3, width)
        )

    def _ffn_sums(self, weights: FeedForwardWeights) -> FeedForwardSums:
        inner, width = weights.input.shape
        return FeedForwardSums(
            self._zeros(weights.input), self._zeros(weights.output), self._vectors(1, inner), self._vectors(3, width)
        )

    def _zeros(self, weight: Any) -> Tensor:
        return torch.zeros(weight.shape, dtype=self._exact, device=weight.device)

    def _vectors(self, count: int, width: int) -> Any:
        return self.ops.VectorSums(count, width, self._exact, self._attention[0].norm.device)

    # -- weights -------------------------------------------------------------------------------------------------------

    def _blocks(self) -> list[Attention | FeedForward]:
        return [*self.encoder.attention, *self.encoder.ffn]  # type: ignore[list-item, unused-ignore]

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for block in self._blocks() for parameter in parameters_of(block)]

    @torch.inference_mode(False)  # made during an evaluation, they serve training too
    @torch.no_grad()
    def _refresh(self) -> None:
        """Make the working weights again if a parameter has changed."""
        versions = [(id(parameter), parameter._version) for parameter in self._parameters()]
        if versions == self._made_from:
            return

        def working(weights: Any) -> Any:
            return type(weights)(*map(self._working, weights._fields, weights))

        self._attention = [working(AttentionWeights.of(block)) for block in self.encoder.attention]  # type: ignore[arg-type]
        self._ffn = [working(FeedForwardWeights.of(block)) for block in self.encoder.ffn]  # type: ignore[arg-type]
        self._made_from = versions

    def _working(self, name: str, tensor: Tensor) -> Any:
        if name in ("output_bias", "norm", "norm_bias"):  # no matrix product takes these: full precision costs nothing
            return tensor.detach()
        tensor = tensor.detach().to(self.dtype)
        return self.ops.prepare(tensor) if tensor.ndim == 2 else tensor


class _Layers(torch.autograd.Function):
    """All layers as one node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        layers: FastLayers,
        starts: Tensor,
        max_length: int,
        asked: Asked | None,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.layers, ctx.batch = layers, (starts, max_length, asked)
        ctx.needed = [parameter.requires_grad for parameter in parameters]
        hidden, ctx.saved = layers.forward(hidden, starts, max_length, asked, keep=True)
        return hidden

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        if ctx.saved is None:
            raise RuntimeError("the layers' backward pass overwrites what it needs: it can be run only once")
        saved, ctx.saved = ctx.saved, None
        grad, sums = ctx.layers.backward(grad.contiguous(), saved, *ctx.batch)
        sums = [total if needed else None for total, needed in zip(sums, ctx.needed, strict=True)]
        return grad, None, None, None, None, *sums


def _packing(starts: Tensor, max_length: int, asked: Asked | None) -> Packing:
    return Packing(starts if asked is None else asked.starts, starts, max_length, max_length)
