"""A pass over few tokens, from ids to the pooled output, by five kernels per layer.

With few tokens a GPU is never full: time goes by the number of kernels and by how far each spreads over the chip. So
LayerNorms are folded into the weights behind them (small_kernels.py says how), and products are cut into small tiles.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from litebert.model.config import ModelConfig
from litebert.model.encoder import Attention, Encoder, FeedForward
from litebert.model.fast.layers import HEAD_WIDTHS
from litebert.model.fast.plain_ops import Packing
from litebert.predict import small_ops as ops
from litebert.predict.fused import Encoded
from litebert.predict.small_ops import Norm, Rows, Weights
from litebert.predict.table import Table


class Layer(NamedTuple):
    """One application: its four products, and the LayerNorms behind the second and the fourth."""

    qkv: Weights
    merge: Weights
    attention_norm: Norm
    widen: Weights
    narrow: Weights
    ffn_norm: Norm


class SmallEncoder:
    """Runs packed passes of an encoder; made from its float32 parameters, which are rounded once, after the folding."""

    def __init__(self, encoder: Encoder, dtype: torch.dtype):
        config = encoder.config
        self.eps, self.heads = config.layer_norm_eps, config.num_attention_heads
        self.activation = {"gelu": "gelu", "relu": "relu"}.get(config.hidden_act, "gelu_tanh")
        folder = _Folder(dtype)
        embeddings = encoder.embeddings
        self._word, self._segment, self._position = (
            part.weight.detach().to(dtype) for part in (embeddings.word, embeddings.segment, embeddings.position)
        )
        self._embedding_norm = folder.norm(embeddings.norm)
        last: Norm | None = self._embedding_norm  # the LayerNorm that rows wait for
        self._projection = None
        if encoder.projection is not None:
            self._projection, last = folder.fold(last, encoder.projection), None
        self._layers = []
        for step in encoder.plan:
            attention = cast(Attention, encoder.attention[step.attention])
            ffn = cast(FeedForward, encoder.ffn[step.ffn])
            attention_norm, ffn_norm = folder.norm(attention.norm), folder.norm(ffn.norm)
            self._layers.append(
                Layer(
                    folder.fold(last, attention.query, attention.key, attention.value),
                    folder.fold(None, attention.output),
                    attention_norm,
                    folder.fold(attention_norm, ffn.input),
                    folder.fold(None, ffn.output),
                    ffn_norm,
                )
            )
            last = ffn_norm
        self._pooler = None if encoder.pooler is None else folder.fold(last, encoder.pooler)
        self._arrived = torch.zeros(ops.MAX_TILES, dtype=torch.int32, device=embeddings.word.weight.device)

    @staticmethod
    def fits(config: ModelConfig) -> bool:
        """Whether tiles divide a model's widths, the attention kernel knows its heads, and embeddings are ALBERT's."""
        widths = (config.hidden_size, config.intermediate_size, config.embedding_size)
        heads = config.hidden_size // config.num_attention_heads
        if config.project_words_only:
            return False
        return heads in HEAD_WIDTHS and all(width % ops.MULTIPLE == 0 for width in widths)

    def __call__(self, table: Table) -> Encoded:
        """A whole pass; what the unused places of a table hold is computed too and means nothing."""
        rows = ops.embed(table, self._word, self._segment, self._position, self._embedding_norm)
        if self._projection is not None:
            rows = self._product(rows, self._projection)
        packing = Packing(table.starts, table.starts, table.longest, table.longest)
        for layer in self._layers:
            context = ops.attend(self._product(rows, layer.qkv).values, self.heads, packing)
            rows = self._product(Rows(context), layer.merge, residual=rows, norm=layer.attention_norm)
            inner = self._product(rows, layer.widen, self.activation)
            rows = self._product(inner, layer.narrow, residual=rows, norm=layer.ffn_norm)
        pooled = None
        if self._pooler is not None:
            pooled = self._product(rows, self._pooler, "tanh", starts=table.starts).values
        return Encoded(*ops.normalize(rows, table.starts, self.eps), pooled)

    def _product(
        self,
        x: Rows,
        weights: Weights,
        activation: str = "none",
        residual: Rows | None = None,
        norm: Norm | None = None,
        starts: Tensor | None = None,
    ) -> Rows:
        return ops.product(x, weights, self.eps, activation, residual, norm, starts, self._arrived)


class _Folder:
    """Folds every pair of a LayerNorm and a product once, however many applications share them."""

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype
        self._norms: dict[nn.LayerNorm, Norm] = {}
        self._weights: dict[tuple[int, tuple[nn.Linear, ...]], Weights] = {}

    def norm(self, norm: nn.LayerNorm) -> Norm:
        if norm not in self._norms:
            self._norms[norm] = Norm(norm.weight.detach().float(), norm.bias.detach().float())
        return self._norms[norm]

    def fold(self, norm: Norm | None, *linears: nn.Linear) -> Weights:
        """Products of the same rows as one."""
        key = (id(norm), linears)
        if key not in self._weights:
            weight, bias = (torch.cat([getattr(linear, name) for linear in linears]) for name in ("weight", "bias"))
            self._weights[key] = ops.fold(weight, bias, norm, self.dtype)
        return self._weights[key]
