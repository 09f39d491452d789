"""The encoder's layers with hand-written gradients: the results of `encoder.py`, near the hardware's limit.

What makes them fast, for a packed batch without dropout:

- Half-precision working weights are made once per change of the parameters, not once per application, with queries,
  keys and values as one matrix.
- Between two matrix products lies one kernel (`triton_ops.py`), and no tensor is read twice for a bias's gradient.
- A layer's backward hands on two gradients, of its branch and of its residual, and the next kernel adds them.
- Weight gradients of all applications of a shared layer are summed in one float32 tensor by the matrix product itself.
- The last application is computed only where its output is used: at the positions to predict and each [CLS]. Keys and
  values are needed for all tokens; queries, the output projection and the FFN are not.
- The states after several depths (exits) come from the same pass, and their gradients join the one on its way back.
- The activation is recomputed in the backward pass, where its input is read anyway. `recompute` keeps only the input of
  each layer.
- What is frozen gets no gradient, and no backward pass goes below the lowest block that learns.
- An adapter is merged into its working matrix and learns from thin products (`blocks.py`). Where nothing else learns,
  the outputs of LayerNorm and of the FFN's first product are made again instead of kept, which halves what is kept.

Shapes: T packed tokens, N sequences, H hidden, A heads, D = H / A, I intermediate, Q rows asked for in the last layer.
`stops` are the depths whose states are asked for, in applications, rising; the pass ends at the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from litebert.model.adapter import AdaptedLinear
from litebert.model.encoder import Attention, Encoder, FeedForward
from litebert.model.fast import plain_ops
from litebert.model.fast.blocks import (
    AttentionSaved,
    AttentionSums,
    AttentionWeights,
    Block,
    Branch,
    FeedForwardSaved,
    FeedForwardSums,
    FeedForwardWeights,
    Gradients,
    block_learns,
    parameters_of,
)
from litebert.model.fast.plain_ops import Packing

HEAD_WIDTHS = (16, 32, 64, 128)  # that the attention kernels know
# A gradient in two parts that the next kernel adds: of the branch, and of the residual beside it.
Pair = tuple[Tensor, Tensor | None]


@dataclass(frozen=True)
class Reach:
    """How far down a backward pass goes, and how much is kept for it."""

    lowest: int  # the lowest block that learns: 0 the first application's attention, 1 its FFN, 2 the second's, ...
    input: bool  # whether the layers' input has a gradient; lowest is 0 then
    lean: bool  # whether to make tensors again that only matrices learn from: nothing but adapters learns

    def goes_below(self, block: int) -> bool:
        """Whether a block's input needs a gradient."""
        return self.input or block > self.lowest


@dataclass(frozen=True)
class Asked:
    """The rows used after the last layer and at exits, sorted by sequence.

    Entries beyond the last token are filler: they come last, belong to no sequence and carry no gradient.
    """

    rows: Tensor  # [Q] indices of tokens, ascending
    starts: Tensor  # [N + 1] of them per sequence
    place: Tensor  # [Q]: the place of the i-th requested row among `rows`

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
        """Whether this model's layers can be run here: a GELU, heads of a width that the kernels know, no dropout."""
        config = encoder.config
        if any(isinstance(module, AdaptedLinear) and module.dropout.p > 0 for module in encoder.modules()):
            return False  # the branch reads another input than the matrix, so it cannot be merged
        width = config.hidden_size // config.num_attention_heads
        return config.hidden_act != "relu" and width in HEAD_WIDTHS

    def __call__(
        self, hidden: Tensor, starts: Tensor, max_length: int, positions: Tensor | None, stops: Sequence[int]
    ) -> list[tuple[Tensor, Tensor]]:
        """Hidden states at each stop, [T, H] or [P, H] at `positions`, and those of each [CLS], [N, H]."""
        self._refresh()
        asked = None if positions is None else Asked.at(positions, starts, len(hidden))
        hidden = hidden.to(self.dtype)
        reach = self.reach(hidden.requires_grad) if torch.is_grad_enabled() else None
        if reach is not None:
            states = _Layers.apply(hidden, self, starts, max_length, asked, stops, reach, *self._parameters())
        else:
            states, _ = self.forward(hidden, starts, max_length, asked, stops, None)
        if positions is None or asked is None:
            first = starts[:-1].clamp(max=len(hidden) - 1)
            return [(state, state[first]) for state in states]
        ordered = [state.index_select(0, asked.place) for state in states]  # back in the order of asking
        return [(state[: len(positions)], state[len(positions) :]) for state in ordered]

    def forget(self) -> None:
        """Refresh the working weights at the next call, even if no parameter changes until then."""
        self._made_from = []

    def reach(self, of_input: bool) -> Reach | None:
        """How far down a backward pass has to go, if the input has a gradient or not; None if nothing learns."""
        attention, ffn = ([block_learns(block) for block in blocks] for blocks in self._blocks())
        applied = [learning for step in self.encoder.plan for learning in (attention[step.attention], ffn[step.ffn])]
        if not of_input and not any(applied):
            return None
        lean = not self.recompute and not any(
            block_learns(block, adapters=False) for blocks in self._blocks() for block in blocks
        )
        return Reach(0 if of_input else applied.index(True), of_input, lean)

    # -- forward -------------------------------------------------------------------------------------------------------

    def forward(
        self,
        hidden: Tensor,
        starts: Tensor,
        max_length: int,
        asked: Asked | None,
        stops: Sequence[int],
        reach: Reach | None,
    ) -> tuple[list[Tensor], list[Any]]:
        """The states at each stop, all or at the rows asked for; with `reach`, also what the backward pass needs."""
        states: list[Tensor] = []
        saved: list[Any] = []
        plan = self.encoder.plan[: stops[-1]]
        lowest = len(plan) if reach is None else reach.lowest // 2
        for number, step in enumerate(plan):
            rows = asked if number == len(plan) - 1 else None
            attention, ffn = self._attention[step.attention], self._ffn[step.ffn]
            before, keep = hidden, number >= lowest
            hidden, first = self.attend(hidden, attention, starts, max_length, rows, keep and not self.recompute)
            hidden, second = self.feed_forward(hidden, ffn, keep and not self.recompute)
            if reach is not None and reach.lean:
                second.hidden = second.inner = None
                first.hidden = before if number == lowest else None  # below it no LayerNorm's rows are kept
            if keep:
                saved.append(before if self.recompute else (first, second))
            if number + 1 in stops:
                states.append(hidden if asked is None or rows is not None else hidden[asked.rows])
        return states, saved

    def attend(
        self,
        hidden: Tensor,
        weights: AttentionWeights,
        starts: Tensor,
        max_length: int,
        asked: Asked | None,
        keep: bool,
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
        narrow = _narrow(weights.qkv_branch, hidden, keep)
        narrow_context = _narrow(weights.output_branch, context.flatten(1), keep)
        out, normed, rstd = ops.add_norm(asking, branch, weights.output_bias, weights.norm, weights.norm_bias, self.eps)
        return out, AttentionSaved(hidden, rows, q, k, v, context, lse, normed, rstd, narrow, narrow_context)

    def feed_forward(self, hidden: Tensor, weights: FeedForwardWeights, keep: bool) -> tuple[Tensor, FeedForwardSaved]:
        """An FFN block."""
        ops = self.ops
        inner = ops.linear(hidden, weights.input, weights.input_bias)
        value = ops.gelu(inner, self.tanh)
        branch = ops.linear(value, weights.output)
        narrow = _narrow(weights.input_branch, hidden, keep)
        narrow_inner = _narrow(weights.output_branch, value, keep)
        out, normed, rstd = ops.add_norm(hidden, branch, weights.output_bias, weights.norm, weights.norm_bias, self.eps)
        return out, FeedForwardSaved(hidden, inner, normed, rstd, narrow, narrow_inner)

    def _heads(self, projected: Tensor) -> tuple[Tensor, ...]:
        """[T, n H] -> n views [T, A, D]."""
        parts = projected.shape[1] // self.encoder.config.hidden_size
        return projected.view(len(projected), parts, self.heads, -1).unbind(1)

    # -- backward ------------------------------------------------------------------------------------------------------

    def backward(
        self,
        grads: Sequence[Tensor | None],
        saved: list[Any],
        starts: Tensor,
        max_length: int,
        asked: Asked | None,
        stops: Sequence[int],
        reach: Reach,
    ) -> tuple[Tensor | None, Gradients]:
        """The gradients of the input and of every parameter, float32 (or float64), summed over the applications.

        `grads` are those of the states at each stop, None where nothing came of them. The result has None for what is
        frozen, and for blocks that are not applied below a stop with a gradient.
        """
        plan, blocks = self.encoder.plan, self._blocks()
        coming = {stop: grad.contiguous() for stop, grad in zip(stops, grads, strict=True) if grad is not None}
        numbers = range(reach.lowest // 2, max(coming, default=0))
        del saved[len(numbers) :]
        first_use = {place: number for number in reversed(numbers) for place in enumerate(plan[number])}
        sums: dict[tuple[int, int], Any] = {}  # by the place of a block: 0 attention or 1 FFN, and its number
        found: dict[tuple[int, int], Gradients] = {}
        pair: Pair | None = None
        for number in reversed(numbers):
            step = plan[number]
            attention, ffn = self._attention[step.attention], self._ffn[step.ffn]
            rows = asked if number + 1 == stops[-1] else None
            first, second = self._kept(number, saved, starts, max_length, rows)
            for place in enumerate(step):
                if place not in sums:
                    sums[place] = self._new_sums(*place)
            if number + 1 in coming:
                few = asked.rows if asked is not None and rows is None else None
                pair = _joined(pair, coming.pop(number + 1), few, len(second.normed))
            assert pair is not None
            pair = self.feed_forward_backward(pair, second, ffn, sums[1, step.ffn], reach.goes_below(2 * number + 1))
            del second  # the widest: its memory serves the attention's gradients
            if pair is not None:
                packing, below = _packing(starts, max_length, rows), reach.goes_below(2 * number)
                pair = self.attend_backward(pair, first, attention, sums[0, step.attention], packing, below)
            for place in enumerate(step):
                if first_use[place] == number:  # sums of blocks with one application do not pile up
                    found[place] = sums.pop(place).by_parameter()
        of_input = None if pair is None else pair[0] if pair[1] is None else pair[0] + pair[1]
        gradients: Gradients = []
        for kind, same in enumerate(blocks):
            for number, block in enumerate(same):
                gradients += found.get((kind, number), [None] * len(parameters_of(block)))
        return of_input, gradients

    def _new_sums(self, kind: int, number: int) -> AttentionSums | FeedForwardSums:
        if kind == 0:
            attention = cast(Attention, self.encoder.attention[number])
            return AttentionSums.of(attention, self._attention[number], self.ops, self._exact)
        ffn = cast(FeedForward, self.encoder.ffn[number])
        return FeedForwardSums.of(ffn, self._ffn[number], self.ops, self._exact)

    def _kept(
        self, number: int, saved: list[Any], starts: Tensor, max_length: int, asked: Asked | None
    ) -> tuple[AttentionSaved, FeedForwardSaved]:
        """What was kept of the application that comes last in `saved`, with what is to be made again."""
        ops, plan = self.ops, self.encoder.plan
        attention, ffn = self._attention[plan[number].attention], self._ffn[plan[number].ffn]
        kept = saved.pop()
        if self.recompute:
            hidden, first = self.attend(kept, attention, starts, max_length, asked, True)
            return first, self.feed_forward(hidden, ffn, True)[1]
        first, second = kept
        if first.hidden is None:
            below = self._ffn[plan[number - 1].ffn]
            first.hidden = ops.rescale(saved[-1][1].normed, below.norm, below.norm_bias)
        if second.hidden is None:
            second.hidden = ops.rescale(first.normed, attention.norm, attention.norm_bias)
        if second.inner is None:
            second.inner = ops.linear(second.hidden, ffn.input, ffn.input_bias)
        return first, second

    def feed_forward_backward(
        self, pair: Pair, saved: FeedForwardSaved, weights: FeedForwardWeights, sums: FeedForwardSums, below: bool
    ) -> Pair | None:
        """Adds the FFN block's gradients to `sums`; returns those of its input, branch and residual (`below`)."""
        ops, inner, hidden = self.ops, saved.inner, saved.hidden
        assert inner is not None
        assert hidden is not None
        summed = ops.add_norm_backward(*pair, saved.normed, saved.rstd, weights.norm, sums.norm)
        grad = ops.linear_backward(summed, weights.output)
        # The kernel that has both wide tensors at hand takes the thin products of both.
        of_value, of_grad = sums.output.to_a(summed), sums.input.to_b(saved.narrow)
        ops.gelu_backward(inner, grad, self.tanh, sums.bias, of_value, of_grad)
        sums.output.add_matrix(summed, inner)  # inner is now the activation
        sums.output.add_b(summed, sums.output.to_b(saved.narrow_inner))
        sums.input.add_matrix(grad, hidden)
        sums.input.add_a(hidden, sums.input.to_a(grad))
        return (ops.linear_backward(grad, weights.input), summed) if below else None

    def attend_backward(
        self,
        pair: Pair,
        saved: AttentionSaved,
        weights: AttentionWeights,
        sums: AttentionSums,
        packing: Packing,
        below: bool,
    ) -> Pair | None:
        """Adds the attention block's gradients to `sums`; returns those of its input, as the FFN's."""
        ops, hidden, rows = self.ops, saved.hidden, saved.rows
        assert hidden is not None
        width = hidden.shape[1]
        summed = ops.add_norm_backward(*pair, saved.normed, saved.rstd, weights.norm, sums.norm)
        sums.output.add(summed, saved.context.flatten(1), saved.narrow_context)
        grad = ops.linear_backward(summed, weights.output).view_as(saved.context)

        # One buffer for the gradients of queries, keys and values, or two where few rows ask.
        parts = 3 if rows is None else 2
        joint = torch.empty(len(hidden), parts * width, dtype=grad.dtype, device=grad.device)
        dq = joint if rows is None else torch.empty_like(summed)
        out = self._heads(joint) if rows is None else (*self._heads(dq), *self._heads(joint))
        ops.attend_backward(grad, saved.q, saved.k, saved.v, saved.context, saved.lse, packing, out, sums.biases)
        if rows is None:
            sums.qkv.add(joint, hidden, saved.narrow)
            return (ops.linear_backward(joint, weights.qkv), summed) if below else None
        sums.qkv.add(dq, hidden[rows], None if saved.narrow is None else saved.narrow[rows])
        sums.qkv.add(joint, hidden, saved.narrow, width)
        if not below:
            return None
        total = ops.linear_backward(joint, ops.cut(weights.qkv, slice(width, None)))
        of_asking = ops.linear_backward(dq, ops.cut(weights.qkv, slice(None, width)))
        total.index_add_(0, rows, of_asking + summed)
        return total, None

    # -- weights -------------------------------------------------------------------------------------------------------

    def _blocks(self) -> tuple[list[Block], list[Block]]:
        """All attention blocks and all FFN blocks."""
        return list(self.encoder.attention), list(self.encoder.ffn)  # type: ignore[arg-type, unused-ignore]

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for blocks in self._blocks() for block in blocks for parameter in parameters_of(block)]

    @torch.inference_mode(False)  # made during an evaluation, they serve training too
    @torch.no_grad()
    def _refresh(self) -> None:
        """Make the working weights again if a parameter has changed."""
        versions = [(id(parameter), parameter._version) for parameter in self._parameters()]
        if versions == self._made_from:
            return

        def working(weights: Any) -> Any:
            return type(weights)(*map(self._working, weights._fields, weights))

        dtype = self.dtype
        with torch.autocast(self._parameters()[0].device.type, enabled=False):  # adapters are merged in full precision
            self._attention = [working(AttentionWeights.of(block, dtype)) for block in self.encoder.attention]  # type: ignore[arg-type]
            self._ffn = [working(FeedForwardWeights.of(block, dtype)) for block in self.encoder.ffn]  # type: ignore[arg-type]
        self._made_from = versions

    def _working(self, name: str, tensor: Any) -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
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
        stops: Sequence[int],
        reach: Reach,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.layers, ctx.batch = layers, (starts, max_length, asked, stops, reach)
        ctx.needed = [parameter.requires_grad for parameter in parameters]
        ctx.set_materialize_grads(False)  # None where nothing comes of an exit
        states, ctx.saved = layers.forward(hidden, *ctx.batch)
        return tuple(state.detach() for state in states)  # what is saved must not hold what holds it

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        if ctx.saved is None:
            raise RuntimeError("the layers' backward pass overwrites what it needs: it can be run only once")
        saved, ctx.saved = ctx.saved, None
        grad, sums = ctx.layers.backward(grads, saved, *ctx.batch)
        sums = [total if needed else None for total, needed in zip(sums, ctx.needed, strict=True)]
        return grad, None, None, None, None, None, None, *sums


def _joined(pair: Pair | None, grad: Tensor, rows: Tensor | None, num_tokens: int) -> Pair:
    """The gradient so far, which it may overwrite, and an exit's: of all tokens, or of `rows`."""
    if pair is None:
        if rows is None:
            return grad, None
        return grad.new_zeros(num_tokens, grad.shape[1]).index_add_(0, rows, grad), None
    branch, residual = pair
    if rows is not None:
        return branch.index_add_(0, rows, grad), residual
    return (branch, grad) if residual is None else (branch.add_(grad), residual)


def _narrow(branch: Branch | None, x: Tensor, keep: bool) -> Tensor | None:
    return branch.narrow(x) if branch is not None and keep else None


def _packing(starts: Tensor, max_length: int, asked: Asked | None) -> Packing:
    return Packing(starts if asked is None else asked.starts, starts, max_length, max_length)
