"""The encoder for inference: the same numbers as model/encoder.py from fewer and larger products, on packed input.

Query, key and value come from one product; on a GPU the activation is applied where a product is written, and
attention and LayerNorm are the kernels that training has (model/fast); on a CPU MKL packs each weight once
(benchmarks/cpu_latency.py), and sequences of one length attend together.

Shapes: T tokens of a packed batch, N sequences of it, H hidden, A heads, D = H / A.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.model.config import Application
from litebert.model.encoder import (
    Attention,
    Encoder,
    EncoderOutput,
    FeedForward,
    activation,
    attend_varlen,
    equal_runs,
    first_tokens,
)
from litebert.model.fast.layers import HEAD_WIDTHS
from litebert.model.fast.plain_ops import Packing
from litebert.predict.adapters import Mix

# The number of rows passed to MKL when it packs a weight. It may be any other when it multiplies; it decides only
# how fast that is. Packed for 128 it is slower with more, packed for 2048 with fewer (benchmarks/cpu_products.py).
PACKED_FOR = 512
CACHED = 196_608  # numbers that stay in a core's cache from one step to the next

HALF = (torch.bfloat16, torch.float16)


@functools.cache
def can_pack() -> bool:
    """Whether MKL's packed products work here; they are not a public interface of torch."""
    weight, bias = torch.arange(48.0 * 40).view(48, 40).sin(), torch.arange(48.0)
    try:
        packed = pack(weight)
        for size in (1, 3, 2 * PACKED_FOR):
            x = torch.arange(40.0 * size).view(size, 40).cos()
            product = torch.ops.mkl._mkl_linear(x, packed, weight, bias, size)
            if not torch.allclose(product, F.linear(x, weight, bias), atol=1e-4):
                return False
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):  # ARM, or a torch without MKL
        return False
    return True


def pack(weight: Tensor) -> Tensor:
    """A weight as MKL reads it fastest, for any number of rows."""
    packed: Tensor = torch.ops.mkl._mkl_reorder_linear_weight(weight, PACKED_FOR)
    return packed


class Product:
    """x W^T + b, and the activation that follows, if any."""

    def __init__(self, weight: Tensor, bias: Tensor, hidden_act: str | None = None, key: str = ""):
        self.key = key  # as adapters name it
        self.weight, self.bias = weight, bias
        self.activation = None if hidden_act is None else activation(hidden_act)
        by_tanh = hidden_act in ("gelu_new", "gelu_pytorch_tanh")
        self.epilogue = weight.is_cuda and by_tanh
        on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
        if on_cpu and by_tanh:
            self.activation = gelu_tanh
        self.packed = pack(weight) if on_cpu and can_pack() else None

    def __call__(self, x: Tensor, mix: Mix | None = None) -> Tensor:
        """The product; with the adapters of a mix, their parts are added before the activation."""
        if self.epilogue and mix is None:
            return torch._addmm_activation(self.bias, x, self.weight.t(), use_gelu=True)  # cuBLAS's
        if self.packed is None:
            product = F.linear(x, self.weight, self.bias)
        else:
            product = torch.ops.mkl._mkl_linear(x, self.packed, self.weight, self.bias, len(x))
        if mix is not None:
            product = mix.add(self.key, x, product)
        return product if self.activation is None else self.activation(product)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by tanh, as x * sigmoid(2 z) = x * (1 + tanh(z)) / 2: on a CPU torch's own takes longer than these steps."""
    scale = 2 * math.sqrt(2 / math.pi)
    result = torch.empty_like(x)
    rows = max(1, CACHED // x.shape[-1])
    for part, y in zip(x.split(rows), result.split(rows), strict=True):
        torch.mul(part, part, out=y).mul_(0.044715 * scale).add_(scale).mul_(part).sigmoid_().mul_(part)
    return result


@dataclass(frozen=True)
class Table:
    """Ids, segments and positions of T tokens, then the N + 1 starts of N sequences."""

    whole: Tensor  # [3 T + N + 1] int32
    room: tuple[int, int]  # T, N
    used: tuple[int, int]  # tokens and sequences of the batch
    longest: int  # no sequence is longer

    @property
    def ids(self) -> Tensor:
        """[T]."""
        return self.whole[: self.room[0]]

    @property
    def segments(self) -> Tensor:
        """[T]."""
        return self.whole[self.room[0] : 2 * self.room[0]]

    @property
    def positions(self) -> Tensor:
        """[T]: of each token in its sequence."""
        return self.whole[2 * self.room[0] : 3 * self.room[0]]

    @property
    def starts(self) -> Tensor:
        """[N + 1]."""
        return self.whole[3 * self.room[0] :]

    def inputs(self) -> dict[str, Any]:
        """The batch as the encoder takes it."""
        tokens, sequences = self.room
        ids, segments, positions, starts = self.whole.split((tokens, tokens, tokens, sequences + 1))
        if self.used != self.room:
            tokens, sequences = self.used
            ids, segments, positions = ids[:tokens], segments[:tokens], positions[:tokens]
            starts = starts[: sequences + 1]
        return {
            "input_ids": ids,
            "segment_ids": segments,
            "position_ids": positions,
            "starts": starts,
            "max_length": self.longest,
        }

    def to(self, device: torch.device) -> Table:
        """The table on a device; from pinned memory the copy does not block."""
        return self.moved(self.whole.to(device, non_blocking=True))

    def moved(self, whole: Tensor) -> Table:
        """The same table elsewhere."""
        return Table(whole, self.room, self.used, self.longest)


def lay_out(
    ids: Sequence[NDArray[Any]], segments: Sequence[NDArray[Any]], room: tuple[int, int], pinned: bool = False
) -> Table:
    """Sequences end to end: ([2, 7, 3], [2, 3]), room (6, 3) -> ids 2 7 3 2 3 0, positions 0 1 2 0 1 0, starts 0 3 5 5.

    `pinned`: in memory that a GPU can read asynchronously.
    """
    lengths = np.array([len(sequence) for sequence in ids])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    total = int(starts[-1])
    whole = torch.zeros(3 * room[0] + room[1] + 1, dtype=torch.int32, pin_memory=pinned)
    table = Table(whole, room, (total, len(ids)), int(lengths.max()))
    np.concatenate(ids, out=table.ids[:total].numpy(), casting="unsafe")
    np.concatenate(segments, out=table.segments[:total].numpy(), casting="unsafe")
    np.subtract(
        np.arange(total), np.repeat(starts[:-1], lengths), out=table.positions[:total].numpy(), casting="unsafe"
    )
    table.starts.numpy()[: len(starts)] = starts
    table.starts.numpy()[len(starts) :] = total
    return table


class Encoded(NamedTuple):
    """The outputs of a pass."""

    hidden: Tensor  # [T, H] the last states
    first: Tensor  # [N, H] those of each [CLS]
    pooled: Tensor | None  # [N, H], None without a pooler


class FusedEncoder(nn.Module):
    """Takes the place of an Encoder in a model, for packed input without gradients.

    After each call, `hidden` holds the last states of all tokens (None after `only_asked`), `first` those of each [CLS]
    and `pooled` the pooler's output, regardless of what was returned.
    """

    def __init__(self, encoder: Encoder, triton: bool = False):
        """`triton`: whether its kernels can be compiled here."""
        super().__init__()
        self.plain = encoder
        self.config = encoder.config
        self.embeddings = encoder.embeddings
        self.hidden: Tensor | None = None  # [T, H]
        self.first: Tensor | None = None  # [N, H]
        self.pooled: Tensor | None = None  # [N, H]
        self.mix: Mix | None = None  # the adapters of the next pass
        self.use_graphs = True  # for the next pass, where there are any
        self._kernels = _triton_ops() if triton else None
        self._blocks = [_fuse_attention(i, cast(Attention, block)) for i, block in enumerate(encoder.attention)]
        act = encoder.config.hidden_act
        self._ffns = [_fuse_ffn(i, cast(FeedForward, block), act) for i, block in enumerate(encoder.ffn)]

    def forward(
        self,
        input_ids: Tensor,  # [T]
        segment_ids: Tensor,
        position_ids: Tensor,
        starts: Tensor,  # [N + 1]
        max_length: int,
        positions: Tensor | None = None,  # [P]: only these states are returned
        only_asked: bool = False,  # no other states than these and those of [CLS] are read
    ) -> EncoderOutput:
        packed = (input_ids, segment_ids, position_ids, starts, max_length)
        if only_asked:
            num_sequences = len(starts) - 1
            asked = starts[:-1].long() if positions is None else torch.cat([starts[:-1].long(), positions])
            rows, place = torch.unique(asked, return_inverse=True)
            states = self.states(*packed, rows)[place]
            self.hidden, self.first, hidden = None, states[:num_sequences], states[num_sequences:]
            self.pooled = self.pool(self.first)
        else:
            self.hidden, self.first, self.pooled = self.encode(*packed)
            hidden = self.hidden if positions is None else self.hidden[positions]
        return EncoderOutput(hidden, self.pooled)

    def stop_after(self, layers: int | None = None) -> None:
        """As Encoder's: stop the next passes after the first `layers` layers (None: after all)."""
        self.plain.stop_after(layers)

    def room(self, tokens: int, sequences: int, length: int) -> tuple[int, int]:
        """For how many tokens and sequences a table should have places to hold a batch."""
        return tokens, sequences

    def take(self, table: Table) -> Table:
        """A table where the next pass reads it: run that before taking another."""
        return table.to(self.embeddings.word.weight.device)

    def encode(self, ids: Tensor, segments: Tensor, positions: Tensor, starts: Tensor, max_length: int) -> Encoded:
        """A whole pass."""
        hidden = self.states(ids, segments, positions, starts, max_length)
        first = first_tokens(hidden, starts)
        return Encoded(hidden, first, self.pool(first))

    def pool(self, first: Tensor) -> Tensor | None:
        """What the pooler makes of the states of [CLS], [N, H]."""
        if self.plain.pooler is None:
            return None
        product = self.plain.pooler(first)
        return torch.tanh(product if self.mix is None else self.mix.of_first().add("pooler", first, product))

    def states(
        self,
        ids: Tensor,
        segments: Tensor,
        positions: Tensor,
        starts: Tensor,
        max_length: int,
        rows: Tensor | None = None,
    ) -> Tensor:
        """The last hidden states of all tokens, [T, H], or of some rows.

        In the last application only these rows pass the steps after attention, three quarters of the work.
        """
        hidden = self.embed(ids, segments, positions)
        return self._run_blocks(self.plain.plan, hidden, self._attention(hidden, starts, max_length), rows)

    def apply_layers(
        self, hidden: Tensor, starts: Tensor, max_length: int, plan: Sequence[Application], unfinished: bool = False
    ) -> Tensor:
        """The states of a packed batch after some more applications: [T, H] -> [T, H].

        `unfinished`: the last FFN is left to `finish`, which may be given fewer rows.
        """
        return self._run_blocks(plan, hidden, self._attention(hidden, starts, max_length), unfinished=unfinished)

    def finish(self, hidden: Tensor, last: Application) -> Tensor:
        """What `apply_layers` left out of its last application, for any rows of its result."""
        ffn = self._ffns[last.ffn]
        widened = ffn.widen(hidden, self.mix)
        return self._sum(ffn.narrow, ffn.narrow.bias, ffn.norm, widened, hidden, self.config.layer_norm_eps, self.mix)

    def _run_blocks(
        self,
        plan: Sequence[Application],
        hidden: Tensor,
        attend: Attend,
        rows: Tensor | None = None,
        unfinished: bool = False,
    ) -> Tensor:
        """Some applications of the blocks: [T, H] -> [T, H], or of some rows in the last one, or without its FFN."""
        eps, mix = self.config.layer_norm_eps, self.mix
        for number, step in enumerate(plan, 1):
            block = self._blocks[step.attention]
            context, bias = attend(block, hidden)
            if rows is not None and number == len(plan):
                context, hidden = context[rows], hidden[rows]
                mix = None if mix is None else mix.of_rows(rows)
            hidden = self._sum(block.merge, bias, block.norm, context, hidden, eps, mix)
            if unfinished and number == len(plan):
                break
            ffn = self._ffns[step.ffn]
            hidden = self._sum(ffn.narrow, ffn.narrow.bias, ffn.norm, ffn.widen(hidden, mix), hidden, eps, mix)
        return hidden

    def embed(self, ids: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
        """The states before the first application: [T] -> [T, H]."""
        parts = self.embeddings
        if self._kernels is None or parts.projection is not None:
            states: Tensor = parts(ids, segments, positions)
        else:
            tables = (parts.word.weight, parts.segment.weight, parts.position.weight)
            norm = parts.norm
            states = self._kernels.embed_norm(ids, segments, positions, tables, norm.weight, norm.bias, norm.eps)
        return states if self.plain.projection is None else self.plain.projection(states)

    def _attention(self, hidden: Tensor, starts: Tensor, max_length: int) -> Attend:
        """A block's context [T, H], and the bias that its output projection is to add."""
        half, heads = hidden.dtype in HALF, self.config.num_attention_heads
        kernels = self._kernels if self.mix is None else None  # an adapter of the output has to see the values' bias
        # Triton's products of float32 are rounded on a GPU.
        if kernels is not None and self.config.hidden_size // heads in HEAD_WIDTHS and (half or not hidden.is_cuda):
            packing = Packing(starts, starts, max_length, max_length)

            def by_kernel(block: FusedAttention, hidden: Tensor) -> tuple[Tensor, Tensor]:
                q, k, v = F.linear(hidden, block.project.weight).unflatten(-1, (3, heads, -1)).unbind(1)
                return kernels.attend_only(q, k, v, packing, block.q_bias).flatten(-2), block.late_bias

            return by_kernel
        attend = _attend_varlen(starts, max_length) if half and hidden.is_cuda else _attend_groups(starts)

        def plainly(block: FusedAttention, hidden: Tensor) -> tuple[Tensor, Tensor]:
            product = block.project(hidden, self.mix)
            return attend(product.unflatten(-1, (3, heads, -1))).flatten(-2), block.merge.bias

        return plainly

    def _sum(
        self,
        product: Product,
        bias: Tensor,
        norm: nn.LayerNorm,
        x: Tensor,
        residual: Tensor,
        eps: float,
        mix: Mix | None,
    ) -> Tensor:
        """LayerNorm of a product's sum with its bias and the residual."""
        if self._kernels is None:  # then `bias` is the product's own
            return F.layer_norm(product(x, mix) + residual, norm.weight.shape, norm.weight, norm.bias, eps)
        branch = F.linear(x, product.weight)
        if mix is not None:
            branch = mix.add(product.key, x, branch)
        summed: Tensor = self._kernels.add_norm_only(residual, branch, bias, norm.weight, norm.bias, eps)
        return summed


class FusedAttention(NamedTuple):
    """The products of an attention block.

    Our kernel adds the queries' bias itself. The others need no adding: the keys' adds the same to all scores of a
    query, which the softmax takes away, and the values' adds itself to every context, so that it goes through the
    output projection into its bias.
    """

    project: Product  # [3 H, H]: queries, keys and values
    merge: Product
    norm: nn.LayerNorm
    q_bias: Tensor  # [H]
    late_bias: Tensor  # [H] float32: of the output projection and, through it, of the values


class FusedFeedForward(NamedTuple):
    """The products of an FFN block."""

    widen: Product
    narrow: Product
    norm: nn.LayerNorm


Attend = Callable[[FusedAttention, Tensor], tuple[Tensor, Tensor]]


def _triton_ops() -> Any:
    from litebert.model.fast import triton_ops  # Triton has wheels for Linux only

    return triton_ops


def _fuse_attention(number: int, block: Attention) -> FusedAttention:
    """The products of an attention block; its three projections become views of the one that is used."""
    parts = (block.query, block.key, block.value)
    weight, bias = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
    for part, rows, numbers in zip(parts, weight.chunk(3), bias.chunk(3), strict=True):
        part.weight = nn.Parameter(rows, requires_grad=False)
        part.bias = nn.Parameter(numbers, requires_grad=False)
    merge = Product(block.output.weight, block.output.bias, key=f"attention.{number}.output")
    late = merge.bias.detach().float() + merge.weight.detach().float() @ block.value.bias.detach().float()
    project = Product(weight, bias, key=f"attention.{number}.qkv")
    return FusedAttention(project, merge, block.norm, block.query.bias.detach(), late)


def _fuse_ffn(number: int, block: FeedForward, hidden_act: str) -> FusedFeedForward:
    widen = Product(block.input.weight, block.input.bias, hidden_act, key=f"ffn.{number}.input")
    narrow = Product(block.output.weight, block.output.bias, key=f"ffn.{number}.output")
    return FusedFeedForward(widen, narrow, block.norm)


def _attend_varlen(starts: Tensor, max_length: int) -> Callable[[Tensor], Tensor]:
    """The GPU's kernel for packed sequences (half precision)."""

    def attend(heads: Tensor) -> Tensor:
        query, key, value = heads.unbind(1)
        return attend_varlen(query, key, value, starts, max_length)

    return attend


def _attend_groups(starts: Tensor) -> Callable[[Tensor], Tensor]:
    """Attention within each sequence; neighbours of equal length run as one batch, without padding."""
    runs = equal_runs(starts)
    sizes = [length * count for length, count in runs]

    def attend(heads: Tensor) -> Tensor:
        contexts = []
        for part, (length, count) in zip(heads.split(sizes), runs, strict=True):
            if length:
                query, key, value = part.unflatten(0, (count, length)).permute(2, 0, 3, 1, 4)  # [count, A, length, D]
                context = F.scaled_dot_product_attention(query, key, value)
                contexts.append(context.transpose(1, 2).flatten(0, 1))  # [count * length, A, D]
        return torch.cat(contexts) if len(contexts) > 1 else contexts[0]

    return attend
